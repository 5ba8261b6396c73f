"""``tan-cli ledger`` and ``tan-cli statement``; the statement in the file was issued by a real study."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest

from service.cli import results
from service.ledger.notes import RESTORED_NOTE
from service.ledger.schemas import Account
from service.publication.keys import signing_key
from service.publication.signing import sign
from tests.unit.service.cli.conftest import Cli
from tests.unit.service.cli.recorded import DATASET, STUDY, RecordedServer

KEPT = Path(__file__).with_name("statement.json")
DOCUMENT: dict[str, Any] = json.loads(KEPT.read_text())
KEY_ID = DOCUMENT["signature"]["key_id"]
OF = DOCUMENT["study"]["id"]
ENTRY = DOCUMENT["ledger"]["entry"]
NOTE = "search on private data NOT accounted"
HEAD = {"seq": ENTRY["seq"], "hash": ENTRY["hash"]}
ACCOUNT: dict[str, Any] = {
    "scope": {
        "scope_id": "dataset:digits",
        "name": "digits",
        "unit": "record",
        "neighboring_relation": "add_or_remove_one",
        "epsilon": 100.0,
        "delta": 1e-3,
        "admission": "pld",
        "filter_order": None,
    },
    "accountant": "pld",
    "committed_epsilon": 2.03271,
    "charged_epsilon": 2.03271,
    "remaining_epsilon": 97.96729,
    "head": HEAD,
    "caps": [],
    "reservations": [
        {
            "reservation_id": STUDY["id"],
            "scope_id": "dataset:digits",
            "study_id": STUDY["id"],
            "tenant": "local",
            "seq": 2,
            "event": "{}",
            "divergences": None,
            "reserved_steps": 312,
            "charged_steps": 300,
            "released_steps": 12,
            "epoch": 1,
            "segments": 50,
            "open_segment": None,
            "ended_segment": 50,
            "checkpoint_step": 300,
            "checkpoint_sha256": "ab" * 32,
            "state": "closed",
        }
    ],
    "entries": [
        {
            "seq": ENTRY["seq"],
            "kind": "attest",
            "reservation_id": STUDY["id"],
            "body": '{"at": "2026-11-22T10:00:00Z", "actor": "statements", "note": {"steps": 300}}',
            "prev_hash": "00" * 32,
            "hash": ENTRY["hash"],
        }
    ],
}
EVENT = DOCUMENT["events"][0]
MATCHING: dict[str, Any] = {
    **ACCOUNT,
    "reservations": [
        {
            **ACCOUNT["reservations"][0],
            "reservation_id": DOCUMENT["ledger"]["reservation"],
            "study_id": DOCUMENT["study"]["id"],
            "event": json.dumps({**EVENT, "steps": 312}),
        }
    ],
    "entries": [
        {
            **ACCOUNT["entries"][0],
            "reservation_id": DOCUMENT["ledger"]["reservation"],
            "body": json.dumps(
                {
                    "at": "2026-11-22T10:00:00Z",
                    "actor": "statements",
                    "note": {
                        "study": DOCUMENT["study"]["id"],
                        "weights_sha256": DOCUMENT["weights"]["sha256"],
                        "steps": 300,
                    },
                }
            ),
        }
    ],
}
"""The account that the statement was issued from."""
WHOLE: dict[str, Any] = {
    "scope_id": "dataset:digits",
    "is_valid": True,
    "num_entries": ENTRY["seq"],
    "head": HEAD,
    "first_bad_seq": None,
    "fault": None,
}
BROKEN = {**WHOLE, "is_valid": False, "first_bad_seq": 7, "fault": "entry 7 was edited"}


@pytest.fixture(autouse=True)
def answers(server: RecordedServer) -> dict:
    server.answers |= {
        f"GET /studies/{OF}": (200, {**STUDY, "id": OF}),
        f"GET /studies/{OF}/statement": (200, DOCUMENT),
        "GET /datasets/digits/ledger": (200, ACCOUNT),
        "GET /datasets/digits/ledger/verify": (200, WHOLE),
    }
    return server.answers


def kept(tmp_path: Path, **changes: Any) -> str:
    """The statement in a file, with fields of what was signed replaced."""
    document = copy.deepcopy(DOCUMENT)
    document |= changes
    path = tmp_path / "statement.json"
    path.write_text(json.dumps(document))
    return str(path)


class TestLedger:
    def test_budget_commitments_holders_and_journal_are_shown_with_the_search_note(
        self, cli: Cli
    ) -> None:
        shown = cli("ledger", "digits").out
        for words in (
            "ε = 100 at δ = 0.001 in total",
            "committed   ε = 2.033, charged and reserved",
            "remaining   ε = 97.967; a study of a larger ε may fit",
            "PLD",
            "add_or_remove_one",
            NOTE,
            STUDY["id"],
            "the newest 1 of 105",
            "2026-11-22 10:00",
            "binds steps 300",
            "statements",
        ):
            assert words in shown

    def test_searches_that_are_in_no_figure_are_counted_beside_them(
        self, cli: Cli, answers: dict
    ) -> None:
        counted = {**ACCOUNT, "unaccounted_searches": 2, "search_note": NOTE}
        answers["GET /datasets/digits/ledger"] = (200, counted)
        assert f"{NOTE}: of 2 studies" in cli("ledger", "digits").out
        said = json.loads(cli("ledger", "digits", "--json").out)
        assert (said["unaccounted_searches"], said["search_note"]) == (2, NOTE)

    def test_a_restored_backup_is_told_beside_the_figures(self, cli: Cli, answers: dict) -> None:
        assert "restored" not in cli("ledger", "digits").out
        restored = {**ACCOUNT, "restored_backups": 2, "restored_note": RESTORED_NOTE}
        answers["GET /datasets/digits/ledger"] = (200, restored)
        shown = " ".join(cli("ledger", "digits").out.split())
        assert f"{RESTORED_NOTE} (accepted 2 times)" in shown

    def test_a_broken_chain_exits_1_and_names_the_entry(self, cli: Cli, answers: dict) -> None:
        assert cli("ledger", "digits", "--verify").code == 0
        answers["GET /datasets/digits/ledger/verify"] = (200, BROKEN)
        done = cli("ledger", "digits", "--verify")
        assert done.code == 1
        assert "broken at entry 7: entry 7 was edited" in done.out

    def test_json_holds_the_verdict_only_when_it_was_asked_for(self, cli: Cli) -> None:
        assert json.loads(cli("ledger", "digits", "--json").out) == ACCOUNT
        verdict = json.loads(cli("ledger", "digits", "--verify", "--json").out)["verification"]
        assert verdict == WHOLE


def test_a_journal_is_read_in_as_many_answers_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MOST_ENTRIES", 3)
    asked: list[tuple[int, int]] = []

    class Ledger:
        def get_ledger(self, dataset: str, *, entries: int, until: int) -> Account:
            asked.append((entries, until))
            numbers = range(max(1, until - entries + 1), min(until, 8) + 1)
            listed = [{**ACCOUNT["entries"][0], "seq": seq} for seq in numbers]
            return Account.model_validate({**ACCOUNT, "entries": listed})

    ledger: Any = Ledger()
    _, entries = results.entries_between(ledger, "digits", 1, 8)
    assert [entry.seq for entry in entries] == list(range(1, 9))
    assert asked == [(3, 8), (3, 5), (2, 2)]
    asked.clear()
    _, entries = results.entries_between(ledger, "digits", 5, 5)
    assert [entry.seq for entry in entries] == [5]
    assert asked == [(1, 5)]


class TestStatement:
    @pytest.fixture(autouse=True)
    def matching(self, answers: dict) -> None:
        answers["GET /datasets/digits/ledger"] = (200, MATCHING)

    def test_the_guarantee_stands_first_and_is_never_bare(self, cli: Cli) -> None:
        lines = cli("statement", OF).out.splitlines()
        for words in ("ε = 2.935", "δ = 1e-05", "PLD", "add_or_remove_one", NOTE):
            assert words in lines[1]

    def test_a_key_that_is_written_twice_is_found(self, cli: Cli, tmp_path: Path) -> None:
        """One of the two was signed; the other is what somebody reads."""
        other = json.dumps(DOCUMENT["privacy"] | {"epsilon": 0.1})
        path = tmp_path / "statement.json"
        path.write_text(f'{{"privacy": {other}, {KEPT.read_text().lstrip()[1:]}')
        assert json.loads(path.read_text()) == DOCUMENT

        done = cli("statement", "--file", str(path), "--verify", "--key-id", KEY_ID)

        assert done.code == 1
        assert "'privacy' is written twice" in " ".join(done.err.split())

    def test_a_file_that_is_nested_without_end_is_no_json(self, cli: Cli, tmp_path: Path) -> None:
        file = tmp_path / "statement.json"
        file.write_text("[" * 100_000)

        done = cli("statement", "--file", str(file), "--verify")

        assert done.code == 1
        assert "is not JSON" in " ".join(done.err.split())

    def test_what_else_was_charged_by_then_is_told(self, cli: Cli, tmp_path: Path) -> None:
        ledger = {
            **DOCUMENT["ledger"], "charged_epsilon": 4.1567, "accountant": "pld", "unaccounted_searches": 2,
            "search_note": NOTE, "restored_backups": 1, "restored_note": RESTORED_NOTE,
        }  # fmt: skip
        shown = " ".join(cli("statement", "--file", kept(tmp_path, ledger=ledger)).out.split())
        assert (
            "ε = 4.157 at δ = 0.001, accountant PLD: all that was charged on this dataset by then; "
            f"{NOTE}, of 2 studies; {RESTORED_NOTE}"
        ) in shown
        assert f"{NOTE}; {RESTORED_NOTE}" in shown  # beside the guarantee
        search = {**DOCUMENT["search"], "accounting": "accounted", "note": "accounted"}
        kept_one = kept(tmp_path, ledger=ledger, search=search)
        shown = " ".join(cli("statement", "--file", kept_one).out.split())
        assert f"; {NOTE}, of 2 other studies; {RESTORED_NOTE}" in shown
        assert "by then" not in cli("statement", "--file", str(KEPT)).out

    @pytest.mark.parametrize(
        ("pretraining", "said"),
        [
            ({"data": None, "note": "made by the code of nets"}, "made by the code of nets"),
            (
                {"data": "ImageNet", "note": "declared and not checked"},
                "trained before on ImageNet: declared and not checked",
            ),
        ],
        ids=["code", "file"],
    )
    def test_it_says_what_the_weights_began_from(
        self, cli: Cli, tmp_path: Path, pretraining: dict[str, Any], said: str
    ) -> None:
        file = kept(tmp_path, pretraining=pretraining)
        assert f"before       {said}\n" in cli("statement", "--file", file).out

    @pytest.mark.parametrize(
        ("given", "said"),
        [((), "got none of them"), ((STUDY["id"], "--file", str(KEPT)), "got both of them")],
    )
    def test_it_is_named_once(self, cli: Cli, given: tuple[str, ...], said: str) -> None:
        done = cli("statement", *given)
        assert done.code == 2
        assert said in done.err

    @pytest.mark.parametrize(
        "changes",
        [
            {"privacy": {**DOCUMENT["privacy"], "epsilon": 10**400}},
            {"privacy": {**DOCUMENT["privacy"], "epsilon": math.nan}},
            {"privacy": {**DOCUMENT["privacy"], "epsilon": "nan"}},
            {"search": {**DOCUMENT["search"], "waiver": [[]]}},
            {"study": {"id": "s", "name": "half \ud800"}},
            {"search": {**DOCUMENT["search"], "note": "\x1b[2J\ud800"}},
            {"signature": {"key_id": "\ud800"}},
            {"events": "\ud800"},
            {"privacy": {**DOCUMENT["privacy"], "epsilon_by_accountant": {"\ud800": 1.0}}},
            {"pretraining": {"data": "\x1b[2J\ud800", "note": None}},
            {"more": json.loads("[" * 600 + "]" * 600)},
        ],
        ids=[
            "huge",
            "nan",
            "nan in words",
            "waiver",
            "surrogate",
            "escape",
            "signature",
            "events",
            "accountant",
            "pretraining",
            "deep",
        ],
    )
    def test_what_no_service_wrote_is_bad_and_no_crash(
        self, cli: Cli, tmp_path: Path, changes: dict[str, Any]
    ) -> None:
        forged = kept(tmp_path, **changes)
        done = cli("statement", "--file", forged, "--verify")
        assert done.code == 1
        assert "Checks" in done.out
        assert "BAD" in done.out
        assert "\x1b" not in done.out
        done.out.encode()  # every letter of it can be written
        assert json.loads(cli("statement", "--file", forged, "--verify", "--json").out)["checks"]

    def test_a_true_statement_verifies_against_the_ledger(self, cli: Cli) -> None:
        done = cli("statement", OF, "--verify", "--key-id", KEY_ID)
        assert done.code == 0
        assert "BAD" not in done.out
        for check in (
            "signature", "epsilon", "steps", "ledger entry", "hash chain", "weights", "reservation", "budget",
        ):  # fmt: skip
            assert f" {check} " in done.out

    @pytest.mark.parametrize(
        ("mode", "code"), [(None, 0), ("declared_unaccounted", 0), ("public_proxy", 1)]
    )
    def test_its_search_must_be_the_one_in_the_journal(
        self, cli: Cli, answers: dict, mode: str | None, code: int
    ) -> None:
        held = {**MATCHING["reservations"][0], "search_accounting": mode}
        answers["GET /datasets/digits/ledger"] = (200, {**MATCHING, "reservations": [held]})
        done = cli("statement", OF, "--verify", "--key-id", KEY_ID)
        assert done.code == code
        assert (f"declared_unaccounted, but {mode} in the journal" in done.out) is bool(code)

    def test_a_true_statement_verifies_without_any_server(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        assert cli("statement", "--file", str(KEPT), "--verify").code == 0
        assert server.requests == []

    @pytest.mark.parametrize(
        "changes",
        [
            {"privacy": {**DOCUMENT["privacy"], "epsilon": 1.0}},
            {"events": [{**DOCUMENT["events"][0], "steps": 30}]},
            {"schema": "something else"},
            {"dataset": {"name": "another", "sha256": "00"}},
        ],
    )
    def test_an_edited_statement_exits_1(self, cli: Cli, tmp_path: Path, changes: dict) -> None:
        done = cli("statement", "--file", kept(tmp_path, **changes), "--verify")
        assert done.code == 1
        assert "BAD" in done.out

    def test_a_statement_of_another_key_exits_1_when_the_key_is_known(self, cli: Cli) -> None:
        done = cli("statement", "--file", str(KEPT), "--verify", "--key-id", "0" * 16)
        assert done.code == 1

    def test_a_ledger_that_was_rewritten_exits_1(self, cli: Cli, answers: dict) -> None:
        rewritten = {**MATCHING, "entries": [{**MATCHING["entries"][0], "hash": "00" * 32}]}
        answers["GET /datasets/digits/ledger"] = (200, rewritten)
        done = cli("statement", OF, "--verify")
        assert done.code == 1
        assert "no longer the signed one" in done.out

    def test_a_good_statement_of_another_study_exits_1(self, cli: Cli, answers: dict) -> None:
        answers[f"GET /studies/{STUDY['id']}/statement"] = (200, DOCUMENT)
        done = cli("statement", STUDY["id"], "--verify", "--key-id", KEY_ID)
        assert done.code == 1
        assert f"it is of study '{OF}', asked for was '{STUDY['id']}'" in done.out

    @pytest.mark.parametrize(
        ("public", "sha256", "said"),
        [
            (
                False,
                DOCUMENT["dataset"]["sha256"],
                "it names none, and dataset 'digits' is private",
            ),
            (True, "0" * 64, "its data are not those that are public"),
            (True, DOCUMENT["dataset"]["sha256"], "none: the data is public"),
        ],
    )
    def test_data_that_it_calls_public_have_to_be(
        self, cli: Cli, answers: dict, tmp_path: Path, public: bool, sha256: str, said: str
    ) -> None:
        body = {name: part for name, part in DOCUMENT.items() if name != "signature"}
        signed = sign({**body, "protects": False, "ledger": None}, signing_key(tmp_path))
        row = {**DATASET, "public": public, "content_sha256": sha256}
        answers |= {
            f"GET /studies/{OF}/statement": (200, signed),
            "GET /datasets/digits": (200, row),
        }
        checks = json.loads(cli("statement", OF, "--verify", "--json").out)["checks"]
        assert {one["name"]: one["detail"] for one in checks}["ledger"].endswith(said)
        assert {one["name"] for one in checks if one["is_good"] is False} == (
            set() if said.startswith("none") else {"ledger"}
        )

    def test_a_study_that_is_called_as_another_ones_id_is_not_that_study(
        self, cli: Cli, tmp_path: Path
    ) -> None:
        called = kept(tmp_path, study={"id": OF, "name": STUDY["id"]})
        assert cli("statement", OF, called).code == 0
        assert cli("statement", STUDY["id"], called).code == 1

    def test_json_is_the_document_and_the_checks(self, cli: Cli) -> None:
        assert json.loads(cli("statement", OF, "--json").out) == DOCUMENT
        verified = json.loads(cli("statement", OF, "--verify", "--json").out)
        verdicts = {check["name"]: check["is_good"] for check in verified["checks"]}
        assert False not in verdicts.values()
        # Nobody gave a key, and the kept statement is of before its coverage followed from the search.
        assert {name for name, good in verdicts.items() if good is None} == {"signer", "coverage"}

    def test_what_is_no_statement_is_said_to_be_none(self, cli: Cli, tmp_path: Path) -> None:
        path = tmp_path / "x.json"
        path.write_text('{"schema": {}}')
        assert cli("statement", "--file", str(path)).code == 1
        assert cli("statement", "--file", str(path), "--verify").code == 1
        path.write_text("[]")
        assert cli("statement", "--file", str(path)).code == 1

    def test_neither_or_both_of_study_and_file_is_bad_input(self, cli: Cli) -> None:
        assert cli("statement").code == 2
        assert cli("statement", "s", "--file", str(KEPT)).code == 2
