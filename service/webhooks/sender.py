"""Sends what is in the outbox, beside the orchestrator's ticks."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial

import httpx

from service.db.clock import clock
from service.db.session import Database
from service.db.tables import WebhookDelivery
from service.trouble import Trouble
from service.webhook_urls import MAX_URLS
from service.webhooks import outbox
from service.webhooks.signature import HEADER, sign
from service.webhooks.targets import Target, by_id

PERIOD_SECONDS = 1.0
OTHERS_PERIOD_SECONDS = 60.0
AT_A_TIME = 10
"""Messages to one address."""
SESSIONS = 4
"""Of the orchestrator's connections, which its studies need."""
TIMEOUT_SECONDS = 10.0
"""Of each part of a request; a whole try may take twice as long."""
log = logging.getLogger(__name__)


class WebhookSender:
    """Delivers at least once: a receiver tells a repetition by ``X-TAN-Delivery``.

    Args:
        database: the control plane's database.
        urls: the operator's addresses, as the settings have checked them.
        secret: the key of the signatures.
    """

    def __init__(self, database: Database, urls: tuple[str, ...], secret: bytes) -> None:
        self._database = database
        self._targets = by_id(urls)
        self._secret = secret
        # No redirects: they would carry a message to an address that nobody has allowed.
        # A proxy of the environment is asked for the way out of this machine, not back into it.
        here: dict[str, httpx.AsyncBaseTransport | None] = {
            "all://127.0.0.1": None,
            "all://[::1]": None,
            "all://localhost": None,
        }
        self._client = httpx.AsyncClient(
            timeout=TIMEOUT_SECONDS,
            follow_redirects=False,
            mounts=here,
            limits=httpx.Limits(max_connections=AT_A_TIME * MAX_URLS),
        )
        self._turns = asyncio.Semaphore(SESSIONS)

    async def run(self, stop: asyncio.Event) -> None:
        """Send until told to stop, to each address on its own: one that is slow delays no other."""
        looks = [
            (partial(self._send_due_to, target), PERIOD_SECONDS)
            for target in self._targets.values()
        ]
        async with self._client:
            await asyncio.gather(
                *(self._again_and_again(look, period, stop) for look, period in looks),
                self._again_and_again(self._give_up_others, OTHERS_PERIOD_SECONDS, stop),
            )

    async def send_due(self) -> None:
        """Fill the outbox and try once whatever is due."""
        await asyncio.gather(*map(self._send_due_to, self._targets.values()))
        await self._give_up_others()

    async def _again_and_again(
        self, look: Callable[[], Awaitable[None]], period: float, stop: asyncio.Event
    ) -> None:
        trouble = Trouble(log)
        while not stop.is_set():
            try:
                await look()
            except Exception as error:  # noqa: BLE001 - whatever it was, the next look tries again
                trouble.met("cannot send webhooks; trying again", error)
            else:
                trouble.is_over()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), period)

    async def _send_due_to(self, target: Target) -> None:
        async with self._turns, self._database.session() as session:
            await outbox.fill(session, [target])
            taken = await outbox.take(session, target, limit=AT_A_TIME)
            now = await clock(session)
        await asyncio.gather(*(self._deliver(target, delivery, now) for delivery in taken))

    async def _give_up_others(self) -> None:
        async with self._turns, self._database.session() as session:
            await outbox.give_up_others(session, self._targets.values())

    async def _deliver(self, target: Target, delivery: WebhookDelivery, now: datetime) -> None:
        answer, is_accepted = await self._post(target.url, delivery, now)
        async with self._turns, self._database.session() as session:
            await outbox.finish(session, delivery.id, answer, is_accepted=is_accepted)
        if not is_accepted:
            log.warning("webhook %s to %s: %s", delivery.id, delivery.host, answer)

    async def _post(self, url: str, delivery: WebhookDelivery, now: datetime) -> tuple[str, bool]:
        body = delivery.body.encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "tan-search",
            "X-TAN-Delivery": delivery.id,
            "X-TAN-Event": f"study.{delivery.event}",
            HEADER: sign(self._secret, body, at=int(now.timestamp())),
        }
        try:
            # The answer's body is nobody's business: it is not even read.
            async with (
                asyncio.timeout(2 * TIMEOUT_SECONDS),
                self._client.stream("POST", url, content=body, headers=headers) as response,
            ):
                return f"HTTP {response.status_code}", response.is_success
        except TimeoutError:
            return "no answer in time", False
        # A host that no name server could be asked for is told by the last two.
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            return type(error).__name__, False
