"""pause, resume and logs against a server that answers in the contract's shape."""

import json

from tests.unit.service.cli.conftest import Cli
from tests.unit.service.cli.recorded import ATTEMPTS, STUDY, RecordedServer

ID = STUDY["id"]


def test_pause_names_the_way_back(cli: Cli, server: RecordedServer) -> None:
    done = cli("pause", STUDY["name"])

    assert done.code == 0
    assert server.asked(f"POST /studies/{ID}/pause")
    assert f"tan-cli resume {ID}" in done.out


def test_resume_tells_the_place_in_the_line(cli: Cli, server: RecordedServer) -> None:
    done = cli("resume", ID)

    assert server.asked(f"POST /studies/{ID}/resume")
    assert "number 2 in line" in done.out


def test_finish_says_what_comes_then(cli: Cli, server: RecordedServer) -> None:
    done = cli("finish", STUDY["name"])

    assert done.code == 0
    assert server.asked(f"POST /studies/{ID}/finish")
    assert "begins no more trials" in done.out
    assert json.loads(cli("finish", ID, "--json").out)["search_ended_early"] is True


def test_both_print_the_answer_as_json(cli: Cli, server: RecordedServer) -> None:
    assert json.loads(cli("pause", ID, "--json").out)["paused"] is True
    assert json.loads(cli("resume", ID, "--json").out)["queue_position"] == 2


def test_logs_prints_what_the_driver_said_and_nothing_else(
    cli: Cli, server: RecordedServer
) -> None:
    done = cli("logs", ID, "--run", "private", "--attempt", "2", "-f")

    assert (done.code, done.out) == (0, "epoch 1\nepoch 2\n")
    assert server.queries[-1] == {"run": "private", "attempt": "2", "follow": "true"}


def test_logs_as_json_are_the_attempts(cli: Cli, server: RecordedServer) -> None:
    assert json.loads(cli("logs", ID, "--json").out) == ATTEMPTS


def test_a_run_that_is_none_is_refused_with_those_that_are(
    cli: Cli, server: RecordedServer
) -> None:
    done = cli("logs", ID, "--run", "public")

    assert done.code == 2
    assert "search and private" in done.err


def test_show_says_how_an_attempt_ended_early(cli: Cli, server: RecordedServer) -> None:
    shown = cli("show", ID).out

    assert "search attempt 1 lost: exit code 137: the cluster lost the job" in shown


def test_show_says_that_a_study_is_paused(cli: Cli, server: RecordedServer) -> None:
    server.study |= {"state": "simulating", "paused": True, "priority": 7}

    shown = cli("show", ID).out

    assert "simulating, paused" in shown
    assert "priority" in shown
