"""``tan-cli ledger`` and ``tan-cli key``: what is asked of the server, and what is said."""

import json
from pathlib import Path

import httpx
import pytest
import yaml

from service.client import Client, UnreachableError
from service.publication import keys, signing
from service.publication.signing import sign
from tan_core.mechanism import Mechanism
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


def test_without_a_name_every_journal_is_verified_whatever_its_dataset_says_of_itself(
    cli: Cli, server: RecordedServer
) -> None:
    server.datasets[0]["public"] = True
    server.datasets.append({**server.datasets[0], "name": "open", "budget": None})
    assert "digits: the journal is whole" in cli("ledger", "verify").out


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


RELEASE = {
    "id": "outside-1", "scope_id": "dataset:digits", "tenant": "local", "reason": "histogram of ages",
    "mechanism": Mechanism(
        sampling_rate=1.0, noise_multiplier=4.0, clip_norm=1.0, steps=1
    ).to_json(),
    "epsilon": 0.5921, "epsilon_before": 2.0327, "epsilon_after": 2.1504, "remaining_epsilon": 97.8496,
    "delta": 1e-3, "accountant": "pld", "entry": HEAD,
    "warnings": [],
}  # fmt: skip
CHARGE = ("ledger", "charge", "digits", "--noise-multiplier", "4", "--reason", "histogram of ages")


def test_a_release_outside_says_what_it_costs_and_what_is_left(
    cli: Cli, server: RecordedServer, answers: dict
) -> None:
    answers[f"POST {LEDGER}/releases"] = (201, RELEASE)
    done = cli(*CHARGE, "--tenant", "team", "--idempotency-key", "k")
    assert done.code == 0
    assert "charged, and may be made: histogram of ages (outside of the service)" in done.out
    for said in (
        "ε = 0.593 by itself",
        "ε = 2.151 with it, 2.033 before it",
        "ε = 97.849 of digits",
    ):
        assert said in done.out
    assert json.loads(cli(*CHARGE, "--json").out) == RELEASE
    tried = {**RELEASE, "id": None, "entry": None, "warnings": ["of nobody"]}
    answers[f"POST {LEDGER}/releases"] = (200, tried)
    done = cli(*CHARGE, "--dry-run")
    assert "would cost, nothing was charged" in done.out
    assert "warning: of nobody" in done.err


def test_a_release_that_does_not_fit_exits_with_3(cli: Cli, answers: dict) -> None:
    problem = {
        "type": "/problems/over-budget",
        "status": 409,
        "title": "Conflict",
        "detail": "over",
    }
    answers[f"POST {LEDGER}/releases"] = (409, problem)
    done = cli(*CHARGE)
    assert (done.code, done.out) == (3, "")
    assert "over" in done.err


def test_a_release_whose_answer_is_lost_is_asked_for_again_by_its_key(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    def lost(*_: object, idempotency_key: str, **__: object) -> None:
        sent.append(idempotency_key)
        raise UnreachableError("http://x", "no answer in time") from httpx.ReadTimeout("")

    monkeypatch.setattr(Client, "charge_release", lost)
    done = cli(*CHARGE)
    assert done.code == 1
    assert "the release may be charged" in done.err
    assert f"--idempotency-key {sent[0]} asks again" in " ".join(done.err.split())
    cli(*CHARGE)
    assert len(set(sent)) == 2


@pytest.mark.parametrize("status", [502, 503, 504])
def test_nor_is_a_release_charged_twice_that_a_proxy_has_lost(
    cli: Cli, answers: dict, status: int
) -> None:
    answers[f"POST {LEDGER}/releases"] = (status, {"detail": "try again in a moment"})
    done = cli(*CHARGE)
    assert done.code == 1
    assert "the release may be charged" in done.err
    assert "--idempotency-key mine asks again" in " ".join(
        cli(*CHARGE, "--idempotency-key", "mine").err.split()
    )
    assert "may be charged" not in cli(*CHARGE, "--dry-run").err


@pytest.mark.parametrize(
    "wrong",
    [
        ("--reason", " "),
        ("--reason", "two\nlines"),
        ("--reason", "\udcff"),
        ("--idempotency-key", "é"),
    ],
)
def test_what_cannot_be_sent_is_refused_before(cli: Cli, wrong: tuple[str, str]) -> None:
    done = cli(*CHARGE, *wrong)
    assert done.code == 2
    assert wrong[0] in done.err


def test_a_field_of_a_release_is_told_by_its_option(cli: Cli, answers: dict) -> None:
    errors = [{"path": "sampling_rate", "message": "sampling_rate is odd", "value": 2.0}]
    problem = {"status": 422, "title": "x", "detail": "sampling_rate is odd", "errors": errors}
    answers[f"POST {LEDGER}/releases"] = (422, problem)
    done = cli(*CHARGE, "--sampling-rate", "2")
    assert done.code == 2
    assert "--sampling-rate: --sampling-rate is odd" in done.err


def test_of_hundreds_of_reservations_the_newest_are_shown(cli: Cli, answers: dict) -> None:
    (one, *_) = ACCOUNT["reservations"]
    held = [{**one, "reservation_id": f"s-{n}", "study_id": f"s-{n}"} for n in range(120)]
    answers[f"GET {LEDGER}"] = (200, {**ACCOUNT, "reservations": held})
    shown = cli("ledger", "digits").out
    assert "Reservations, the newest 50 of 120, in steps" in shown
    assert " s-119 " in shown
    assert " s-69 " not in shown


def test_caps_say_how_much_of_them_is_used(cli: Cli, answers: dict) -> None:
    team = {"tenant": "team", "epsilon": 2.0, "seq": 7}
    caps = [{"tenant": "*", "epsilon": 4.0, "seq": 6}, {**team, "committed_epsilon": 1.2341}]
    answers[f"GET {LEDGER}"] = (200, {**ACCOUNT, "caps": caps})
    shown = cli("ledger", "digits").out
    assert "all tenants together ε <= 4, tenant team ε <= 2 (1.235 committed)" in shown


def test_a_release_outside_is_told_from_studies_by_its_reason(cli: Cli, answers: dict) -> None:
    outside = {
        "reservation_id": "outside-1", "study_id": "outside-1", "reason": "ages [b]x[/b]",
    }  # fmt: skip
    held = {**ACCOUNT["reservations"][0], **outside}
    answers[f"GET {LEDGER}"] = (200, {**ACCOUNT, "reservations": [held]})
    answers[f"POST {LEDGER}/evaluations"] = (
        200, {"scope_id": "dataset:digits", "head": HEAD, "items": [ITEM | outside]},
    )  # fmt: skip
    for verb in ("show", "reprice"):
        assert "outside of the service: ages [b]x[/b]" in cli("ledger", verb, "digits").out


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


def test_a_key_of_the_same_identifier_is_another_key(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An identifier is a part of a digest: somebody may find a key for it."""
    for module in (signing, keys):
        monkeypatch.setattr(module, "key_id", lambda _: "0" * 16)
    body = {name: part for name, part in DOCUMENT.items() if name != "signature"}
    (tmp_path / "s.json").write_text(json.dumps(sign(body, keys.signing_key(tmp_path))))
    for home, code in ((tmp_path, 0), (tmp_path / "other", 1)):
        pem = tmp_path / "key.pem"
        pem.write_text(keys.public_keys(home)[0].pem)
        asked = ("statement", "--file", str(tmp_path / "s.json"), "--verify", "--key", str(pem))
        assert cli(*asked).code == code


@pytest.mark.parametrize("said", ["x" * 44, "x" * 43 + "!", "é" * 44, "="])
def test_an_identifier_that_is_none_is_said_as_it_was_written(
    cli: Cli, tmp_path: Path, said: str
) -> None:
    (tmp_path / "s.json").write_text(json.dumps(DOCUMENT))
    done = cli("statement", "--file", str(tmp_path / "s.json"), "--verify", "--key-id", said)
    assert done.code == 1
    assert f"expected {said}" in done.out.replace("\n", " ")
