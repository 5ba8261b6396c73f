"""Lists and tables fit the terminal with every word whole, and ε never stands without what it means nothing without."""

import copy
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console, Group, RenderableType

from service import trial_spec
from service.cli import (
    compare,
    plan_view,
    prediction_view,
    privacy_view,
    selftest_view,
    tokens,
    trials,
    views,
)
from service.cli.tables import FirstThatFits, table
from service.statements.check import Check
from tan_core.accounting import SEARCH_NOTES, SearchAccounting
from tests.unit.service.cli.recorded import (
    ATTEMPTS,
    CALIBRATION,
    DATASET,
    PLAN,
    STUDY,
    SUMMARY,
    TRIALS,
)

Json = dict[str, Any]

NOTE = "search on private data NOT accounted"
LONG_STUDY = "cifar10-wrn-16-4-eps8-augmult16"
LONG_DATASET = "imagenet-2012-resized-64-without-faces"
AT = "2026-01-02T03:04:05Z"
TOKEN_ID = "0123456789abcdef"
KEY_ID = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
UNBOUNDED = 10_000


def lines(made: RenderableType, width: int) -> list[str]:
    console = Console(
        file=io.StringIO(), width=width, markup=False, highlight=False, emoji=False
    )  # as service.cli.output has it
    with console.capture() as captured:
        console.print(made)
    return captured.get().splitlines()


def words(made: RenderableType, width: int) -> set[str]:
    return {word for line in lines(made, width) for word in line.split() if word.strip("─")}


def _entry(seq: int, kind: str, **body: Any) -> Json:
    written = {"at": "2026-01-02T03:04:05+00:00", "actor": TOKEN_ID, **body}
    return {
        "scope_id": "dataset:digits",
        "seq": seq,
        "kind": kind,
        "body": json.dumps(written),
        "reservation_id": SUMMARY["id"],
        "prev_hash": "0" * 64,
        "hash": f"{seq}" * 64,
    }


def _accounts() -> RenderableType:
    reservation = {
        "study_id": SUMMARY["id"],
        "state": "closed",
        "seq": 12345,
        "reserved_steps": 312_000,
        "charged_steps": 300_000,
        "released_steps": 12_000,
    }
    entries = [
        _entry(1, "open", epsilon=(100.0).hex(), delta=(1e-3).hex()),
        _entry(2, "reserve", steps=312, search_accounting="declared_unaccounted"),
        _entry(3, "begin", start_step=0, num_steps=25),
        _entry(4, "release", released_steps=12, reason="the private run is complete"),
        _entry(5, "attest", note={"study": SUMMARY["id"], "weights_sha256": "a" * 64}),
    ]
    return Group(privacy_view._reservations([reservation]), privacy_view._entries(entries, 5))


def _repriced() -> RenderableType:
    item = {
        "study_id": SUMMARY["id"],
        "accountant": "pld",
        "epsilon": 2.94,
        "before": 2.93,
        "version": "dp-accounting 0.5.0",
        "version_before": "dp-accounting 0.4.4",
    }
    repriced = {"scope_id": f"dataset:{LONG_DATASET}", "head": {"seq": 44}, "items": [item]}
    return privacy_view.repricing(repriced)


def _calibration() -> RenderableType:
    (item,) = CALIBRATION["items"]
    long = {"name": LONG_STUDY, "dataset": LONG_DATASET, "model": "timm:vit_tiny_patch16_224"}
    return prediction_view.calibration({**CALIBRATION, "items": [item, {**item, **long}]})


def _tokens() -> RenderableType:
    token = {
        "id": TOKEN_ID,
        "name": "alice@example.org laptop",
        "tenant": "vision",
        "scopes": ["read", "submit", "approve"],
        "created_at": AT,
        "last_used_at": AT,
        "revoked_at": None,
        "expires_at": AT,
    }
    return tokens._token_table([token, {**token, "revoked_at": AT}])


def _audit() -> RenderableType:
    event = {
        "at": AT,
        "token_id": TOKEN_ID,
        "tenant": "vision",
        "address": "192.168.100.101",
        "method": "PUT",
        "route": "/datasets/{name}/caps/{tenant}",
        "target": LONG_DATASET,
        "status": 403,
    }
    return tokens._audit_table([event])


def _compared() -> RenderableType:
    other = {**copy.deepcopy(STUDY), "name": LONG_STUDY}
    specs = trial_spec.flattened([STUDY["spec"], other["spec"]])
    return Group(compare._outcomes([STUDY, other]), compare._specs([STUDY, other], specs, specs))


def _evaluation() -> RenderableType:
    share = {"num": 10_000, "accuracy": 0.9, "low": 0.89, "high": 0.91}
    part = {"name": "airplane", "private": share, "baseline": share}
    evaluation = {
        "all": {**part, "name": "all"},
        "classes": [part],
        "groups": [],
        "group_column": None,
        "baseline_reason": None,
        "note": "No ε covers it.",
    }
    return Group(*views.evaluation_tables(evaluation))


def _selftest() -> RenderableType:
    finding = {
        "check": "sampling.poisson.independence-of-examples",
        "value": 1.0003,
        "low": 0.99,
        "high": 1.01,
        "p_value": 0.44,
        "power": 0.999,
        "fault": "batches of a fixed size",
        "passed": True,
        "error": None,
    }
    return selftest_view.findings({"findings": [finding], "false_alarm": 1e-6})


def _trials() -> RenderableType:
    params = {"learning_rate": 0.51234, "augmentation_multiplicity": 16, "clip_norm": 1.2345}
    reason = "behind the others at B = 32: 45.1 % where the best third had 62.0 %"
    pruned = {**TRIALS[0], "state": "pruned", "params": params, "reason": reason}
    return trials._table(STUDY, [*TRIALS, pruned])


LONG_SUMMARY = {**SUMMARY, "name": LONG_STUDY, "dataset": LONG_DATASET, "tags": ["paper", "fig:2"]}
KEY = {"key_id": KEY_ID, "algorithm": "Ed25519", "state": "signs"}
CHECKS = [
    Check("epsilon", True, "2.9401 at delta 1e-05 from 1 event, computed again: as stated"),
    Check("signature", False, f"the signature does not fit the document and key {KEY_ID}"),
]
VIEWS: dict[str, Callable[[], RenderableType]] = {
    "studies": lambda: views.studies([SUMMARY, LONG_SUMMARY]),
    "datasets": lambda: views.datasets([DATASET, {**DATASET, "name": LONG_DATASET}]),
    "dataset": lambda: views.dataset(DATASET),
    "study": lambda: views.study(STUDY, ATTEMPTS),
    "plan": lambda: plan_view.plan(PLAN),
    "standings": lambda: prediction_view.standings(STUDY),
    "keys": lambda: privacy_view.keys([KEY]),
    "checks": lambda: privacy_view.checks(CHECKS),
    "ledger": _accounts,
    "repricing": _repriced,
    "calibration": _calibration,
    "tokens": _tokens,
    "audit": _audit,
    "compare": _compared,
    "evaluation": _evaluation,
    "selftest": _selftest,
    "trials": _trials,
}
WITH_DIGESTS = ("dataset", "study", "keys", "checks")
"""Sixty-four digits do not fit into 60 columns beside their name."""


@pytest.mark.parametrize(
    ("name", "width"),
    [
        (name, width)
        for name in VIEWS
        for width in (60, 80, 100, 140)
        if width > 60 or name not in WITH_DIGESTS
    ],
)
def test_every_word_is_whole(name: str, width: int) -> None:
    made = VIEWS[name]
    assert max(map(len, lines(made(), width))) <= width
    narrow = words(_last(made()), UNBOUNDED)
    assert words(made(), width) <= words(made(), UNBOUNDED) | narrow


def _last(made: RenderableType) -> RenderableType:
    """What is shown of several tables where none of them fits, as one would see it on a wide terminal."""
    return made.tables[-1] if isinstance(made, FirstThatFits) else made


@pytest.mark.parametrize("name", ["ledger", "calibration", "audit"])
def test_at_80_columns_what_is_too_wide_is_stacked(name: str) -> None:
    shown = lines(VIEWS[name](), 80)
    heads = {"ledger": "entry ", "calibration": "study ", "audit": "at "}
    assert any(line.startswith(heads[name]) for line in shown)


@pytest.mark.parametrize("width", [80, 100, 130, 200])
def test_a_study_stands_on_one_line_with_its_guarantee(width: int) -> None:
    shown = lines(views.studies([SUMMARY]), width)
    assert max(map(len, shown)) <= width
    (row,) = [line for line in shown if SUMMARY["id"] in line]
    for word in ("digits-eps3", "completed", "92.5 %", "2.941 (PLD)", "1e-05"):
        assert word in row
    assert NOTE in "\n".join(shown)
    assert "add_or_remove_one" in "\n".join(shown)


def test_the_star_is_only_where_the_search_is_not_accounted() -> None:
    note = SEARCH_NOTES[SearchAccounting.PUBLIC_PROXY]
    public = {**SUMMARY, "id": "s-1", "search_accounting": "public_proxy", "search_note": note}
    shown = lines(views.studies([SUMMARY, public]), 80)
    assert [("*" in line) for line in shown if "s-" in line] == [True, False]


@pytest.mark.parametrize("width", [80, 160])
def test_a_dataset_stands_on_one_line_with_its_budget(width: int) -> None:
    shown = lines(views.datasets([DATASET]), width)
    assert max(map(len, shown)) <= width
    (row,) = [line for line in shown if "digits" in line]
    assert "100" in row
    assert "0.001" in row
    assert "add_or_remove_one" in "\n".join(shown)


@pytest.mark.parametrize("width", [40, 60, 71])
def test_on_a_narrow_terminal_no_figure_is_cut(width: int) -> None:
    reached = f"{100 * CALIBRATION['items'][0]['reached']:.1f} %"
    for made, found in (
        (views.studies([SUMMARY]), (SUMMARY["id"], "completed", "2.941 (PLD)* at 1e-05")),
        (views.datasets([DATASET]), ("digits", "1,295", "ε = 100 at δ = 0.001")),
        (prediction_view.calibration(CALIBRATION), ("digits", reached)),
        (prediction_view.standings(STUDY), ("fresh", "promoted")),
    ):
        shown = lines(made, width)
        assert max(map(len, shown)) <= width
        for word in found:
            assert any(word in line for line in shown), (word, shown)


class TestTable:
    def test_it_is_stacked_only_where_a_name_would_not_be_whole(self) -> None:
        made = table("Keys", "id", "state", "")
        made.add_row("k-1", "signs", "")
        made.add_row("k-2", "retired", "by hand", style="red")

        assert ["id", "state"] in [line.split() for line in lines(made, 21)]
        assert [line.rstrip() for line in lines(made, 20)] == [
            "Keys", "", "id     k-1", "state  signs", "", "id     k-2", "state  retired",
            "       by hand", "",
        ]  # fmt: skip

    def test_a_sentence_may_wrap_while_it_can_be_read(self) -> None:
        made = table(None, "id", "what", prose=("what",), notes=["a note"])
        made.add_row("k-1", "retired by hand, after the disk was lost, and none too soon")

        assert ["k-1", "retired", "by", "hand,", "after"] in [
            line.split() for line in lines(made, 30)
        ]
        assert "id    k-1" in [line.rstrip() for line in lines(made, 29)]
        assert lines(made, 30)[-1] == lines(made, 29)[-1] == "a note"

    def test_several_columns_of_sentences_share_the_room_and_break_no_word(self) -> None:
        def made() -> RenderableType:
            each = table(None, "key", "a", LONG_STUDY, "b", prose=("a", LONG_STUDY, "b"))
            each.add_row("search", "a sentence of many words, none long", NOTE, f"{NOTE} {NOTE}")
            return each

        for width in range(50, 180):
            assert words(made(), width) == words(made(), UNBOUNDED), width

    def test_the_first_of_several_that_fits_is_shown(self) -> None:
        def chosen(width: int) -> str:
            wide, narrow = table(None, "id", "a long name"), table(None, "id")
            for made in (wide, narrow):
                made.add_row(*["k-1"] * len(made.columns))
            return "\n".join(lines(FirstThatFits(wide, narrow), width))

        assert "a long name" in chosen(40)
        assert "a long name" not in chosen(12)
        assert "k-1" in chosen(12)
