"""What the orchestrator needs of a cluster: start a job, look at it, stop it, read its log."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from service.orchestrator.log_tail import Said


class LauncherUnavailableError(Exception):
    """The cluster does not answer; nothing can be said about its jobs now."""


class JobStatus(StrEnum):
    """Where a job stands. RUNNING is only a claim: the driver's heartbeat is the evidence."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    UNKNOWN = "unknown"
    """The cluster does not answer."""

    @property
    def is_terminal(self) -> bool:
        """Whether the job's driver is gone for good."""
        return self in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.STOPPED)


@dataclass(frozen=True, slots=True)
class Job:
    """One driver to start. ``submission_id`` makes the submission idempotent."""

    submission_id: str
    module: str
    """Python module that the driver runs: ``worker.simulate`` or ``worker.train``."""
    environment: Mapping[str, str]
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class JobInfo:
    """What the cluster says of a job."""

    status: JobStatus
    exit_code: int | None
    message: str | None


class Launcher(Protocol):
    """A cluster that runs drivers."""

    async def submit(self, job: Job) -> None:
        """Start the job; starting one that exists already is not an error."""
        ...

    async def status(self, submission_id: str) -> JobInfo | None:
        """What the cluster knows of the job; None if it knows nothing."""
        ...

    async def stop(self, submission_id: str) -> None:
        """Ask the driver to end (SIGINT, then SIGKILL); unknown or ended jobs are not an error."""
        ...

    async def log(self, submission_id: str) -> Said:
        """What the driver has said so far, of very much the end; nothing where the cluster knows nothing of it."""
        ...
