"""What no public function takes is refused by name, and never by an error from within."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tan_core import Mechanism, _validate, data, models
from tan_core.accounting import (
    NegativeBinomialTrials,
    PoissonTrials,
    calibrate_noise_multiplier,
    calibrate_sampling_rate,
    price,
    price_search,
    round_up,
)
from tan_core.engine import (
    LinearEnsemble,
    PrivateRandomness,
    SeededRandomness,
    Trainer,
    check_model,
    checkpoint,
    clipped_sum,
)
from tan_core.errors import ParameterError, UnsupportedEventError
from tan_core.execution import PrivateRun, Simulation
from tan_core.planner import (
    batch_ladder,
    choose_winner,
    model_cost,
    most_examples,
    plan_mechanism,
    plan_study,
    reduction_factor,
    reservations,
    reserved_mechanism,
)
from tan_core.spec import StudySpec, TrainerConfig, load_study, parse_yaml
from tan_core.spec.models import MlpModel
from tan_core.tan import (
    Observation,
    Setting,
    epsilon_tan,
    keep_epochs,
    paired_runs_needed,
    signal_to_noise,
)

RUN = Mechanism(sampling_rate=0.1, noise_multiplier=2.0, clip_norm=1.0, steps=10)
PRIVATE = PrivateRun(mechanism=RUN, num_examples=100)
SIMULATION = Simulation.of(PRIVATE, expected_batch_size=5)
CONFIG = TrainerConfig(learning_rate=1.0)
SPEC = StudySpec.model_validate(
    {
        "name": "refused",
        "privacy": {"epsilon": 3.0, "delta": 1e-5},
        "dataset": "digits",
        "model": {"name": "mlp"},
        "search": {
            "accounting": "declared_unaccounted",
            "space": {"learning_rate": {"low": 0.1, "high": 10.0, "log": True}},
        },
    }
)
INPUTS, LABELS = np.zeros((100, 3), np.float32), np.zeros(100, np.int64)
PARTS = {
    "models": [nn.Linear(3, 2)] * 2,
    "simulations": [SIMULATION] * 2,
    "configs": [CONFIG] * 2,
    "inputs": INPUTS,
    "labels": LABELS,
    "randomness": SeededRandomness(0),
}
TARGET = {"steps": 100, "epsilon": 2.0, "delta": 1e-5}
SHAPE = {"shape": (1, 8, 8), "num_classes": 10, "generator": torch.Generator()}
HUGE = 10**5000
"""More digits than Python writes."""


def ensemble(**changed: object) -> LinearEnsemble:
    return LinearEnsemble(**{**PARTS, **changed})  # pyright: ignore[reportArgumentType]


def trainer(**changed: object) -> Trainer:
    arguments = {
        "model": nn.Linear(3, 2),
        "execution": PRIVATE,
        "config": CONFIG,
        "inputs": INPUTS,
        "labels": LABELS,
        "randomness": PrivateRandomness(os.urandom(32), 1),
    }
    return Trainer(**{**arguments, **changed})  # pyright: ignore[reportArgumentType]


REFUSED = {
    # accounting
    "round_up, a price that was not found": (lambda: round_up(None, 2), "value"),
    "round_up, NaN": (lambda: round_up(float("nan"), 2), "value"),
    "round_up, half a decimal": (lambda: round_up(1.0, 1.5), "digits"),
    "certified, empty": (
        lambda: calibrate_sampling_rate(noise_multiplier=3.0, certified=[], **TARGET),
        "certified",
    ),
    "certified, a word": (
        lambda: calibrate_noise_multiplier(sampling_rate=0.1, certified="no", **TARGET),
        "certified",
    ),
    "certified, nothing": (
        lambda: calibrate_noise_multiplier(sampling_rate=0.1, certified=None, **TARGET),
        "certified",
    ),
    "price_search, conditions in a mapping": (
        lambda: price_search("private_selection", run=RUN, delta=1e-5, selection={}),
        "selection",
    ),
    "pmf": (lambda: NegativeBinomialTrials(mean=10.0, shape=0.0).pmf(None), "trials"),
    "sample": (lambda: PoissonTrials(mean=10.0).sample(None), "rng"),
    # total amount of noise
    "signal_to_noise": (
        lambda: signal_to_noise(sampling_rate=0.1, noise_multiplier=1.0, steps=HUGE),
        "steps",
    ),
    "epsilon_tan": (lambda: epsilon_tan(signal_to_noise=1e300, delta=1e-5), "signal_to_noise"),
    "Setting": (
        lambda: keep_epochs(
            Setting(expected_batch_size=8, noise_multiplier=1.0, steps=10, learning_rate=1.0),
            steps=HUGE,
        ),
        "steps",
    ),
    "paired_runs_needed": (lambda: paired_runs_needed(difference=1e-300, std=1.0), "difference"),
    "Observation, no seed": (
        lambda: Observation(expected_batch_size=8, accuracy=0.5, seed=None),
        "seed",
    ),
    # execution
    "PrivateRun": (lambda: PrivateRun(mechanism=RUN, num_examples=HUGE), "num_examples"),
    "Simulation, NaN": (
        lambda: Simulation(dynamics=RUN, num_examples=100, scale_factor=float("nan")),
        "scale_factor",
    ),
    "Simulation.of, a truth value": (
        lambda: Simulation.of(PRIVATE, expected_batch_size=True),
        "expected_batch_size",
    ),
    # planner
    "plan_study, a mapping": (lambda: plan_study({"name": "study"}, num_examples=100), "spec"),
    "plan_study, no examples to search": (
        lambda: plan_study(SPEC, num_examples=100, search_num_examples=0),
        "search_num_examples",
    ),
    "plan_study, validation": (
        lambda: plan_study(SPEC, num_examples=100, num_validation=-1),
        "num_validation",
    ),
    "plan_study, a bare rate": (
        lambda: plan_study(SPEC, num_examples=100, search_rate=100.0),
        "search_rate",
    ),
    "plan_study, a bare size": (lambda: plan_study(SPEC, num_examples=100, model=100), "model"),
    "plan_mechanism": (
        lambda: plan_mechanism(
            num_examples=100,
            expected_batch_size=10,
            noise_multiplier=1.0,
            steps=10,
            delta=1e-5,
            rate=10.0,
        ),
        "rate",
    ),
    "batch_ladder": (
        lambda: batch_ladder(4096, trials=4, search_num_examples="all"),
        "search_num_examples",
    ),
    "reduction_factor, nothing": (lambda: reduction_factor(None), "rungs"),
    "reduction_factor, from 0": (lambda: reduction_factor([0, 8]), "rungs[0]"),
    "reduction_factor, falling": (lambda: reduction_factor([8, 4]), "rungs"),
    "most_examples": (lambda: most_examples(24, []), "cuts"),
    "reserved_mechanism": (lambda: reserved_mechanism(None), "mechanism"),
    "reservations": (lambda: reservations(SPEC, None), "plan"),
    "choose_winner": (
        lambda: choose_winner(None, expected_batch_size=8, evaluation=None),
        "trials",
    ),
    "model_cost, a name": (lambda: model_cost("mlp", shape=[3], num_classes=2), "spec"),
    "model_cost, one side": (lambda: model_cost(MlpModel(), shape=3, num_classes=2), "shape"),
    "model_cost, no class": (
        lambda: model_cost(MlpModel(), shape=[3], num_classes=0),
        "num_classes",
    ),
    # specs
    "load_study, a path": (lambda: load_study(Path("study.yaml")), "text"),
    "load_study, a mapping": (lambda: load_study({"name": "study"}), "text"),
    "parse_yaml": (lambda: parse_yaml("a: 1", max_bytes=None), "max_bytes"),
    # data
    "inspect, a number": (lambda: data.inspect(3), "path"),
    "inspect, one column": (
        lambda: data.inspect(None, source="digits", features="a"),
        "features",
    ),
    "inspect, a text key": (
        lambda: data.inspect(None, source="digits", digest_key="key"),
        "digest_key",
    ),
    "inspect, storage": (lambda: data.inspect(None, source="digits", storage=None), "storage"),
    # models
    "build, a path": (lambda: models.build(MlpModel(), checkpoint="a.pt", **SHAPE), "checkpoint"),
    "has_backbone": (
        lambda: models.has_backbone("mlp", shape=[4], num_classes=2),
        "spec",
    ),
    "extractor_of": (lambda: models.extractor_of(None), "spec"),
    "build_classifier, all of it is trained": (
        lambda: models.build_classifier(MlpModel(), **SHAPE),
        "spec",
    ),
    "build_classifier, torch's global generator": (
        lambda: models.build_classifier(MlpModel(), **{**SHAPE, "generator": None}),
        "generator",
    ),
    # engine
    "LinearEnsemble, models": (lambda: ensemble(models=None), "models"),
    "LinearEnsemble, simulations": (lambda: ensemble(simulations=None), "simulations"),
    "LinearEnsemble, configs": (lambda: ensemble(configs=None), "configs"),
    "LinearEnsemble, a config": (lambda: ensemble(configs=[None] * 2), "configs[0]"),
    "LinearEnsemble, randomness": (lambda: ensemble(randomness=None), "randomness"),
    "LinearEnsemble, noises": (lambda: ensemble(noises=3), "noises"),
    "LinearEnsemble, seeds as noises": (lambda: ensemble(noises=[1, 2]), "noises[0]"),
    "LinearEnsemble.evaluate, features": (
        lambda: ensemble().evaluate(np.zeros((4, 2), np.float32), np.zeros(4, np.int64)),
        "inputs",
    ),
    "LinearEnsemble.evaluate, labels": (
        lambda: ensemble().evaluate(INPUTS, np.zeros(4, np.int64)),
        "labels",
    ),
    "LinearEnsemble.released_weights, from the end": (
        lambda: ensemble().released_weights(-1),
        "trial",
    ),
    "LinearEnsemble.released_weights, beyond": (lambda: ensemble().released_weights(2), "trial"),
    "Trainer, no function": (lambda: trainer(all_reduce=3), "all_reduce"),
    "mask, of a private run": (
        lambda: PrivateRandomness(os.urandom(32), 1).mask(None, num_examples=9, sampling_rate=0.1),
        "step",
    ),
    "mask, of a simulation": (
        lambda: SeededRandomness(0).mask(-1, num_examples=9, sampling_rate=0.1),
        "step",
    ),
    "SeededRandomness": (lambda: SeededRandomness(True), "seed"),
    "check_model": (lambda: check_model(None), "model"),
    "clipped_sum, no model": (
        lambda: clipped_sum("mlp", torch.zeros(2, 3), torch.zeros(2).long(), clip_norm=1.0),
        "model",
    ),
    "clipped_sum, nothing to train": (
        lambda: clipped_sum(nn.ReLU(), torch.zeros(2, 3), torch.zeros(2).long(), clip_norm=1.0),
        "model",
    ),
    "clipped_sum, shares": (
        lambda: clipped_sum(
            nn.Linear(3, 2), torch.zeros(2, 3), torch.zeros(2).long(), clip_norm=1.0, shares=[1.0]
        ),
        "shares",
    ),
    "checkpoint.save, a state": (lambda: checkpoint.save("a.ckpt", trainer().state()), "trainer"),
    "checkpoint.save, no file": (lambda: checkpoint.save("", trainer()), "path"),
    "checkpoint.save, what JSON cannot hold": (
        lambda: checkpoint.save("a.ckpt", trainer(), {"a": {1}}),
        "extra",
    ),
    "checkpoint.load, no digest": (lambda: checkpoint.load("a.ckpt", None), "sha256"),
    "checkpoint.load, no path": (lambda: checkpoint.load(None, "0" * 64), "path"),
    "checkpoint.save_weights, arrays": (
        lambda: checkpoint.save_weights("a.safetensors", {"w": np.zeros(3)}),
        "weights['w']",
    ),
    "checkpoint.save_weights, metadata": (
        lambda: checkpoint.save_weights("a.safetensors", {}, ["a"]),
        "metadata",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_the_name_of_its_argument(name, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    call, field = REFUSED[name]

    with pytest.raises(ParameterError) as refused:
        call()

    assert refused.value.field == field
    assert field.partition("[")[0] in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_digest_says_where_it_comes_from() -> None:
    with pytest.raises(ParameterError, match=r"the digest that save\(\) returned.*got None"):
        checkpoint.load("a.ckpt", None)  # pyright: ignore[reportArgumentType]


def test_the_name_of_a_file_is_not_taken_for_a_study() -> None:
    with pytest.raises(ParameterError, match=r"got 'study\.yaml': the name of a file is not read"):
        load_study("study.yaml")


def test_a_dataset_may_be_at_a_path(tmp_path) -> None:
    np.savez(tmp_path / "d.npz", x_train=np.zeros((40, 4, 4), np.uint8), y_train=np.arange(40) % 2)

    assert data.inspect(tmp_path / "d.npz") == data.inspect(str(tmp_path / "d.npz"))


@pytest.mark.parametrize("value", [np.True_, True, np.array(False)], ids=repr)
def test_truth_values_of_numpy_are_truth_values(value) -> None:
    _validate.boolean(certified=value)


def test_infinity_is_shown_as_it_is() -> None:
    assert round_up(float("inf"), 2) == float("inf")
    assert round_up(np.float64(1.25), np.int64(1)) == 1.3


def test_a_mass_far_out_is_nothing() -> None:
    assert NegativeBinomialTrials(mean=10.0, shape=0.0).pmf(10**9) == 0.0


def test_a_number_that_python_writes_no_text_of_is_described() -> None:
    with pytest.raises(ParameterError, match="of 16610 bits"):
        Mechanism(sampling_rate=0.1, noise_multiplier=HUGE, clip_norm=1.0, steps=1)


@pytest.mark.parametrize(
    "given",
    [
        torch.utils.data.TensorDataset(torch.zeros(100, 3), torch.zeros(100).long()),
        torch.utils.data.DataLoader(torch.zeros(100, 3)),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_torch_dataset_is_refused_with_how_to_stack_it(given) -> None:
    with pytest.raises(
        ParameterError, match=r"all records in one array.*torch\.stack\("
    ) as refused:
        trainer(inputs=given)
    assert refused.value.field == "inputs"


@pytest.mark.parametrize("field", ["labels", "users"])
def test_words_are_refused_with_how_to_number_them(field) -> None:
    with pytest.raises(ParameterError, match=r"integers from 0, as numpy\.unique\(.*<U3"):
        trainer(**{field: ["cat", "dog"] * 50})


def test_whom_prv_sends_away_is_priced_where_it_sends_them() -> None:
    replaced = replace(RUN, neighboring_relation="replace_one")
    fixed = replace(replaced, sampling="fixed_size", num_examples=100)
    for mechanism, accepted in ((replaced, "pld"), (fixed, "rdp")):
        with pytest.raises(UnsupportedEventError, match=f"accepted: accountant {accepted}$"):
            price([mechanism], delta=1e-5, accountant="prv")
        assert price([mechanism], delta=1e-5, accountant=accepted).epsilon > 0
