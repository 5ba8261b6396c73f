"""``tan-cli ledger`` and ``tan-cli key``: what is asked of the server, and what is said."""

import json
from pathlib import Path

import pytest
import yaml

from service.publication import keys
from service.publication.signing import sign
from tests.unit.service.cli.conftest import Cli
from tests.unit.service.cli.recorded import STUDY, SUMMARY, RecordedServer
from tests.unit.service.cli.test_results import ACCOUNT, BROKEN, DOCUMENT, HEAD, WHOLE

LEDGER = "/datasets/digits/ledger"
ITEM = {
    "reservation_id": "r", "study_id": STUDY["id"], "seq": 9, "accountant": "pld",
    "version": "dp-accounting 0.7", "delta": 1e-5, "epsilon": 2.5, "before": 2.75,
    "version_before": "dp-accounting 0.6",
}  # fmt: skip


@pytest.fixture(autouse=True)
def answers(server: RecordedServer) -> dict:
    server.answers |= {
        f"GET {LEDGER}": (200, ACCOUNT),
        f"GET {LEDGER}/verify": (200, WHOLE),
        f"GET {LEDGER}/export": (200, {"schema": "tan-search/ledger/1", "head": HEAD}),
        f"POST {LEDGER}/evaluations": (
            200, {"scope_id": "dataset:digits", "head": HEAD, "items": [ITEM]},
        ),
        f"POST {LEDGER}/restored-backup": (200, HEAD),
        "PUT /datasets/digits/caps/team": (200, {"tenant": "team", "epsilon": 2.0, "seq": 7}),
        f"GET /studies/{STUDY['id']}/statement": (200, DOCUMENT),
    }  # fmt: skip
    return server.answers


def test_a_dataset_alone_is_shown(cli: Cli) -> None:
    assert cli("ledger", "digits").out == cli("ledger", "show", "digits").out


def test_a_broken_chain_is_named_with_its_dataset(cli: Cli, answers: dict) -> None:
    assert "digits: the journal is whole" in cli("ledger", "verify", "digits").out
    answers[f"GET {LEDGER}/verify"] = (200, BROKEN)
    result = cli("ledger", "verify", "digits")
    assert result.code == 1
    assert "digits: the journal is broken at entry 7" in result.out


def test_a_restored_backup_is_accepted_for_one_dataset_only(cli: Cli) -> None:
    assert cli("ledger", "verify", "digits", "--accept-restored-backup", "dpo: lost").code == 0
    assert cli("ledger", "verify", "--accept-restored-backup", "dpo: lost").code == 2


def test_repricing_shows_old_beside_new(cli: Cli) -> None:
    shown = cli("ledger", "reprice", "digits").out
    assert "2.500" in shown
    assert "2.750" in shown
    assert "dp-accounting 0.6" in shown


def test_the_parts_of_a_study_whose_search_is_charged_are_told_apart(
    cli: Cli, answers: dict
) -> None:
    """None of them is what the study was charged."""
    parts = [ITEM | {"reservation_id": f"{STUDY['id']}{end}"} for end in ("", "-trials", "-scores")]
    other = ITEM | {"study_id": "s-2"}
    answered = {"scope_id": "dataset:digits", "head": HEAD, "items": [*parts, other]}
    answers[f"POST {LEDGER}/evaluations"] = (200, answered)
    shown = cli("ledger", "reprice", "digits").out
    for part in ("its private run", "its trials", "their scores"):
        assert shown.count(f"{STUDY['id']}, {part}") == 1
    assert "s-2  " in shown


def test_an_export_is_json_or_the_registry_of_deployments(
    cli: Cli, tmp_path: Path, server: RecordedServer
) -> None:
    assert json.loads(cli("ledger", "export", "digits").out)["head"] == HEAD
    server.answers["GET /studies"] = (
        200, {"items": [SUMMARY], "next_cursor": None},
    )  # fmt: skip
    path = tmp_path / "registry.yaml"
    cli("ledger", "export", "digits", "--format", "registry", "--output", str(path))
    deployment = yaml.safe_load(path.read_text())["deployment"]
    parameters = deployment["privacy_loss"]["privacy_parameters"]
    assert parameters["epsilon"] == DOCUMENT["privacy"]["epsilon"]
    tuning = deployment["implementation"]["preprocessing_and_hyperparameter_tuning"]
    assert "NOT accounted" in tuning


def test_a_cap_is_set(cli: Cli) -> None:
    shown = cli("ledger", "cap", "digits", "--tenant", "team", "--epsilon", "2").out
    assert "tenant team: ε <= 2" in shown


def test_a_cap_says_what_is_committed_and_warns(cli: Cli, answers: dict) -> None:
    met = {
        "tenant": "*", "epsilon": 0.0, "seq": 8, "committed_epsilon": 3.2401, "warnings": ["it stays"],
    }  # fmt: skip
    answers["PUT /datasets/digits/caps/%2A"] = answers["PUT /datasets/digits/caps/*"] = (200, met)
    done = cli("ledger", "cap", "digits", "--all-tenants", "--epsilon", "0")
    assert "all tenants together: ε <= 0 of digits, entry 8; ε 3.241 is committed" in done.out
    assert "warning: it stays" in done.err
    for named in ((), ("--tenant", "team", "--all-tenants")):
        assert cli("ledger", "cap", "digits", "--epsilon", "0", *named).code == 2


def test_a_statement_is_held_to_the_key_that_was_exported(
    cli: Cli, server: RecordedServer, tmp_path: Path
) -> None:
    body = {name: part for name, part in DOCUMENT.items() if name != "signature"}
    kept = tmp_path / "statement.json"
    kept.write_text(json.dumps(sign(body, keys.signing_key(tmp_path))))
    ours = [key.model_dump() for key in keys.public_keys(tmp_path)]
    theirs = [key.model_dump() for key in keys.public_keys(tmp_path / "other")]
    for items, code in ((ours, 0), (theirs, 1)):
        server.answers["GET /keys"] = (200, {"items": items})
        pem = tmp_path / "key.pem"
        pem.write_text(cli("key", "export").out)
        named = cli("statement", "digits-eps3", str(kept), "--verify", "--key", str(pem))
        assert named.code == code
    assert cli("statement", "another", str(kept), "--verify").code == 1
    pem.write_text("no key")
    assert cli("statement", "--file", str(kept), "--verify", "--key", str(pem)).code == 2
