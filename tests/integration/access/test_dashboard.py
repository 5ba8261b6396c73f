"""A tenant's studies in the dashboard: their parts, the editor, and what is done to many at once."""

import pytest

from tests.fixtures.api import make_spec

PARTS = ["", "/trials", "/trials.csv", "/search", "/curves", "/run", "/charts/history.csv"]


@pytest.fixture
async def acme(admin):
    return await admin.befriend(["submit"], tenant="acme")


@pytest.fixture
async def other(admin):
    return await admin.befriend(["submit"], tenant="umbrella")


@pytest.fixture
async def study(acme):
    answer = await acme.post("/studies", json=make_spec())
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


@pytest.mark.parametrize("part", PARTS)
async def test_what_is_anothers_is_not_there(acme, other, study, part):
    own = await acme.get(f"/ui/studies/{study}{part}")
    refused = await other.get(f"/ui/studies/{study}{part}")

    assert own.status_code == (404 if "charts" in part else 200)  # nothing is drawn yet
    assert refused.status_code == 404
    assert f"there is no study &#39;{study}&#39;" in refused.text


async def test_anothers_is_no_pattern(acme, other, study):
    assert (await acme.get(f"/ui/new?like={study}")).status_code == 200
    assert (await other.get(f"/ui/new?like={study}")).status_code == 404


async def test_anothers_is_not_among_many(acme, other, study):
    chosen = {"action": "cancel", "study": [study]}

    refused = await other.post("/ui/studies/bulk", data=chosen)
    granted = await acme.post("/ui/studies/bulk", data=chosen)

    assert refused.json()["detail"] == f"0 of 1 done; {study}: there is no study {study!r}"
    assert granted.status_code == 204


async def test_a_reader_changes_nothing(admin, study):
    reader = await admin.befriend(["read"], tenant="acme")

    for path in ("/ui/studies/bulk", "/ui/new"):
        answer = await reader.post(path, data={"action": "cancel", "study": [study]})
        assert answer.status_code == 403
