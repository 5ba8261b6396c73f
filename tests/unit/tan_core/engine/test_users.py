"""Users as units: the mean over a user's records is clipped once, and nothing else changes."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from tan_core.engine import clipped_sum
from tan_core.engine.audit import differences
from tan_core.engine.augment import Augmentation
from tan_core.engine.reading import Reader
from tan_core.engine.users import Users
from tan_core.errors import ParameterError
from tan_core.execution import PrivateRun
from tan_core.testing.tiny import tiny_images
from tests.unit.tan_core.engine.support import (
    NUM_EXAMPLES,
    make_run,
    make_trainer,
    run,
    run_ranks,
    vector,
)
from tests.unit.tan_core.engine.test_gradients import make_batch, make_model
from tests.unit.tan_core.engine.test_trainer import FixedRandomness

NUM_USERS = 17


def owners(seed: int = 0) -> np.ndarray:
    """Of the 60 records; users have 1 to 9 of them."""
    generator = np.random.default_rng(seed)
    drawn = np.concatenate([np.arange(NUM_USERS), generator.integers(0, 7, NUM_EXAMPLES - NUM_USERS)])  # fmt: skip
    return generator.permutation(drawn)


def user_run(**settings) -> PrivateRun:
    return PrivateRun(mechanism=make_run(**settings).mechanism, num_examples=NUM_USERS)


def user_trainer(execution: PrivateRun | None = None, **changes):
    return make_trainer(execution or user_run(), **{"users": owners(), **changes})


def mean_gradients(model, inputs, labels, counts) -> torch.Tensor:
    """[U, P] by the definition: plain autograd over each user's own records alone."""
    rows, start = [], 0
    for count in counts:
        own = slice(start, start + count)
        loss = functional.cross_entropy(model(inputs[own]), labels[own])
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, model.parameters())]))
        start += count
    return torch.stack(rows)


class TestClippedSums:
    @pytest.mark.parametrize("name", ["linear", "mlp", "tanh-cnn", "wrn-16-4", "vit-tiny"])
    def test_a_user_s_mean_gradient_is_clipped_once(self, name: str) -> None:
        model, counts = make_model(name), [3, 1, 2]
        inputs, labels = make_batch(6)
        rows = mean_gradients(model, inputs, labels, counts)
        clip_norm = float(rows.norm(dim=1).median())
        expected = (clip_norm / rows.norm(dim=1)).clamp_max(1) @ rows
        records, shares = Users(torch.tensor([0, 0, 0, 1, 2, 2])).records(torch.arange(3))

        found = clipped_sum(
            model,
            inputs[records.flatten()],
            labels[records],
            clip_norm=clip_norm,
            views=3,
            shares=shares,
        )

        assert torch.allclose(found.norms, rows.norm(dim=1), rtol=1e-9)
        assert float((found.sum - expected).norm()) <= 1e-9 * float(expected.norm())

    def test_the_audit_knows_a_user_clipped_by_anything_else(self) -> None:
        model = make_model("mlp")
        inputs, labels = make_batch(3)
        records, shares = Users(torch.tensor([0, 0, 0, 1])).records(torch.tensor([0]))
        seen = {"views": 3, "shares": shares, "clip_norm": 0.1}
        kept = clipped_sum(model, inputs, labels[records], **seen).norms

        sound, wrong = (
            differences(model, inputs, labels[records], norms, **seen)[0]
            for norms in (kept, 1.1 * kept)
        )

        assert sound < 1e-6 < 1e-2 < wrong

    def test_a_record_that_is_not_finite_leaves_its_user_out_and_nobody_else(self) -> None:
        model = make_model("mlp")
        inputs, labels = make_batch(6)
        inputs[3] = torch.nan
        records, shares = Users(torch.tensor([0, 0, 1, 1, 2, 2])).records(torch.arange(3))
        whole = {"clip_norm": 0.1, "views": 2}

        found = clipped_sum(model, inputs, labels[records], shares=shares, **whole)

        others = [0, 1, 4, 5]
        expected = clipped_sum(model, inputs[others], labels[others].view(2, 2), **whole)
        assert torch.equal(found.norms.isfinite(), torch.tensor([True, False, True]))
        assert torch.allclose(found.sum, expected.sum)

    @pytest.mark.parametrize("name", ["labels", "shares"])
    def test_a_table_of_another_width_is_refused(self, name: str) -> None:
        model = make_model("linear")
        inputs, labels = make_batch(4)
        tables = {"labels": labels.view(2, 2), "shares": torch.full((2, 2), 0.5)}
        tables[name] = tables[name].repeat(1, 2)

        with pytest.raises(ParameterError, match=f"{name} must be of 2 views"):
            clipped_sum(model, inputs, clip_norm=1.0, views=2, **tables)


class Logarithm(torch.nn.Module):
    """Of one pixel: no finite number where a view has a 0 there."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.flatten(1)[:, :1] + 1).log()


class TestViews:
    @pytest.mark.parametrize("seed", range(8))
    def test_a_user_moves_the_sum_by_at_most_c_whatever_views_of_others_are_not_finite(
        self, seed: int
    ) -> None:
        """User 0 has two records, so user 1 is filled up beside it, and not where it is alone."""
        reader = Reader(
            inputs=torch.tensor([[255, 200], [10, 20], [255, 0]], dtype=torch.uint8)[:, None, None],
            labels=torch.tensor([0, 1, 2]),
            users=Users(torch.tensor([0, 0, 1])),
            augmentation=Augmentation(flip=True),
            microbatch_size=8,
            device=torch.device("cpu"),
            dtype=torch.float32,
        )
        torch.nn.init.ones_((layer := torch.nn.Linear(1, 3)).weight)
        model = torch.nn.Sequential(Logarithm(), layer)
        draw = reader.draw(torch.arange(2), lambda: torch.Generator().manual_seed(seed))

        def sum_of(units: list[int]) -> torch.Tensor:
            shown = reader.gathered(torch.tensor(units), draw)
            return clipped_sum(
                model,
                shown.inputs,
                shown.labels,
                clip_norm=0.1,
                views=shown.views,
                shares=shown.shares,
            ).sum

        assert float((sum_of([0, 1]) - sum_of([1])).norm()) <= 0.1 * (1 + 1e-5)


class TestUsers:
    def test_it_names_a_user_without_records(self) -> None:
        with pytest.raises(ParameterError, match="user 1 has no record"):
            Users(torch.tensor([0, 2, 2]))

    def test_so_it_does_where_users_are_numbered_by_something_else(self) -> None:
        """Nothing is as long as the largest number: there is no memory for that."""
        with pytest.raises(
            ParameterError,
            match=r"user 2 has no record, of users up to 10{12}; accepted: integers from 0",
        ):
            Users(torch.tensor([10**12, 1, 0]))

    @pytest.mark.parametrize("users", [[], [-1, 0]])
    def test_it_refuses_what_are_no_numbers_from_zero(self, users: list[int]) -> None:
        with pytest.raises(ParameterError, match="a number from 0 for each record"):
            Users(torch.tensor(users, dtype=torch.int64))


class TestSteps:
    def test_a_step_is_the_definition(self) -> None:
        drawn = [0, 3, 4, 11]
        trainer = user_trainer(randomness=FixedRandomness(drawn))
        start = vector(trainer)
        model = make_trainer(user_run(), users=owners())._model
        inputs, labels = (torch.from_numpy(each) for each in tiny_images())
        of = [np.flatnonzero(owners() == user) for user in drawn]
        order = np.concatenate(of)
        rows = mean_gradients(
            model, inputs[order] / 127.5 - 1, labels[order], [len(own) for own in of]
        )

        run(trainer, 1)

        summed = (1 / rows.norm(dim=1)).clamp_max(1) @ rows
        assert torch.allclose(vector(trainer) - start, -summed / (0.2 * NUM_USERS), atol=1e-6)

    def test_users_are_drawn_and_counted(self) -> None:
        drawn = []

        class Seen(FixedRandomness):
            def mask(self, step, *, num_examples, sampling_rate):
                drawn.append((num_examples, sampling_rate))
                return super().mask(step, num_examples=num_examples, sampling_rate=sampling_rate)

        run(user_trainer(randomness=Seen([16])), 1)

        assert drawn == [(NUM_USERS, 0.2)]

    def test_a_user_moves_the_update_by_at_most_one_clipped_gradient(self) -> None:
        everybody = run(user_trainer(randomness=FixedRandomness(range(NUM_USERS))), 1)

        for left_out in range(NUM_USERS):
            drawn = [user for user in range(NUM_USERS) if user != left_out]
            fewer = run(user_trainer(randomness=FixedRandomness(drawn)), 1)
            moved = float((vector(everybody) - vector(fewer)).norm())
            assert 0 < moved <= 1 / (0.2 * NUM_USERS) * (1 + 1e-4)

    def test_users_of_one_record_each_are_records(self) -> None:
        of_records, of_users = make_trainer(), make_trainer(users=np.arange(NUM_EXAMPLES))

        assert torch.equal(vector(run(of_records, 5)), vector(run(of_users, 5)))

    def test_a_record_that_a_user_has_several_times_counts_once(self) -> None:
        inputs, labels = tiny_images()
        twice = {
            "inputs": np.concatenate([inputs, inputs[:20]]),
            "labels": np.concatenate([labels, labels[:20]]),
            "users": np.concatenate([np.arange(NUM_EXAMPLES), np.arange(20)]),
        }

        once, again = run(make_trainer(), 5), run(make_trainer(**twice), 5)

        assert torch.allclose(vector(once), vector(again), atol=1e-6)

    @pytest.mark.parametrize("multiplicity", [1, 3])
    @pytest.mark.parametrize("microbatch_size", [1, 7, 1000])
    def test_the_microbatch_size_does_not_change_the_update(
        self, microbatch_size: int, multiplicity: int
    ) -> None:
        config = {"augmentation_multiplicity": multiplicity, "horizontal_flip": True}

        one, other = (
            run(user_trainer(config=config, microbatch_size=size), 3)
            for size in (256, microbatch_size)
        )

        assert torch.allclose(vector(one), vector(other), atol=1e-6)

    @pytest.mark.parametrize("multiplicity", [1, 3])
    def test_the_number_of_ranks_does_not_change_the_update(self, multiplicity: int) -> None:
        config = {"augmentation_multiplicity": multiplicity, "color_jitter": 0.5}
        alone = run(user_trainer(config=config), 4)

        ranks = run_ranks(2, 4, execution=user_run(), users=owners(), config=config)

        for trainer in ranks:
            assert torch.allclose(vector(trainer), vector(alone), atol=1e-5)

    def test_counts_that_do_not_fit_are_refused(self) -> None:
        with pytest.raises(ParameterError, match=r"inputs hold 17 users, .* planned for 60"):
            make_trainer(users=owners())
        with pytest.raises(ParameterError, match="60 inputs but 17 users of them"):
            make_trainer(user_run(), users=np.arange(NUM_USERS))
