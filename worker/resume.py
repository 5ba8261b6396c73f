"""Where an attempt of a private run goes on from.

It is the checkpoint that was reported last. Where the database was restored from a backup, that one is gone: it was
dropped once there was a newer one, of which the database knows nothing. The run then goes on from the newest that
storage has, after the steps that were taken up to it have been charged once more.
"""

import hashlib
import logging
import re
from collections.abc import Callable
from pathlib import Path

from tan_core.engine import Trainer, checkpoint
from tan_core.wire import Checkpoint, PrivateAssignment

log = logging.getLogger(__name__)


def resume(trainer: Trainer, known: Checkpoint) -> None:
    """Go on from a checkpoint; the hash, the mechanism and the model must all be right."""
    loaded = checkpoint.load(Path(known.path), known.sha256)
    trainer.load_state(loaded.state)
    if trainer.steps_done != known.step:
        raise ValueError(
            f"{known.path}: holds step {trainer.steps_done}, reported was {known.step}"
        )


def checkpoint_to_resume(
    assignment: PrivateAssignment, told: Callable[[list[int]], list[int]], *, is_first: bool
) -> Checkpoint | None:
    """The one that was reported last, or where it is gone from storage the newest that lies there.

    Ranks may see storage at different ages, so rank 0 looks for all.

    Args:
        assignment: of this attempt.
        told: gives what rank 0 passes to every rank.
        is_first: whether this is rank 0.

    Returns:
        None if the run begins anew.
    """
    known = assignment.checkpoint
    if known is None:
        return None
    folder = Path(assignment.storage_path)
    newer = _newest(folder, known) if is_first and not Path(known.path).exists() else None
    attempt, step, *digest = told(_as_integers(newer))
    if step == 0:
        return known
    path = folder / f"attempt-{attempt}" / f"step-{step}"
    log.warning(
        "%s is gone: the database is older than storage. Going on from %s", known.path, path
    )
    return Checkpoint(step=step, path=str(path), sha256=bytes(digest).hex())


_PLACE = re.compile(r"/attempt-(\d+)/step-(\d+)\Z")
_Found = tuple[int, int, bytes]
"""Step, attempt, digest."""


def _newest(folder: Path, known: Checkpoint) -> _Found | None:
    """Of those after the known one, and whole: a draft has another name until it is durable."""
    found = [
        (int(place[2]), int(place[1]), path)
        for path in folder.glob("attempt-*/step-*")
        if (place := _PLACE.search(path.as_posix()))
    ]
    step, attempt, path = max(found, default=(0, 0, folder))
    if step <= known.step:
        return None
    with path.open("rb") as content:
        return step, attempt, hashlib.file_digest(content, "sha256").digest()


def _as_integers(found: _Found | None) -> list[int]:
    """Attempt, step and digest, byte by byte."""
    step, attempt, digest = found or (0, 0, bytes(hashlib.sha256().digest_size))
    return [attempt, step, *digest]
