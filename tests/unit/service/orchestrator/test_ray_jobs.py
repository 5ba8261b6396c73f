"""What a cluster costs that does not answer, and who answers in its place."""

import asyncio
from collections.abc import Callable

import httpx
import pytest

from service.orchestrator import ray_jobs
from service.orchestrator.launcher import Job, JobInfo, JobStatus, LauncherUnavailableError
from service.orchestrator.ray_jobs import RayJobs

HEAD = "http://ray-head:8265"
Handler = Callable[[httpx.Request], httpx.Response]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Callable[[Handler], RayJobs]:
    """A cluster whose head answers by a function."""

    def made(handler: Handler) -> RayJobs:
        transport = httpx.MockTransport(handler)
        client = httpx.AsyncClient
        monkeypatch.setattr(
            httpx, "AsyncClient", lambda **options: client(transport=transport, **options)
        )
        return RayJobs(HEAD)

    return made


def asked(jobs: RayJobs, ask: Callable[[RayJobs, str], object], times: int = 1) -> list[str]:
    """What each of many requests meets."""

    async def each() -> list[str]:
        found: list[str] = []
        for number in range(times):
            with pytest.raises(LauncherUnavailableError) as error:
                await ask(jobs, f"run-a{number}")  # type: ignore[misc]
            found.append(str(error.value))
        return found

    return asyncio.run(each())


@pytest.mark.parametrize("trouble", [httpx.ConnectTimeout, httpx.ReadTimeout])
def test_one_that_lets_a_request_wait_in_vain_is_not_asked_for_the_next_study(
    cluster: Callable[[Handler], RayJobs],
    monkeypatch: pytest.MonkeyPatch,
    trouble: type[httpx.TimeoutException],
) -> None:
    seen: list[httpx.Request] = []

    def silent(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        raise trouble("", request=request)

    jobs = cluster(silent)
    told = asked(jobs, RayJobs.status, 5)

    assert len(seen) == 1
    assert set(told) == {f"Ray does not answer at {HEAD}: {trouble.__name__}('')"}
    assert seen[0].extensions["timeout"]["connect"] == 3.0
    assert seen[0].extensions["timeout"]["read"] == 10.0

    monkeypatch.setattr(ray_jobs.time, "monotonic", lambda: 1e12)
    asked(jobs, RayJobs.status)
    assert len(seen) == 2


def test_a_log_that_does_not_come_keeps_nobody_from_asking(
    cluster: Callable[[Handler], RayJobs],
) -> None:
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.path)
        if request.url.path.endswith("/logs"):
            raise httpx.ReadTimeout("", request=request)
        return httpx.Response(404, text="Job run-a1 does not exist")

    jobs = cluster(answer)
    asked(jobs, RayJobs.log)

    assert asyncio.run(jobs.status("run-a1")) is None


def test_one_that_refuses_connections_is_asked_each_time(
    cluster: Callable[[Handler], RayJobs],
) -> None:
    seen: list[httpx.Request] = []

    def refusing(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        raise httpx.ConnectError("refused", request=request)

    asked(cluster(refusing), RayJobs.status, 3)

    assert len(seen) == 3


@pytest.mark.parametrize(
    "page",
    [
        httpx.Response(404, text="404 page not found"),
        httpx.Response(
            404, text="The requested URL /api/jobs/run-a0 was not found on this server."
        ),
        httpx.Response(404, json={"status": 404, "path": "/api/jobs/run-a0"}),
        httpx.Response(200, text="<html>Sign in</html>"),
        httpx.Response(200, json=["no job"]),
        httpx.Response(302, headers={"Location": "/sign-in"}),
    ],
    ids=["no-way", "echo", "echo-json", "sign-in", "else", "elsewhere"],
)
def test_who_answers_in_its_place_knows_nothing_of_jobs(
    cluster: Callable[[Handler], RayJobs], page: httpx.Response
) -> None:
    """A proxy that knows no way to it for a moment does not say that all jobs are lost, nor that one was begun."""
    jobs = cluster(lambda _: page)
    asked(jobs, RayJobs.status)

    job = Job(submission_id="run-a0", module="worker.train", environment={}, metadata={})
    asked(jobs, lambda jobs, _: jobs.submit(job))


def test_a_job_that_it_knows_or_does_not_know(cluster: Callable[[Handler], RayJobs]) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("run-a1"):
            return httpx.Response(200, json={"status": "RUNNING", "metadata": {}})
        return httpx.Response(404, text="Job run-a2 does not exist")

    jobs = cluster(answer)

    async def both() -> list[JobInfo | None]:
        return [await jobs.status(name) for name in ("run-a1", "run-a2")]

    assert asyncio.run(both()) == [JobInfo(JobStatus.RUNNING, None, None), None]
