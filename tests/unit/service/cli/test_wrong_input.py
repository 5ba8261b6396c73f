"""What is empty, unknown or mistyped is said to be so, and what to type next fits what was typed."""

from pathlib import Path

import pytest

from service.cli.errors import ApiError
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
    [("show", ""), ("cancel", " "), ("dataset", "show", ""), ("compare", STUDY["id"], "")],
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


class TestFiles:
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
