"""Before a step is charged: as much at once as one may take, of nobody's records."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tan_core.errors import AuditError
from tan_core.execution import PrivateRun, Simulation
from tan_core.mechanism import Mechanism, NeighboringRelation, Sampling
from tan_core.spec.models import TanhCnnModel
from tan_core.testing.tiny import SHAPE, tiny_images
from tests.unit.tan_core.engine.support import NUM_EXAMPLES, make_run, make_trainer, run, vector


class Watched(nn.Module):
    """Notes how many views it was given at once, where gradients are made and where not."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(SHAPE[0] * SHAPE[1] * SHAPE[2], 3)
        self.trained: list[int] = []
        self.scored: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        (self.trained if torch.is_grad_enabled() else self.scored).append(len(images))
        return self.layer(images.flatten(1))


def _watched(num_scored: int = 0, **changes) -> Watched:
    model = Watched()
    trainer = make_trainer(model=model, **changes)
    model.trained.clear()
    model.scored.clear()
    trainer.rehearse(num_scored=num_scored)
    return model


@pytest.mark.parametrize(
    ("microbatch_size", "views", "records_per_user", "at_once"),
    [
        (16, 1, 1, 16),
        (256, 1, 1, 39),  # of 12 drawn of 60: no more are
        (16, 4, 1, 16),
        (2, 4, 1, 4),  # one example's views at least
        (16, 1, 5, 15),
        (4, 2, 10, 20),  # one user's at least
    ],
)
def test_it_takes_as_many_views_as_a_step_may(
    microbatch_size: int, views: int, records_per_user: int, at_once: int
) -> None:
    users = None
    if records_per_user > 1:
        users = torch.arange(NUM_EXAMPLES) // records_per_user
    execution = make_run()
    execution = type(execution)(
        mechanism=execution.mechanism, num_examples=NUM_EXAMPLES // records_per_user
    )
    model = _watched(
        execution=execution,
        users=users,
        microbatch_size=microbatch_size,
        config={"augmentation_multiplicity": views},
    )
    assert max(model.trained) == at_once


@pytest.mark.parametrize(
    ("records_of_first", "microbatch_size", "at_once"), [(9, 16, 16), (9, 9, 9), (40, 16, 40)]
)
def test_users_with_fewer_records_fill_what_the_largest_leave(
    records_of_first: int, microbatch_size: int, at_once: int
) -> None:
    users = (torch.arange(NUM_EXAMPLES) - (records_of_first - 1)).clamp_min(0)
    run_of_all = PrivateRun(
        mechanism=Mechanism(sampling_rate=1, noise_multiplier=1, clip_norm=1, steps=2),
        num_examples=int(users.max()) + 1,
    )
    model = _watched(execution=run_of_all, users=users, microbatch_size=microbatch_size)
    assert max(model.trained) == at_once
    model.trained.clear()
    make_trainer(run_of_all, model=model, users=users, microbatch_size=microbatch_size).step()
    assert max(model.trained[-9:]) == at_once


@pytest.mark.parametrize(("cap", "world_size", "at_once"), [(12, 1, 12), (13, 2, 7), (None, 2, 20)])
def test_it_takes_no_more_than_a_rank_may_have_to(
    cap: int | None, world_size: int, at_once: int
) -> None:
    """Memory for a full microbatch is not asked for where the draws are smaller."""
    of_cap = {}
    if cap is not None:
        of_cap = {
            "sampling": Sampling.TRUNCATED_POISSON,
            "num_examples": NUM_EXAMPLES,
            "max_batch_size": cap,
            "neighboring_relation": NeighboringRelation.ZERO_OUT,
        }
    mechanism = Mechanism(sampling_rate=0.2, noise_multiplier=1, clip_norm=1, steps=2, **of_cap)
    execution = PrivateRun(mechanism=mechanism, num_examples=NUM_EXAMPLES)
    model = _watched(execution=execution, world_size=world_size, all_reduce=lambda _: None)
    assert max(model.trained) == at_once


class Largest(TorchDispatchMode):
    """Notes how many bytes the largest tensor has that comes into being."""

    num_bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if isinstance(found, Tensor):
            self.num_bytes = max(self.num_bytes, found.nbytes)
        return found


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float32, torch.bool])
def test_what_is_made_up_takes_as_much_memory_as_what_is_read(dtype: torch.dtype) -> None:
    inputs, _ = tiny_images(NUM_EXAMPLES)
    trainer = make_trainer(inputs=torch.as_tensor(inputs).to(dtype))
    with Largest() as largest:
        made = trainer._reader.random_records(1000, torch.Generator().manual_seed(0))
    assert made.dtype == dtype
    assert largest.num_bytes == made.nbytes


@pytest.mark.parametrize(
    ("num_scored", "microbatch_size", "at_once"), [(100, 256, 100), (5000, 256, 512), (100, 3, 12)]
)
def test_it_scores_as_many_records_as_an_evaluation_does(
    num_scored: int, microbatch_size: int, at_once: int
) -> None:
    model = _watched(num_scored, microbatch_size=microbatch_size)
    assert model.scored == [at_once]
    model.scored.clear()
    inputs, labels = tiny_images(num_scored)
    make_trainer(model=model, microbatch_size=microbatch_size).evaluate(inputs, labels)
    assert max(model.scored) == at_once


@pytest.mark.parametrize("is_private", [True, False])
@pytest.mark.parametrize(
    "config",
    [
        {"optimizer": "adamw", "ema_decay": 0.9},
        {"augmentation_multiplicity": 4, "color_jitter": 0.2, "horizontal_flip": True},
        {"class_shares": [0.2, 0.3, 0.5]},
    ],
)
def test_no_step_is_another_one_for_it(config: dict, is_private: bool) -> None:
    def trained(*, rehearsed: bool) -> Tensor:
        execution = make_run()
        if not is_private:
            execution = Simulation(
                dynamics=execution.mechanism, scale_factor=4, num_examples=NUM_EXAMPLES
            )
        trainer = make_trainer(execution, spec=TanhCnnModel(), config=config)
        before = vector(trainer)
        if rehearsed:
            trainer.rehearse(num_scored=10)
            assert torch.equal(vector(trainer), before)
            assert trainer.steps_done == 0
        return vector(run(trainer, 3))

    assert torch.equal(trained(rehearsed=True), trained(rehearsed=False))


def test_no_record_is_read() -> None:
    inputs, labels = tiny_images(NUM_EXAMPLES)
    trainer = make_trainer(inputs=inputs, labels=labels)
    seen: list[Tensor] = []
    trainer._model.register_forward_pre_hook(lambda _, given: seen.append(given[0].clone()))
    trainer.rehearse(num_scored=10)
    own = torch.as_tensor(inputs).float() / 127.5 - 1
    for given in seen:
        assert not (given[:, None] == own[None]).flatten(2).all(2).any()
    assert len(seen) >= 2


class Averaging(Watched):
    """Keeps a mean of what it reads, of batches that no check has tried."""

    def __init__(self, at_least: int) -> None:
        super().__init__()
        self.at_least = at_least
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, images: Tensor) -> Tensor:
        if len(images) >= self.at_least:
            self.mean.mul_(0.9).add_(images.mean(), alpha=0.1)
        return super().forward(images)


def test_what_a_model_does_in_large_batches_ends_a_run_before_its_first_step() -> None:
    trainer = make_trainer(model=Averaging(at_least=16))
    with pytest.raises(AuditError, match="'mean' of the model, which is not trained"):
        trainer.rehearse()
    assert trainer.steps_done == 0
    make_trainer(model=Averaging(at_least=NUM_EXAMPLES + 1)).rehearse()


class Short(Watched):
    """Finds no room for so many views."""

    def forward(self, images: Tensor) -> Tensor:
        if len(images) > 20:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().forward(images)


def test_what_does_not_fit_is_said_before_anything_is_drawn() -> None:
    trainer = make_trainer(model=Short())
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        trainer.rehearse()
    assert trainer._randomness._drawn == {}
    make_trainer(model=Short(), microbatch_size=20).rehearse()
