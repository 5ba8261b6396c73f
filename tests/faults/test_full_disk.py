"""A disk without space: a checkpoint is written whole or not at all."""

import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tan_core.engine import checkpoint

pytestmark = pytest.mark.faults


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte, in memory."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "none", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root may mount a file system, and not everywhere")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def fill(disk: Path) -> None:
    """Take all the space that is left."""
    with (disk / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    assert shutil.disk_usage(disk).free == 0


def test_a_checkpoint_that_does_not_fit_leaves_the_one_before_it(small_disk: Path) -> None:
    path = small_disk / "attempt-1" / "model.safetensors"
    checkpoint.save_weights(path, {"weight": torch.zeros(1000)})
    before = path.read_bytes()
    fill(small_disk)

    with pytest.raises(OSError, match="No space left on device") as refusal:
        checkpoint.save_weights(path, {"weight": torch.ones(50_000)})

    assert refusal.value.errno == errno.ENOSPC
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]
