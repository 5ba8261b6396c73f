"""The step: what is divided by what, who adds noise, what may not change the update."""

import math
import re
import threading
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tan_core import data, models
from tan_core.engine import PrivateRandomness, SeededRandomness, Trainer
from tan_core.engine.inputs import as_floats
from tan_core.errors import ParameterError
from tan_core.execution import PrivateRun, Simulation
from tan_core.mechanism import Mechanism, Sampling
from tan_core.spec.models import MlpModel
from tan_core.spec.train import TrainerConfig
from tan_core.testing.oracle import example_gradients
from tan_core.testing.tiny import tiny_images
from tests.support.datasets import dataset_ref
from tests.unit.tan_core.engine.support import (
    KEY,
    NUM_EXAMPLES,
    SHAPE,
    make_run,
    make_trainer,
    run,
    run_ranks,
    vector,
)


class FixedRandomness:
    """Draws the given indices and constant noise."""

    def __init__(self, drawn, noise: float = 0.0) -> None:
        self.drawn, self.value = drawn, noise
        self.asked: list[tuple[int, int, float]] = []

    def mask(self, step, *, num_examples, sampling_rate):
        self.asked.append((step, num_examples, sampling_rate))
        return np.array(self.drawn, dtype=np.int64)

    def cut(self, step, drawn, *, max_batch_size):
        return drawn[:max_batch_size]

    def noise(self, step, size):
        return torch.full((size,), self.value)

    def add_noise(self, step, total_P, deviation, *, share, shares):
        mine = slice(len(total_P) * share // shares, len(total_P) * (share + 1) // shares)
        total_P[mine] += deviation * self.noise(step, len(total_P))[mine]

    def augmentation(self, step):
        return torch.Generator().manual_seed(step)


class Masked(nn.Module):
    """Keeps a mask as long as the largest batch so far."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(SHAPE), 4), nn.Linear(4, 3))
        self.mask = torch.ones(0, 3)

    def forward(self, x):
        if len(self.mask) < len(x):
            self.mask = torch.ones(len(x), 3)
        return self.layers(x) * self.mask[: len(x)]


class TestUpdate:
    def test_without_noise_and_clipping_it_is_plain_gradient_descent(self) -> None:
        clip_norm = 1e6
        execution = make_run(q=1.0, sigma=1e-12, clip_norm=clip_norm)
        trainer = make_trainer(execution, config={"learning_rate": 0.3 * clip_norm})
        plain = models.build(
            MlpModel(hidden=[4]), shape=SHAPE, num_classes=3, generator=torch.Generator().manual_seed(0)
        )  # fmt: skip
        inputs, labels = (torch.from_numpy(a) for a in tiny_images())
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.3)

        for _ in range(5):
            optimizer.zero_grad()
            functional.cross_entropy(plain(inputs / 127.5 - 1), labels).backward()
            optimizer.step()
        run(trainer, 5)

        expected = torch.cat([p.detach().flatten() for p in plain.parameters()])
        assert torch.allclose(vector(trainer), expected, atol=1e-5)

    def test_it_draws_at_the_very_rate_that_is_priced(self) -> None:
        """Not at one over a whole number of batches, as loaders do."""
        randomness = FixedRandomness([3])

        run(make_trainer(make_run(q=0.3), randomness=randomness), 2)

        assert randomness.asked == [(0, NUM_EXAMPLES, 0.3), (1, NUM_EXAMPLES, 0.3)]

    def test_the_divisor_is_the_expected_batch_and_never_the_drawn_one(self) -> None:
        """The same example drawn alone must move the weights as far as it does in company."""
        alone = make_trainer(randomness=FixedRandomness([3]))
        start = vector(alone)
        moved = vector(run(alone, 1)) - start
        others = vector(run(make_trainer(randomness=FixedRandomness([5, 9])), 1)) - start

        together = vector(run(make_trainer(randomness=FixedRandomness([3, 5, 9])), 1)) - start

        assert torch.allclose(together, moved + others, atol=1e-7)

    def test_an_empty_draw_still_adds_noise_and_counts(self) -> None:
        execution = make_run(q=0.2, sigma=2.0, clip_norm=0.5)
        trainer = make_trainer(execution, randomness=FixedRandomness([], noise=1.0))
        start = vector(trainer)

        trainer.step()

        # learning rate 1 x noise 1 x sigma x C, over (C x expected batch)
        assert torch.allclose(vector(trainer) - start, torch.tensor(-2.0 / (0.2 * NUM_EXAMPLES)))
        assert trainer.steps_done == 1

    def test_a_draw_above_the_cap_is_cut_to_it_and_any_other_left_alone(self) -> None:
        poisson = make_run(q=0.5, steps=40)
        capped = replace(
            poisson.mechanism,
            sampling=Sampling.TRUNCATED_POISSON,
            num_examples=NUM_EXAMPLES,
            max_batch_size=30,
        )
        simulations = [
            Simulation(dynamics=each, num_examples=NUM_EXAMPLES, scale_factor=1.0)
            for each in (poisson.mechanism, capped)
        ]

        whole, cut = (
            [trainer.step().num_drawn for _ in range(40)]
            for trainer in map(make_trainer, simulations)
        )

        assert max(whole) > 30
        assert cut == [min(size, 30) for size in whole]

    def test_one_example_moves_the_update_by_at_most_one_clipped_gradient(self) -> None:
        everybody = run(make_trainer(randomness=FixedRandomness(range(10))), 1)

        for left_out in range(10):
            drawn = [i for i in range(10) if i != left_out]
            fewer = run(make_trainer(randomness=FixedRandomness(drawn)), 1)
            moved = float((vector(everybody) - vector(fewer)).norm())
            assert moved <= 1 / (0.2 * NUM_EXAMPLES) * (1 + 1e-4)

    def test_the_clip_norm_scales_out_of_the_noise(self) -> None:
        moves = []
        for clip_norm in (0.1, 10.0):
            trainer = make_trainer(
                make_run(clip_norm=clip_norm), randomness=FixedRandomness([], noise=1.0)
            )
            start = vector(trainer)
            moves.append(vector(run(trainer, 1)) - start)

        assert torch.allclose(moves[0], moves[1])

    @pytest.mark.parametrize("microbatch_size", [1, 3, 7, 1000])
    @pytest.mark.parametrize("multiplicity", [1, 4])
    def test_the_microbatch_size_does_not_change_the_update(
        self, microbatch_size: int, multiplicity: int
    ) -> None:
        config = {
            "augmentation_multiplicity": multiplicity,
            "horizontal_flip": True,
            "color_jitter": 0.5,
        }
        reference = run(make_trainer(config=config), 3)

        split = run(make_trainer(config=config, microbatch_size=microbatch_size), 3)

        assert torch.allclose(vector(split), vector(reference), rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("multiplicity", [1, 4])
    @pytest.mark.parametrize("world_size", [2, 4])
    def test_the_number_of_ranks_does_not_change_the_update(
        self, world_size: int, multiplicity: int
    ) -> None:
        config = {
            "augmentation_multiplicity": multiplicity,
            "ema_decay": 0.9,
            "color_jitter": 0.5,
            "schedule": "cosine",
        }
        alone = run(make_trainer(config=config), 5)

        ranks = run_ranks(world_size, 5, config=config)

        for trainer in ranks:
            assert torch.allclose(vector(trainer), vector(alone), rtol=1e-6, atol=1e-6)

    def test_noise_of_four_ranks_is_that_of_one(self) -> None:
        noise_only = FixedRandomness([], noise=1.0)
        alone = run(make_trainer(randomness=noise_only), 3)

        ranks = run_ranks(4, 3, randomness=noise_only)

        assert torch.allclose(vector(ranks[0]), vector(alone), rtol=1e-6)

    def test_global_seeds_do_not_influence_a_run(self) -> None:
        torch.manual_seed(1)
        first = run(make_trainer(config={"augmentation_multiplicity": 2}), 3)
        torch.manual_seed(2)
        second = run(make_trainer(config={"augmentation_multiplicity": 2}), 3)

        assert torch.equal(vector(first), vector(second))

    def test_a_new_attempt_draws_fresh_noise(self) -> None:
        assert not torch.allclose(
            vector(run(make_trainer(attempt=1), 1)), vector(run(make_trainer(attempt=2), 1))
        )

    def test_a_poisoned_example_leaves_the_run_healthy(self) -> None:
        inputs, labels = tiny_images()
        inputs = inputs.astype(np.float32)
        inputs[4] = np.nan

        trainer = run(make_trainer(make_run(q=1.0), inputs=inputs, labels=labels), 3)

        assert not trainer.is_diverged

    def test_no_step_is_taken_beyond_the_mechanism(self) -> None:
        trainer = run(make_trainer(make_run(steps=2)), 2)

        with pytest.raises(ParameterError, match="has 2 steps and all are taken"):
            trainer.step()


TRICKS = {
    "sgd": {"momentum": 0.9, "dampening": 0.5, "schedule": "linear", "warmup_fraction": 0.3},
    "adamw": {"optimizer": "adamw", "beta2": 0.9, "schedule": "cosine"},
}


class TestOptimizers:
    """Fed with the same gradient of 1 everywhere."""

    @pytest.mark.parametrize(
        ("config", "make_reference"),
        [
            (
                {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1},
                lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9, dampening=0.3, weight_decay=0.1),
            ),
            (
                {"optimizer": "adam", "momentum": 0.5},
                lambda p: torch.optim.Adam(p, lr=0.5, betas=(0.5, 0.999)),
            ),
            (
                {"optimizer": "adamw", "beta1": 0.8, "weight_decay": 0.1},
                lambda p: torch.optim.AdamW(p, lr=0.5, betas=(0.8, 0.999), weight_decay=0.1),
            ),
        ],
        ids=["sgd", "adam", "adamw"],
    )
    def test_they_see_the_noisy_mean_gradient(self, config, make_reference) -> None:
        noise = FixedRandomness([], noise=12.0)  # expected batch 12, C = sigma = 1: a gradient of 1
        trainer = make_trainer(config={"learning_rate": 0.5, **config}, randomness=noise)
        parameter = vector(trainer).clone().requires_grad_()
        reference = make_reference([parameter])

        for _ in range(4):
            parameter.grad = torch.ones_like(parameter)
            reference.step()
        run(trainer, 4)

        assert torch.allclose(vector(trainer), parameter.detach(), rtol=1e-5, atol=1e-6)


class TestSchedule:
    def test_the_rate_falls_over_the_steps_of_the_whole_run(self) -> None:
        trainer = make_trainer(
            make_run(steps=4),
            config={"schedule": "linear"},
            randomness=FixedRandomness([], noise=12.0),
        )

        moves = []
        for _ in range(4):
            before = vector(trainer)
            trainer.step()
            moves.append(float((before - vector(trainer)).mean()))

        assert moves == pytest.approx([7 / 8, 5 / 8, 3 / 8, 1 / 8], rel=1e-5)

    @pytest.mark.parametrize("config", TRICKS.values(), ids=TRICKS)
    @pytest.mark.parametrize("stop", [1, 5])
    def test_a_run_that_was_stopped_ends_where_it_would_have(self, config, stop: int) -> None:
        straight = run(make_trainer(config=config), 9)
        stopped = run(make_trainer(config=config), stop)

        resumed = make_trainer(config=config)
        resumed.load_state(stopped.state())
        run(resumed, 9 - stop)

        assert torch.equal(vector(resumed), vector(straight))


READ = {
    "learning_rate": {"learning_rate": 2.0},
    "schedule": {"schedule": "cosine"},
    "warmup_fraction": {"warmup_fraction": 0.5},
    "final_learning_rate_fraction": {"schedule": "linear", "final_learning_rate_fraction": 0.5},
    "optimizer": {"optimizer": "adam"},
    "momentum": {"momentum": 0.9},
    "dampening": {"momentum": 0.9, "dampening": 0.5},
    "beta1": {"optimizer": "adam", "beta1": 0.5},
    "beta2": {"optimizer": "adam", "beta2": 0.5},
    "adam_epsilon": {"optimizer": "adam", "adam_epsilon": 0.1},
    "weight_decay": {"weight_decay": 0.1},
    "ema_decay": {"ema_decay": 0.5},
    "augmentation_multiplicity": {"augmentation_multiplicity": 2},
    "crop_padding": {"crop_padding": 1},
    "horizontal_flip": {"horizontal_flip": True},
    "color_jitter": {"color_jitter": 0.5},
    "clipping": {"clipping": "automatic"},
    "clipping_stability": {"clipping": "automatic", "clipping_stability": 1.0},
    "class_shares": {"class_shares": [8, 1, 1]},
    "class_balance": {"class_shares": [8, 1, 1], "class_balance": 0.5},
    "precision": {"precision": "bfloat16"},
}


class TestFields:
    @pytest.mark.parametrize("name", sorted(TrainerConfig.model_fields.keys() - {"clip_norm"}))
    def test_each_one_changes_what_is_released(self, name: str) -> None:
        """``clip_norm`` is the mechanism's."""
        fields = READ[name]
        others = {other: value for other, value in fields.items() if other != name}

        with_it, without = (
            run(make_trainer(config=config), 3).released_weights() for config in (fields, others)
        )

        assert any(not torch.allclose(with_it[key], without[key]) for key in without)


class TestClassShares:
    """A class that is said to be rare adds what it adds, and the others less."""

    @pytest.mark.parametrize("views", [1, 2])
    def test_a_step_is_the_sum_of_clipped_gradients_that_are_multiplied_after(
        self, views: int
    ) -> None:
        drawn, views_of = (0, 1, 2, 5), {"augmentation_multiplicity": views, "crop_padding": 0}
        config = {"class_shares": [4, 1, 2], "class_balance": 0.5, **views_of}
        trainer = make_trainer(config=config, randomness=FixedRandomness(drawn, noise=0.0))
        alone = [
            make_trainer(config=views_of, randomness=FixedRandomness([each], noise=0.0))
            for each in drawn
        ]
        labels, start = torch.from_numpy(tiny_images()[1])[list(drawn)], vector(trainer)

        run(trainer, 1)

        moved = torch.stack([vector(run(each, 1)) - start for each in alone])
        weights = torch.tensor([0.5, 1.0, 0.5**0.5])[labels]
        assert len(labels.unique()) > 1
        torch.testing.assert_close(vector(trainer) - start, weights @ moved, rtol=1e-4, atol=1e-6)

    def test_they_are_one_for_each_class(self) -> None:
        with pytest.raises(ParameterError, match="one for each of 3 classes"):
            make_trainer(config={"class_shares": [1, 1]})

    def test_they_need_records_as_units(self) -> None:
        with pytest.raises(ParameterError, match="class_shares need records") as caught:
            make_trainer(config={"class_shares": [1, 1, 2]}, users=np.arange(NUM_EXAMPLES))
        assert caught.value.field == "class_shares"


class TestAverage:
    def test_it_follows_the_warm_up_and_is_what_is_released(self) -> None:
        trainer = make_trainer(
            config={"ema_decay": 0.25}, randomness=FixedRandomness([], noise=12.0)
        )
        start = vector(trainer)
        average, current = start.clone(), start.clone()

        for step in range(6):
            trainer.step()
            current = current - 1
            decay = min(0.25, (1 + step) / (10 + step))
            average = decay * average + (1 - decay) * current

        released = torch.cat([w.flatten() for w in trainer.released_weights().values()])
        assert torch.allclose(released, average, atol=1e-5)
        assert torch.allclose(vector(trainer), current, atol=1e-5)

    def test_evaluation_uses_the_average(self) -> None:
        trainer = run(make_trainer(config={"ema_decay": 0.9, "learning_rate": 50.0}), 5)
        inputs, labels = tiny_images()
        model = models.build(
            MlpModel(hidden=[4]), shape=SHAPE, num_classes=3, generator=torch.Generator()
        )
        model.load_state_dict(trainer.released_weights())

        predicted = model(torch.from_numpy(inputs) / 127.5 - 1).argmax(1).numpy()

        assert trainer.evaluate(inputs, labels) == pytest.approx((predicted == labels).mean())

    def test_evaluation_uses_other_weights_where_they_are_given(self) -> None:
        trainer = run(make_trainer(config={"ema_decay": 0.9, "learning_rate": 50.0}), 5)
        inputs, labels = tiny_images()
        before = vector(trainer)

        # Without weights all logits are 0, and the first class is the guess.
        guessed = trainer.evaluate(inputs, labels, weights=torch.zeros_like(trainer.released))

        assert guessed == pytest.approx((labels == 0).mean())
        assert guessed != trainer.evaluate(inputs, labels)
        assert torch.equal(vector(trainer), before)

    def test_evaluation_leaves_the_weights_as_they_were(self) -> None:
        trainer = run(make_trainer(config={"ema_decay": 0.9, "learning_rate": 2.0}), 5)
        before, after = vector(trainer), trainer.released_weights()

        trainer.evaluate(*tiny_images())

        assert torch.equal(vector(trainer), before)
        assert all(torch.equal(trainer.released_weights()[name], w) for name, w in after.items())

    def test_what_a_model_keeps_of_an_evaluation_may_be_read_in_a_step(self) -> None:
        trainer = run(make_trainer(model=Masked()), 1)

        trainer.evaluate(*tiny_images(NUM_EXAMPLES))

        run(trainer, 1)

    def test_released_weights_are_a_copy(self) -> None:
        trainer = make_trainer()
        released = trainer.released_weights()
        before = {name: weight.clone() for name, weight in released.items()}

        run(trainer, 1)

        assert all(torch.equal(released[name], before[name]) for name in before)


class TestProgress:
    def test_each_microbatch_and_each_piece_of_an_evaluation_is_a_sign_of_life(self) -> None:
        inputs, labels = tiny_images()
        trainer = make_trainer(
            make_run(), microbatch_size=4, randomness=FixedRandomness([*range(10)])
        )
        beats: list[int] = []
        trainer.progressed = lambda: beats.append(trainer.steps_done)
        trainer.step()
        assert beats == [0, 0, 0]  # 4 + 4 + 2, before the step is done
        beats.clear()
        # 4 * 4 records at once: without gradients there is room for more.
        trainer.evaluate(np.resize(inputs, (40, *inputs.shape[1:])), np.resize(labels, (40,)))
        assert beats == [1, 1, 1]


class TestStats:
    def test_a_simulation_tells_its_loss_and_a_private_run_does_not(self) -> None:
        simulation = Simulation.of(make_run(), expected_batch_size=6)

        simulated, private = make_trainer(simulation).step(), make_trainer().step()

        assert simulated.train_loss is not None
        assert simulated.num_drawn is not None
        assert (private.step, private.train_loss) == (1, None)
        assert (private.num_drawn, private.clipped_fraction) == (None, None)

    @pytest.mark.parametrize(
        ("clip_norm", "clipping", "told"),
        [
            (1e-6, "per_example", 1.0),
            (1e6, "per_example", 0.0),
            (1e-6, "automatic", None),
            (1e-6, "none", None),
        ],
    )
    def test_what_was_clipped_is_told_where_long_gradients_alone_are(
        self, clip_norm: float, clipping: str, told: float | None
    ) -> None:
        simulation = Simulation.of(make_run(clip_norm=clip_norm), expected_batch_size=6)

        stats = make_trainer(simulation, config={"clipping": clipping}).step()

        assert stats.num_drawn
        assert stats.clipped_fraction == told

    def test_it_is_the_part_of_the_batch_whose_own_gradients_are_longer(self) -> None:
        inputs, labels = tiny_images()
        model = make_trainer()._model
        records = as_floats(torch.from_numpy(inputs), torch.float32)
        norms = (
            example_gradients(model, records, torch.from_numpy(labels)).norm(dim=1).sort().values
        )
        run = make_run(q=1.0, clip_norm=float(norms[44:46].mean()))

        stats = make_trainer(
            Simulation.of(run, expected_batch_size=NUM_EXAMPLES), microbatch_size=7
        ).step()

        assert (stats.num_drawn, stats.clipped_fraction) == (60, 15 / 60)


class TestArguments:
    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"config": {"clip_norm": 2.0}}, "clip_norm"),
            ({"config": {"clipping": "none"}}, "clipping"),
            ({"randomness": SeededRandomness(0)}, "randomness"),
            ({"world_size": 2}, "all_reduce"),
            ({"rank": 1}, "rank"),
            ({"inputs": tiny_images(59)[0]}, "inputs"),
            ({"labels": tiny_images(59)[1]}, "labels"),
            ({"labels": tiny_images()[1][:, None]}, "labels"),
            ({"labels": tiny_images()[1] + 0.5}, "labels"),
            ({"labels": tiny_images()[1] + 1}, "labels"),
            ({"labels": tiny_images()[1] - 1}, "labels"),
            ({"users": tiny_images()[1] + 0.5}, "users"),
            ({"microbatch_size": 0}, "microbatch_size"),
            ({"model": torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(64))}, "model"),
        ],
        ids=[str(n) for n in range(14)],
    )
    def test_what_does_not_fit_is_refused_by_name(self, changes, field: str) -> None:
        with pytest.raises(ParameterError) as error:
            make_trainer(**changes)

        assert error.value.field == field

    @pytest.mark.parametrize(
        ("changes", "field", "message"),
        [
            ({"config": {}}, "config", "config must be a TrainerConfig, got dict"),
            (
                {"execution": make_run().mechanism},
                "execution",
                "must be a PrivateRun or Simulation",
            ),
            ({"model": "mlp"}, "model", "must be a torch.nn.Module, got str"),
            ({"randomness": 7}, "randomness", "PrivateRandomness or SeededRandomness, got int"),
            ({"randomness": torch.Generator()}, "randomness", "got Generator"),
        ],
        ids=["config", "execution", "model", "seed", "generator"],
    )
    def test_what_is_of_another_kind_is_refused_by_name(self, changes, field, message) -> None:
        inputs, labels = tiny_images()
        arguments = {
            "model": nn.Sequential(nn.Flatten(), nn.Linear(64, 3)),
            "execution": make_run(),
            "config": TrainerConfig(clip_norm=1.0),
            "inputs": inputs,
            "labels": labels,
            "randomness": PrivateRandomness(KEY, 1),
        }

        with pytest.raises(ParameterError, match=re.escape(message)) as error:
            Trainer(**arguments | changes)

        assert error.value.field == field

    @pytest.mark.parametrize("device", ["foo", "cuda:99", "meta", 3.5, None], ids=str)
    def test_a_device_that_cannot_compute_is_refused_with_those_that_can(self, device) -> None:
        with pytest.raises(
            ParameterError, match=r"cannot compute here: .*; accepted: cpu"
        ) as error:
            make_trainer(device=device)

        assert error.value.field == "device"
        assert str(device) in str(error.value)

    @pytest.mark.parametrize("is_private", [True, False], ids=["private", "simulated"])
    def test_so_is_one_without_float64_in_which_norms_are(
        self, is_private: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As Apple's GPUs are."""

        def ones(*size, dtype=None, **options):
            if dtype == torch.float64:
                raise TypeError("the framework doesn't support float64")
            return torch.full(size, 1.0, dtype=dtype, **options)

        monkeypatch.setattr(torch, "ones", ones)
        execution = make_run() if is_private else Simulation.of(make_run(), expected_batch_size=6)
        with pytest.raises(ParameterError, match=r"cannot compute here: .*float64") as error:
            make_trainer(execution)

        assert error.value.field == "device"

    @pytest.mark.parametrize("field", ["inputs", "labels", "users"])
    def test_data_elsewhere_than_in_the_processors_memory_are_refused(self, field: str) -> None:
        inputs, labels = map(torch.from_numpy, tiny_images())
        data = {"inputs": inputs, "labels": labels, "users": torch.arange(NUM_EXAMPLES)}
        message = (
            rf"{field} must lie in the processor's memory, .* meta; accepted: {field}\.cpu\(\)"
        )

        with pytest.raises(ParameterError, match=message):
            make_trainer(**data | {field: data[field].to("meta")})
        if field == "users":
            return
        del data["users"]
        with pytest.raises(ParameterError, match=message):
            make_trainer().evaluate(**data | {field: data[field].to("meta")})

    def test_numbers_of_numpy_are_numbers(self) -> None:
        one, two = (
            run(make_trainer(microbatch_size=size, rank=rank, world_size=world), 2)
            for size, rank, world in ((7, 0, 1), (np.int32(7), np.int64(0), np.uint8(1)))
        )

        assert torch.equal(vector(one), vector(two))

    def test_read_only_data_is_accepted(self) -> None:
        inputs, labels = tiny_images()
        inputs.flags.writeable = labels.flags.writeable = False

        run(make_trainer(inputs=inputs, labels=labels), 1)

    @pytest.mark.parametrize(
        "change",
        [lambda y: y[:, None], lambda y: y[:1], lambda y: y + 0.5],
        ids=["column", "one", "floats"],
    )
    def test_labels_that_are_not_one_each_are_no_accuracy(self, change) -> None:
        inputs, labels = tiny_images()

        with pytest.raises(ParameterError, match="labels"):
            make_trainer().evaluate(inputs, change(labels))

    def test_a_refused_label_is_not_told(self) -> None:
        """A message may be read by others than the data."""
        labels = tiny_images()[1]
        labels[7] = 48151

        with pytest.raises(ParameterError, match="labels must be >= 0 and below 3") as error:
            make_trainer(labels=labels)

        assert "48151" not in str(error.value)

    @pytest.mark.parametrize(
        ("weights", "got"),
        [
            (torch.zeros(3), r"shape \[3\]"),
            ({"weight": torch.zeros(3)}, "dict"),
            (np.zeros(3), "ndarray"),
        ],
        ids=["short", "by name", "array"],
    )
    def test_weights_of_another_model_are_refused(self, weights, got: str) -> None:
        trainer = make_trainer()
        before = vector(trainer).clone()

        with pytest.raises(ParameterError, match=rf"as Trainer.released, got {got}") as refused:
            trainer.evaluate(*tiny_images(), weights=weights)

        assert refused.value.field == "weights"
        assert torch.equal(vector(trainer), before)
        for told in (trainer.released_weights, trainer.trained_weights):
            with pytest.raises(ParameterError, match=rf"as Trainer.released, got {got}"):
                told(weights)

    def test_an_empty_split_cannot_be_evaluated(self) -> None:
        inputs, labels = tiny_images()

        with pytest.raises(ParameterError, match="empty split"):
            make_trainer().evaluate(inputs[:0], labels[:0])


class Says(nn.Module):
    """A linear classifier, and then something."""

    def __init__(self, something) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 3)
        self.something = something

    def forward(self, x: torch.Tensor) -> object:
        return self.something(self.layer(x.flatten(1)))


NO_LOGITS = {
    "tuple": (lambda x: (x, x), "got a tuple"),
    "mapping": (lambda x: {"logits": x}, "got a dict"),
    "nothing": (lambda _: None, "got a NoneType"),
    "classes": (lambda x: x.argmax(1), "got torch.int64"),
    "two-axes": (lambda x: x[:, None], "got shape [4, 1, 3] for B = 4"),
    "no-axis": (lambda x: x[:, 0], "got shape [4] for B = 4"),
    "no-class": (lambda x: x[:, :0], "got shape [4, 0] for B = 4"),
    "fewer": (lambda x: x[1:], "got shape [3, 3] for B = 4"),
}


class TestModelAndInputs:
    """A model that does not fit its inputs says so before a step, whatever becomes of them."""

    @pytest.mark.parametrize(("something", "got"), NO_LOGITS.values(), ids=NO_LOGITS)
    @pytest.mark.parametrize("is_private", [True, False])
    def test_what_gives_no_logits_is_refused(self, something, got: str, is_private: bool) -> None:
        execution = make_run() if is_private else Simulation.of(make_run(), expected_batch_size=6)

        with pytest.raises(ParameterError, match=re.escape(got)) as error:
            make_trainer(execution, model=Says(something))

        assert error.value.field == "model"
        assert "must give a tensor of logits of shape [B, classes]" in str(error.value)

    @pytest.mark.parametrize("is_private", [True, False])
    def test_records_of_another_width_are_refused(self, is_private: bool) -> None:
        execution = make_run() if is_private else Simulation.of(make_run(), expected_batch_size=6)
        message = (
            r"does not run on inputs of shape \[B, 7\] in torch\.float32: .* cannot be multiplied"
        )

        with pytest.raises(ParameterError, match=message) as error:
            make_trainer(
                execution, model=nn.Linear(64, 3), inputs=np.zeros((NUM_EXAMPLES, 7), np.float32)
            )

        assert error.value.field == "model"

    def test_a_model_may_raise_anything(self) -> None:
        def fails(_: torch.Tensor) -> object:
            raise KeyError("scale")

        with pytest.raises(ParameterError, match=r"does not run on .*: KeyError: 'scale'") as error:
            make_trainer(model=Says(fails))

        assert isinstance(error.value.__cause__, KeyError)

    def test_and_what_it_refuses_on_purpose_is_left_as_it_is(self) -> None:
        def refuses(_: torch.Tensor) -> object:
            raise ParameterError("groups must be 8", field="model.groups")

        with pytest.raises(ParameterError, match=r"^groups must be 8$") as error:
            make_trainer(model=Says(refuses))

        assert error.value.field == "model.groups"

    def test_a_split_of_another_shape_is_read_where_the_model_can_and_else_refused(self) -> None:
        inputs, labels = tiny_images()
        trainer = run(make_trainer(), 1)

        accuracy = trainer.evaluate(inputs, labels)
        assert trainer.evaluate(inputs.reshape(NUM_EXAMPLES, 64), labels) == accuracy
        with pytest.raises(
            ParameterError, match=r"records of shape \[1, 4, 4\]: .*; accepted: \[1, 8, 8\]"
        ) as error:
            trainer.evaluate(inputs[:, :, :4, :4], labels)
        assert error.value.field == "inputs"

    def test_an_error_on_records_of_the_right_shape_stays_what_it_is(self) -> None:
        class Tires(nn.Linear):
            is_tired = False

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                if self.is_tired:
                    raise RuntimeError("out of memory")
                return super().forward(x.flatten(1))

        model = Tires(64, 3)
        trainer = make_trainer(model=model)
        model.is_tired = True

        with pytest.raises(RuntimeError, match=r"^out of memory$"):
            trainer.evaluate(*tiny_images())


CHANGES = {
    "laid out": lambda model: model.to(memory_format=torch.channels_last),
    "converted": lambda model: model.double(),
    "assigned": lambda model: model.load_state_dict(deepcopy(model).state_dict(), assign=True),
    "frozen": lambda model: model[0].requires_grad_(False),
    "replaced": lambda model: setattr(model[0], "weight", nn.Parameter(model[0].weight.clone())),
}


class TestModelAfterwards:
    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(SHAPE[0], 3, 3), nn.Flatten(), nn.LazyLinear(3))

    def trainer(self, model: nn.Module) -> Trainer:
        with torch.no_grad():
            model(torch.zeros(1, *SHAPE))
        return make_trainer(model=model)

    @pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
    def test_one_that_is_given_other_parameters_is_refused(self, change) -> None:
        """Its gradients were those of weights that stood still, and so was its accuracy."""
        model = self.model()
        trainer = run(self.trainer(model), 1)
        with torch.no_grad():
            change(model)

        for ask in (trainer.step, lambda: trainer.evaluate(*tiny_images())):
            with pytest.raises(ParameterError, match=r"'0\.\w+' of the model is no longer what"):
                ask()
        assert trainer.steps_done == 1

    @pytest.mark.parametrize("change", ["untied", "unfrozen"])
    def test_so_is_one_with_a_parameter_more(self, change: str) -> None:
        """It would never be trained, though whoever reads the model takes it for trained."""
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 3))
        model[2].weight = model[1].weight
        model[3].bias.requires_grad_(False)
        trainer = run(make_trainer(model=model), 1)
        if change == "untied":
            model[2].weight = nn.Parameter(model[1].weight.detach().clone())
        else:
            model[3].bias.requires_grad_(True)

        with pytest.raises(ParameterError, match=r"'[23]\.\w+' of the model is no longer what"):
            trainer.step()

    def test_other_values_in_the_same_place_are_accepted(self) -> None:
        model, other = self.model(), self.model()
        trainer = self.trainer(model)
        self.trainer(other)
        model.load_state_dict(other.state_dict())
        model.eval()

        assert run(trainer, 2).steps_done == 2
        own = torch.cat([each.detach().flatten() for each in model.parameters()])
        assert torch.equal(own, vector(trainer))


class TestModes:
    """What torch is set to while a step is asked for."""

    @pytest.mark.parametrize(
        "mode",
        [torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)],
        ids=["inference", "autocast"],
    )
    def test_a_step_that_cannot_be_taken_in_one_costs_no_draw(self, mode) -> None:
        """A private run that has drawn for a step takes it at once or never."""
        trainer = make_trainer()
        for _ in range(2):
            with mode(), pytest.raises(RuntimeError, match=r"inference_mode|autocast"):
                trainer.step()

        assert torch.equal(vector(run(trainer, 2)), vector(run(make_trainer(), 2)))


def test_an_evaluation_changes_no_records() -> None:
    """A first layer that works in place worked in the memory of the split."""
    images, labels = tiny_images(NUM_EXAMPLES)
    inputs = torch.from_numpy(images).flatten(1).float() - 100
    before = inputs.clone()
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(inputs.shape[1], 3))
    trainer = run(make_trainer(model=model, inputs=inputs), 1)

    trainer.evaluate(inputs, labels)

    assert torch.equal(inputs, before)


class TestDigits:
    def test_digits_are_learnt_under_epsilon_3(self) -> None:
        """Noise 2.56 at q = 128/1295 and 300 steps is epsilon 3 at delta 1e-5 (PLD)."""
        facts = data.inspect(None, source="digits")
        ref = dataset_ref(facts)
        train, test = data.load_split(ref, "train"), data.load_split(ref, "test")
        mechanism = Mechanism(
            sampling_rate=128 / len(train), noise_multiplier=2.56, clip_norm=0.1, steps=300
        )
        trainer = Trainer(
            model=models.build(
                MlpModel(), shape=facts.shape, num_classes=10, generator=torch.Generator()
            ),
            execution=PrivateRun(mechanism=mechanism, num_examples=len(train)),
            config=TrainerConfig(clip_norm=0.1, ema_decay=0.95),
            inputs=train.inputs,
            labels=train.labels,
            randomness=PrivateRandomness(KEY, 1),
        )

        run(trainer, 300)

        assert trainer.evaluate(test.inputs, test.labels) > 0.88


class TestThreads:
    """An evaluation has other weights in the place of the current ones, and keeps no books."""

    @pytest.mark.parametrize(
        "look",
        [
            lambda trainer: trainer.evaluate(*tiny_images(), weights=torch.zeros_like(trainer.released)),
            Trainer.state,
            Trainer.released_weights,
        ],
        ids=["evaluate", "state", "released_weights"],
    )  # fmt: skip
    def test_one_that_looks_waits_for_the_step_of_another(self, look) -> None:
        trainer, alone = make_trainer(), run(make_trainer(), 1)
        looking = threading.Thread(target=look, args=(trainer,))
        waited: list[bool] = []

        def amid_a_step() -> None:
            if not waited:
                looking.start()
                looking.join(0.2)
                waited.append(looking.is_alive())

        trainer.progressed = amid_a_step
        run(trainer, 1)
        looking.join(60)

        assert waited == [True]
        assert not looking.is_alive()
        assert torch.equal(vector(trainer), vector(alone))

    def test_a_step_waits_for_the_evaluation_of_another(self) -> None:
        trainer, alone = make_trainer(), run(make_trainer(), 1)
        stepping = threading.Thread(target=trainer.step)
        waited: list[bool] = []

        def amid_an_evaluation() -> None:
            if not waited:
                stepping.start()
                stepping.join(0.2)
                waited.append(stepping.is_alive())

        trainer.progressed = amid_an_evaluation
        trainer.evaluate(*tiny_images(), weights=torch.zeros_like(trainer.released))
        stepping.join(60)

        assert waited == [True]
        assert torch.equal(vector(trainer), vector(alone))

    def test_one_thread_may_evaluate_amid_its_own_step(self) -> None:
        trainer, alone = make_trainer(), run(make_trainer(), 1)
        found: list[float] = []

        def amid_a_step() -> None:
            if not found:
                found.append(-1.0)
                found.append(trainer.evaluate(*tiny_images()))

        trainer.progressed = amid_a_step
        run(trainer, 1)

        assert found[1] == make_trainer().evaluate(*tiny_images())
        assert torch.equal(vector(trainer), vector(alone))
