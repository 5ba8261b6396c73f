"""Since when somebody looked, and heartbeats could be heard: silence means nothing while nobody listened."""

import asyncio
import contextlib
import logging
from datetime import datetime, timedelta

import httpx

from service.db.clock import clock
from service.db.session import Database
from service.orchestrator.decide import Heard
from service.trouble import Trouble

LOOK_SECONDS = 1.0
"""Between two looks beside the ticks."""
GAP = timedelta(seconds=5)
"""Longer between two looks, and what happened in between is not known. Nor is it where the clock jumped,
forward or back."""
LOOKS_FOR_ANY_ANSWER = 5
"""An API that has not answered in so many is not just starting."""
log = logging.getLogger(__name__)


class Hearing:
    """Watches that the API answers, by looking often.

    Args:
        api_url: the API as the drivers reach it. One that this process never reached says nothing
            about theirs, and is left out of the account.
    """

    def __init__(self, api_url: str) -> None:
        self._api_url = api_url
        self._client = httpx.AsyncClient(base_url=api_url, timeout=2.0, trust_env=False)
        self._has_answered = False
        self._looks_in_vain = 0
        self._looking_since: datetime | None = None
        self._listening_since: datetime | None = None
        self._last_look: datetime | None = None

    async def look(self, now: datetime) -> Heard:
        """What could be heard in the unbroken time up to ``now``."""
        answers = await self._api_answers()
        self._has_answered |= answers
        if not self._has_answered:
            self._count_in_vain()
        has_gap = self._last_look is None or not timedelta(0) <= now - self._last_look <= GAP
        self._last_look = now
        if self._looking_since is None or has_gap:
            self._looking_since = self._listening_since = now
        if self._has_answered and not answers:
            self._listening_since = None
        elif self._listening_since is None:
            self._listening_since = now
        return Heard(
            looking_since=self._looking_since,
            listening_since=self._listening_since or now,
            is_unreached=not self._has_answered and self._looks_in_vain >= LOOKS_FOR_ANY_ANSWER,
        )

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()

    def _count_in_vain(self) -> None:
        self._looks_in_vain += 1
        if self._looks_in_vain == LOOKS_FOR_ANY_ANSWER:
            log.warning(
                "nobody answers at %s, by which drivers are to reach the API: see TAN_WORKER_URL",
                self._api_url,
            )

    async def _api_answers(self) -> bool:
        """Whether it does: a page that a proxy shows in its place lets no heartbeat pass either."""
        try:
            answer = await self._client.get("/healthz")
            return answer.is_success and isinstance(answer.json(), dict)
        except (httpx.HTTPError, ValueError):
            return False


class Ear:
    """Looks by the database's clock: for every tick, and beside them, for one may last longer than a gap.

    Else a slow cluster or many studies would make a gap of every tick, and no silence would ever be long.
    """

    def __init__(self, database: Database, hearing: Hearing) -> None:
        self._database = database
        self._hearing = hearing
        self._turn = asyncio.Lock()
        self._trouble = Trouble(log)

    async def look(self) -> Heard:
        """What could be heard in the unbroken time up to now."""
        async with self._turn:  # a look after a later one would see the clock go back
            async with self._database.reading() as session:
                now = await clock(session)
            return await self._hearing.look(now)

    async def run(self, stop: asyncio.Event) -> None:
        """Look until told to stop."""
        while not stop.is_set():
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - whatever it was, the next look tries again
                self._trouble.met("cannot look whether drivers can be heard; trying again", error)
            else:
                self._trouble.is_over()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_SECONDS)
