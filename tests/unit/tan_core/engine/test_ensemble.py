"""An ensemble is as many trainers: the same weights, whatever each of them is asked for."""

import copy
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tan_core import models
from tan_core.engine import SeededRandomness, Trainer, native, onednn
from tan_core.engine.ensemble import LinearEnsemble, kernels_are_faster
from tan_core.errors import ParameterError
from tan_core.execution import PrivateRun, Simulation
from tan_core.mechanism import Mechanism, Sampling
from tan_core.spec.models import LinearModel
from tan_core.spec.train import TrainerConfig

CLASSES = 3
TRIALS = [5, 6]
"""With and without the kernels, which take outputs by five."""
TRICKS = [
    {},
    {"clip_norm": 0.1, "momentum": 0.9, "dampening": 0.5, "ema_decay": 0.9},
    {"clip_norm": 3.0, "clipping": "automatic", "schedule": "cosine", "warmup_fraction": 0.3},
    {"optimizer": "adam", "beta2": 0.9, "weight_decay": 0.1, "learning_rate": 0.1},
    {"optimizer": "adamw", "momentum": 0.5, "weight_decay": 0.1, "ema_decay": 0.5},
    {"clipping": "none", "schedule": "linear", "weight_decay": 0.01},
]


@pytest.fixture(autouse=True)
def _torch_is_slow(monkeypatch) -> None:
    """As on processors where the kernels multiply faster; the other trials have torch's products."""
    monkeypatch.setattr("tan_core.engine.ensemble.kernels_are_faster", lambda: True)
    monkeypatch.setattr(onednn, "times_faster_here", lambda: 2.0)


class SharedDraw:
    """The draws of one stream and the noise of another."""

    def __init__(self, draw: SeededRandomness, noise: SeededRandomness) -> None:
        self.mask, self.cut, self.augmentation = draw.mask, draw.cut, draw.augmentation
        self.noise, self.add_noise = noise.noise, noise.add_noise


def make_inputs(num_examples: int = 30, shape=(7,)) -> np.ndarray:
    if len(shape) == 1:
        return np.random.default_rng(0).normal(size=(num_examples, *shape)).astype(np.float32)
    return np.random.default_rng(0).integers(0, 256, (num_examples, *shape), dtype=np.uint8)


def make_labels(num_examples: int = 30) -> np.ndarray:
    return np.random.default_rng(1).integers(0, CLASSES, num_examples)


def make_arguments(
    configs=TRICKS, *, inputs=None, labels=None, q: float = 0.3, steps: int = 6, dtype=torch.float64
):
    """What the trials of an ensemble are made of; trial ``t`` has noise multiplier 0.1 (t + 1)."""
    inputs = make_inputs() if inputs is None else inputs
    configs = [TrainerConfig.model_validate(config) for config in configs]
    simulations = [
        Simulation(
            dynamics=Mechanism(
                sampling_rate=q,
                noise_multiplier=0.1 * (t + 1),
                clip_norm=config.clip_norm,
                steps=steps,
            ),
            num_examples=len(inputs),
            scale_factor=4.0,
        )
        for t, config in enumerate(configs)
    ]
    built = [
        models.build(
            LinearModel(),
            shape=inputs.shape[1:],
            num_classes=CLASSES,
            generator=torch.Generator().manual_seed(t),
        ).to(dtype)
        for t in range(len(configs))
    ]
    return {
        "models": built,
        "simulations": simulations,
        "configs": configs,
        "inputs": inputs,
        "labels": make_labels(len(inputs)) if labels is None else labels,
        "randomness": SeededRandomness(0),
    }


def make_trainer(arguments, trial: int) -> Trainer:
    """The trial alone."""
    randomness = arguments["randomness"]
    if arguments.get("noises"):
        randomness = SharedDraw(randomness, arguments["noises"][trial])
    return Trainer(
        model=arguments["models"][trial],
        execution=arguments["simulations"][trial],
        config=arguments["configs"][trial],
        inputs=arguments["inputs"],
        labels=arguments["labels"],
        randomness=randomness,
    )


def run(ensemble: LinearEnsemble, steps: int) -> LinearEnsemble:
    for _ in range(steps):
        ensemble.step()
    return ensemble


def assert_equal_to_trainers(arguments, *, steps: int, tolerance: float, **options) -> None:
    """Weights, stats and accuracies of every trial are those of a trainer of its own."""
    ensemble = LinearEnsemble(**arguments, **options)
    trainers = [make_trainer(arguments, t) for t in range(len(arguments["models"]))]
    close = {"rtol": tolerance, "atol": tolerance}
    for _ in range(steps):
        for got, trainer in zip(ensemble.step(), trainers, strict=True):
            expected = trainer.step()
            assert got is not None
            assert (got.step, got.num_drawn) == (expected.step, expected.num_drawn)
            if expected.num_drawn == 0:
                assert (got.train_loss, got.clipped_fraction) == (None, None)
                continue
            is_finite = math.isfinite(expected.train_loss)
            if is_finite:
                assert got.train_loss == pytest.approx(expected.train_loss, rel=1e-4)
            else:  # infinite, or not a number where two infinities were subtracted
                assert not math.isfinite(got.train_loss)
            if expected.clipped_fraction is None:
                assert got.clipped_fraction is None
                continue
            # An infinite norm is above C, one that is not a number is not.
            off = 1e-6 if is_finite else 1 / got.num_drawn + 1e-6
            assert got.clipped_fraction == pytest.approx(expected.clipped_fraction, abs=off)
    for t, trainer in enumerate(trainers):
        released = ensemble.released_weights(t)
        for name, weights in trainer.released_weights().items():
            torch.testing.assert_close(released[name], weights, **close)


class TestExactness:
    @settings(max_examples=15)
    @given(
        configs=st.lists(st.sampled_from(TRICKS), min_size=1, max_size=5),
        num_examples=st.integers(1, 20),
        shape=st.sampled_from([(1,), (5,), (1, 2, 3), (3, 2, 2)]),
        q=st.sampled_from([0.05, 0.5, 1.0]),
        seed=st.integers(0, 2**32),
        is_paired=st.booleans(),
        microbatch_size=st.sampled_from([1, 3, 1000]),
    )
    def test_every_trial_is_a_trainer_of_its_own(
        self, configs, num_examples, shape, q, seed, is_paired, microbatch_size
    ) -> None:
        arguments = make_arguments(configs, inputs=make_inputs(num_examples, shape), q=q)
        arguments["randomness"] = SeededRandomness(seed)
        if not is_paired:
            arguments["noises"] = [SeededRandomness(seed, 1 + t) for t in range(len(configs))]

        assert_equal_to_trainers(
            arguments, steps=4, tolerance=1e-9, microbatch_size=microbatch_size
        )

    @pytest.mark.parametrize("trials", TRIALS)
    @pytest.mark.parametrize("shape", [(40,), (1, 6, 6)])
    def test_in_single_precision_too(self, shape, trials: int) -> None:
        inputs = make_inputs(300, shape)
        arguments = make_arguments(TRICKS[:trials], inputs=inputs, dtype=torch.float32)

        assert_equal_to_trainers(arguments, steps=6, tolerance=2e-5)

    def test_products_that_are_left_to_onednn_are_as_exact(self) -> None:
        arguments = make_arguments(TRICKS[:3], inputs=make_inputs(400, (600,)), dtype=torch.float32)

        assert_equal_to_trainers(arguments, steps=3, tolerance=2e-5)

    def test_the_other_trials_are_not_felt(self) -> None:
        arguments = make_arguments(TRICKS[:2])
        alone = {**arguments, **{k: arguments[k][:1] for k in ("models", "simulations", "configs")}}

        together, by_itself = (run(LinearEnsemble(**a), 5) for a in (arguments, alone))

        for name, weights in by_itself.released_weights(0).items():
            torch.testing.assert_close(together.released_weights(0)[name], weights)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_each_trial_tells_what_was_clipped_by_its_own_norm(self, dtype) -> None:
        configs = [
            {"clip_norm": 1e-4},
            {"clip_norm": 1e4},
            {"clip_norm": 1.0},
            {"clipping": "automatic"},
        ]
        arguments = make_arguments(configs, dtype=dtype)
        trainers = [make_trainer(arguments, t) for t in range(len(configs))]
        ensemble = LinearEnsemble(**arguments)

        for _ in range(4):
            found = [stats.clipped_fraction for stats in ensemble.step() if stats]
            assert found == pytest.approx([trainer.step().clipped_fraction for trainer in trainers])
            assert (found[0], found[1], found[3]) == (1.0, 0.0, None)

    def test_empty_draws_are_steps_of_noise(self) -> None:
        arguments = make_arguments(q=1e-9)
        ensemble = LinearEnsemble(**arguments)
        before = ensemble.released_weights(0)

        (stats, *_) = ensemble.step()

        assert stats is not None
        assert (stats.num_drawn, stats.train_loss, stats.clipped_fraction) == (0, None, None)
        assert not torch.equal(ensemble.released_weights(0)["1.weight"], before["1.weight"])
        assert_equal_to_trainers(arguments, steps=3, tolerance=1e-9)

    @pytest.mark.parametrize("trials", TRIALS)
    @pytest.mark.parametrize("poison", [np.nan, np.inf, 1e300])
    def test_an_example_that_is_not_finite_contributes_nothing(
        self, poison: float, trials: int
    ) -> None:
        inputs = make_inputs().astype(np.float64)
        inputs[4, 2] = poison
        arguments = make_arguments(TRICKS[:trials], inputs=inputs, q=1.0)

        assert_equal_to_trainers(arguments, steps=4, tolerance=1e-9, microbatch_size=7)

    @pytest.mark.parametrize("trials", TRIALS)
    def test_what_is_not_finite_in_one_trial_counts_in_the_others(self, trials: int) -> None:
        arguments = make_arguments([{}] * trials, q=1.0, dtype=torch.float32)
        with torch.no_grad():
            arguments["models"][0][1].weight[0, 0] = 3e38

        arguments["inputs"] = arguments["inputs"].copy()
        arguments["inputs"][:5, 0] = 100.0

        assert_equal_to_trainers(arguments, steps=2, tolerance=2e-5)


class TestNoise:
    def test_paired_trials_have_the_same_noise_and_others_their_own(self) -> None:
        arguments = make_arguments([{}, {}], q=1e-9)
        arguments["simulations"] = arguments["simulations"][:1] * 2
        own = {"noises": [SeededRandomness(0, 1), SeededRandomness(0, 2)]}

        def moves(**options) -> list[torch.Tensor]:
            ensemble = LinearEnsemble(**arguments, **options)
            before = [ensemble.released_weights(t)["1.weight"] for t in (0, 1)]
            ensemble.step()
            after = [ensemble.released_weights(t)["1.weight"] for t in (0, 1)]
            return [a - b for a, b in zip(after, before, strict=True)]

        torch.testing.assert_close(*moves())
        assert not torch.allclose(*moves(**own))


class TestDivergence:
    def make(self) -> dict:
        wild = {"learning_rate": 1e9, "weight_decay": 1e9, "clipping": "none"}
        return make_arguments([{}, wild, {"ema_decay": 0.9}], steps=60, dtype=torch.float32)

    def test_a_diverged_trial_is_reported_and_left_alone(self) -> None:
        arguments = self.make()
        ensemble = LinearEnsemble(**arguments)
        while not ensemble.diverged:
            stats = ensemble.step()
        frozen = ensemble.released_weights(1)
        assert stats[1] is not None

        later = ensemble.step()

        assert ensemble.diverged == (1,)
        assert [each is None for each in later] == [False, True, False]
        for name, weights in ensemble.released_weights(1).items():
            torch.testing.assert_close(weights, frozen[name], rtol=0, atol=0, equal_nan=True)
        accuracies = ensemble.evaluate(arguments["inputs"], arguments["labels"])
        assert [each is None for each in accuracies] == [False, True, False]

    def test_the_others_go_on_as_if_alone(self) -> None:
        arguments = self.make()
        ensemble = run(LinearEnsemble(**arguments), 40)

        assert ensemble.diverged == (1,)
        for t in (0, 2):
            trainer = make_trainer(arguments, t)
            for _ in range(40):
                trainer.step()
            for name, weights in trainer.released_weights().items():
                torch.testing.assert_close(
                    ensemble.released_weights(t)[name], weights, rtol=2e-5, atol=2e-5
                )

    def test_weights_whose_sum_overflows_have_not_diverged(self) -> None:
        arguments = make_arguments([{}], dtype=torch.float32)
        with torch.no_grad():
            arguments["models"][0][1].weight.fill_(3e38)

        assert run(LinearEnsemble(**arguments), 1).diverged == ()

    def test_when_all_have_diverged_steps_still_count(self) -> None:
        arguments = make_arguments([{}], steps=3)
        with torch.no_grad():
            arguments["models"][0][1].weight.fill_(float("inf"))

        ensemble = run(LinearEnsemble(**arguments), 3)

        assert (ensemble.diverged, ensemble.steps_done) == ((0,), 3)
        assert ensemble.evaluate(arguments["inputs"], arguments["labels"]) == (None,)


class TestEvaluate:
    @pytest.mark.parametrize("microbatch_size", [4, 1000])
    def test_it_is_the_trainers_accuracy(self, microbatch_size: int) -> None:
        arguments = make_arguments(inputs=make_inputs(shape=(1, 3, 3)))
        ensemble = run(LinearEnsemble(**arguments, microbatch_size=microbatch_size), 3)
        other = make_inputs(50, (1, 3, 3)), make_labels(50)

        accuracies = ensemble.evaluate(*other)

        for t, accuracy in enumerate(accuracies):
            trainer = make_trainer(arguments, t)
            for _ in range(3):
                trainer.step()
            assert accuracy == trainer.evaluate(*other)

    def test_an_empty_split_is_refused(self) -> None:
        with pytest.raises(ParameterError, match="empty split"):
            LinearEnsemble(**make_arguments()).evaluate(make_inputs(0), make_labels(0))


class TestArguments:
    def test_a_private_run_is_refused_by_type(self) -> None:
        arguments = make_arguments([{}, {}])
        run = PrivateRun(mechanism=arguments["simulations"][1].dynamics, num_examples=30)
        arguments["simulations"][1] = run

        with pytest.raises(ParameterError, match=r"simulations\[1\] is a PrivateRun") as error:
            LinearEnsemble(**arguments)

        assert error.value.field == "simulations"

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"steps": 7}, "steps"),
            ({"sampling_rate": 0.2}, "sampling_rate"),
            (
                {
                    "sampling": Sampling.TRUNCATED_POISSON,
                    "num_examples": 30,
                    "max_batch_size": 20,
                },
                "sampling",
            ),
        ],
    )
    def test_trials_that_cannot_share_a_draw_are_refused(self, change, field: str) -> None:
        arguments = make_arguments([{}, {}])
        other = arguments["simulations"][1]
        arguments["simulations"][1] = replace(other, dynamics=replace(other.dynamics, **change))

        with pytest.raises(ParameterError, match=r"simulations\[1\]") as error:
            LinearEnsemble(**arguments)

        assert error.value.field == field

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"models": []}, "models"),
            ({"configs": [TrainerConfig()]}, "configs"),
            ({"noises": [SeededRandomness(0)]}, "noises"),
            ({"configs": [TrainerConfig(), TrainerConfig(clip_norm=2.0)]}, "clip_norm"),
            ({"configs": [TrainerConfig(), TrainerConfig(precision="bfloat16")]}, "precision"),
            ({"inputs": make_inputs(29)}, "inputs"),
            ({"inputs": make_inputs(shape=(8,))}, "inputs"),
            ({"labels": make_labels(29)}, "labels"),
            ({"labels": make_labels() + 1}, "labels"),
            ({"labels": make_labels() - 1}, "labels"),
            ({"labels": make_labels() + 0.5}, "labels"),
            ({"labels": [[0], [1, 2]]}, "labels"),
            ({"inputs": [[0.0], [1.0, 2.0]]}, "inputs"),
            ({"microbatch_size": 0}, "microbatch_size"),
            ({"models": [torch.nn.Linear(7, 3), torch.nn.Linear(7, 3, bias=False)]}, "models"),
            ({"models": [torch.nn.Linear(7, 3), torch.nn.Linear(7, 4)]}, "models"),
            ({"models": [torch.nn.Linear(7, 3), torch.nn.Linear(7, 3).double()]}, "models"),
            ({"models": [torch.nn.Sequential(torch.nn.Linear(7, 3), torch.nn.ReLU())] * 2}, "models"),
            ({"models": [torch.nn.Flatten()] * 2}, "models"),
        ],
    )  # fmt: skip
    def test_what_does_not_fit_is_refused_by_name(self, changes, field: str) -> None:
        with pytest.raises(ParameterError) as error:
            LinearEnsemble(**make_arguments([{}, {}]) | changes)

        assert error.value.field == field

    @pytest.mark.parametrize(
        "change",
        [
            lambda layer: layer.weight.requires_grad_(False),
            lambda layer: layer.bias.requires_grad_(False),
            lambda layer: layer.register_forward_hook(lambda _, inputs, output: 2 * output),
            lambda layer: layer.register_full_backward_pre_hook(lambda _, g: (2 * g[0],)),
            lambda layer: setattr(layer, "forward", lambda x: 2 * x[:, :CLASSES]),
            lambda layer: setattr(layer, "weight", vars(layer)["_parameters"].pop("weight")),
            lambda layer: setattr(layer, "weight", torch.nn.Parameter(torch.zeros(2, 7))),
        ],
        ids=[
            "frozen weight",
            "frozen bias",
            "hook",
            "hook back",
            "forward",
            "bias before weight",
            "refitted",
        ],
    )
    def test_a_layer_that_does_more_or_learns_less_is_refused(self, change) -> None:
        arguments = make_arguments([{}, {}])
        change(arguments["models"][1][-1])

        with pytest.raises(ParameterError, match=r"(?s)models\[1\] is .*; use a Trainer") as error:
            LinearEnsemble(**arguments)

        assert error.value.field == "models"

    def test_trials_of_other_data_are_refused(self) -> None:
        arguments = make_arguments([{}, {}])
        arguments["simulations"][1] = replace(arguments["simulations"][1], num_examples=31)

        with pytest.raises(ParameterError, match=r"simulations\[0\] has 30, simulations\[1\] 31"):
            LinearEnsemble(**arguments)

    def test_augmentation_is_refused(self) -> None:
        arguments = make_arguments([{"horizontal_flip": True}], inputs=make_inputs(shape=(1, 4, 4)))

        with pytest.raises(ParameterError, match=r"configs\[0\] asks for augmentation"):
            LinearEnsemble(**arguments)

    def test_no_step_is_taken_beyond_the_simulations(self) -> None:
        ensemble = run(LinearEnsemble(**make_arguments(steps=2)), 2)

        with pytest.raises(ParameterError, match="have 2 steps and all are taken"):
            ensemble.step()

    def test_lists_and_numbers_of_numpy_are_taken_for_what_they_are(self) -> None:
        plain, other = make_arguments([{}, {}]), make_arguments([{}, {}])
        other |= {"inputs": other["inputs"].tolist(), "labels": other["labels"].tolist()}

        ensembles = LinearEnsemble(**plain), LinearEnsemble(**other, microbatch_size=np.int32(2048))
        for ensemble in ensembles:
            run(ensemble, 3)

        one, two = (ensemble.released_weights(1)["1.weight"] for ensemble in ensembles)
        assert torch.allclose(one, two, rtol=1e-6)
        data = plain["inputs"], plain["labels"]
        assert ensembles[0].evaluate(*data) == ensembles[1].evaluate(*(x.tolist() for x in data))

    def test_the_models_are_left_alone(self) -> None:
        arguments = make_arguments()
        before = [model[1].weight.clone() for model in arguments["models"]]

        run(LinearEnsemble(**arguments), 3)

        for model, weight in zip(arguments["models"], before, strict=True):
            assert torch.equal(model[1].weight, weight)


class TestCopies:
    @pytest.mark.parametrize(
        "copied",
        [copy.copy, copy.deepcopy, lambda ensemble: pickle.loads(pickle.dumps(ensemble))],
        ids=["copied", "copied in depth", "pickled"],
    )
    def test_a_copy_goes_on_as_the_ensemble_does_and_apart_from_it(self, copied) -> None:
        straight = run(LinearEnsemble(**make_arguments()), 6)
        ensemble = run(LinearEnsemble(**make_arguments()), 3)

        other = run(copied(ensemble), 3)
        run(ensemble, 3)

        for trial in range(len(TRICKS)):
            expected = straight.released_weights(trial)
            for found in (ensemble.released_weights(trial), other.released_weights(trial)):
                assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.skipif(not native.is_available(), reason="no compiled kernels here")
@pytest.mark.parametrize("seconds", [(1.0, 1.1), (1.1, 1.0)])
def test_the_faster_products_are_taken(seconds, monkeypatch) -> None:
    own, of_torch = seconds
    taken = iter(seconds)

    def least_seconds(call) -> float:
        call()
        return next(taken)

    monkeypatch.setattr("tan_core.engine.ensemble.least_seconds", least_seconds)

    assert kernels_are_faster.__wrapped__() == (own < of_torch)
