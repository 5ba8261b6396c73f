"""A cluster in memory and its drivers: each may have been given up without knowing it."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx
from sqlalchemy import text

from service.db.session import Database
from service.ledger import repository
from service.orchestrator.launcher import JobInfo, JobStatus
from service.settings import Settings
from tests.fixtures.api import driver_headers
from tests.support.launcher import MemoryLauncher
from tests.support.reports import completed_trial, make_score, make_trial

SCOPE = "dataset:private"
STEPS, SEGMENT, TRIALS = 20, 7, 3
_ATTEMPT = text("SELECT state FROM attempt WHERE submission_id = :id")


@dataclass
class Stage:
    """The service, and what was said to it."""

    client: httpx.AsyncClient
    settings: Settings
    database: Database
    done: list[str] = field(default_factory=list)
    """What happened, in words."""
    executed: Counter[str] = field(default_factory=Counter)
    """Steps, by the runs that ran them."""
    is_racing: bool = False
    """Whether others act in the same moment: then it is open who comes first."""

    async def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = await self.client.request(method, path, **options)
        sent, told = str(options.get("json", ""))[:100], answer.text.partition("\n")[0][:60]
        self.done.append(f"{method} {path} {sent} -> {answer.status_code} {told}")
        assert answer.status_code < 500, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer

    async def standing(self, submission_id: str) -> tuple[str | None, int]:
        """The state of an attempt, and how many entries the ledger has."""
        async with self.database.session() as session:
            state = await session.scalar(_ATTEMPT, {"id": submission_id})
            return state, (await repository.head(session, SCOPE)).seq


class Cluster(MemoryLauncher):
    """Some jobs outlive being stopped, and sometimes it knows of none."""

    def __init__(self) -> None:
        super().__init__()
        self.is_slow_to_stop = False
        self.has_forgotten = False

    async def status(self, submission_id: str) -> JobInfo | None:
        return None if self.has_forgotten else await super().status(submission_id)

    async def stop(self, submission_id: str) -> None:
        if self.is_slow_to_stop:
            self._expect_up()
            self.stopped.append(submission_id)
        else:
            await super().stop(submission_id)

    def is_running(self, submission_id: str) -> bool:
        return not self.jobs[submission_id].status.is_terminal

    def hurry(self) -> None:
        """Whatever was to stop has stopped."""
        self.is_slow_to_stop = False
        for submission_id in filter(self.is_running, self.stopped):
            self.end(submission_id, JobStatus.STOPPED, None)


@dataclass
class Driver:
    """The process that leads one attempt."""

    stage: Stage
    submission_id: str
    assignment: dict[str, Any] = field(default_factory=dict)
    step: int = 0
    """Of its last checkpoint."""
    segment: tuple[int, int] | None = None
    """That is under way, and the step that it ends at."""
    trial: int | None = None
    """That runs."""
    ended: set[int] = field(default_factory=set)
    requests: int = 0
    said: tuple[str, str, dict[str, Any], httpx.Response] | None = None
    """Its last message and the answer."""
    is_used_up: bool = False
    """No steps are left to it."""

    @property
    def run_id(self) -> str:
        return self.submission_id.rpartition("-a")[0]

    @property
    def fence(self) -> int:
        return int(self.submission_id.rpartition("-a")[2])

    @property
    def is_search(self) -> bool:
        return self.run_id.endswith("-search")

    @property
    def charged(self) -> dict[str, Any] | None:
        """What each of its trials costs."""
        return self.assignment.get("charged")

    @property
    def steps(self) -> int:
        return self.assignment["mechanism"]["event"]["steps"]

    # What it says

    async def say(self, method: str, path: str, *, times: int = 1, **body: Any) -> Any:
        """Send it so often; the answer, or None where it was refused.

        Where its attempt is over it is refused, and leaves nothing in the ledger.
        """
        state, head = await self.stage.standing(self.submission_id)
        message = {"fence": self.fence, **body}
        options: dict[str, Any] = {"params" if method == "GET" else "json": message}
        options["headers"] = driver_headers(self.stage.settings, self.run_id, self.fence)
        address = f"/worker/runs/{self.run_id}{path}"
        answers = [await self.stage.ask(method, address, **options) for _ in range(times)]
        first, *others = answers
        assert first.status_code in (200, 204, 409, 422), first.text
        if not self.stage.is_racing:
            assert all(each.text == first.text for each in others), "one message, two answers"
        if state != "live" and not (path == "/finish" and body["outcome"] == state):
            assert first.status_code == 409, f"its attempt is {state}, and it is heard"
            if not self.stage.is_racing:
                after = await self.stage.standing(self.submission_id)
                assert after == (state, head), "it was refused, and wrote"
        self.said = method, path, body, first
        if not first.is_success:
            return None
        return first.json() if first.content else {}

    async def say_it_again(self) -> None:
        """A request for steps that comes again is answered as it was."""
        if self.said is None:
            return
        method, path, body, before = self.said
        await self.say(method, path, **body)
        again = self.said[-1]
        if path == "/segments" and before.is_success and again.is_success:
            assert again.text == before.text, "one request, two charges"

    async def start(self) -> bool:
        found = await self.say("GET", "")
        if found is None:
            return False
        self.assignment = found
        if self.is_search:
            states = {each["number"]: each["state"] for each in found["trials"]}
            assert "running" not in states.values()
            self.ended = {number for number, state in states.items() if state != "interrupted"}
        else:
            self.step = (found["checkpoint"] or {"step": 0})["step"]
        return True

    async def beat(self) -> str | None:
        """A heartbeat: what is wanted of it."""
        reply = await self.say(
            "POST", "/heartbeat", **({} if self.is_search else {"step": self.step})
        )
        return reply and reply["desired"]

    async def obey(self, desired: str) -> None:
        """End as it is told to: with a checkpoint, where there is time for one."""
        if desired == "pause" and self.segment is not None:
            await self._end_segment(1)
        await self.finish("cancelled", can_retry=True)

    async def go_on(self, *, ending: str = "completed", times: int = 1) -> bool:
        """Its next piece of work; whether it was heard, and there may be more.

        Args:
            ending: of the trial, where one ends.
            times: how often it says each thing.
        """
        if self.is_search:
            if self.trial is not None:
                return await self._end_trial(self.trial, ending, times)
            if len(self.ended) < TRIALS:
                return await self._begin_trial(times)
        elif self.segment is not None:
            return await self._end_segment(times)
        elif self.step < self.steps and not self.is_used_up:
            return await self._begin_segment(times)
        is_vain = not self.is_search and self.step == 0
        await self.finish("failed" if is_vain else "succeeded", times=times)
        return False

    async def finish(self, outcome: str, *, can_retry: bool = False, times: int = 1) -> None:
        body: dict[str, Any] = {"outcome": outcome, "retryable": can_retry}
        if outcome == "failed":
            body["reason"] = "it went wrong"
        if outcome == "succeeded" and not self.is_search:
            body["result"] = {
                "steps": self.step,
                "test_accuracy": 0.9,
                "num_test": 20,
                "model_path": f"/x/{self.submission_id}.safetensors",
                "model_sha256": hashlib.sha256(b"weights").hexdigest(),
                "train_seconds": 1.0,
                "software": {},
            }
        await self.say("POST", "/finish", times=times, **body)

    # Trials

    def _trial(self, number: int, ending: str = "running") -> dict[str, Any]:
        params: dict[str, Any] = {"learning_rate": 0.5 * (1 + number)}
        if "steps" in self.assignment["search"]["space"]:
            params["steps"] = 10 if number == 1 else STEPS
        if ending == "completed":
            accuracies = [0.7 + number / 20] * (1 if self.charged else 2)
            return completed_trial(number, *accuracies, params=params)
        trial = make_trial(number, ending, params=params)
        if ending == "pruned":
            trial |= {"scores": [make_score(0, 0.6)], "value": 0.6}
        return trial if ending == "running" else trial | {"reason": "so it went"}

    async def _begin_trial(self, times: int) -> bool:
        number = min(set(range(TRIALS)) - self.ended)
        path, trial = f"/trials/{number}", self._trial(number)
        if await self.say("PUT", path, times=times, trial=trial) is None:
            return False
        if self.charged is not None:
            steps = self.charged["mechanism"]["event"]["steps"]
            if await self._charge(0, steps, times) is None:
                return False
        self.trial = number
        return True

    async def _end_trial(self, number: int, ending: str, times: int) -> bool:
        # Without a charge there is nothing to score.
        trial = self._trial(number, "failed" if self.is_used_up else ending)
        if await self.say("PUT", f"/trials/{number}", times=times, trial=trial) is None:
            return False
        self.ended.add(number)
        self.trial = None
        return True

    # Steps

    async def _charge(self, start: int, steps: int, times: int) -> dict[str, Any] | None:
        """Ask for so many steps and run them."""
        self.requests += 1
        request = f"{self.fence}-{self.requests}"
        ask = {"start_step": start, "num_steps": steps, "request_id": request}
        grant = await self.say("POST", "/segments", times=times, **ask)
        if grant is not None:
            self.stage.executed[self.run_id] += grant["num_steps"]
            self.is_used_up = grant["num_steps"] == 0
        return grant

    async def _begin_segment(self, times: int) -> bool:
        wanted = min(SEGMENT, self.steps - self.step)
        grant = await self._charge(self.step, wanted, times)
        if grant is not None and not self.is_used_up:
            self.segment = grant["segment"], self.step + grant["num_steps"]
        return grant is not None

    async def _end_segment(self, times: int) -> bool:
        assert self.segment is not None
        segment, step = self.segment
        kept = {"step": step, "path": f"/x/{self.submission_id}/{step}", "sha256": "ab" * 32}
        path = f"/segments/{segment}/end"
        if await self.say("POST", path, times=times, checkpoint=kept) is None:
            return False
        self.step, self.segment = step, None
        return True
