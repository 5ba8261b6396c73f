"""Checks stand each for itself."""

import os
import threading
import time

import pytest

from service.cli.doctor import check
from service.cli.doctor.check import Verdict, ok, run, warning


def test_findings_stand_in_the_order_of_their_checks() -> None:
    found = run({"b": lambda: ok("fine"), "a": lambda: warning("so", "do")}, limit_seconds=5)
    assert list(found) == ["b", "a"]
    assert (found["a"].verdict, found["a"].next) == (Verdict.WARNING, "do")


def test_a_check_that_raises_has_failed_and_no_other() -> None:
    def broken() -> None:
        raise OSError("disk on fire")

    found = run({"broken": broken, "fine": lambda: ok("fine")}, limit_seconds=5)  # type: ignore[dict-item]
    assert found["broken"].verdict is Verdict.FAILURE
    assert "disk on fire" in found["broken"].found
    assert found["fine"].verdict is Verdict.OK


@pytest.mark.parametrize(("load", "verdict"), [(0.1, "failure"), (1e6, "warning")])
def test_a_check_that_hangs_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, load: float, verdict: str
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    hanging = threading.Event()

    def hang():
        hanging.wait(60)
        return ok("late")

    begun = time.monotonic()
    found = run({"slow": hang, "fine": lambda: ok("fine")}, limit_seconds=0.2)
    hanging.set()
    assert time.monotonic() - begun < 30
    assert found["slow"].verdict == verdict
    assert "0.2 s" in found["slow"].found
    assert ("this machine is busy" in found["slow"].found) == (verdict == "warning")
    assert found["fine"].verdict is Verdict.OK


def test_who_is_waited_for_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "TELL_AFTER_SECONDS", 0.0)
    told: list[list[str]] = []
    is_told = threading.Event()

    def tell(names) -> None:
        told.append(list(names))
        is_told.set()

    def slow():
        assert is_told.wait(60)
        return ok("done")

    found = run({"slow": slow}, limit_seconds=60, tell=tell)
    assert found["slow"].verdict is Verdict.OK
    assert told[0] == ["slow"]
