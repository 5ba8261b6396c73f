"""What every driver does around its work: fetch the assignment, keep the lease, say how it ended."""

import logging
import re
import signal
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Literal, TypeVar

from tan_core.errors import PretrainedError
from tan_core.spec.models import PythonModel
from tan_core.wire import PrivateAssignment, PrivateResult, SearchAssignment
from worker.log import write_log
from worker.reasons import is_of_other_data, reason_of
from worker.report import (
    EXIT_FAILED,
    ControlPlane,
    ControlPlaneError,
    FencedError,
    Heartbeats,
    RefusedError,
    VersionError,
    leave,
)
from worker.settings import WorkerSettings

log = logging.getLogger(__name__)

EXIT_DONE = 0
_RAY_AND_PYTHON = re.compile(r"Ray: (\S+)\s+Python: (\S+)")

TAssignment = TypeVar("TAssignment", SearchAssignment, PrivateAssignment)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended, for its final report."""

    outcome: Literal["succeeded", "failed", "cancelled"]
    reason: str | None = None
    retryable: bool = True
    result: PrivateResult | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """What the work of an attempt may use."""

    settings: WorkerSettings
    control: ControlPlane
    heartbeats: Heartbeats


def drive(
    kind: type[TAssignment],
    work: Callable[[TAssignment, Driver], Outcome],
    *,
    tidy: Callable[[TAssignment, Outcome], None] = lambda *_: None,
) -> int:
    """Run one attempt and return the exit code of its process.

    The lease is kept from before ``work`` starts, which imports torch and Ray, until the final report
    is stored. SIGINT asks ``work`` to stop, as a cancelled study does. ``tidy`` is called last, and only
    once the control plane has stored how the attempt ended.
    """
    settings = WorkerSettings.model_validate({})
    write_log(settings.log_format, run_id=settings.run_id, attempt=settings.fence)
    try:
        with closing(ControlPlane(settings)) as control:
            try:
                assignment = control.assignment()
            except VersionError as error:
                # Told, or the study would only know that this process ended. The other version may not
                # understand even that: then it is what the log ends with.
                with suppress(RefusedError):
                    control.finish("failed", reason=str(error))
                raise
            if not isinstance(assignment, kind):
                raise RefusedError(
                    f"{settings.run_id} is a {assignment.kind} run: this driver runs {kind.__name__}"
                )
            with Heartbeats(control) as heartbeats:
                signal.signal(signal.SIGINT, lambda *_: heartbeats.cancel())
                driver = Driver(settings=settings, control=control, heartbeats=heartbeats)
                log.info("a %s run of study %s begins", assignment.kind, assignment.study_id)
                _forget_features(settings)
                outcome = _attempt(assignment, work, driver)
                heartbeats.expect_end()
                is_told = outcome.outcome == "cancelled" and heartbeats.paused.is_set()
                said = "ends, as it was told to" if is_told else outcome.outcome
                log.info("%s%s", said, f": {outcome.reason}" if outcome.reason else "")
                control.finish(
                    outcome.outcome,
                    reason=outcome.reason,
                    retryable=outcome.retryable,
                    result=outcome.result,
                )
                tidy(assignment, outcome)
    except (FencedError, RefusedError) as error:
        leave(error)
    except ControlPlaneError as error:
        log.error("%s", error)
        return EXIT_FAILED
    return EXIT_FAILED if outcome.outcome == "failed" else EXIT_DONE


def _forget_features(settings: WorkerSettings) -> None:
    """Delete the features that no run has read for long: before others need their room."""
    if settings.cache_dir is None:
        return
    # Here, because it brings pyarrow: by now the lease is being kept.
    from tan_core.data import forget_unread

    try:
        freed = forget_unread(settings.cache_dir, days=settings.cache_retention_days)
    except OSError as error:
        log.warning("features that nobody reads any more stay: %s", error)
        return
    if freed:
        log.info("features of %s bytes, which nobody read for long, were deleted", f"{freed:,}")


def _attempt(
    assignment: TAssignment, work: Callable[[TAssignment, Driver], Outcome], driver: Driver
) -> Outcome:
    model = assignment.model
    if isinstance(model, PythonModel):
        # A study that was admitted earlier, or an assignment from elsewhere: this job's own
        # environment has the last word on what is imported.
        allowed = driver.settings.allowed_model_prefixes
        if not model.is_allowed(allowed):
            return Outcome(
                outcome="failed",
                reason=f"model {model.name} was not imported; allowed by "
                f"TAN_ALLOWED_MODEL_PREFIXES: {', '.join(allowed) or 'none'}",
                retryable=False,
            )
    try:
        return work(assignment, driver)
    except ControlPlaneError:
        raise
    except KeyboardInterrupt:
        return Outcome(outcome="cancelled", reason="interrupted")
    except PretrainedError as error:
        # The file will be no other one at the next attempt.
        return Outcome(outcome="failed", reason=str(error), retryable=False)
    except Exception as error:
        log.exception("the work of this attempt failed")
        reason = reason_of(error)
        return Outcome(outcome="failed", reason=reason, retryable=not is_of_other_data(reason))


def connect(namespace: str) -> None:
    """Join the cluster that this driver's job runs on.

    Raises:
        RuntimeError: the cluster runs another version; Ray says so in five lines, and this in one.
    """
    import ray  # worker.report and worker.driver load before Ray does, to keep the lease meanwhile

    try:
        ray.init(
            address="auto", namespace=namespace, log_to_driver=False, logging_level=logging.ERROR
        )
    except RuntimeError as error:
        if len(versions := _RAY_AND_PYTHON.findall(str(error))) != 2:
            raise
        its, ours = (f"Ray {ray} under Python {python}" for ray, python in versions)
        raise RuntimeError(
            f"this driver runs {ours}, and its cluster {its}: install the same on both"
        ) from error
