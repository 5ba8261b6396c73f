"""A request that is sent again under its key is answered again, and done once."""

import asyncio
import json
from typing import Any

import pytest
import yaml
from sqlalchemy import text

from tests.fixtures.api import make_spec

KEY = {"Idempotency-Key": "k1"}
TABLE = "a,label\n" + "".join(f"0.{row:02},{row % 2}\n" for row in range(60))


async def count(database, table: str) -> int:
    async with database.session() as session:
        return await session.scalar(text(f"SELECT count(*) FROM {table}"))


class TestSubmit:
    async def test_the_same_request_gives_the_same_answer(self, client, database):
        first = await client.post("/studies", json=make_spec(), headers=KEY)
        again = await client.post("/studies", json=make_spec(), headers=KEY)

        assert (first.status_code, again.status_code) == (201, 201)
        assert first.json() == again.json()
        assert first.headers["location"] == again.headers["location"]
        assert "idempotent-replayed" not in first.headers
        assert again.headers["idempotent-replayed"] == "true"
        assert await count(database, "study") == 1

    async def test_it_is_the_same_however_it_is_written_down(self, client, database):
        spec = make_spec()
        backwards = dict(reversed(spec.items()))
        privacy = {"delta": 0.00001, "epsilon": 3}
        await client.post("/studies", json=spec, headers=KEY)
        for sent in (
            {"json": backwards},
            {"json": spec | {"privacy": privacy}},
            {"content": yaml.safe_dump(spec), "headers": {"content-type": "text/yaml"}},
        ):
            sent["headers"] = KEY | sent.get("headers", {})
            response = await client.post("/studies", **sent)
            assert response.status_code == 201, response.text
        assert await count(database, "study") == 1

    async def test_another_request_is_refused(self, client):
        first = await client.post("/studies", json=make_spec(), headers=KEY)
        other = await client.post("/studies", json=make_spec(name="other"), headers=KEY)
        assert other.status_code == 422
        (error,) = other.json()["errors"]
        assert error["path"] == "Idempotency-Key"
        assert first.json()["id"] in error["message"]

    async def test_a_default_of_a_later_version_makes_no_other_request(
        self, client, database, monkeypatch
    ):
        """An upgrade between two sendings: the same text means more than it did."""
        first = await client.post("/studies", json=make_spec(), headers=KEY)
        validated = "service.studies.endpoints.validate"
        from service.body import validate

        def with_a_new_default(model: Any, value: Any) -> Any:
            return validate(model, {**value, "promotion": "manual"})

        monkeypatch.setattr(validated, with_a_new_default)
        again = await client.post("/studies", json=make_spec(), headers=KEY)
        assert again.status_code == 201, again.text
        assert again.json()["id"] == first.json()["id"]

    async def test_a_request_that_failed_may_be_mended_under_its_key(self, client):
        wrong = await client.post("/studies", json=make_spec(dataset="nowhere"), headers=KEY)
        right = await client.post("/studies", json=make_spec(), headers=KEY)
        assert (wrong.status_code, right.status_code) == (422, 201)

    async def test_of_sixteen_clients_at_once_one_makes_a_study(self, client, database):
        responses = await asyncio.gather(
            *(client.post("/studies", json=make_spec(), headers=KEY) for _ in range(16))
        )
        assert {r.status_code for r in responses} == {201}
        assert len({r.json()["id"] for r in responses}) == 1
        assert sum("idempotent-replayed" not in r.headers for r in responses) == 1
        assert await count(database, "study") == await count(database, "ledger_reservation") == 1


class TestOtherRequests:
    async def test_a_dataset_is_registered_once(self, client, database, tmp_path):
        (tmp_path / "table.csv").write_text(TABLE)
        body = {"name": "table", "path": str(tmp_path / "table.csv"), "public": True}
        responses = await asyncio.gather(
            *(client.post("/datasets", json=body, headers=KEY) for _ in range(4))
        )
        assert {r.status_code for r in responses} == {201}, [r.text for r in responses]
        assert len({json.dumps(r.json()) for r in responses}) == 1
        assert sum("idempotent-replayed" not in r.headers for r in responses) == 1
        again = await client.post("/datasets", json=body)
        assert again.status_code == 409

    async def test_a_key_of_one_operation_is_refused_by_another(self, client, tmp_path):
        study = (await client.post("/studies", json=make_spec(), headers=KEY)).json()
        for path in (f"/studies/{study['id']}/cancel", f"/studies/{study['id']}/promote"):
            response = await client.post(path, headers=KEY)
            assert response.status_code == 422, path
            assert "submit_study" in response.json()["detail"]

    @pytest.mark.parametrize("state", ["cancelled", "failed"])
    async def test_a_cancellation_is_answered_again_when_it_has_come_true(
        self, client, database, state
    ):
        study = (await client.post("/studies", json=make_spec())).json()
        path = f"/studies/{study['id']}/cancel"
        assert (await client.post(path, headers=KEY)).status_code == 202
        async with database.session() as session:
            await session.execute(text("UPDATE study SET state = :state"), {"state": state})
        again = await client.post(path, headers=KEY)
        assert (again.status_code, again.json()["state"]) == (202, state)
        assert (await client.post(path)).status_code == 409
        other = await client.post(path.replace(study["id"], "s-other"), headers=KEY)
        assert other.status_code == 422
