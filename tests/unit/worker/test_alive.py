"""What a driver sees of workers that do something, and of those that do nothing; the store is one in memory."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr
from ray.experimental import internal_kv

from worker import alive
from worker.alive import Pulse, Pulses
from worker.settings import WorkerSettings


def settings_of(*, timeout: float) -> WorkerSettings:
    return WorkerSettings(
        api_url="http://127.0.0.1:1",
        run_id="r1",
        fence=1,
        run_token=SecretStr("token"),
        progress_timeout_seconds=timeout,
    )


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> dict[bytes, bytes]:
    kept: dict[bytes, bytes] = {}

    def put(key: str, value: str, **options: Any) -> None:
        kept[key.encode()] = value.encode()

    def listed(prefix: str, **options: Any) -> list[bytes]:
        return [key for key in kept if key.startswith(prefix.encode())]

    def deleted(prefix: str, **options: Any) -> None:
        for key in listed(prefix):
            del kept[key]

    monkeypatch.setattr(internal_kv, "_internal_kv_put", put)
    monkeypatch.setattr(internal_kv, "_internal_kv_get", lambda key, **_: kept.get(key))
    monkeypatch.setattr(internal_kv, "_internal_kv_list", listed)
    monkeypatch.setattr(internal_kv, "_internal_kv_del", deleted)
    return kept


def eventually(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_who_does_something_is_seen_by_name_and_who_does_nothing_is_not(
    store: dict[bytes, bytes],
) -> None:
    settings = settings_of(timeout=0.1)
    pulses = Pulses("r1-a1", settings)
    one, other = Pulse("r1-a1", settings), Pulse("r1-a1", settings)
    one.name, other.name = "trial 1", "trial 2"
    for pulse in (one, other):
        pulse.beat()
    eventually(lambda: len(store) == 2)
    time.sleep(0.05)
    assert pulses.look()[1] == {"trial 1", "trial 2"}

    before = dict(store)
    one.beat()
    eventually(lambda: store != before)
    time.sleep(0.05)
    assert pulses.look()[1] == {"trial 1"}

    time.sleep(0.05)
    passed, beaten = pulses.look()
    assert passed >= 0.05 / 2
    assert beaten == set()


def test_how_much_was_done_is_not_said(store: dict[bytes, bytes]) -> None:
    pulse = Pulse("r1-a1", settings_of(timeout=4.0))
    pulse.name = "rank 0"
    for _ in range(1000):
        pulse.beat()
    eventually(lambda: store)
    assert set(store.values()) <= {b"1:rank 0", b"2:rank 0"}


def test_other_attempts_are_others_and_a_closed_one_leaves_nothing(
    store: dict[bytes, bytes],
) -> None:
    settings = settings_of(timeout=0.04)
    for attempt in ("r1-a1", "r1-a11"):
        pulse = Pulse(attempt, settings)
        pulse.name = f"of {attempt}"
        pulse.beat()
    eventually(lambda: len(store) == 2)
    pulses = Pulses("r1-a1", settings)
    time.sleep(0.02)
    assert pulses.look()[1] == {"of r1-a1"}
    pulses.close()
    assert {value.decode() for value in store.values()} == {"1:of r1-a11"}


class TestTime:
    @pytest.fixture
    def now(self, monkeypatch: pytest.MonkeyPatch, store: dict[bytes, bytes]) -> list[float]:
        clock = [100.0]
        monkeypatch.setattr(alive.time, "monotonic", lambda: clock[0])
        return clock

    def test_a_look_comes_no_sooner_than_a_quarter_of_the_patience_and_5_s(
        self, now: list[float]
    ) -> None:
        for timeout, period in ((8.0, 2.0), (1800.0, 5.0)):
            pulses = Pulses("r1-a1", settings_of(timeout=timeout))
            now[0] += period - 0.1
            assert pulses.look() == (0.0, set())
            now[0] += 0.2
            assert pulses.look()[0] == pytest.approx(period + 0.1)

    def test_time_in_which_nobody_looked_or_could_look_counts_for_nothing(
        self, now: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pulses = Pulses("r1-a1", settings_of(timeout=1800.0))
        now[0] += 3600.0
        assert pulses.look()[0] == 10.0

        def away(*args: object, **options: object) -> list[bytes]:
            raise ConnectionError("no store")

        with monkeypatch.context() as patch:
            patch.setattr(internal_kv, "_internal_kv_list", away)
            now[0] += 7.0
            assert pulses.look() == (0.0, set())
        now[0] += 6.0
        assert pulses.look()[0] == pytest.approx(6.0)

    def test_without_patience_nobody_looks(self, now: list[float]) -> None:
        pulses = Pulses("r1-a1", settings_of(timeout=0.0))
        now[0] += 3600.0
        assert pulses.look() == (0.0, set())
