"""``tan-cli list`` for scripts: what is asked for, and CSV."""

import csv
import io

from service.cli import views
from service.study_table import COLUMNS
from tests.unit.service.cli.conftest import Cli
from tests.unit.service.cli.recorded import SUMMARY, RecordedServer
from tests.unit.service.cli.test_widths import lines


def test_csv_has_a_line_for_each_study_and_asks_for_all(cli: Cli, server: RecordedServer) -> None:
    rows = list(csv.DictReader(io.StringIO(cli("list", "--csv").out)))

    assert tuple(rows[0]) == COLUMNS
    assert (rows[0]["id"], rows[0]["model"]) == (SUMMARY["id"], "mlp")
    assert float(rows[0]["epsilon"]) == SUMMARY["epsilon"]
    assert rows[0]["search_note"] == SUMMARY["search_note"]
    assert "limit" not in server.queries[-1]
    cli("list", "--csv", "--limit", "7")
    assert server.queries[-1]["limit"] == "7"


def test_a_table_asks_for_one_more_than_it_shows(cli: Cli, server: RecordedServer) -> None:
    cli("list", "--model", "mlp")
    assert server.queries[0] == {"model": "mlp", "sort": "-created_at", "limit": "21"}


def test_what_is_shown_is_said_to_be_so_many_of_how_many(cli: Cli, server: RecordedServer) -> None:
    page = {"items": [SUMMARY] * 3, "next_cursor": "next"}
    server.answers["GET /studies"] = (200, {**page, "total": 1234})
    done = cli("list", "--limit", "2", "--tag", "paper")
    assert done.out.splitlines()[-1] == "the first 2 of 1,234; --limit shows more"
    assert {"tag": "paper", "sort": "-created_at", "limit": "1"} in server.queries
    server.answers["GET /studies"] = (200, page)  # an older service, or too many to count
    assert cli("list", "--limit", "2").out.splitlines()[-1] == "the first 2; --limit shows more"
    assert "the first" not in cli("list", "--limit", "2", "--json").out


def test_how_many_await_approval_is_said_below(cli: Cli, server: RecordedServer) -> None:
    waiting = SUMMARY | {"id": "s-1", "state": "awaiting_approval"}
    server.answers["GET /studies"] = (200, {"items": [waiting, SUMMARY], "next_cursor": None})
    words = "1 study awaits approval: tan-cli list --state awaiting_approval"

    assert cli("list").out.splitlines()[-1] == words
    assert len(server.queries) == 1
    assert "await" not in cli("list", "--json").out.replace("awaiting_approval", "")
    assert "1 study awaits" not in cli("list", "--state", "awaiting_approval").out

    server.answers["GET /studies"] = (200, {"items": [SUMMARY], "next_cursor": None, "total": 7})
    assert cli("list", "--tag", "paper").out.splitlines()[-1].startswith("7 studies await approval")
    assert server.queries[-1] == {"state": "awaiting_approval", "limit": "1"}


def shown(cli: Cli, server: RecordedServer, *items: dict[str, object]) -> str:
    listed = [SUMMARY | {"id": f"s-{number}"} | item for number, item in enumerate(items)]
    server.answers["GET /studies"] = (200, {"items": listed, "next_cursor": None})
    return " ".join(cli("list").out.split())


def test_a_study_that_holds_for_other_neighbours_than_most_is_named(
    cli: Cli, server: RecordedServer
) -> None:
    usual = {"neighboring_relation": "add_or_remove_one"}
    odd = {"neighboring_relation": "replace_one"}

    told = shown(cli, server, usual, odd, usual)

    assert "ε holds for neighbours add_or_remove_one; of s-1 for replace_one" in told
    assert "ε holds for neighbours add_or_remove_one declared" in shown(
        cli, server, usual | {"best_accuracy": None}
    )


def test_accuracies_of_trials_are_said_to_be_not_private(cli: Cli, server: RecordedServer) -> None:
    words = "best trial: validation accuracy of a simulation, not private"

    assert words in shown(cli, server, {"best_accuracy": 0.9})
    assert words not in shown(cli, server, {"best_accuracy": None})


def test_what_an_unaccounted_search_found_is_said_beside_a_study_of_another_mode(
    cli: Cli, server: RecordedServer
) -> None:
    note = (
        "nothing searched; they are those of trial 3 of s-9: search on private data NOT accounted"
    )
    given = {"search_accounting": "no_search", "search_note": note}

    assert f"s-1: {note}" in shown(cli, server, {}, given)


def test_two_formats_at_once_are_refused(cli: Cli, server: RecordedServer) -> None:
    done = cli("list", "--csv", "--json")
    assert (done.code, "--csv or --json" in done.err) == (2, True)
    assert server.requests == []


def test_training_data_are_records_and_say_of_how_many_users(
    cli: Cli, server: RecordedServer
) -> None:
    server.datasets[0] |= {"unit": "writer", "num_train": 218, "num_train_records": 1319}
    assert "1,319 of 218 users" in cli("dataset", "list").out
    server.datasets[0] |= {"unit": "record", "num_train": 1319}
    shown = cli("dataset", "list").out
    assert "1,319" in shown
    assert "users" not in shown


def test_balanced_accuracies_are_said_to_be(cli: Cli, server: RecordedServer) -> None:
    balanced = {"metric": "balanced_accuracy", "best_accuracy": 0.815, "test_accuracy": 0.825}

    told = shown(cli, server, balanced)

    assert "81.5 % balanced" in told
    assert "82.5 % balanced" in told
    assert "balanced" not in shown(cli, server, balanced | {"metric": "accuracy"})
    assert "balanced" not in shown(
        cli, server, balanced | {"best_accuracy": None, "test_accuracy": None}
    )


def test_a_column_that_found_no_room_is_not_explained() -> None:
    words = "best trial: validation accuracy of a simulation"
    told = {width: " ".join(lines(views.studies([SUMMARY]), width)) for width in (200, 80)}
    assert words in told[200]
    assert words not in told[80]
    assert "*: search on private data NOT accounted" in told[80]
