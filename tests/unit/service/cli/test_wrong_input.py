"""What is empty, unknown or mistyped is said to be so, and what to type next fits what was typed."""

import io
from pathlib import Path

import httpx
import pytest
import typer.main
from pydantic import BaseModel, ValidationError

from service.access.schemas import TokenRequest
from service.cli import datasets, tokens
from service.cli.errors import OVER_BUDGET, ApiError
from service.cli.main import app
from service.client import Client, ClientError
from service.datasets.schemas import DatasetRegistration
from service.studies.schemas import StudyEdit, StudyQuery
from tan_core.spec import field_problems
from tests.unit.service.cli.conftest import Cli
from tests.unit.service.cli.recorded import STUDY, SUMMARY, RecordedServer

NOTHING = {"studies": 0, "inside": 0, "coverage": None, "mean_absolute_error": None, "items": []}
NO_DATASET = (404, {"detail": "there is no dataset 'typo'; registered: digits"})


@pytest.fixture
def empty(server: RecordedServer) -> RecordedServer:
    """A server with no study, which knows one dataset."""
    server.summaries = []
    server.calibration |= NOTHING
    server.answers["GET /datasets/typo"] = NO_DATASET
    return server


class TestUnknown:
    @pytest.mark.parametrize("verb", ["calibration", "list"])
    @pytest.mark.parametrize("flag", [(), ("--json",)])
    def test_an_unknown_dataset_is_no_empty_answer(
        self, cli: Cli, empty: RecordedServer, verb: str, flag: tuple[str, ...]
    ) -> None:
        done = cli(verb, "--dataset", "typo", *flag)
        assert (done.code, done.out) == (1, "")
        assert "registered: digits" in done.err
        assert "next: tan-cli dataset list" in done.err
        assert cli(verb, "--dataset", "digits", *flag).code == 0

    def test_nothing_that_fits_is_not_nothing_at_all(self, cli: Cli, empty: RecordedServer) -> None:
        assert "tan-cli submit" in cli("list").out
        for filters in (("--tag", "x"), ("--state", "failed"), ("--search", "x"), ("--archived",)):
            assert "no study fits" in cli("list", *filters).out
        assert "no prediction of such a study" in cli("calibration", "--model", "x").out

    @pytest.mark.parametrize(
        ("status", "path", "hint"),
        [
            (404, "/datasets/typo", "tan-cli dataset list"),
            (409, "/datasets", "tan-cli dataset list"),
            (409, "/datasets/digits/ledger/restored-backup", "tan-cli ledger show digits"),
            (409, "/studies/s-1/cancel", "tan-cli show s-1"),
            (404, "/studies/s-1/model", "tan-cli show s-1"),
            (404, "/studies/s-1", "tan-cli list"),
            (404, "/tokens/t", "tan-cli token list"),
        ],
    )
    def test_the_next_command_is_about_what_was_asked_for(
        self, status: int, path: str, hint: str
    ) -> None:
        assert (ApiError(status, {"detail": "no"}, path=path).hint or "").startswith(hint)

    def test_a_name_that_is_taken_leads_to_the_datasets(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        server.answers["POST /datasets"] = (409, {"detail": "registered already"})
        done = cli("dataset", "add", "digits", "--path", "x", "--public")
        assert "next: tan-cli dataset list" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("show", ""),
        ("cancel", " "),
        ("dataset", "show", ""),
        ("compare", STUDY["id"], ""),
        ("token", "revoke", ""),
        ("ledger", "cap", "digits", "--tenant", "", "--epsilon", "1"),
    ],
)
def test_an_empty_name_asks_for_nothing(
    cli: Cli, server: RecordedServer, words: tuple[str, ...]
) -> None:
    done = cli(*words)
    assert (done.code, server.requests) == (2, [])
    assert "got an empty one" in done.err


def test_a_list_says_that_there_is_more(cli: Cli, server: RecordedServer) -> None:
    server.summaries = [{**SUMMARY, "id": f"s-{n:012d}"} for n in range(3)]
    assert "--limit shows more" in cli("list", "--limit", "2").out
    assert "--limit shows more" not in cli("list", "--limit", "3").out


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0"])
def test_a_plan_takes_finite_numbers_above_0(cli: Cli, value: str) -> None:
    done = cli(
        "plan", "--num-examples", "60000", "--batch-size", "2048", "--noise-multiplier", value,
        "--steps", "300", "--delta", "1e-5",
    )  # fmt: skip
    assert done.code == 2
    assert "--noise-multiplier: must be a finite number above 0" in done.err


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize(
    "words",
    [
        ("ledger", "cap", "digits", "--tenant", "team", "--epsilon"),
        ("dataset", "add", "x", "--path", "x", "--epsilon"),
        ("dataset", "add", "x", "--path", "x", "--delta"),
    ],
)
def test_what_json_cannot_say_is_not_sent(
    cli: Cli, server: RecordedServer, words: tuple[str, ...], value: str
) -> None:
    done = cli(*words, value)
    assert (done.code, server.requests) == (2, [])
    assert f"a finite number is needed here, got {value}" in done.err


def test_an_empty_key_is_no_key(cli: Cli, server: RecordedServer, study_yaml: str) -> None:
    done = cli("submit", study_yaml, "--idempotency-key", "")
    assert (done.code, server.requests) == (2, [])
    assert "--idempotency-key" in done.err


def test_an_answer_that_leads_elsewhere_is_none(server: RecordedServer) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(307, headers={"Location": "http://elsewhere/"})

    with (
        Client("http://x", transport=httpx.MockTransport(answer)) as client,
        pytest.raises(ClientError, match="was answered 307"),
    ):
        client.revoke_token("t")


NO_TEXT = "a\udcff"
"""As Python has an argument of bytes that are no UTF-8."""


@pytest.mark.parametrize(
    "words",
    [
        ("show", NO_TEXT),
        ("note", STUDY["id"], NO_TEXT),
        ("list", "--search", NO_TEXT),
        ("token", "create", NO_TEXT, "--scope", "read"),
        ("dataset", "add", NO_TEXT, "--public"),
        ("dataset", "show", NO_TEXT),
        ("audit", "--actor", NO_TEXT),
    ],
)
def test_bytes_that_are_no_text_are_refused(cli: Cli, server: RecordedServer, words: tuple) -> None:
    done = cli(*words)
    assert (done.code, done.out) == (2, "")
    assert r"'\udcff' is no text in UTF-8" in done.err
    assert "next: tan-cli " in done.err


def test_nor_is_such_a_note_taken_from_standard_input(
    cli: Cli, server: RecordedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = io.TextIOWrapper(io.BytesIO(b"a\xff"), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", given)
    done = cli("note", STUDY["id"], "-")
    assert (done.code, r"b'\xff' is no text in UTF-8" in done.err) == (2, True)


@pytest.mark.parametrize("host", ["a" * 70, "..x"])
def test_an_address_that_no_name_server_can_be_asked_for_is_told(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("TAN_API_URL", f"http://{host}")
    done = cli("list")
    assert done.code == 1
    assert f"cannot reach the server at http://{host} (its host is no name)" in done.err


@pytest.mark.parametrize("page", ["<html>Sign in</html>", "[]", "null"])
def test_a_page_in_the_place_of_the_service_is_no_answer(page: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text=page)

    with Client("http://x", transport=httpx.MockTransport(answer)) as client:
        for ask in (client.revoke_token, client.export_ledger, client.get_statement):
            with pytest.raises(ClientError, match="is this the address of a TAN Search server"):
                ask("t")


class TestSeveral:
    def test_what_was_filed_is_told_before_what_was_refused(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        other = "s-ffffffffffff"
        server.answers[f"GET /studies/{other}"] = (200, {**STUDY, "id": other})
        server.answers[f"PATCH /studies/{other}"] = (409, {"detail": "it is training"})
        done = cli("archive", STUDY["id"], other)
        assert done.code == 1
        assert f"({STUDY['id']}) is archived" in done.out
        assert "it is training" in done.err
        assert f"next: tan-cli show {other}" in done.err

    def test_a_study_named_twice_is_named(self, cli: Cli, server: RecordedServer) -> None:
        done = cli("compare", STUDY["id"], STUDY["id"])
        assert (done.code, f"study {STUDY['id']} is named twice" in done.err) == (2, True)

    def test_a_beginning_of_many_says_how_many_more(self, cli: Cli, server: RecordedServer) -> None:
        server.summaries = [{**SUMMARY, "id": f"s-f{n:011d}"} for n in range(8)]
        assert "is the beginning of 8 studies" in cli("show", "s-f").err
        assert "and 3 more" in cli("show", "s-f").err

    def test_a_beginning_is_looked_for_among_all_studies(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        """One of two, and the other one older than a thousand others, was once taken for the one that was meant."""
        others = [{**SUMMARY, "id": f"s-0{n:011d}"} for n in range(1000)]
        server.summaries = [{**SUMMARY, "id": "s-f1"}, *others, {**SUMMARY, "id": "s-f2"}]
        assert "is the beginning of 2 studies: s-f1, s-f2" in cli("cancel", "s-f").err

    def test_a_name_of_several_tenants_studies_is_nobodys(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        theirs = {**SUMMARY, "id": "s-ffffffffffff", "tenant": "theirs"}
        server.summaries = [theirs, {**SUMMARY, "id": "s-eeeeeeeeeeee"}, SUMMARY]
        done = cli("promote", SUMMARY["name"])
        assert done.code == 1
        assert "s-eeeeeeeeeeee of local, s-ffffffffffff of theirs" in done.err.replace("\n", " ")
        assert not [asked for asked, *_ in server.requests if asked.startswith("POST")]
        assert cli("show", SUMMARY["id"]).code == 0

    def test_a_name_that_is_the_beginning_of_another_ones_id_is_nobodys(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        named = {**SUMMARY, "id": "s-ffffffffffff", "name": SUMMARY["id"][:6]}
        server.summaries = [named, SUMMARY]
        done = cli("promote", named["name"])
        assert done.code == 1
        assert f"and the beginning of {SUMMARY['id']}" in done.err.replace("\n", " ")
        assert not [asked for asked, *_ in server.requests if asked.startswith("POST")]

    def test_a_source_that_is_none_leads_to_the_list(
        self, cli: Cli, server: RecordedServer
    ) -> None:
        done = cli("submit", "--from", "nothing")
        assert (done.code, "next: tan-cli list" in done.err) == (2, True)


def test_before_the_first_trial_there_are_none_yet(cli: Cli, server: RecordedServer) -> None:
    server.answers[f"GET /studies/{STUDY['id']}/trials"] = (200, {"items": [], "next_cursor": None})
    assert "has no such trials" in cli("trials", STUDY["id"]).out
    server.study["progress"] |= {"trials_finished": 0}
    server.study["state"] = "queued"
    assert "has no trials yet; it is queued" in cli("trials", STUDY["id"]).out


def test_of_a_study_that_is_over_there_will_be_none(cli: Cli, server: RecordedServer) -> None:
    server.answers[f"GET /studies/{STUDY['id']}/trials"] = (200, {"items": [], "next_cursor": None})
    server.study["progress"] |= {"trials_finished": 0}
    server.study["state"] = "cancelled"
    assert "has no trials: it was cancelled before one began" in cli("trials", STUDY["id"]).out


def test_an_empty_log_is_said_to_be_empty(cli: Cli, server: RecordedServer) -> None:
    assert cli("logs", STUDY["id"]).err == ""
    server.log = ""
    assert cli("logs", STUDY["id"]).err == "the log is empty\n"


class TestInit:
    def test_a_dataset_that_is_not_registered_is_noted(
        self, cli: Cli, server: RecordedServer, tmp_path: Path
    ) -> None:
        path = tmp_path / "study.yaml"
        done = cli("init", str(path), "--yes", "--dataset", "typo")
        assert done.code == 0
        assert "no dataset 'typo' is registered yet; registered: digits" in done.err
        assert cli("init", str(path), "--yes", "--force").err == ""

    def test_a_search_that_the_dataset_does_not_allow_is_noted(
        self, cli: Cli, server: RecordedServer, tmp_path: Path
    ) -> None:
        study = ("init", str(tmp_path / "study.yaml"), "--yes", "--force", "--accounting")
        assert cli(*study, "no_search").err == ""
        done = cli(*study, "accounted")
        assert done.code == 0
        assert "dataset 'digits' does not allow accounted; accepted there: " in done.err

    def test_a_folder_is_no_file(self, cli: Cli, server: RecordedServer, tmp_path: Path) -> None:
        done = cli("init", str(tmp_path), "--yes")
        assert done.code == 2
        assert f"next: tan-cli init {tmp_path / 'study.yaml'}" in done.err


class TestFiles:
    def test_a_key_that_is_not_there_is_bad_input(self, cli: Cli, tmp_path: Path) -> None:
        done = cli("statement", "any", "--key", str(tmp_path / "none.pem"))
        assert (done.code, "No such file" in done.err) == (2, True)

    def test_a_statement_that_is_not_there_is_bad_input(self, cli: Cli, tmp_path: Path) -> None:
        done = cli("statement", "--file", str(tmp_path / "none.json"))
        assert done.code == 2
        assert "No such file" in done.err

    def test_an_export_says_where_it_is_or_why_not(
        self, cli: Cli, server: RecordedServer, tmp_path: Path
    ) -> None:
        server.answers["GET /datasets/digits/ledger/export"] = (200, {"schema": "x"})
        path = tmp_path / "ledger.json"
        assert cli("ledger", "export", "digits", "--output", str(path)).out == f"wrote {path}\n"
        refused = cli("ledger", "export", "digits", "--output", str(tmp_path / "no" / "x"))
        assert refused.code == 2
        assert "cannot write" in refused.err


class TestOptions:
    """What the API refuses of a registration or a token is told by the options that said it."""

    def refuse(self, server: RecordedServer, path: str, *errors: tuple[str, str]) -> None:
        server.answers[f"POST {path}"] = (
            422,
            {
                "detail": "; ".join(f"{field}: {message}" for field, message in errors),
                "errors": [{"path": field, "message": message} for field, message in errors],
            },
        )

    def test_a_dataset_is_added_by_options(self, cli: Cli, server: RecordedServer) -> None:
        self.refuse(
            server,
            "/datasets",
            ("num_classes", "at least 2 classes are needed, got num_classes 1"),
            ("neighboring_relation", "no such relation"),
            ("allow.0", "no study can be run under it"),
            ("features.1", "there is no such column"),
            ("name", "expected letters"),
            ("epsilon", "a private dataset needs its total epsilon; public data: public: true"),
            ("admission", "no bound is known under neighboring_relation replace_one"),
        )
        done = cli("dataset", "add", "x", "--path", "x")
        assert done.code == 2
        assert done.err.splitlines()[:8] == [
            "error: the input was refused (7 faults)",
            "  --classes: at least 2 classes are needed, got --classes 1",
            "  --relation: no such relation",
            "  --allow: no study can be run under it",
            "  --feature: there is no such column",
            "  NAME: expected letters",
            "  --epsilon: a private dataset needs its total epsilon; public data: --public",
            "  --admission: no bound is known under --relation replace_one",
        ]

    def test_a_token_is_made_by_options(self, cli: Cli, server: RecordedServer) -> None:
        self.refuse(server, "/tokens", ("expires_in_seconds", "too long"), ("scopes.0", "none"))
        done = cli("token", "create", "x", "--scope", "read", "--expires", "9999w")
        assert done.code == 2
        assert "  --expires: too long\n  --scope: none\n" in done.err

    @pytest.mark.parametrize(
        ("words", "options", "model"),
        [
            (("dataset", "add"), datasets.OPTIONS, DatasetRegistration),
            (("token", "create"), tokens.OPTIONS, TokenRequest),
        ],
    )
    def test_every_field_has_its_option(
        self, words: tuple[str, str], options: dict[str, str], model: type[BaseModel]
    ) -> None:
        group = typer.main.get_command(app).commands[words[0]]
        known = {name for each in group.commands[words[1]].params for name in each.opts}
        assert set(model.model_fields) <= set(options)
        assert set(options.values()) - {"NAME"} <= known


def test_a_budget_that_is_exhausted_is_shown_by_its_name(
    cli: Cli, server: RecordedServer, study_yaml: str
) -> None:
    server.answers["POST /studies"] = (409, {"type": OVER_BUDGET, "detail": "over the budget"})
    done = cli("submit", study_yaml)
    assert (done.code, "next: tan-cli ledger show digits " in done.err) == (3, True)


@pytest.mark.parametrize(
    ("model", "value"),
    [
        (StudyQuery, {"name_contains": "a b"}),
        (StudyQuery, {"tag": ["a b"]}),
        (StudyEdit, {"name": "a b"}),
        (TokenRequest, {"name": "x", "scopes": ["read"], "tenant": "A b"}),
        (TokenRequest, {"name": "!", "scopes": ["read"]}),
    ],
)
def test_what_a_name_may_hold_is_said_in_words(model: type[BaseModel], value: dict) -> None:
    with pytest.raises(ValidationError) as refused:
        model.model_validate(value)
    (problem,) = field_problems(refused.value, model)
    assert problem.message.startswith("expected ")
    assert "digits" in problem.message
