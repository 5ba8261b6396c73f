"""An exported ledger is verified without a database, and what was changed in it is found."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from service.ledger import renyi
from service.ledger.journal import entry_hash
from service.ledger.notes import BASELINE_NOTE, RESTORED_NOTE
from service.ledger.schemas import EXPORT_SCHEMA
from service.publication.keys import signing_key
from service.publication.signing import sign
from service.statements.export_check import verify_export
from tan_core.accounting import price
from tan_core.mechanism import Mechanism

RUN = Mechanism(sampling_rate=0.02, noise_multiplier=2.0, clip_norm=1.0, steps=100)
DELTA = 1e-3
CHARGED = 60


def make_export(*, restored: int = 0) -> dict[str, Any]:
    """A ledger with two reservations of one mechanism: one that was charged and released, one held."""
    entries: list[dict[str, Any]] = []

    def append(kind: str, reservation: str | None, **said: Any) -> None:
        body = json.dumps({"v": 1, "at": "2026-11-22T10:00:00.000000Z", **said})
        before = entries[-1]["hash"] if entries else ""
        seq = len(entries) + 1
        entries.append(
            {
                "seq": seq, "kind": kind, "reservation_id": reservation, "body": body,
                "prev_hash": before, "hash": entry_hash("s", seq, kind, reservation, body, before),
            }
        )  # fmt: skip

    append(
        "open", None, actor="me", name="data", unit="record", epsilon=(3.0).hex(),
        delta=DELTA.hex(), neighboring_relation="add_or_remove_one", admission="pld",
        filter_order=None,
    )  # fmt: skip
    for name in ("a", "b"):
        append(
            "reserve", name, actor="me", study=name, tenant="team", steps=RUN.steps,
            event=RUN.to_json(),
        )  # fmt: skip
    append("acquire", "a", epoch=1)
    append("begin", "a", epoch=1, segment=1, start_step=0, num_steps=CHARGED)
    append("release", "a", actor="me", reason="done", released_steps=RUN.steps - CHARGED)
    for number in range(restored):
        note = {"restored_backup": {"reason": f"dpo: {number}"}}
        append("attest", None, actor="me", note=note)
    append("cap", None, actor="me", tenant="team", epsilon=(2.0).hex())
    held = {
        "scope_id": "s", "tenant": "team", "event": json.dumps(RUN.to_json()),
        "divergences": renyi.divergences(RUN), "reserved_steps": RUN.steps,
        "charged_steps": 0, "released_steps": 0, "epoch": 0, "segments": 0, "open_segment": None,
        "ended_segment": 0, "checkpoint_step": 0, "checkpoint_sha256": None, "state": "open",
    }  # fmt: skip
    charged = {
        "charged_steps": CHARGED, "released_steps": RUN.steps - CHARGED, "epoch": 1, "segments": 1,
        "state": "closed",
    }  # fmt: skip
    document = {
        "schema": EXPORT_SCHEMA,
        "dataset": "data",
        "exported_at": "2026-11-22T10:00:01+00:00",
        "scope": {
            "scope_id": "s", "name": "data", "unit": "record", "epsilon": 3.0, "delta": DELTA,
            "neighboring_relation": "add_or_remove_one", "admission": "pld", "filter_order": None,
        },
        "head": {"seq": len(entries), "hash": entries[-1]["hash"]},
        "caps": [{"tenant": "team", "epsilon": 2.0, "seq": len(entries)}],
        "reservations": [
            {**held, "reservation_id": "a", "study_id": "a", "seq": 2, **charged},
            {**held, "reservation_id": "b", "study_id": "b", "seq": 3},
        ],
        "entries": entries,
        "evaluations": [],
    }  # fmt: skip
    return json.loads(json.dumps(document))


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Ed25519PrivateKey:
    return signing_key(tmp_path_factory.mktemp("home"))


@pytest.fixture
def export(key: Ed25519PrivateKey) -> dict[str, Any]:
    return sign(make_export(), key)


def bad(document: dict[str, Any], **known: Any) -> list[str]:
    return [check.name for check in verify_export(document, **known) if check.is_bad]


def test_a_good_one_says_what_was_committed_and_charged(export: dict[str, Any]) -> None:
    checks = {check.name: check for check in verify_export(export)}
    assert not any(check.is_bad for check in checks.values())
    for name, steps in (("committed", RUN.steps + CHARGED), ("charged", CHARGED)):
        said = float(checks[f"epsilon {name}"].detail.split()[0])
        exact = price([RUN.with_steps(steps)], delta=DELTA).epsilon
        assert exact * (1 - 1e-3) <= said <= exact + 2e-3


UNACCOUNTED = "search on private data NOT accounted"


@pytest.mark.parametrize(
    ("modes", "search", "is_good", "said"),
    [
        ((None, None), None, True, "none unaccounted; 2 of 2 reservations are of before"),
        (("public_proxy", "public_proxy"), {"unaccounted": 0, "note": None}, True, "none unaccounted"),
        (("declared_unaccounted", None), {"unaccounted": 2, "note": UNACCOUNTED}, True, f"{UNACCOUNTED} of 2 studies"),
        (("declared_unaccounted", None), {"unaccounted": 0, "note": None}, False, "of which the document says 0"),
        (("declared_unaccounted", None), {"unaccounted": 1, "note": None}, False, f"{UNACCOUNTED} of 1 study"),
    ],
)  # fmt: skip
def test_searches_that_are_in_no_figure_stand_beside_them(
    key: Ed25519PrivateKey,
    modes: tuple[str | None, str | None],
    search: dict[str, Any] | None,
    is_good: bool,
    said: str,
) -> None:
    document = make_export()
    for seq, mode in zip((2, 3), modes, strict=True):
        _say_again(document, seq, search_accounting=mode)
        document["reservations"][seq - 2]["search_accounting"] = mode
    if search is not None:
        document["search"] = search
    checks = {check.name: check for check in verify_export(sign(document, key))}
    assert checks["hash chain"].is_good, checks["hash chain"].detail
    assert checks["search"].is_good is is_good
    assert said in checks["search"].detail


@pytest.mark.parametrize(
    ("baseline", "stated", "is_good", "said"),
    [
        (None, None, True, "none unaccounted"),
        (False, {"unaccounted": 0, "note": None}, True, "none unaccounted"),
        (True, None, True, f"{BASELINE_NOTE}, of 1 study"),
        (True, {"unaccounted": 2, "note": BASELINE_NOTE}, True, f"{BASELINE_NOTE}, of 2 studies"),
        (True, {"unaccounted": 0, "note": None}, False, "the document says 0"),
        (True, {"unaccounted": 1, "note": None}, False, "of 1 study"),
    ],
)
def test_baselines_that_are_in_no_figure_stand_beside_them(
    key: Ed25519PrivateKey,
    baseline: bool | None,
    stated: dict[str, Any] | None,
    is_good: bool,
    said: str,
) -> None:
    document = make_export()
    _say_again(document, 2, baseline=baseline)
    document["reservations"][0]["baseline"] = baseline
    if stated is not None:
        document["baselines"] = stated
    checks = {check.name: check for check in verify_export(sign(document, key))}
    assert checks["hash chain"].is_good, checks["hash chain"].detail
    assert checks["baselines"].is_good is is_good
    assert said in checks["baselines"].detail


@pytest.mark.parametrize(
    ("restored", "stated", "is_good", "said"),
    [
        (0, None, True, "none was accepted"),
        (0, {"backups": 0, "note": None}, True, "none was accepted"),
        (1, None, True, f"accepted once: {RESTORED_NOTE}"),
        (2, {"backups": 2, "note": RESTORED_NOTE}, True, f"accepted 2 times: {RESTORED_NOTE}"),
        (2, {"backups": 1, "note": RESTORED_NOTE}, False, "the document says 1"),
        (1, {"backups": 0, "note": None}, False, "the document says 0"),
        (1, {"backups": 1, "note": None}, False, f"accepted once: {RESTORED_NOTE}"),
        (0, {"backups": 1, "note": RESTORED_NOTE}, False, "the document says 1"),
    ],
)
def test_a_restored_backup_is_read_off_the_journal_whatever_the_document_says(
    key: Ed25519PrivateKey, restored: int, stated: dict[str, Any] | None, is_good: bool, said: str
) -> None:
    document = make_export(restored=restored)
    if stated is not None:
        document["restored"] = stated
    checks = {check.name: check for check in verify_export(sign(document, key))}
    assert checks["hash chain"].is_good, checks["hash chain"].detail
    assert checks["restored backups"].is_good is is_good
    assert said in checks["restored backups"].detail


def test_a_mode_that_is_not_the_journal_s_is_found(key: Ed25519PrivateKey) -> None:
    document = make_export()
    _say_again(document, 2, search_accounting="declared_unaccounted")
    document["reservations"][0]["search_accounting"] = "public_proxy"
    assert bad(sign(document, key)) == ["hash chain"]


def test_any_change_breaks_the_signature(export: dict[str, Any]) -> None:
    assert bad({**export, "exported_at": "2026-11-23T10:00:01+00:00"}) == ["signature"]


def test_another_key_than_the_expected_one_is_told(export: dict[str, Any]) -> None:
    assert bad(export, key_id=export["signature"]["key_id"]) == []
    assert bad(export, key_id="0" * 16) == ["signature"]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("reservations", 0, "charged_steps"), 0),
        (("reservations", 1, "event"), json.dumps(RUN.with_steps(10).to_json())),
        (("reservations", 1, "divergences"), None),
        (("scope", "epsilon"), 30.0),
        (("caps", 0, "epsilon"), 3.0),
        (("head", "hash"), "00" * 32),
        (("entries", 4, "body"), '{"epoch": 1, "segment": 1, "start_step": 0, "num_steps": 1}'),
        (("entries", 4, "kind"), "spend"),
        (("entries",), []),
        (("reservations",), "none"),
    ],
    ids=str,
)
def test_who_holds_the_key_cannot_rewrite_it_unseen(
    key: Ed25519PrivateKey, place: tuple[str | int, ...], value: Any
) -> None:
    document: Any = make_export()
    inner = document
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    assert bad(sign(document, key)) == ["hash chain"]


def test_a_journal_without_any_entry_is_none(key: Ed25519PrivateKey) -> None:
    document: dict[str, Any] = make_export()
    document |= {"entries": [], "reservations": [], "caps": []}
    document["head"] = {"seq": 0, "hash": ""}
    document["scope"]["epsilon"] = 30.0
    (chain,) = [check for check in verify_export(sign(document, key)) if check.is_bad]
    assert "no entry, not even the one that opened its budget" in chain.detail


@pytest.mark.parametrize(("called", "faults"), [("data", []), ("other", ["dataset"])])
def test_a_ledger_is_called_as_its_journal_says(
    key: Ed25519PrivateKey, called: str, faults: list[str]
) -> None:
    document = make_export() | {"dataset": called}
    _open_again(document, registration={"dataset": "data"})
    assert bad(sign(document, key)) == faults


def test_a_reservation_that_is_there_twice_pays_for_nothing(key: Ed25519PrivateKey) -> None:
    document = make_export()
    first = {**document["reservations"][0], "charged_steps": -CHARGED, "released_steps": RUN.steps}
    document["reservations"].insert(0, first)
    assert bad(sign(document, key)) == ["hash chain"]


@pytest.mark.parametrize(
    ("order", "budget", "faults"),
    [
        (16.0, 3.0, []),
        (16.0, 0.33, ["epsilon by the filter"]),
        (16.5, 3.0, ["epsilon by the filter"]),
        (None, 3.0, ["epsilon by the filter"]),
    ],
)
def test_a_filter_must_hold_too_where_plans_may_depend_on_outputs(
    key: Ed25519PrivateKey, order: float | None, budget: float, faults: list[str]
) -> None:
    document = make_export()
    opened = {
        "admission": "renyi_filter", "filter_order": order and order.hex(), "epsilon": budget.hex()
    }  # fmt: skip
    _open_again(document, **opened)
    document["scope"] |= {**opened, "filter_order": order, "epsilon": budget}

    checks = verify_export(sign(document, key))

    assert [check.name for check in checks if check.is_bad] == faults
    assert checks[-1].name == "epsilon by the filter"
    if not faults:
        run = RUN.with_steps(RUN.steps + CHARGED)
        exact = renyi.epsilon([run], order=order, delta=DELTA)
        assert exact <= float(checks[-1].detail.split()[0]) <= exact + 1e-3


def _open_again(document: dict[str, Any], **said: Any) -> None:
    """Another first entry, and a chain that is whole again."""
    _say_again(document, 1, **said)


def _say_again(document: dict[str, Any], seq: int, **said: Any) -> None:
    """Another entry, and a chain that is whole again."""
    before = ""
    for entry in document["entries"]:
        if entry["seq"] == seq:
            entry["body"] = json.dumps({**json.loads(entry["body"]), **said})
        entry["prev_hash"] = before
        entry["hash"] = before = entry_hash(
            "s", entry["seq"], entry["kind"], entry["reservation_id"], entry["body"], before
        )
    document["head"]["hash"] = before


def test_an_overspent_budget_is_found_where_the_chain_is_whole(key: Ed25519PrivateKey) -> None:
    """What the database refuses, and who owns it could have written all the same."""
    document = make_export()
    _open_again(document, epsilon=(0.25).hex())
    document["scope"]["epsilon"] = 0.25
    assert bad(sign(document, key)) == ["epsilon committed"]


def test_another_document_is_told_from_an_export() -> None:
    (check,) = verify_export({"schema": "tan-search/privacy-statement/1"})
    assert not check.is_good
    assert EXPORT_SCHEMA in check.detail


def test_what_it_verifies_it_leaves_as_it_is(export: dict[str, Any]) -> None:
    before = copy.deepcopy(export)
    verify_export(export)
    assert export == before


def test_the_command_line_verifies_a_file_without_a_server(
    export: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from service.cli.main import run

    kept = tmp_path / "ledger.json"
    kept.write_text(json.dumps(export))
    asked = ["ledger", "verify", "--file", str(kept)]
    assert run([*asked, "--key-id", export["signature"]["key_id"]]) == 0
    assert "epsilon committed" in capsys.readouterr().out
    assert run([*asked, "--key-id", "0" * 16]) == 1
    assert run([*asked, "data"]) == 2
    assert run(["ledger", "verify", "data", "--key-id", "0" * 16]) == 2
    kept.write_text(json.dumps({**export, "dataset": "other"}))
    assert run([*asked, "--json"]) == 1
