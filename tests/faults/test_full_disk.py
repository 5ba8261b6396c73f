"""A disk without space: a checkpoint is written whole or not at all."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tan_core.engine import checkpoint
from tests.support.disks import fill, small_disk

pytestmark = pytest.mark.faults


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", megabytes=1) as path:
        yield path


def test_a_checkpoint_that_does_not_fit_leaves_the_one_before_it(disk: Path) -> None:
    path = disk / "attempt-1" / "model.safetensors"
    checkpoint.save_weights(path, {"weight": torch.zeros(1000)})
    before = path.read_bytes()
    fill(disk)

    with pytest.raises(OSError, match="No space left on device") as refusal:
        checkpoint.save_weights(path, {"weight": torch.ones(50_000)})

    assert refusal.value.errno == errno.ENOSPC
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]
