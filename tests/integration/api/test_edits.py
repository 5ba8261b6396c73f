"""Entity tags, and what users may edit of a study."""

import pytest
from sqlalchemy import text

from service.db.tables import Study
from service.studies.events import set_state
from tests.fixtures.api import make_spec


@pytest.fixture
async def path(client) -> str:
    response = await client.post("/studies", json=make_spec())
    return f"/studies/{response.json()['id']}"


async def end(database, path: str) -> None:
    async with database.session() as session:
        study = await session.get(Study, path.split("/")[2])
        await set_state(session, study, "failed")


class TestNotModified:
    async def test_an_answer_that_is_at_hand_is_not_sent_again(self, client, database, path):
        first = await client.get(path)
        tag = first.headers["etag"]
        for header in (tag, f"W/{tag}", f'"x", {tag}', "*"):
            again = await client.get(path, headers={"If-None-Match": header})
            assert (again.status_code, again.content) == (304, b""), header
            assert again.headers["etag"] == tag
        await end(database, path)
        changed = await client.get(path, headers={"If-None-Match": tag})
        assert changed.status_code == 200
        assert changed.headers["etag"] != tag

    async def test_it_may_be_kept_and_must_be_asked_for(self, client, path):
        assert (await client.get(path)).headers["cache-control"] == "private, no-cache"
        assert (await client.get("/studies")).headers["cache-control"] == "no-store"

    @pytest.mark.parametrize("what", ["/datasets/digits", "{path}/statement"])
    async def test_so_are_datasets_and_statements(self, client, database, path, what):
        async with database.session() as session:
            await session.execute(text("""UPDATE study SET statement = '{"signed": 1}'"""))
        first = await client.get(what.format(path=path))
        assert first.status_code == 200
        again = await client.get(
            what.format(path=path), headers={"If-None-Match": first.headers["etag"]}
        )
        assert (again.status_code, again.content) == (304, b"")


class TestEdit:
    async def test_name_and_tags_change_and_the_spec_does_not(self, client, path):
        before = await client.get(path)
        edited = await client.patch(
            path,
            json={"name": "renamed", "tags": ["paper", "fig:2"]},
            headers={"If-Match": before.headers["etag"]},
        )
        assert edited.status_code == 200, edited.text
        after = await client.get(path)
        assert after.json() == edited.json()
        assert after.headers["etag"] == edited.headers["etag"]
        assert after.json() == before.json() | {
            "name": "renamed",
            "tags": ["paper", "fig:2"],
            "version": 1,
        }

    async def test_what_is_left_out_stays(self, client, path):
        await client.patch(path, json={"tags": ["a"]}, headers={"If-Match": "*"})
        edited = await client.patch(path, json={"name": "n"}, headers={"If-Match": "*"})
        assert (edited.json()["tags"], edited.json()["name"]) == (["a"], "n")

    async def test_a_tag_that_is_repeated_counts_once_at_its_first_place(self, client, path):
        tags = {"tags": ["b", "a", "b", "a", "c"]}
        edited = await client.patch(path, json=tags, headers={"If-Match": "*"})
        assert edited.json()["tags"] == ["b", "a", "c"]
        assert (await client.get(path)).json()["tags"] == ["b", "a", "c"]

    async def test_of_two_edits_of_one_version_the_second_is_refused(self, client, path):
        tag = (await client.get(path)).headers["etag"]
        first = await client.patch(path, json={"name": "a"}, headers={"If-Match": tag})
        second = await client.patch(path, json={"name": "b"}, headers={"If-Match": tag})
        assert (first.status_code, second.status_code) == (200, 412)
        assert second.headers["content-type"] == "application/problem+json"
        assert (await client.get(path)).json()["name"] == "a"

    async def test_a_study_that_came_further_may_still_be_edited(self, client, database, path):
        tag = (await client.get(path)).headers["etag"]
        await end(database, path)
        response = await client.patch(path, json={"name": "a"}, headers={"If-Match": tag})
        assert response.status_code == 200

    async def test_without_a_version_it_is_refused(self, client, path):
        response = await client.patch(path, json={"name": "a"})
        assert response.status_code == 428
        assert "If-Match" in response.json()["detail"]

    @pytest.mark.parametrize("tag", ['W/"0-{digest}"', '"1-{digest}"', "0-{digest}", '"0"', ""])
    async def test_a_tag_of_nothing_is_refused(self, client, path, tag):
        digest = (await client.get(path)).headers["etag"][3:-1]
        header = {"If-Match": tag.format(digest=digest)}
        response = await client.patch(path, json={"name": "a"}, headers=header)
        assert response.status_code == 412

    @pytest.mark.parametrize(
        "body",
        [
            {},
            {"name": None},
            {"name": "two words"},
            {"tags": ["two words"]},
            {"tags": ["x" * 51]},
            {"tags": ["x"] * 21},
            {"tags": "x"},
            {"note": "x" * 4001},
            {"note": "a\x00b"},
            {"note": None},
            {"archived": "yes please"},
            {"state": "completed"},
            {"version": 7},
        ],
        ids=str,
    )
    async def test_nothing_else_can_be_edited(self, client, path, body):
        before = (await client.get(path)).json()
        response = await client.patch(path, json=body, headers={"If-Match": "*"})
        assert response.status_code == 422
        assert (await client.get(path)).json() == before


class TestNote:
    async def test_nulls_are_told_by_their_fields_and_nothing_without_one(self, client, path):
        headers = {"If-Match": "*"}
        nulls = await client.patch(path, json={"name": None, "tags": None}, headers=headers)
        assert nulls.status_code == 422
        assert nulls.json()["detail"] == (
            "name: null is no value; leave it out; tags: null is no value; leave it out"
        )
        assert [error["path"] for error in nulls.json()["errors"]] == ["name", "tags"]
        nothing = await client.patch(path, json={}, headers=headers)
        assert nothing.json()["detail"] == "nothing to change: give name, tags, note or archived"

    async def test_it_is_kept_replaced_and_taken_away(self, client, path):
        assert (await client.get(path)).json()["note"] is None
        for written, kept in (
            ("σ too low?\nsee fig. 2", "σ too low?\nsee fig. 2"),
            ("b", "b"),
            ("", None),
        ):
            edited = await client.patch(path, json={"note": written}, headers={"If-Match": "*"})
            assert edited.json()["note"] == kept
            assert (await client.get(path)).json()["note"] == kept
        assert (await client.get(path)).json()["version"] == 3

    async def test_one_that_somebody_else_changed_is_not_overwritten(self, client, path):
        first = (await client.get(path)).headers["etag"]
        await client.patch(path, json={"note": "theirs"}, headers={"If-Match": first})
        mine = await client.patch(path, json={"note": "mine"}, headers={"If-Match": first})
        assert mine.status_code == 412
        assert (await client.get(path)).json()["note"] == "theirs"


class TestArchive:
    async def test_a_study_that_may_still_spend_is_not_hidden(self, client, path):
        response = await client.patch(path, json={"archived": True}, headers={"If-Match": "*"})
        assert response.status_code == 409
        assert "cancel it first" in response.json()["detail"]

    async def test_an_archived_study_is_hidden_until_it_is_asked_for(self, client, database, path):
        await end(database, path)
        await client.patch(path, json={"archived": True}, headers={"If-Match": "*"})
        assert (await client.get("/studies")).json()["items"] == []
        (listed,) = (await client.get("/studies?archived=only")).json()["items"]
        assert listed["archived"]
        assert (await client.get(path)).status_code == 200
        await client.patch(path, json={"archived": False}, headers={"If-Match": "*"})
        assert len((await client.get("/studies")).json()["items"]) == 1
