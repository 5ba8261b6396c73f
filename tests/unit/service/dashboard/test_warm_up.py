"""What is prepared before the first visitor comes, and what is said where it cannot be."""

import subprocess
import sys
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


def test_no_visitor_waits_for_the_accountants_library() -> None:
    """In a process of its own: here it is loaded already."""
    script = """
import asyncio, sys
from types import SimpleNamespace
from service.arithmetic import Arithmetic
from service.dashboard.warm_up import warm_up
assert "dp_accounting" not in sys.modules
asyncio.run(warm_up(SimpleNamespace(arithmetic=Arithmetic())))
assert "dp_accounting.pld.privacy_loss_distribution" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
