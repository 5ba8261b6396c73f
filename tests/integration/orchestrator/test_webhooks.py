"""Webhooks from the outbox to a real HTTP server on this machine."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from sqlalchemy import select, update

from service.db.session import Database
from service.db.tables import Event, Study, WebhookDelivery
from service.studies.events import set_state
from service.webhooks import outbox
from service.webhooks import sender as sending
from service.webhooks.sender import WebhookSender
from service.webhooks.signature import HEADER, is_valid
from service.webhooks.targets import Target
from tests.support.world import World

SECRET = b"a secret of the operator's"


@dataclass
class Receiver:
    """Answers with ``statuses``, then with 204; keeps what it was sent."""

    statuses: list[int] = field(default_factory=list)
    held_up: threading.Event | None = None
    """Until it is set nobody gets an answer."""
    received: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)
    url: str = ""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with listening() as known:
        yield known


@contextmanager
def listening() -> Iterator[Receiver]:
    known = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            known.received.append((dict(self.headers), body))
            known.arrived.set()
            if known.held_up is not None:
                known.held_up.wait(30)
            status = known.statuses.pop(0) if known.statuses else 204
            self.send_response(status)
            self.send_header("Location", known.url + "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    known.url = f"http://127.0.0.1:{server.server_port}/hook?key=hidden"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield known
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.fixture
def sender(receiver: Receiver, database: Database) -> WebhookSender:
    return WebhookSender(database, (receiver.url,), SECRET)


def wait_for(receiver: Receiver, number: int) -> None:
    """Messages; eight seconds at most."""
    deadline = time.monotonic() + 8
    while len(receiver.received) < number and time.monotonic() < deadline:
        time.sleep(0.1)


async def cancelled(world: World) -> str:
    study_id = await world.submit()
    await world.client.post(f"/studies/{study_id}/cancel")
    await world.tick(1)
    return study_id


async def make_due(database: Database) -> None:
    async with database.session() as session:
        await session.execute(
            update(WebhookDelivery).values(next_try_at=WebhookDelivery.created_at)
        )


async def delivery(database: Database) -> WebhookDelivery:
    async with database.session() as session:
        return (await session.scalars(select(WebhookDelivery))).one()


async def test_a_message_is_signed_and_tells_what_happened(
    world: World, sender: WebhookSender, receiver: Receiver
) -> None:
    study_id = await cancelled(world)

    await sender.send_due()

    ((headers, body),) = receiver.received
    assert is_valid(SECRET, body, headers[HEADER], now=int(time.time()))
    assert not is_valid(SECRET, body + b" ", headers[HEADER], now=int(time.time()))
    assert not is_valid(SECRET, body, headers[HEADER], now=int(time.time()) + 301)
    message = json.loads(body)
    assert (message["type"], headers["X-TAN-Event"]) == ("study.cancelled", "study.cancelled")
    assert message["study"] == {
        "id": study_id,
        "name": "digits-eps3",
        "dataset": "digits",
        "state": "cancelled",
        "reason": "cancelled by a user",
    }


async def test_it_is_tried_again_until_it_is_accepted_and_never_after(
    world: World, sender: WebhookSender, receiver: Receiver, database: Database
) -> None:
    receiver.statuses = [503, 500]
    await cancelled(world)
    for tries in (1, 2):
        await sender.send_due()
        known = await delivery(database)
        assert (known.state, known.tries) == ("pending", tries)
        await sender.send_due()  # not due yet
        assert len(receiver.received) == tries
        await make_due(database)
    await sender.send_due()
    await make_due(database)
    await sender.send_due()

    known = await delivery(database)
    assert (known.state, known.tries, known.answer) == ("delivered", 3, "HTTP 204")
    assert len({headers["X-TAN-Delivery"] for headers, _ in receiver.received}) == 1
    assert len({body for _, body in receiver.received}) == 1
    assert len(receiver.received) == 3


async def test_a_redirect_is_an_answer_and_is_not_followed(
    world: World, sender: WebhookSender, receiver: Receiver, database: Database
) -> None:
    receiver.statuses = [307]
    await cancelled(world)

    await sender.send_due()

    assert len(receiver.received) == 1
    known = await delivery(database)
    assert (known.state, known.answer) == ("pending", "HTTP 307")


@pytest.mark.slow
async def test_a_slow_receiver_delays_no_study(
    world: World, sender: WebhookSender, receiver: Receiver
) -> None:
    receiver.held_up = threading.Event()
    await cancelled(world)
    sent = asyncio.create_task(sender.send_due())
    assert await asyncio.to_thread(receiver.arrived.wait, 10)
    study_id = await world.submit()

    await world.tick(1)

    assert (await world.study(study_id))["state"] == "simulating"
    assert not sent.done()
    receiver.held_up.set()
    await sent


async def test_a_slow_receiver_delays_no_other(
    world: World, receiver: Receiver, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "AT_A_TIME", 1)
    receiver.held_up = threading.Event()
    for _ in range(3):
        await cancelled(world)
    with listening() as other:
        stop = asyncio.Event()
        sender = WebhookSender(database, (receiver.url, other.url), SECRET)
        running = asyncio.create_task(sender.run(stop))
        await asyncio.to_thread(wait_for, other, 3)
        receiver.held_up.set()
        stop.set()
        await running

    assert len(other.received) == 3


async def test_what_another_orchestrator_sends_is_left_to_it_for_a_day(
    world: World, sender: WebhookSender, database: Database
) -> None:
    """While addresses are changed, one of them knows those of yesterday."""
    await cancelled(world)
    async with database.session() as session:
        await outbox.fill(session, [Target("https://hooks.example.org/new")])
    unaware = WebhookSender(database, (), b"")
    await unaware.send_due()
    assert ((await delivery(database)).state, (await delivery(database)).tries) == ("pending", 0)

    async with database.session() as session:
        past = WebhookDelivery.created_at - timedelta(hours=25)
        await session.execute(update(WebhookDelivery).values(created_at=past))
    await unaware.send_due()

    known = await delivery(database)
    assert (known.state, known.answer) == ("given_up", "its address is no longer configured")


async def test_a_receiver_that_does_not_answer_in_time_is_tried_again(
    world: World,
    sender: WebhookSender,
    receiver: Receiver,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "TIMEOUT_SECONDS", 0.05)
    receiver.held_up = threading.Event()
    await cancelled(world)

    await sender.send_due()
    receiver.held_up.set()

    known = await delivery(database)
    assert (known.state, known.answer) == ("pending", "no answer in time")


async def test_after_a_day_it_is_given_up(
    world: World, sender: WebhookSender, receiver: Receiver, database: Database
) -> None:
    receiver.statuses = [503, 503]
    await cancelled(world)
    await sender.send_due()
    async with database.session() as session:
        await session.execute(
            update(WebhookDelivery).values(
                created_at=WebhookDelivery.created_at - timedelta(hours=25)
            )
        )
    await make_due(database)

    await sender.send_due()

    assert (await delivery(database)).state == "given_up"


async def test_what_is_long_past_is_no_news(
    world: World, sender: WebhookSender, receiver: Receiver, database: Database
) -> None:
    await cancelled(world)
    async with database.session() as session:
        await session.execute(update(Event).values(at=Event.at - timedelta(hours=25)))

    await sender.send_due()

    assert receiver.received == []


async def test_two_senders_share_the_work(
    world: World, sender: WebhookSender, receiver: Receiver
) -> None:
    await cancelled(world)

    await asyncio.gather(sender.send_due(), sender.send_due())

    assert len(receiver.received) == 1


async def test_a_study_that_waits_for_a_person_says_so_once(
    world: World, sender: WebhookSender, receiver: Receiver
) -> None:
    study_id = await world.submit(promotion="manual")
    await world.tick(3)
    await world.finish_search(study_id)
    await world.tick(2)
    await sender.send_due()
    await world.client.post(f"/studies/{study_id}/pause")
    await sender.send_due()

    (message,) = [json.loads(body) for _, body in receiver.received]

    assert message["type"] == "study.awaiting_approval"
    assert message["study"]["reason"].startswith("waiting for tan-cli promote")


async def test_a_study_that_waits_again_says_so_again(
    world: World, database: Database, sender: WebhookSender, receiver: Receiver
) -> None:
    """As one whose search is charged, on data that require approval: for its search, then for its private run."""
    study_id = await world.submit()
    for state, reason in [
        ("awaiting_approval", "for its search"),
        ("awaiting_approval", "for its search, and paused"),
        ("simulating", None),
        ("awaiting_approval", "for its private run"),
    ]:
        async with database.session() as session:
            await set_state(session, await session.get_one(Study, study_id), state, reason)
        if reason != "for its search":
            await sender.send_due()
    for _ in range(3):
        await sender.send_due()

    told = [json.loads(body)["study"]["reason"] for _, body in receiver.received]
    assert told == ["for its search", "for its private run"]
    assert len({headers["X-TAN-Delivery"] for headers, _ in receiver.received}) == 2
    assert len({json.loads(body)["id"] for _, body in receiver.received}) == 2


async def test_each_promotion_that_meets_a_full_budget_is_told(
    world: World, sender: WebhookSender, receiver: Receiver
) -> None:
    study_id = await world.submit(
        search={"space": {"learning_rate": 1.0, "steps": {"choices": [50, 100]}}},
        train={"steps": "auto"},
        promotion="manual",
    )
    await world.tick(3)
    await world.finish_search(study_id, params={"learning_rate": 1.0, "steps": 50})
    await world.tick(1)
    await world.client.put("/datasets/digits/caps/*", json={"epsilon": 0})
    for _ in range(2):
        await world.client.post(f"/studies/{study_id}/promote")
        await world.tick(1)
        for _ in range(2):
            await sender.send_due()
    await world.client.post(f"/studies/{study_id}/pause")
    await sender.send_due()

    told = [json.loads(body)["study"]["reason"] for _, body in receiver.received]
    assert [each.partition(":")[0] for each in told] == [
        "waiting for tan-cli promote",
        "over budget at promotion",
        "over budget at promotion",
    ]


async def test_what_was_said_before_the_upgrade_is_not_said_again(
    world: World, database: Database, sender: WebhookSender, receiver: Receiver
) -> None:
    await cancelled(world)
    await sender.send_due()
    async with database.session() as session:  # as an older version named it
        await session.execute(update(WebhookDelivery).values(id="d-0"))

    await sender.send_due()

    assert len(receiver.received) == 1


async def test_deliveries_are_listed_without_their_address(
    world: World, sender: WebhookSender, receiver: Receiver
) -> None:
    study_id = await cancelled(world)
    await sender.send_due()

    answer = await world.client.get("/webhooks/deliveries", params={"state": "delivered"})

    (item,) = answer.json()["items"]
    assert (item["study_id"], item["event"], item["tries"]) == (study_id, "cancelled", 1)
    assert item["host"] == receiver.url.split("/")[2]
    assert "hidden" not in answer.text


@pytest.mark.parametrize("host", ["xn--a", "é..org"])
async def test_a_host_that_cannot_be_asked_for_is_written_down(
    world: World, database: Database, host: str
) -> None:
    await cancelled(world)
    sender = WebhookSender(database, (f"https://{host}/hook",), SECRET)

    await sender.send_due()

    known = await delivery(database)
    assert (known.state, known.tries) == ("pending", 1)
    assert known.answer is not None
