"""Since when heartbeats could be heard. Silence of a driver means nothing while nobody listened."""

from datetime import datetime, timedelta

import httpx

GAP = timedelta(seconds=5)
"""Longer between two looks, and what happened in between is not known. Nor is it where the clock jumped,
forward or back."""


class Hearing:
    """Watches that the API answers, by looking at every tick of the orchestrator.

    Args:
        api_url: the API as the drivers reach it. One that this process never reached says nothing
            about theirs, and is left out of the account.
    """

    def __init__(self, api_url: str) -> None:
        self._client = httpx.AsyncClient(base_url=api_url, timeout=2.0, trust_env=False)
        self._has_answered = False
        self._since: datetime | None = None
        self._last_look: datetime | None = None

    async def since(self, now: datetime) -> datetime:
        """The start of the unbroken time up to ``now`` in which heartbeats could arrive."""
        answers = await self._api_answers()
        self._has_answered |= answers
        has_gap = self._last_look is None or not timedelta(0) <= now - self._last_look <= GAP
        self._last_look = now
        if self._has_answered and not answers:
            self._since = None
            return now
        if self._since is None or has_gap:
            self._since = now
        return self._since

    async def close(self) -> None:
        """Close the connection."""
        await self._client.aclose()

    async def _api_answers(self) -> bool:
        try:
            return (await self._client.get("/healthz")).is_success
        except httpx.HTTPError:
            return False
