"""Whole lives of studies by a seed: people, drivers, orchestrators, a cluster and a clock do as they like.

What happens next is drawn by weight, so that studies come far before something goes wrong.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import SecretStr

from service.auth.secrets import server_secret
from service.db.session import Database
from service.orchestrator.decide import Heard
from service.orchestrator.launcher import JobStatus
from service.orchestrator.reconcile import Reconciler
from service.orchestrator.ticks import LEASE, Ticks
from service.publication.published import Published
from service.rate_limit import RateLimit
from service.retention import Retention
from service.statements.verify import verify_statement
from service.studies.lifecycle import TERMINAL
from tests.fixtures.api import make_settings, make_spec, open_client, register_table
from tests.fixtures.postgres import DatabaseUrls
from tests.property.studies.drivers import STEPS, TRIALS, Cluster, Driver, Stage
from tests.property.studies.invariants import Invariants, rows_of
from tests.support.clock import DatabaseClock
from tests.support.world import always_heard

EPSILON, DELTA = 3.0, 1e-3
"""Of each study."""
SLOTS = 2
MOST_OPEN = 4
"""Studies at a time, of which some have to wait."""
LEFT_ALONE = 40
"""Rounds in which every study comes to its end."""
LAST_WORDS = 40
"""So much of what happened is told of a life that went wrong."""
MODES: dict[str, dict[str, Any]] = {
    "declared_unaccounted": {},
    "public_proxy": {"dataset": "open"},
    "accounted": {"rungs": [8]},
    "no_search": {"trials": 0, "space": {}},
}
ACTIONS = {
    "a_driver_goes_on": 32,
    "all_goes_well": 6,
    "tick": 14,
    "much_at_once": 6,
    "a_driver_starts": 10,
    "a_driver_is_heard": 4,
    "a_message_comes_again": 4,
    "a_driver_finishes": 3,
    "a_driver_dies": 5,
    "somebody_wishes": 6,
    "somebody_promotes": 3,
    "submit": 3,
    "the_clock_jumps": 4,
    "the_cluster_fails": 3,
    "jobs_stop_slowly": 1,
    "an_orchestrator_restarts": 1,
    "the_owner_changes_rules": 1,
    "somebody_looks": 1,
    "somebody_archives": 1,
}
"""What may happen, and how often."""


class AlwaysHeard:
    """In the place of an ear: nobody was deaf, however the clock jumps."""

    async def look(self) -> Heard:
        return always_heard()


class Life:
    """The service, and beside it who knows which steps were truly run.

    Args:
        seed: what is drawn by.
        stage: the service.
        clock: of its database.
        folder: for data.
        logged: what it logs meanwhile.
    """

    def __init__(
        self,
        seed: int,
        *,
        stage: Stage,
        clock: DatabaseClock,
        folder: Path,
        logged: pytest.LogCaptureFixture,
    ) -> None:
        self.seed, self.random = seed, Random(seed)
        self.stage, self.clock, self.folder, self.logged = stage, clock, folder, logged
        self.ask, self.done = stage.ask, stage.done
        self.budget = self.random.choice([5.0, 12.0, 30.0, 30.0])
        self.cluster = Cluster()
        self.names = itertools.count()
        self.orchestrators = [self.orchestrator(), self.orchestrator()]
        self.studies: list[str] = []
        self.drivers: list[Driver] = []
        self.invariants = Invariants(stage, self.budget, SLOTS)

    async def live(self, *, actions: int) -> None:
        """So many actions, with all that holds at every moment after each; then every study comes to its end."""
        count = 0
        try:
            await self.begin()
            while count < actions:
                before = len(self.done)
                (action,) = self.random.choices(list(ACTIONS), list(ACTIONS.values()))
                await getattr(self, action)()
                if len(self.done) > before:  # else there was nobody to do it
                    count += 1
                    await self.check()
            await self.come_to_an_end()
        except Exception as error:
            last = "\n".join(self.done[-LAST_WORDS:])
            told = f"seed {self.seed}, action {count}: {error}\nIt came to this by:\n{last}"
            raise AssertionError(told) from error

    # The world around

    def orchestrator(self) -> Ticks:
        owner, home = f"orchestrator-{next(self.names)}", self.stage.settings.home_path
        reconciler = Reconciler(
            settings=self.stage.settings,
            database=self.stage.database,
            launcher=self.cluster,
            worker_url="http://api",
            secret=server_secret(home),
            owner=owner,
            lease=LEASE,
        )
        return Ticks(
            database=self.stage.database,
            reconciler=reconciler,
            ear=AlwaysHeard(),  # type: ignore[arg-type]
            published=Published(home),
            owner=owner,
        )

    # People

    async def begin(self) -> None:
        choice = self.random.choice
        await register_table(
            self.stage.client, self.folder, name="private", epsilon=self.budget, delta=DELTA, waiver="owner: a test",
            admission=choice(["pld", "renyi_filter"]), approval=choice(["automatic"] * 3 + ["required"]),
            allow=[mode for mode in MODES if mode != "no_search"],
        )  # fmt: skip
        await register_table(self.stage.client, self.folder, name="open", shift=500.0, public=True)
        for _ in range(self.random.randint(2, 4)):
            await self.submit()
        for _ in range(self.random.randint(0, 6)):
            await self.a_round(pieces=2)

    async def submit(self) -> None:
        """Twice at once, as by whoever has lost the answer and is in a hurry: it is one study."""
        rows = await rows_of(self.stage)
        if sum(row.state not in TERMINAL for row in rows) >= MOST_OPEN:
            return
        mode = self.random.choice(list(MODES))
        space: dict[str, Any] = {"learning_rate": {"low": 0.25, "high": 4.0, "log": True}}
        train: dict[str, Any] = {"batch_size": 16, "steps": STEPS}
        if mode in ("declared_unaccounted", "public_proxy") and self.random.random() < 0.4:
            space["steps"], train["steps"] = {"choices": [10, STEPS]}, "auto"
        search = {"accounting": mode, "trials": TRIALS, "space": space, "rungs": [4, 8]}
        spec = make_spec(
            dataset="private", promotion=self.random.choice(["automatic", "automatic", "manual"]),
            privacy={"epsilon": EPSILON, "delta": DELTA}, search=search | MODES[mode], train=train,
        )  # fmt: skip
        if mode == "no_search":
            del spec["search"]["rungs"]
        key = {"Idempotency-Key": f"key-{next(self.names)}"}
        answers = await asyncio.gather(
            *(self.ask("POST", "/studies", json=spec, headers=key) for _ in range(2))
        )
        assert all(each.status_code in (201, 409) for each in answers), answers[0].text
        accepted = {each.json()["id"] for each in answers if each.status_code == 201}
        assert len(accepted) <= 1
        self.studies += accepted

    async def somebody_wishes(self) -> None:
        verb = self.random.choice(["pause", "resume", "resume", "resume", "finish", "cancel"])
        await self.wish(verb)

    async def wish(self, verb: str, **options: Any) -> None:
        if self.studies:
            path = f"/studies/{self.random.choice(self.studies[-MOST_OPEN:])}/{verb}"
            answer = await self.ask("POST", path, **options)
            assert answer.status_code in (202, 409, 422), answer.text

    async def somebody_promotes(self) -> None:
        trial = self.random.choice([None, None, 0, 1, 2])
        await self.wish("promote", **({} if trial is None else {"json": {"trial": trial}}))

    async def the_owner_changes_rules(self) -> None:
        path, rule = self.random.choice(
            [
                ("approval", {"approval": self.random.choice(["automatic", "required"])}),
                ("caps/local", {"epsilon": self.random.choice([0.0, 3.5, self.budget])}),
                ("caps/*", {"epsilon": self.random.choice([4.5, self.budget])}),
            ]
        )
        assert (await self.ask("PUT", f"/datasets/private/{path}", json=rule)).is_success

    async def somebody_looks(self) -> None:
        if self.studies:
            await self.read(self.random.choice(self.studies))

    async def somebody_archives(self) -> None:
        if self.studies:
            path = f"/studies/{self.random.choice(self.studies)}"
            tag = {"If-Match": (await self.ask("GET", path)).headers["ETag"]}
            answer = await self.ask("PATCH", path, json={"archived": True}, headers=tag)
            assert answer.status_code in (200, 409), answer.text

    # Orchestrators, the cluster and the clock

    async def tick(self, times: int | None = None) -> None:
        which = self.random.randrange(2)
        for _ in range(times or self.random.randint(1, 3)):
            self.done.append(f"tick of {which}")
            await self.orchestrators[which].take(asyncio.Event())

    async def much_at_once(self) -> None:
        """Two orchestrators, a person and a driver in the same moment."""
        works = [each.take(asyncio.Event()) for each in self.orchestrators]
        if self.random.random() < 0.5:
            verbs = ["cancel", "pause", "resume", "promote", "promote", "finish"]
            works.append(self.wish(self.random.choice(verbs)))
        if self.random.random() < 0.7:
            works.append(self.a_driver_goes_on())
        self.done.append("at once: two ticks and")
        self.stage.is_racing = True
        await asyncio.gather(*works)
        self.stage.is_racing = False

    async def an_orchestrator_restarts(self) -> None:
        self.done.append("restart")
        self.orchestrators[self.random.randrange(2)] = self.orchestrator()

    async def the_clock_jumps(self) -> None:
        seconds = self.random.choice([6, 16, 31, 100, 200, 2000])
        self.done.append(f"jump of {seconds} s")
        self.clock.jump(timedelta(seconds=seconds))

    async def the_cluster_fails(self) -> None:
        how = self.random.choice(["is_down", "has_forgotten"])
        self.done.append(f"the cluster {how}")
        setattr(self.cluster, how, True)
        await self.tick()
        setattr(self.cluster, how, False)

    async def jobs_stop_slowly(self) -> None:
        self.done.append("jobs stop slowly from here on, or no longer")
        if self.cluster.is_slow_to_stop:
            self.cluster.hurry()
        else:
            self.cluster.is_slow_to_stop = True

    # Drivers

    def waiting_jobs(self) -> list[str]:
        begun = {driver.submission_id for driver in self.drivers}
        return [
            each for each in filter(self.cluster.is_running, self.cluster.jobs) if each not in begun
        ]

    def driver(self) -> Driver | None:
        """One that lives, and now and then one of those that were given up, and may not know it."""
        running = [each for each in self.drivers if self.cluster.is_running(each.submission_id)]
        found = running if self.random.random() < 0.85 else self.drivers[-4:]
        return self.random.choice(found) if found else None

    async def a_driver_starts(self) -> None:
        if not (waiting := self.waiting_jobs()):
            return
        submission_id = self.random.choice(waiting)
        if self.random.random() < 0.1:
            self.done.append(f"{submission_id} dies before it speaks")
            self.cluster.end(submission_id, JobStatus.FAILED, 1)
        else:
            await self.start(submission_id)

    async def start(self, submission_id: str) -> None:
        driver = Driver(self.stage, submission_id)
        if await driver.start():
            self.drivers.append(driver)
        else:
            self.end(driver, JobStatus.FAILED, 1)

    def end(self, driver: Driver, status: JobStatus = JobStatus.SUCCEEDED, code: int = 0) -> None:
        self.cluster.end(driver.submission_id, status, code)

    async def a_message_comes_again(self) -> None:
        if (driver := self.driver()) is not None:
            await driver.say_it_again()

    async def a_driver_is_heard(self) -> None:
        """Whoever is told to end does so, or is too busy."""
        if (driver := self.driver()) is None:
            return
        desired = await driver.beat()
        if desired in ("pause", "cancel") and self.random.random() < 0.7:
            await driver.obey(desired)
            self.end(driver)

    async def a_driver_goes_on(self) -> None:
        if (driver := self.driver()) is None:
            return
        ending = self.random.choice(["completed"] * 4 + ["pruned", "diverged", "failed"])
        goes_on = await driver.go_on(ending=ending, times=self.random.randint(1, 2))
        if not goes_on and self.random.random() < 0.7:
            self.end(driver)

    async def a_driver_finishes(self) -> None:
        """Before its time, as one does that met an error."""
        driver = self.driver()
        outcome = self.random.choice(["succeeded", "failed", "failed", "cancelled"])
        if driver is None or (outcome == "succeeded" and not driver.is_search and not driver.step):
            return
        can_retry, times = self.random.random() < 0.8, self.random.randint(1, 2)
        await driver.finish(outcome, can_retry=can_retry, times=times)

    async def a_driver_dies(self) -> None:
        """To the cluster: it may be heard again, where only its node was cut off."""
        if (driver := self.driver()) is not None:
            self.done.append(f"{driver.submission_id} dies")
            self.end(driver, JobStatus.FAILED, 137)
            if self.random.random() < 0.7:
                await self.tick()

    async def all_goes_well(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            await self.a_round(pieces=2)

    async def a_round(self, *, pieces: int) -> None:
        """A tick, and each driver does as it is told, or so much of its work."""
        await self.tick(1)
        for submission_id in self.waiting_jobs():
            await self.start(submission_id)
        for driver in self.drivers:
            if self.cluster.is_running(driver.submission_id):
                await self.behave(driver, pieces)

    async def behave(self, driver: Driver, pieces: int) -> None:
        for _ in range(pieces):
            desired = await driver.beat()
            if desired in ("pause", "cancel"):
                await driver.obey(desired)
            if desired != "run" or not await driver.go_on():
                self.end(driver)
                return

    # What holds at every moment

    async def check(self) -> None:
        troubles = [each for each in self.logged.records if each.levelno >= logging.ERROR]
        assert not troubles, [each.getMessage() for each in troubles]
        await self.invariants.check()

    async def read(self, study_id: str) -> None:
        """Whatever is shown of a study is shown."""
        of_study, of_dataset = f"/studies/{study_id}", "/datasets/private"
        for path in (
            of_study, f"{of_study}/trials", f"{of_study}/attempts", f"/ui{of_study}", f"/ui{of_dataset}",
            f"{of_dataset}/ledger", "/studies?limit=5", "/", "/calibration",
        ):  # fmt: skip
            assert (await self.ask("GET", path)).status_code == 200, path

    # Left alone, with a cluster that is well, every study comes to its end

    async def come_to_an_end(self) -> None:
        self.done.append("left alone")
        self.cluster.hurry()
        for tenant in ("local", "*"):
            await self.ask("PUT", f"/datasets/private/caps/{tenant}", json={"epsilon": self.budget})
        for study_id in self.studies:
            await self.ask("POST", f"/studies/{study_id}/resume")
        for _ in range(LEFT_ALONE):
            rows = await rows_of(self.stage)
            if all(row.state in TERMINAL for row in rows):
                break
            for row in rows:
                if row.waits_for_a_person:
                    answer = await self.ask("POST", f"/studies/{row.id}/promote")
                    assert answer.status_code == 202, answer.text
            await self.a_round(pieces=2 * STEPS)
            await self.tick(1)
            self.clock.jump(timedelta(seconds=61))
        await self.check()
        shown = [(await self.ask("GET", f"/studies/{each}")).json() for each in self.studies]
        ends = [(each["state"], each["reason"]) for each in shown]
        assert all(state in TERMINAL for state, _ in ends), ends
        completed = [each for each in shown if each["state"] == "completed"]
        for study in shown:
            answer = await self.ask("GET", f"/studies/{study['id']}/statement")
            assert answer.is_success == (study in completed), answer.text
        if completed:
            await self.check_statement(self.random.choice(completed))  # it takes a second
        self.clock.jump(timedelta(days=400))
        await Retention(self.stage.database, self.stage.settings).sweep()
        for study_id in self.studies:
            await self.read(study_id)

    async def check_statement(self, study: dict[str, Any]) -> None:
        stated = (await self.ask("GET", f"/studies/{study['id']}/statement")).json()
        bad = [check for check in verify_statement(stated) if check.is_bad]
        assert not bad, bad
        assert stated["privacy"]["epsilon"] == study["privacy"]["epsilon"] <= EPSILON


@asynccontextmanager
async def open_life(
    seed: int,
    *,
    database: Database,
    urls: DatabaseUrls,
    folder: Path,
    logged: pytest.LogCaptureFixture,
) -> AsyncGenerator[Life]:
    """A life that has not begun, with a service of its own.

    Args:
        seed: what is drawn by.
        database: of the service.
        urls: of the same database.
        folder: for its home and its data.
        logged: what it logs meanwhile.
    """
    settings = make_settings(
        folder / "home",
        database_url=SecretStr(urls.app),
        max_running_studies=SLOTS,
        heartbeat_timeout_seconds=90,
        rate_limit=RateLimit(per_second=1e6, burst=1_000_000),
    )
    async with open_client(settings, database) as client:
        yield Life(
            seed,
            stage=Stage(client, settings, database),
            clock=DatabaseClock(urls.superuser),
            folder=folder,
            logged=logged,
        )
