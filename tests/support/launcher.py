"""A cluster in memory, with the same promises as the real one."""

from service.orchestrator.launcher import Job, JobInfo, JobStatus, LauncherUnavailableError
from service.orchestrator.log_tail import Said


class MemoryLauncher:
    """Keeps jobs in a dictionary; the test plays the drivers."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobInfo] = {}
        self.submitted: list[Job] = []
        self.stopped: list[str] = []
        self.logs: dict[str, str] = {}
        self.longest_log: int | None = None
        self.is_down = False

    async def submit(self, job: Job) -> None:
        self._expect_up()
        if job.submission_id not in self.jobs:
            self.submitted.append(job)
            self.jobs[job.submission_id] = JobInfo(JobStatus.RUNNING, None, None)

    async def status(self, submission_id: str) -> JobInfo | None:
        self._expect_up()
        return self.jobs.get(submission_id)

    async def stop(self, submission_id: str) -> None:
        self._expect_up()
        self.stopped.append(submission_id)
        self.end(submission_id, JobStatus.STOPPED, None)

    async def log(self, submission_id: str) -> Said:
        self._expect_up()
        said = self.logs.get(submission_id, "")
        dropped = 0 if self.longest_log is None else max(0, len(said) - self.longest_log)
        return Said(said[dropped:], dropped)

    def end(
        self,
        submission_id: str,
        status: JobStatus,
        exit_code: int | None,
        message: str | None = None,
    ) -> None:
        """The driver ends."""
        self.jobs[submission_id] = JobInfo(status, exit_code, message)

    def _expect_up(self) -> None:
        if self.is_down:
            raise LauncherUnavailableError("the cluster does not answer")
