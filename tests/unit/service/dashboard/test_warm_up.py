"""What is prepared before the first visitor comes, and what is said where it cannot be."""

from types import SimpleNamespace
from typing import Any

import pytest

from service.dashboard import warm_up as module
from service.dashboard.warm_up import warm_up


async def test_a_failure_is_logged_at_once_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("no such template")

    monkeypatch.setattr(module, "compile_templates", fail)
    nothing: Any = SimpleNamespace()

    await warm_up(nothing)

    (record,) = caplog.records
    assert "the first visitor waits" in record.getMessage()
    assert "no such template" in caplog.text
