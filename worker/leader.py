"""Rank 0 of a private run: has segments charged, keeps and reports checkpoints, releases the model."""

import logging
import platform
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from importlib.metadata import version
from pathlib import Path

import torch

from tan_core.data import Split
from tan_core.engine import Trainer, checkpoint
from tan_core.models.extractor import Extractor
from tan_core.spec.columns import as_json
from tan_core.wire import Checkpoint, FeaturesMade, PrivateAssignment, PrivateResult, SegmentGrant
from worker.metric import score_of
from worker.provenance import commit
from worker.reasons import UncoveredError
from worker.report import ControlPlane, FencedError, Heartbeats
from worker.settings import WorkerSettings

log = logging.getLogger(__name__)

_RATE_WINDOW = 32
_SOFTWARE = ("tan-search", "torch", "ray", "numpy", "cryptography")


class Leader:
    """Rank 0's line to the control plane.

    At most one checkpoint is on its way to storage and to the control plane, and the next segment may
    begin meanwhile. What it failed with is raised by whatever is called next that would report more.

    Args:
        assignment: of this attempt.
        settings: where the control plane is, and who asks.
        stack: holds what is to be closed.
        waiting: called while the control plane does not answer.
    """

    def __init__(
        self,
        assignment: PrivateAssignment,
        settings: WorkerSettings,
        stack: ExitStack,
        *,
        waiting: Callable[[], None] = lambda: None,
    ) -> None:
        self._control = stack.enter_context(closing(ControlPlane(settings, waiting=waiting)))
        self._heartbeats = stack.enter_context(Heartbeats(self._control))
        # Left first, and not before the checkpoint that is on its way has arrived or failed.
        self._thread = stack.enter_context(ThreadPoolExecutor(1, "checkpoint"))
        self._on_its_way: Future[None] | None = None
        self._settings = settings
        self._folder = Path(assignment.storage_path) / f"attempt-{assignment.attempt}"
        known = assignment.checkpoint
        self._kept = Path(known.path) if known is not None else None
        """The newest checkpoint that was reported, be it of an earlier attempt: it goes when the next one is."""
        self._times: deque[tuple[float, int]] = deque(maxlen=_RATE_WINDOW)

    def note_features(self, made: FeaturesMade) -> None:
        """Tell the control plane how far they are, before there is a step."""
        self._heartbeats.note_features(made)

    @property
    def is_cancelled(self) -> bool:
        """Whether the run is to stop at this step boundary."""
        return self._heartbeats.cancelled.is_set()

    @property
    def is_to_stop(self) -> bool:
        """Whether no further segment is to begin: for a run that pauses, none is left half done."""
        return self._heartbeats.is_to_stop()

    def charge(self, start_step: int, num_steps: int) -> SegmentGrant:
        """Have the next steps charged; as many as were granted may run."""
        self._raise_failure()
        nothing = SegmentGrant(segment=0, num_steps=0)
        if self.is_to_stop:
            return nothing
        try:
            return self._control.request_segment(start_step=start_step, num_steps=num_steps)
        except FencedError:
            # Nothing is charged for a run that is being cancelled, either. Only a live attempt is
            # told so: for any other this heartbeat is refused as well.
            if self._control.heartbeat(step=start_step).desired != "cancel":
                raise
            self._heartbeats.cancel()
            return nothing

    def catch_up(self, known: Checkpoint, found: Checkpoint) -> bool:
        """Have steps charged that were taken, and are in no books since a backup was restored; then they are reported.

        Returns:
            False if the run is to stop instead.

        Raises:
            UncoveredError: not as many are left in the reservation.
        """
        taken = found.step - known.step
        grant = self.charge(known.step, taken)
        if grant.num_steps == taken:
            self._control.end_segment(grant.segment, found)
            self._kept = Path(found.path)
            self._heartbeats.progress(found.step, None)
            return True
        if self.is_to_stop:
            return False
        raise UncoveredError(
            f"the database was restored from an older backup, and of the {taken} steps that were taken since only "
            f"{grant.num_steps} are left to charge: the run cannot go on from {found.path}"
        )

    def progressed(self, step: int) -> None:
        """Let the next heartbeat say how far the run is."""
        self._raise_failure()
        self._times.append((time.monotonic(), step))
        (then, first), (now, last) = self._times[0], self._times[-1]
        rate = (last - first) / (now - then) if now > then else None
        self._heartbeats.progress(step, rate)

    def close_segment(self, segment: int, trainer: Trainer) -> None:
        """Hand the checkpoint over to storage, and have it reported once it is durable.

        What storage refuses at once, for want of space, is raised here: steps that are charged later
        and come to no checkpoint would be charged in vain.
        """
        step = trainer.steps_done
        self._heartbeats.progress(step, None)  # until the next step, which may be none
        self.settle()
        written = checkpoint.draft(self._folder / f"step-{step}", trainer)
        self._on_its_way = self._thread.submit(self._keep, written, segment, step)

    def settle(self) -> None:
        """Wait until every checkpoint is durable and reported; raise what one has failed with."""
        if self._on_its_way is not None:
            self._on_its_way.result()
            self._on_its_way = None

    def _raise_failure(self) -> None:
        """Raise what a checkpoint has failed with, if that is known by now."""
        if self._on_its_way is not None and self._on_its_way.done():
            self.settle()

    def _keep(self, written: checkpoint.Draft, segment: int, step: int) -> None:
        """Report a checkpoint once it is durable, and drop the one before it. One that stays is no reason to end."""
        sha256 = written.keep()
        self._control.end_segment(
            segment, Checkpoint(step=step, path=str(written.path), sha256=sha256)
        )
        try:
            if self._kept is not None:
                self._kept.unlink(missing_ok=True)
        except OSError as error:
            log.warning("a checkpoint that is of no more use is kept: %s", error)
        self._kept = written.path

    def release(
        self,
        assignment: PrivateAssignment,
        trainer: Trainer,
        extractor: Extractor | None,
        test: Split,
        train_seconds: float,
        *,
        class_names: Sequence[str] | None,
    ) -> PrivateResult:
        """Write the model, the weights of its extractor and what its labels mean with it, and evaluate it."""
        path = self._folder / "model.safetensors"
        sha256 = checkpoint.save_weights(
            path,
            {**_weights_of(extractor), **trainer.released_weights()},
            metadata={
                "study_id": assignment.study_id,
                "model": assignment.model.model_dump(mode="json"),
                "extractor": extractor.fingerprint if extractor is not None else None,
                "shape": assignment.dataset.shape,
                "num_classes": assignment.dataset.num_classes,
                "class_names": class_names,
                "features": as_json(assignment.dataset.features),
            },
        )
        return PrivateResult(
            steps=trainer.steps_done,
            test_accuracy=score_of(
                trainer.hits(test.inputs, test.labels),
                torch.from_numpy(test.labels),
                assignment.metric,
            ),
            num_test=len(test),
            model_path=str(path),
            model_sha256=sha256,
            train_seconds=train_seconds,
            software=software(self._settings),
            updates=trainer.updates,
        )


def _weights_of(extractor: Extractor | None) -> dict[str, torch.Tensor]:
    """A copy of them, by their names in the whole model."""
    weights = {} if extractor is None else extractor.weights()
    return {name: value.to("cpu", copy=True).contiguous() for name, value in weights.items()}


def software(settings: WorkerSettings) -> dict[str, str]:
    """Versions of what executed the mechanism; ``commit`` of this code and ``image`` around it where they are known."""
    known = {"commit": settings.code_commit or commit(), "image": settings.image}
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in _SOFTWARE},
        **{name: told for name, told in known.items() if told},
    }
