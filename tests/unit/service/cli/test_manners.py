"""What every verb owes: JSON, help, suggestions, completion, and the next command."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from service.cli import complete
from service.cli.main import app
from service.studies.lifecycle import StudyState
from tan_core.wire import TrialState
from tests.unit.service.cli.conftest import Cli
from tests.unit.service.cli.recorded import STUDY, SUMMARY, RecordedServer


def verbs(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, each in inner.items():
        yield from verbs(each, (*path, name))


VERBS = dict(verbs(typer.main.get_command(app)))
GROUPS = sorted({path[0] for path in VERBS if len(path) > 1})


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_every_verb_speaks_json_and_explains_itself(path: tuple[str, ...]) -> None:
    options = {name for parameter in VERBS[path].params for name in parameter.opts}
    assert "--json" in options
    assert VERBS[path].help.endswith(".")
    for parameter in VERBS[path].params:
        assert parameter.name == "help" or getattr(parameter, "help", None), parameter.name


@pytest.mark.parametrize("group", GROUPS)
def test_a_missing_verb_lists_the_verbs(cli: Cli, group: str) -> None:
    done = cli(group)
    listed = done.out + done.err
    for path in VERBS:
        if path[0] == group:
            assert f"  {path[1]} " in listed
    assert done.code in (0, 2)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("lst",), "list"),
        (("dataset", "ad"), "add"),
        (("list", "--stat", "failed"), "--state"),
        (("submi",), "submit"),
    ],
)
def test_what_was_mistyped_suggests_the_nearest(
    cli: Cli, words: tuple[str, ...], meant: str
) -> None:
    done = cli(*words)
    assert (done.code, meant in done.err) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        ("show", "nothing"),
        ("submit", "nowhere.yaml"),
        ("ledger", "nowhere"),
        ("key", "export", "none"),
        ("compare", STUDY["id"]),
        ("promote", STUDY["id"], "--trial", "9"),
    ],
)
def test_every_error_names_the_next_command(
    cli: Cli, server: RecordedServer, words: tuple[str, ...]
) -> None:
    server.answers["GET /keys"] = (200, {"items": []})
    server.answers[f"POST /studies/{STUDY['id']}/promote"] = (422, {"detail": "no such trial"})
    done = cli(*words)
    assert done.code in (1, 2)
    assert "next: tan-cli " in done.err


@pytest.mark.parametrize(
    ("words", "asked", "field", "option"),
    [
        (("list", "--state", "foo"), "GET /studies", "state.0", "--state"),
        (("list", "--search", "foo"), "GET /studies", "name_contains", "--search"),
        (
            ("trials", STUDY["id"], "--sort", "foo"),
            f"GET /studies/{STUDY['id']}/trials",
            "sort",
            "--sort",
        ),
        (
            ("ledger", "cap", "digits", "--tenant", "team", "--epsilon", "-3"),
            "PUT /datasets/digits/caps/team",
            "epsilon",
            "--epsilon",
        ),
    ],
)
def test_what_the_server_refuses_is_told_by_its_option(
    cli: Cli, server: RecordedServer, words: tuple[str, ...], asked: str, field: str, option: str
) -> None:
    server.answers[asked] = (422, {"errors": [{"path": field, "message": "it is odd"}]})
    done = cli(*words)
    assert done.code == 2
    assert f"  {option}: it is odd" in done.err


def test_the_exit_codes_are_in_the_help(cli: Cli) -> None:
    assert "0 done, 1 failed, 2 bad input, 3 over budget" in " ".join(cli("--help").out.split())


def completed(*words: str) -> list[str]:
    """What bash is told to offer for the last of these words."""
    asked = {"_TAN_CLI_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words)}
    done = subprocess.run(
        [sys.executable, "-c", "from service.cli.main import main; main()"],
        env={**os.environ, **asked, "COMP_CWORD": str(len(words) - 1)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout.split()


class TestCompletion:
    def test_studies_are_offered_by_name_and_by_the_beginning_of_their_id(
        self, server: RecordedServer
    ) -> None:
        server.summaries.append({**SUMMARY, "id": "s-ffffffffffff"})
        assert [word for word, _ in complete.study_references("")] == [SUMMARY["name"]]
        assert [word for word, _ in complete.study_references("dig")] == [SUMMARY["name"]]
        offered = dict(complete.study_references("s-f"))
        assert list(offered) == ["s-ffffffffffff"]
        assert "completed" in offered["s-ffffffffffff"]

    def test_datasets_are_offered(self, server: RecordedServer) -> None:
        assert complete.dataset_names("d") == ["digits"]
        assert complete.dataset_names("x") == []

    def test_states_are_those_of_the_service(self) -> None:
        assert set(complete.STATES) == set(StudyState)
        assert complete.study_states("c") == ["completed", "cancelled"]
        from service.cli.trials import TRIAL_STATES

        assert set(TRIAL_STATES) == set(TrialState)

    @pytest.mark.parametrize("before", [(), ("--set", "name=x")])
    def test_keys_to_set_are_those_of_the_file_that_was_typed(
        self, study_yaml: str, before: tuple[str, ...]
    ) -> None:
        words = ("tan-cli", "submit", *before, study_yaml, "--set")
        assert completed(*words, "priv") == ["privacy.epsilon=", "privacy.delta="]
        assert completed(*words, "name") == ["name="]

    @pytest.mark.parametrize("typed", [(), ("nowhere.yaml",), (sys.executable,)])
    def test_without_a_file_that_can_be_read_no_key_is_offered(
        self, typed: tuple[str, ...]
    ) -> None:
        assert completed("tan-cli", "plan", *typed, "--set", "priv") == []

    @pytest.mark.parametrize("status", [401, 500])
    def test_a_server_that_does_not_tell_offers_nothing(
        self, server: RecordedServer, monkeypatch: pytest.MonkeyPatch, status: int
    ) -> None:
        server.answers["GET /studies"] = (status, {"detail": "no"})
        assert complete.study_references("") == []
        monkeypatch.setenv("TAN_API_URL", "http://127.0.0.1:1")
        assert complete.study_references("") == []

    def test_the_shell_is_answered(self, server: RecordedServer) -> None:
        assert completed("tan-cli", "show", "dig") == [SUMMARY["name"]]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [("schema",), ("--help",)], ids=" ".join)
def test_an_output_that_takes_no_more_is_told_in_a_line(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "service.cli.main", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr == "error: cannot read or write the output: No space left on device\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_an_output_that_is_not_utf_8_has_escapes(server: RecordedServer, encoding: str) -> None:
    server.study["note"] = note = "é σ 😀"

    def show(*flags: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "service.cli.main", "show", STUDY["id"], *flags],
            env={**os.environ, "PYTHONIOENCODING": encoding},
            capture_output=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode(encoding)

    assert r"\u03b5 = 2.9" in show()
    assert json.loads(show("--json"))["note"] == note


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["head -1", "true"])
def test_a_reader_that_has_seen_enough_makes_no_failure(reader: str) -> None:
    """Whether the pipe breaks while the command writes or as it ends is a matter of milliseconds."""
    command = f"set -o pipefail; {sys.executable} -m service.cli.main schema | {reader}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
