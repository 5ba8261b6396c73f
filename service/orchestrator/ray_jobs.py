"""Launcher over the REST Jobs API of Ray. No ray import: the control plane stays light."""

import asyncio
import shlex
import sys
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx

from service.hosts import leads_here
from service.orchestrator.launcher import Job, JobInfo, JobStatus, LauncherUnavailableError
from service.orchestrator.log_tail import LogTail, Said

STOP_WAIT_SECONDS = 30
PATIENCE = httpx.Timeout(10.0, connect=3.0)
LONG_PATIENCE = httpx.Timeout(30.0, connect=3.0)
"""With a log, which is given only whole, from the node of its driver; and with a submission."""
REST_SECONDS = 5.0
"""A cluster that let one request wait in vain is asked nothing for so long: the next study, and the one
after it, would wait as long."""


class RayJobs:
    """One Ray cluster, by the address of its dashboard."""

    def __init__(
        self, address: str, *, token_path: Path | None = None, python: str | None = None
    ) -> None:
        self._token_path = token_path
        self._python = python or sys.executable
        # Of a Ray on this machine no proxy of the environment is to know, nor its token.
        self._client = httpx.AsyncClient(base_url=address, trust_env=not leads_here(address))
        self._not_before = 0.0
        self._silence = ""

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def submit(self, job: Job) -> None:
        """Start the job; a repeated submission is recognised by its metadata."""
        body = {
            "entrypoint": shlex.join([self._python, "-m", job.module]),
            "submission_id": job.submission_id,
            "metadata": dict(job.metadata),
            "entrypoint_num_cpus": 0,
            "runtime_env": {
                "env_vars": {
                    # Threads that wait for each other sleep: spinning, as is usual, they hold the very
                    # cores that the others need, and a step takes up to fifteen times as long.
                    "GOMP_SPINCOUNT": "0",
                    **job.environment,
                    # Ray Tune and Ray Train end cleanly on SIGINT; SIGTERM is caught by neither.
                    "RAY_JOB_STOP_SIGNAL": "SIGINT",
                    "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_SECONDS),
                    "RAY_USAGE_STATS_ENABLED": "0",
                }
            },
        }
        response = await self._request("POST", "/api/jobs/", patience=LONG_PATIENCE, json=body)
        # A duplicate answers 500, not 409: only looking tells whether the job is ours.
        if response.status_code == HTTPStatus.OK:
            _told(response, "submission_id")
        else:
            known = await self._details(job.submission_id)
            if known is None or known.get("metadata") != dict(job.metadata):
                raise LauncherUnavailableError(
                    f"Ray refused job {job.submission_id}: HTTP {response.status_code} "
                    f"{response.text[-300:]}"
                )

    async def status(self, submission_id: str) -> JobInfo | None:
        """What Ray knows of the job."""
        details = await self._details(submission_id)
        if details is None:
            return None
        return JobInfo(
            status=JobStatus(str(details["status"]).lower()),
            exit_code=details.get("driver_exit_code"),
            message=details.get("message"),
        )

    async def stop(self, submission_id: str) -> None:
        """SIGINT to the driver's process tree, SIGKILL after 30 s."""
        await self._request("POST", f"/api/jobs/{submission_id}/stop")

    async def log(self, submission_id: str) -> Said:
        """The driver's output, with what Ray itself says in it."""
        tail = LogTail()

        async def read(response: httpx.Response) -> None:
            if response.status_code == HTTPStatus.OK:
                async for part in response.aiter_bytes():
                    if tail.add(part):
                        await asyncio.to_thread(tail.cut)  # beside the event loop

        try:
            response = await self._request(
                "GET", f"/api/jobs/{submission_id}/logs", patience=LONG_PATIENCE, read=read
            )
            if response.status_code != HTTPStatus.OK:
                return Said("")
            return await asyncio.to_thread(tail.said)
        except ValueError as error:
            raise LauncherUnavailableError(f"Ray's answer is no log: {error}") from error

    async def _details(self, submission_id: str) -> dict[str, Any] | None:
        response = await self._request("GET", f"/api/jobs/{submission_id}")
        # In Ray's own words: a proxy that knows no way to it may repeat the address.
        unknown = f"Job {submission_id} does not exist"
        if response.status_code == HTTPStatus.NOT_FOUND and response.text.strip() == unknown:
            return None
        if response.status_code != HTTPStatus.OK:
            raise LauncherUnavailableError(
                f"Ray answered HTTP {response.status_code} for job {submission_id}"
            )
        return _told(response, "status")

    async def _request(
        self,
        method: str,
        path: str,
        *,
        patience: httpx.Timeout = PATIENCE,
        read: Callable[[httpx.Response], Awaitable[object]] = httpx.Response.aread,
        **kwargs: Any,
    ) -> httpx.Response:
        if time.monotonic() < self._not_before:
            raise LauncherUnavailableError(self._silence)
        headers = {}
        if self._token_path is not None:
            try:
                headers["Authorization"] = f"Bearer {self._token_path.read_text().strip()}"
            except OSError as error:
                raise LauncherUnavailableError(f"cannot read Ray's token: {error}") from error
        try:
            async with self._client.stream(
                method, path, headers=headers, timeout=patience, **kwargs
            ) as response:
                await read(response)
        except httpx.HTTPError as error:
            said = f"Ray does not answer at {self._client.base_url}: {error!r}"
            if isinstance(error, httpx.ConnectTimeout) or (
                isinstance(error, httpx.TimeoutException) and patience is PATIENCE
            ):
                self._not_before, self._silence = time.monotonic() + REST_SECONDS, said
            raise LauncherUnavailableError(said) from error
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            raise LauncherUnavailableError(
                "Ray refused our token: set TAN_RAY_TOKEN_PATH to the cluster's token file"
            )
        return response


def _told(response: httpx.Response, field: str) -> dict[str, Any]:
    """The object that an answer holds.

    Raises:
        LauncherUnavailableError: it holds none with this field: it is of whoever stands between.
    """
    try:
        told = response.json()
    except ValueError:
        told = None
    if not (isinstance(told, dict) and field in told):
        raise LauncherUnavailableError(f"what answers at {response.request.url} is not Ray")
    return told
