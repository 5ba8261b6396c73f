"""Ranks in processes of their own that sum by gloo, many pieces at once on their way."""

import multiprocessing
import os
import socket
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tan_core.engine import trainer as trainer_module
from tan_core.engine.noisy_sum import Pieces
from tests.unit.tan_core.engine.support import make_run, make_trainer, run, vector

STEPS = 6
LIMIT_SECONDS = 120


def changes():
    """Three examples on average, so that some ranks have drawn nothing."""
    return {"execution": make_run(q=0.05), "microbatch_size": 2}


def serve(rank: int, world_size: int, port: int, folder: str) -> None:
    """One rank: its steps, and its weights into a file."""
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    trainer_module.Pieces = partial(Pieces, at_least=1)  # each parameter is one
    trainer = make_trainer(
        rank=rank,
        world_size=world_size,
        all_reduce=partial(dist.all_reduce, async_op=True),
        **changes(),
    )
    torch.save(vector(run(trainer, STEPS)), Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [2, 3])
def test_they_make_the_steps_of_one(world_size: int, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    ranks = [
        context.Process(target=serve, args=(rank, world_size, port, str(tmp_path)))
        for rank in range(world_size)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(LIMIT_SECONDS)

    assert [rank.exitcode for rank in ranks] == [0] * world_size
    alone = vector(run(make_trainer(**changes()), STEPS))
    first, *others = (torch.load(tmp_path / f"{rank}.pt") for rank in range(world_size))
    assert all(other.equal(first) for other in others)
    assert torch.allclose(first, alone, rtol=1e-6, atol=1e-6)
