"""One orchestrator on a real database; the cluster is in memory and the test plays the drivers."""

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from service.auth.secrets import server_secret
from service.db.session import Database
from service.orchestrator import claims
from service.orchestrator.decide import Heard
from service.orchestrator.reconcile import Reconciler
from service.settings import Settings
from service.studies.repository import event_data, events_after
from tests.fixtures.api import driver_headers, make_spec
from tests.support.launcher import MemoryLauncher
from tests.support.reports import completed_trial

LEASE = timedelta(seconds=60)


def always_heard() -> Heard:
    """An orchestrator that has looked and listened since long ago."""
    since = datetime(2000, 1, 1, tzinfo=UTC)
    return Heard(looking_since=since, listening_since=since)


class World:
    """One orchestrator, its cluster, and the API that drivers and users speak to."""

    def __init__(self, client: httpx.AsyncClient, settings: Settings, database: Database) -> None:
        self.client, self.settings, self.database = client, settings, database
        self.launcher = MemoryLauncher()
        self.heard = always_heard()
        self.first_pause = timedelta(0)

    def reconciler(self, owner: str = "one") -> Reconciler:
        return Reconciler(
            settings=self.settings,
            database=self.database,
            launcher=self.launcher,
            worker_url="http://api",
            secret=server_secret(self.settings.home_path),
            owner=owner,
            lease=LEASE,
            first_pause=self.first_pause,
        )

    async def tick(self, times: int = 1, owner: str = "one") -> None:
        reconciler = self.reconciler(owner)
        for _ in range(times):
            async with self.database.session() as session:
                claimed = await claims.claim_open(session, owner=owner, lease=LEASE)
            for study_id in claimed:
                await reconciler.advance(study_id, self.heard)

    async def submit(self, **changes: Any) -> str:
        response = await self.client.post("/studies", json=make_spec(**changes))
        assert response.status_code == 201, response.text
        return response.json()["id"]

    async def study(self, study_id: str) -> dict[str, Any]:
        return (await self.client.get(f"/studies/{study_id}")).json()

    async def events(self, study_id: str) -> list[dict[str, Any]]:
        async with self.database.session() as session:
            return [event_data(each) for each in await events_after(session, study_id, 0)]

    async def committed(self) -> float:
        return (await self.client.get("/datasets/digits/ledger")).json()["committed_epsilon"]

    async def report(self, run_id: str, method: str, path: str, fence: int = 1, **body: Any) -> Any:
        response = await self.client.request(
            method,
            f"/worker/runs/{run_id}{path}",
            json={"fence": fence, **body},
            headers=driver_headers(self.settings, run_id, fence),
        )
        assert response.is_success, response.text
        return response.json() if response.content else None

    async def charge_trial(self, study_id: str, number: int, fence: int = 1) -> None:
        """Ask for the charge of a trial of 100 steps and of its score, where the search is charged."""
        await self.report(
            f"{study_id}-search",
            "POST",
            "/segments",
            fence,
            start_step=0,
            num_steps=100,
            request_id=f"{fence}-{number}",
        )

    async def finish_search(
        self,
        study_id: str,
        fence: int = 1,
        params: dict[str, Any] | None = None,
        *,
        is_charged: bool = False,
    ) -> None:
        run_id = f"{study_id}-search"
        for number, value in enumerate([0.7, 0.9, 0.8]):
            if is_charged:
                await self.charge_trial(study_id, number, fence)
            trial = completed_trial(
                number, value, value - 0.01, params=params or {"learning_rate": 1.0}
            )
            await self.report(run_id, "PUT", f"/trials/{number}", fence, trial=trial)
        await self.report(run_id, "POST", "/finish", fence, outcome="succeeded")

    async def to_training(self, **changes: Any) -> str:
        study_id = await self.submit(**changes)
        await self.tick(3)
        await self.finish_search(study_id)
        await self.tick(3)
        assert (await self.study(study_id))["state"] == "training"
        return study_id

    async def trained(self, **changes: Any) -> str:
        """A study whose private run has just reported its end."""
        study_id = await self.to_training(**changes)
        await self.begin_segment(study_id, 0, 100)
        await self.finish_private(study_id)
        return study_id

    async def finish_private(self, study_id: str, model_path: str = "/x/model.safetensors") -> None:
        """Let the private run of 100 steps report its end, and a model of the bytes ``weights``."""
        result = {
            "steps": 100,
            "test_accuracy": 0.9,
            "num_test": 359,
            "model_path": model_path,
            "model_sha256": hashlib.sha256(b"weights").hexdigest(),
            "train_seconds": 1.0,
            "software": {},
        }
        await self.report(
            f"{study_id}-private", "POST", "/finish", outcome="succeeded", result=result
        )

    async def begin_segment(self, study_id: str, start: int, steps: int, fence: int = 1) -> Any:
        return await self.report(
            f"{study_id}-private",
            "POST",
            "/segments",
            fence,
            start_step=start,
            num_steps=steps,
            request_id=f"{fence}-{start}",
        )
