"""Journal entries as people read them."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from service.ledger import words
from service.ledger.schemas import Entry

DIGEST = "ab" * 32


def entry(kind: str, **body: Any) -> Entry:
    return Entry(
        seq=1, kind=kind, reservation_id=None, body=json.dumps(body), prev_hash="", hash=DIGEST  # pyright: ignore[reportArgumentType]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("open", {"epsilon": "0x1.8p+1", "delta": "0x1.0p-10"}, "budget of ε 3 at δ 0.000976562"),
        ("reserve", {"steps": 1312}, "holds 1,312 steps"),
        (
            "reserve",
            {"steps": 5, "search_accounting": "declared_unaccounted", "baseline": True},
            "holds 5 steps; search declared_unaccounted; a baseline without privacy",
        ),
        ("acquire", {"epoch": 2}, "attempt 2 may charge"),
        (
            "begin",
            {"num_steps": 30, "start_step": 60},
            "charges 30 steps from step 60, before they run",
        ),
        (
            "begin",
            {"num_steps": 1, "start_step": 0},
            "charges 1 step from step 0, before it runs",
        ),
        ("release", {"released_steps": 1, "reason": "done"}, "gives back 1 step: done"),
        ("end", {"step": 90}, "checkpoint at step 90"),
        ("release", {"released_steps": 12, "reason": "done"}, "gives back 12 steps: done"),
        ("cap", {"tenant": "team", "epsilon": "0x1.0p+1"}, "limits tenant team to ε 2"),
        ("cap", {"tenant": "*", "epsilon": "0x0.0p+0"}, "limits all tenants together to ε 0"),
        (
            "attest",
            {"note": {"weights_sha256": DIGEST, "steps": 300}},
            "binds weights_sha256 abababababab, steps 300",
        ),
        (
            "attest",
            {"note": {"restored_backup": {"head": {"seq": 3}, "reason": "dpo: the disk died"}}},
            "binds restored_backup dpo: the disk died",
        ),
    ],
)
def test_every_kind_is_put_in_words(kind: str, body: dict[str, Any], said: str) -> None:
    assert words.what(entry(kind, **body)) == said


def test_it_says_when_and_who_asked() -> None:
    at = "2026-11-22T10:00:00.250000Z"
    reserved = entry("reserve", at=at, actor="0a1b2c3d4e5f", steps=1)
    begun = entry("begin", at=at, epoch=3, start_step=0, num_steps=5)
    assert words.when(reserved) == datetime(2026, 11, 22, 10, 0, 0, 250_000, tzinfo=UTC)
    assert words.by_whom(reserved) == "0a1b2c3d4e5f"
    assert words.by_whom(begun) == "attempt 3"


def test_a_long_fact_is_cut() -> None:
    assert len(words.what(entry("attest", note={"why": "x" * 2000}))) < 220
