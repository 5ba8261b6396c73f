import asyncio

import pytest

from service.datasets.service import ensure_digits

ROWS = "\n".join(["a,b,label", *(f"{i / 7:.3f},{i % 5},{i % 2}" for i in range(200))]) + "\n"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(ROWS)
    return path


def make_body(table, **changes):
    return {"name": "table", "path": str(table), "epsilon": 5.0, "delta": 1e-5} | changes


class TestRegister:
    async def test_what_was_found_and_the_budget_are_told(self, client, table):
        response = await client.post("/datasets", json=make_body(table, waiver="me: mine"))
        view = response.json()

        assert response.status_code == 201
        assert response.headers["location"] == "/datasets/table"
        assert (view["source"], view["shape"], view["num_classes"]) == ("table", [2], 2)
        assert view["num_train"] + view["num_validation"] + view["num_test"] == 200
        assert view["budget"] == {"epsilon": 5.0, "delta": 1e-5}
        assert view["neighboring_relation"] == "add_or_remove_one"
        assert view["allowed_modes"] == ["public_proxy", "declared_unaccounted"]
        assert (await client.get("/datasets/table")).json() == view

    @pytest.mark.parametrize(
        ("change", "path"),
        [
            ({"epsilon": None}, "epsilon"),
            ({"delta": None}, "delta"),
            ({"epsilon": 0}, "epsilon"),
            ({"delta": 1}, "delta"),
            ({"public": True}, "epsilon"),
            ({"unit": "user_id"}, "unit"),
            ({"waiver": "no reason"}, "waiver"),
            ({"waiver": "owner:  "}, "waiver"),
            ({"waiver": ": reason"}, "waiver"),
            ({"allow": ["declared_unaccounted"]}, "waiver"),
            ({"allow": ["anything"]}, "allow.0"),
            ({"label": "target"}, "label"),
            ({"features": ["zzz"]}, "features"),
            ({"source": "parquet"}, "path"),
            ({"source": "excel"}, "source"),
            ({"num_classes": 1}, "num_classes"),
            ({"path": "/nowhere/at/all"}, "path"),
            ({"path": "relative.csv"}, "path"),
            ({"path": "a\x00b"}, "path"),
            ({"name": "a b"}, "name"),
            ({"colour": "red"}, "colour"),
        ],
        ids=str,
    )
    async def test_what_is_wrong_is_named_and_nothing_is_stored(self, client, table, change, path):
        response = await client.post("/datasets", json=make_body(table, **change))
        assert response.status_code == 422, response.text
        assert path in [error["path"] for error in response.json()["errors"]], response.text
        assert [d["name"] for d in (await client.get("/datasets")).json()["items"]] == ["digits"]

    async def test_user_level_privacy_is_refused_with_what_is_supported(self, client, table):
        response = await client.post("/datasets", json=make_body(table, unit="user_id"))
        assert "record is supported today" in response.json()["detail"]

    async def test_the_same_bytes_cannot_have_a_second_budget(self, client, table, tmp_path):
        await client.post("/datasets", json=make_body(table))
        copy = tmp_path / "copy.csv"
        copy.write_text(ROWS)
        response = await client.post("/datasets", json=make_body(copy, name="fresh"))
        assert response.status_code == 409
        assert "'table'" in response.json()["detail"]

    async def test_a_name_is_given_once(self, client, table):
        await client.post("/datasets", json=make_body(table))
        response = await client.post("/datasets", json=make_body(table))
        assert response.status_code == 409

    async def test_racing_registrations_leave_one_budget(self, client, table):
        responses = await asyncio.gather(
            *(client.post("/datasets", json=make_body(table, name=f"d{i}")) for i in range(4))
        )
        assert sorted(r.status_code for r in responses) == [201, 409, 409, 409]


class TestEnsureDigits:
    async def test_it_can_be_repeated(self, client, database):
        await asyncio.gather(*(ensure_digits(database) for _ in range(3)))
        (digits,) = (await client.get("/datasets")).json()["items"]
        assert digits["name"] == "digits"
        assert digits["budget"] == {"epsilon": 100.0, "delta": 1e-3}
        assert "scikit-learn" in digits["waiver"]


class TestLedger:
    async def test_a_fresh_budget_is_whole(self, client):
        account = (await client.get("/datasets/digits/ledger")).json()
        assert account["committed_epsilon"] == 0
        assert account["remaining_epsilon"] == 100
        assert [entry["kind"] for entry in account["entries"]] == ["open"]

    async def test_its_chain_can_be_verified(self, client):
        assert (await client.get("/datasets/digits/ledger/verify")).json()["is_valid"]

    async def test_public_data_has_none(self, client, table):
        body = {"name": "table", "path": str(table), "public": True}
        await client.post("/datasets", json=body)
        response = await client.get("/datasets/table/ledger")
        assert response.status_code == 404
        assert "is public" in response.json()["detail"]

    @pytest.mark.parametrize("path", ["", "/ledger", "/ledger/verify"])
    @pytest.mark.parametrize("name", ["nobody", "a%00b"])
    async def test_an_unknown_dataset_is_not_found(self, client, name, path):
        assert (await client.get(f"/datasets/{name}{path}")).status_code == 404
