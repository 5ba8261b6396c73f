"""tag, archive and unarchive: what is sent, under which version, and what is said."""

import json

from tests.unit.service.cli.conftest import Cli
from tests.unit.service.cli.recorded import STUDY, RecordedServer

ID = STUDY["id"]
EDIT = f"PATCH /studies/{ID}"


def sent(server: RecordedServer) -> dict:
    ((body, headers),) = server.asked(EDIT)
    assert body is not None
    return {**body, "if-match": headers["if-match"]}


def test_tags_are_added_to_those_that_are_there(cli: Cli, server: RecordedServer) -> None:
    server.study |= {"tags": ["paper"], "version": 3}
    done = cli("tag", "digits-eps3", "fig:2", "paper")
    assert sent(server) == {"tags": ["paper", "fig:2"], "if-match": '"3-"'}
    assert "paper, fig:2" in done.out


def test_tags_are_taken_away(cli: Cli, server: RecordedServer) -> None:
    server.study["tags"] = ["a", "b"]
    assert json.loads(cli("tag", ID, "--remove", "a", "--json").out)["tags"] == ["b"]


def test_all_of_them_at_once(cli: Cli, server: RecordedServer) -> None:
    server.study["tags"] = ["a", "b"]
    cli("tag", ID, "c", "--clear")
    assert sent(server)["tags"] == ["c"]


def test_without_a_change_nothing_is_sent_and_they_are_shown(
    cli: Cli, server: RecordedServer
) -> None:
    server.study["tags"] = ["a"]
    assert ": a\n" in cli("tag", ID).out
    assert server.asked(EDIT) == []


def test_a_tag_that_is_not_there_cannot_be_taken(cli: Cli, server: RecordedServer) -> None:
    done = cli("tag", ID, "--remove", "x")
    assert (done.code, "it has: none" in done.err) == (2, True)


def test_an_edit_that_somebody_made_meanwhile_is_not_undone(
    cli: Cli, server: RecordedServer
) -> None:
    server.answers[EDIT] = (412, {"detail": "it was edited since"})
    done = cli("tag", ID, "x")
    assert (done.code, "edited since" in done.err) == (1, True)


def test_studies_are_archived_and_brought_back(cli: Cli, server: RecordedServer) -> None:
    assert "is archived" in cli("archive", ID, "digits-eps3").out
    assert [body for body, _ in server.asked(EDIT)] == [{"archived": True}] * 2
    assert "is listed again" in cli("unarchive", ID).out
    assert server.asked(EDIT)[-1][0] == {"archived": False}


def test_a_list_asks_for_what_was_said(cli: Cli, server: RecordedServer) -> None:
    cli("list", "--tag", "paper", "--dataset", "digits", "--search", "eps", "--archived")
    asked, of_those_that_wait = server.queries[-2:]
    assert of_those_that_wait == {"state": "awaiting_approval", "limit": "1"}
    assert asked.items() >= {
        "tag": "paper", "dataset": "digits", "name_contains": "eps", "archived": "only",
        "sort": "-created_at",
    }.items()  # fmt: skip


def test_a_note_is_written_shown_and_taken_away(cli: Cli, server: RecordedServer) -> None:
    assert ": no note\n" in cli("note", ID).out
    done = cli("note", ID, "clipping was off")
    assert sent(server)["note"] == "clipping was off"
    assert ": clipping was off\n" in done.out
    server.study["note"] = "clipping was off"
    assert "clipping was off" in cli("show", ID).out
    cli("note", ID, "--clear")
    (_, (body, _)) = server.asked(EDIT)
    assert body == {"note": ""}


def test_a_note_that_is_there_already_is_not_sent(cli: Cli, server: RecordedServer) -> None:
    server.study["note"] = "same"
    cli("note", ID, "same")
    assert server.asked(EDIT) == []
    assert cli("note", ID, "a", "--clear").code == 2
