import asyncio

import numpy as np
import psycopg
import pyarrow.parquet as pq
import pytest
from PIL import Image
from psycopg.types.json import Jsonb
from pyarrow import csv
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from service.datasets import repository
from service.datasets.service import ensure_digits
from service.db.tables import Dataset
from tan_core.accounting import MIN_DELTA
from tests.fixtures.api import make_spec, open_client
from tests.support.http_files import serving
from tests.support.image_files import image_shards
from tests.support.many import copy_digits
from tests.support.round_trips import RoundTrips


def make_row(name):
    return Dataset(
        name=name,
        source="table",
        path=f"/data/{name}.csv",
        label="label",
        content_sha256=name,
        num_classes=2,
        shape=[2],
        num_train=8,
        num_train_records=8,
        num_validation=1,
        num_test=1,
        unit="record",
        public=True,
        allowed_modes=[],
    )


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(make_rows(200))
    return path


def make_rows(count, start=0):
    rows = (f"{i / 700:.5f},{i % 5},{i % 2}" for i in range(start, start + count))
    return "\n".join(["a,b,label", *rows]) + "\n"


def make_folder(folder, **files):
    folder.mkdir()
    for name, content in files.items():
        (folder / f"{name}.csv").write_text(content)
    return folder


def make_body(table, **changes):
    return {"name": "table", "path": str(table), "epsilon": 5.0, "delta": 1e-5} | changes


async def test_whether_a_person_approves_private_runs_may_change(client, table):
    made = await client.post("/datasets", json=make_body(table, approval="required"))
    assert made.json()["approval"] == "required"
    changed = await client.put("/datasets/table/approval", json={"approval": "automatic"})
    assert changed.json() == made.json() | {"approval": "automatic"}


async def test_no_approval_guards_public_data(client, table):
    await client.post("/datasets", json={"name": "table", "path": str(table), "public": True})
    refused = await client.put("/datasets/table/approval", json={"approval": "required"})
    assert refused.status_code == 422
    assert "promotion: manual" in refused.json()["errors"][0]["message"]


class TestRegister:
    async def test_what_was_found_and_the_budget_are_told(self, client, table):
        response = await client.post("/datasets", json=make_body(table, waiver="me: mine"))
        view = response.json()

        assert response.status_code == 201
        assert response.headers["location"] == "/datasets/table"
        assert (view["source"], view["shape"], view["num_classes"]) == ("table", [2], 2)
        assert view["num_train"] + view["num_validation"] + view["num_test"] == 200
        assert view["budget"] == {"epsilon": 5.0, "delta": 1e-5}
        assert "warnings" not in view
        assert view["neighboring_relation"] == "add_or_remove_one"
        assert view["allowed_modes"] == ["public_proxy", "accounted", "declared_unaccounted"]
        assert (await client.get("/datasets/table")).json() == view

    @pytest.mark.parametrize(
        ("change", "path"),
        [
            ({"epsilon": None}, "epsilon"),
            ({"delta": None}, "delta"),
            ({"epsilon": 0}, "epsilon"),
            ({"delta": 1}, "delta"),
            ({"delta": 9.99e-11}, "delta"),
            ({"public": True}, "epsilon"),
            ({"public": True, "approval": "required"}, "approval"),
            ({"approval": "manual"}, "approval"),
            ({"unit": "user_id"}, "unit"),
            ({"unit": ""}, "unit"),
            ({"unit": "label"}, "unit"),
            ({"records_per_unit": 4}, "records_per_unit"),
            ({"unit": "a", "records_per_unit": 0}, "records_per_unit"),
            ({"unit": "a", "records_per_unit": 1025}, "records_per_unit"),
            ({"group": "sex"}, "group"),
            ({"waiver": "no reason"}, "waiver"),
            ({"waiver": "owner:  "}, "waiver"),
            ({"waiver": ": reason"}, "waiver"),
            ({"allow": ["declared_unaccounted"]}, "waiver"),
            ({"allow": ["anything"]}, "allow.0"),
            ({"allow": ["private_selection"]}, "allow.0"),
            ({"features": []}, "features"),
            ({"features": [{"column": "a", "low": 2, "high": 1}]}, "features.0"),
            ({"features": ["a", {"column": "b", "choices": ["1", "1"]}]}, "features.1"),
            ({"features": [{"column": "b", "choices": ["1"], "low": 0}]}, "features.0"),
            ({"features": ["a", {"column": "a", "low": 0, "high": 1}]}, "features"),
            ({"allow": ["public_proxy", "private_selection"]}, "allow.1"),
            ({"allow": ["disjoint_split"], "public": True}, "allow.0"),
            ({"label": "target"}, "label"),
            ({"features": ["zzz"]}, "features"),
            ({"source": "parquet"}, "path"),
            ({"source": "excel"}, "source"),
            ({"admission": "both"}, "admission"),
            (
                {"admission": "renyi_filter", "neighboring_relation": "replace_one"},
                "admission",
            ),
            ({"num_classes": 1}, "num_classes"),
            ({"classes": ["no"]}, "classes"),
            ({"classes": ["no", "no"]}, "classes"),
            ({"classes": ["no", ""]}, "classes.1"),
            ({"classes": ["no", "a\x1bb"]}, "classes"),
            ({"classes": ["no", "yes"], "num_classes": 3}, "num_classes"),
            ({"classes": [f"{i:0250}" for i in range(500)]}, "classes"),
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

    async def test_choices_of_fractions_are_refused_where_the_file_tells_types(
        self, client, table, tmp_path
    ):
        """Parquet does. A column of CSV is text: no cell says what another one is."""
        file = tmp_path / "typed.parquet"
        pq.write_table(csv.read_csv(table), file)
        chosen = {"features": [{"column": "a", "choices": ["1"]}]}

        refused = await client.post("/datasets", json=make_body(file, **chosen))
        told = await client.post(
            "/datasets", params={"dry_run": True}, json=make_body(table, **chosen)
        )

        assert refused.status_code == 422
        (error,) = refused.json()["errors"]
        assert error["path"] == "features"
        assert "'a' is double; choices are of text" in error["message"]
        assert told.status_code == 200, told.text
        assert "a=1" in str(told.json()["warnings"])
        assert [d["name"] for d in (await client.get("/datasets")).json()["items"]] == ["digits"]

    async def test_a_mode_that_no_study_runs_under_is_named_with_what_is_accepted(
        self, client, table
    ):
        response = await client.post("/datasets", json=make_body(table, allow=["disjoint_split"]))

        (error,) = response.json()["errors"]
        assert (error["path"], error["value"]) == ("allow.0", "disjoint_split")
        accepted = "accepted today: public_proxy, accounted and declared_unaccounted"
        assert error["message"].endswith(accepted)

    async def test_a_mode_that_an_earlier_version_let_through_is_told_as_it_is(
        self, client, table, database_urls
    ):
        await client.post("/datasets", json=make_body(table))
        stored = ["public_proxy", "private_selection"]
        with psycopg.connect(database_urls.owner) as connection:
            connection.execute("UPDATE dataset SET allowed_modes = %s", (Jsonb(stored),))

        view = (await client.get("/datasets/table")).json()

        assert view["allowed_modes"] == stored
        assert view in (await client.get("/datasets")).json()["items"]

    async def test_labels_may_be_text_whose_classes_are_named(self, client, tmp_path):
        table = tmp_path / "people.csv"
        rows = "\n".join(f"{i / 700:.5f},{('<=50K', '>50K')[i % 2]}" for i in range(200))
        table.write_text(f"a,income\n{rows}\n")
        body = make_body(table, label="income")
        refused = await client.post("/datasets", json=body)
        assert [error["path"] for error in refused.json()["errors"]] == ["classes"]

        classes = ["<=50K", ">50K", "unknown"]
        view = (await client.post("/datasets", json=body | {"classes": classes})).json()

        assert (view["num_classes"], view["classes"]) == (3, classes)
        assert "warnings" not in view
        assert (await client.get("/datasets/table")).json() == view
        page = (await client.get("/ui/datasets/table")).text
        assert "3 classes: &lt;=50K, &gt;50K, unknown" in page

    async def test_of_users_it_is_told_how_many_and_that_they_are_protected(self, client, tmp_path):
        rows = "\n".join(f"u{i % 60},{'mf'[i % 2]},{i / 7:.3f},{i % 2}" for i in range(200))
        table = tmp_path / "users.csv"
        table.write_text(f"who,sex,a,label\n{rows}\n")
        body = make_body(table, unit="who", records_per_unit=2, group="sex")

        view = (await client.post("/datasets", json=body)).json()

        assert (view["unit"], view["records_per_unit"], view["group"]) == ("who", 2, "sex")
        assert view["shape"] == [1]
        assert 30 <= view["num_train"] <= 55
        assert view["num_train_records"] == 2 * view["num_train"]
        assert view["num_train"] + view["num_validation_users"] < 60
        assert view["num_validation_users"] < view["num_validation"]
        assert "accounted" in view["allowed_modes"]
        scope = (await client.get("/datasets/table/ledger")).json()["scope"]
        assert scope["unit"] == "user"

    async def test_the_same_bytes_cannot_have_a_second_budget(self, client, table, tmp_path):
        await client.post("/datasets", json=make_body(table))
        copy = tmp_path / "copy.csv"
        copy.write_text(make_rows(200))
        response = await client.post("/datasets", json=make_body(copy, name="fresh"))
        assert response.status_code == 409
        assert "'copy.csv' is in dataset 'table'" in response.json()["detail"]

    @pytest.mark.parametrize("public_first", [False, True])
    @pytest.mark.parametrize("public_second", [False, True])
    @pytest.mark.parametrize("part", ["train", "test"])
    async def test_a_part_of_a_dataset_cannot_have_a_budget_of_its_own(
        self, client, tmp_path, part, public_first, public_second
    ):
        whole = make_folder(tmp_path / "whole", train=make_rows(200), test=make_rows(50, 200))
        budget = {False: {}, True: {"public": True, "epsilon": None, "delta": None}}
        first = make_body(whole, name="whole", **budget[public_first])
        second = make_body(whole / f"{part}.csv", name="part", **budget[public_second])
        assert (await client.post("/datasets", json=first)).status_code == 201

        response = await client.post("/datasets", json=second)

        assert response.status_code == 409
        assert f"'{part}.csv' is in dataset 'whole'" in response.json()["detail"]
        assert (await client.get("/datasets/part")).status_code == 404
        assert (await client.get("/datasets/part/ledger")).status_code == 404

    async def test_a_whole_cannot_be_registered_after_a_part_of_it(self, client, tmp_path):
        whole = make_folder(tmp_path / "whole", train=make_rows(200), test=make_rows(50, 200))
        await client.post("/datasets", json=make_body(whole / "test.csv", name="part"))
        response = await client.post("/datasets", json=make_body(whole, name="whole"))
        assert response.status_code == 409
        assert "'test.csv' is in dataset 'part'" in response.json()["detail"]

    async def test_swapped_names_make_no_other_dataset(self, client, tmp_path):
        one, two = make_rows(200), make_rows(200, 200)
        first = make_folder(tmp_path / "first", train=one, test=two)
        swapped = make_folder(tmp_path / "swapped", train=two, test=one)
        await client.post("/datasets", json=make_body(first, name="first"))
        response = await client.post("/datasets", json=make_body(swapped, name="swapped"))
        assert response.status_code == 409
        assert "is in dataset 'first'" in response.json()["detail"]

    async def test_digits_cannot_be_registered_under_another_name(self, client):
        body = {"name": "mine", "source": "digits", "epsilon": 5.0, "delta": 1e-5}
        response = await client.post("/datasets", json=body)
        assert response.status_code == 409
        assert "'digits' is in dataset 'digits'" in response.json()["detail"]

    async def test_a_refused_registration_keeps_no_file(self, client, tmp_path):
        whole = make_folder(tmp_path / "whole", train=make_rows(200), test=make_rows(50, 200))
        await client.post("/datasets", json=make_body(whole / "test.csv", name="part"))
        await client.post("/datasets", json=make_body(whole, name="whole"))
        response = await client.post("/datasets", json=make_body(whole / "train.csv", name="rest"))
        assert response.status_code == 201

    async def test_two_equal_files_of_one_dataset_are_no_conflict(self, client, tmp_path):
        folder = make_folder(tmp_path / "twice", train=make_rows(200), test=make_rows(200))
        response = await client.post("/datasets", json=make_body(folder, name="twice"))
        assert response.status_code == 201

    async def test_a_delta_that_promises_little_of_so_many_is_warned_of_at_once(
        self, client, table
    ):
        told = (await client.post("/datasets", json=make_body(table, delta=0.5))).json()

        assert told["warnings"] == [
            f"delta = 0.5 is not below 1/num_examples = {1 / told['num_train']:.2g}: releasing one record whole "
            "would satisfy it"
        ]
        assert (await client.get("/datasets/table")).json()["warnings"] == told["warnings"]

    async def test_columns_that_no_model_reads_are_told_by_name(self, client, tmp_path):
        words = ["city", "day", "c", "d", "e", "f", "g"]
        rows = "\n".join(f"{i / 200},{i % 2}" + f",w{i}" * len(words) for i in range(200))
        file = tmp_path / "words.csv"
        file.write_text(f"a,label,{','.join(words)}\n{rows}\n")

        told = (await client.post("/datasets", json=make_body(file))).json()

        [warning] = told["warnings"]
        assert warning.startswith(
            "no model reads 7 columns ('city', 'day', 'c', 'd', 'e' and 2 others): what holds no numbers is no feature. To learn "
            "from text, say which choices it has (--features), from lists give each number a column, and register that"
        )
        assert (await client.get("/datasets/table")).json() == told
        page = (await client.get("/ui/datasets/table")).text
        assert "no model reads 7 columns (&#39;city&#39;" in page

    async def test_arrays_that_nothing_reads_are_told_by_name(self, client, tmp_path):
        x, y = np.random.default_rng(0).normal(size=(200, 3)), np.arange(200) % 2
        np.savez(tmp_path / "a.npz", x_train=x, y_train=y, X_test=x)

        told = (await client.post("/datasets", json=make_body(tmp_path / "a.npz"))).json()

        [warning] = told["warnings"]
        assert warning.startswith("nothing reads 1 array ('X_test'): records are in x and y")

    async def test_folders_that_nothing_reads_are_told_to_whoever_registers_them(
        self, client, tmp_path
    ):
        pixels = np.random.default_rng(0).integers(0, 256, (240, 8, 8), np.uint8)
        for at, image in enumerate(pixels):
            folder = tmp_path / "images" / ("a/indoor" if at % 6 == 5 else "ab"[at % 2])
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(folder / f"{at}.png")

        told = (await client.post("/datasets", json=make_body(tmp_path / "images"))).json()

        [warning] = told["warnings"]
        assert warning.startswith(
            "nothing reads the images of 1 folder within class folders: move them"
        )
        assert not (await client.get("/datasets/table")).json().get("warnings")

    async def test_what_records_warn_of_is_told_to_whoever_registers_them_alone(
        self, client, tmp_path
    ):
        rows = "\n".join(f"{i / 200},{-i},{20_000 + i},{1 + i % 2 * 2}" for i in range(200))
        file = tmp_path / "raw.csv"
        file.write_text(f"rate,height,income,label\n{rows}\n")

        dry = (await client.post("/datasets?dry_run=true", json=make_body(file))).json()
        made = (await client.post("/datasets", json=make_body(file))).json()

        far, unseen = made["warnings"]
        assert far.startswith("2 features ('height', 'income') with numbers beyond ±10: a table is")
        assert unseen.startswith("no training record has the label 0, 2: ")
        assert "so there are 4. If fewer are meant" in unseen
        assert dry["warnings"] == made["warnings"]
        assert "warnings" not in (await client.get("/datasets/table")).json()

    async def test_only_columns_are_said_to_be_scaled_by_a_stated_range(self, client, tmp_path):
        x, y = np.arange(200.0).reshape(100, 2), np.arange(100) % 2
        np.savez(tmp_path / "raw.npz", x=x, y=y)

        body = make_body(tmp_path / "raw.npz")
        [far] = (await client.post("/datasets?dry_run=true", json=body)).json()["warnings"]

        assert far.startswith("2 features ('0', '1') with numbers beyond ±10: a table is")
        assert far.endswith("drown the others. Divide by public constants, and register that")

    async def test_records_of_train_in_other_splits_are_warned_of_where_they_are_many(
        self, client, tmp_path
    ):
        parts = {"train": make_rows(300), "validation": make_rows(50, start=600)}
        few = make_folder(tmp_path / "few", **parts, test=make_rows(200, start=298))
        many = make_folder(tmp_path / "many", **parts, test=make_rows(200, start=290))

        told = (await client.post("/datasets?dry_run=true", json=make_body(few))).json()
        warned = (await client.post("/datasets?dry_run=true", json=make_body(many))).json()

        assert "warnings" not in told
        assert [each.partition(":")[0] for each in warned["warnings"]] == [
            "10 of 200 test records are in train as well, but for labels"
        ]

    async def test_records_that_train_has_more_than_once_are_warned_of_where_they_are_many(
        self, client, tmp_path
    ):
        parts = {"validation": make_rows(50, start=600), "test": make_rows(50, start=700)}
        rows, again = make_rows(300), make_rows(5).partition("\n")[2]
        few = make_folder(tmp_path / "few", **parts, train=rows + again.partition("\n")[0] + "\n")
        many = make_folder(tmp_path / "many", **parts, train=rows + again)
        public = {"name": "table", "path": str(many), "public": True}

        told = (await client.post("/datasets?dry_run=true", json=make_body(few))).json()
        warned = (await client.post("/datasets?dry_run=true", json=make_body(many))).json()
        of_public = (await client.post("/datasets?dry_run=true", json=public)).json()

        assert "warnings" not in told
        assert [each.partition(":")[0] for each in warned["warnings"]] == [
            "10 of 305 training records are there more than once, but for labels"
        ]
        assert "warnings" not in of_public

    async def test_the_least_delta_that_can_be_priced_is_accepted(self, client, table):
        response = await client.post("/datasets", json=make_body(table, delta=MIN_DELTA))
        assert response.status_code == 201

    async def test_a_name_is_given_once(self, client, table):
        await client.post("/datasets", json=make_body(table))
        response = await client.post("/datasets", json=make_body(table))
        assert response.status_code == 409

    async def test_a_dry_run_tells_what_would_be_registered_and_keeps_nothing(self, client, table):
        body = make_body(table, name="tried", delta=0.5)
        keyed = {"Idempotency-Key": "one"}
        dry = await client.post("/datasets?dry_run=true", json=body, headers=keyed)

        assert dry.status_code == 200
        assert "location" not in dry.headers
        assert "delta" in dry.json()["warnings"][0]
        assert (await client.get("/datasets/tried")).status_code == 404
        assert (await client.get("/datasets/tried/ledger")).status_code == 404
        made = await client.post("/datasets", json=body, headers=keyed)
        assert made.status_code == 201
        assert "idempotent-replayed" not in made.headers
        assert {**dry.json(), "created_at": None} == {**made.json(), "created_at": None}

    async def test_a_dry_run_is_refused_what_a_registration_would_be(self, client, table, tmp_path):
        await client.post("/datasets", json=make_body(table))
        (tmp_path / "copy.csv").write_bytes(table.read_bytes())
        copy = make_body(tmp_path / "copy.csv", name="copy")
        dry = await client.post("/datasets?dry_run=true", json=copy)
        assert dry.status_code == 409
        assert dry.json()["detail"] == (await client.post("/datasets", json=copy)).json()["detail"]
        again = await client.post("/datasets?dry_run=true", json=make_body(table))
        assert "registered already" in again.json()["detail"]

    async def test_the_audit_tells_a_dry_run_from_a_registration(self, client, table, database):
        await client.post("/datasets?dry_run=true", json=make_body(table))
        await client.post("/datasets", json=make_body(table))
        async with database.reading() as session:
            rows = (
                await session.execute(text("SELECT target, status FROM audit_event ORDER BY id"))
            ).all()
        assert [tuple(row) for row in rows] == [("table/dry run", 200), ("table", 201)]

    async def test_racing_registrations_leave_one_budget(self, client, table):
        responses = await asyncio.gather(
            *(client.post("/datasets", json=make_body(table, name=f"d{i}")) for i in range(4))
        )
        assert sorted(r.status_code for r in responses) == [201, 409, 409, 409]

    async def test_racing_registrations_that_share_a_file_leave_one_budget(self, client, tmp_path):
        shared = make_rows(200)
        bodies = [
            make_body(
                make_folder(tmp_path / f"d{i}", train=shared, test=make_rows(50, 1000 * i)),
                name=f"d{i}",
            )
            for i in range(1, 5)
        ]
        responses = await asyncio.gather(*(client.post("/datasets", json=b) for b in bodies))
        assert sorted(r.status_code for r in responses) == [201, 409, 409, 409]
        winner = next(r.json()["name"] for r in responses if r.status_code == 201)
        refused = [r.json()["detail"] for r in responses if r.status_code == 409]
        assert all(f"'train.csv' is in dataset {winner!r}" in detail for detail in refused)


class TestStore:
    async def test_two_open_transactions_are_decided_by_the_first_that_commits(self, database):
        async with database.session() as session:
            assert await repository.store(session, make_row("first"), ["a" * 64, "c" * 64])
            late = asyncio.create_task(self.second(database))
            await self.waits_for_a_lock(database)
        assert await late == "first"

    async def test_an_error_that_is_no_conflict_is_not_taken_for_one(self, database):
        row = make_row("first")
        row.source = None
        async with database.session() as session:
            with pytest.raises(IntegrityError, match="source"):
                await repository.store(session, row, ["a" * 64])

    async def second(self, database):
        async with database.session() as session:
            stored = await repository.store(session, make_row("second"), ["b" * 64, "c" * 64])
            held = await repository.holder(session, ["b" * 64, "c" * 64])
        assert not stored
        return held.dataset

    async def waits_for_a_lock(self, database):
        waiting = text(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        for _ in range(200):
            async with database.session() as session:
                if await session.scalar(waiting):
                    return
            await asyncio.sleep(0.05)
        pytest.fail("the second registration never waited for the first")


class TestEnsureDigits:
    async def test_it_can_be_repeated(self, settings, database):
        async with open_client(settings, database) as client:
            assert (await client.get("/datasets")).json()["items"] == []
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


class TestAddresses:
    @pytest.fixture
    def served(self, tmp_path, client):
        image_shards(tmp_path / "www" / "images")
        with serving(tmp_path / "www") as server:
            yield server

    async def test_one_that_is_not_allowed_causes_no_traffic(self, client, served):
        body = make_body(f"{served.url}/images")
        response = await client.post("/datasets", json=body)

        assert response.status_code == 422
        assert response.json()["errors"][0]["path"] == "path"
        assert "TAN_ALLOWED_DATA_URLS" in response.text
        assert served.asked == []

    async def test_one_that_is_allowed_is_fetched_and_registered_by_its_content(
        self, served, settings, database, tmp_path
    ):
        allowing = settings.model_copy(update={"allowed_data_urls": (served.url,)})
        body = make_body(f"{served.url}/images", name="remote")
        async with open_client(allowing, database) as client:
            made = await client.post("/datasets", json=body)
            assert made.status_code == 201, made.text
            assert made.json()["path"] == f"{served.url}/images"
            assert made.json()["num_train"] == 44

            given = {"accounting": "no_search", "trials": 0, "space": {}}
            spec = make_spec(dataset="remote", search=given, train={"batch_size": 8})
            submitted = await client.post("/studies", json=spec)
            assert submitted.status_code == 201, submitted.text

            again = make_body(tmp_path / "www" / "images", name="the-same-here")
            refused = await client.post("/datasets", json=again)
        assert refused.status_code == 409
        assert "is registered already" in refused.text

    async def test_what_is_not_registered_is_not_kept(self, served, settings, database, tmp_path):
        """A copy of private data, which nobody would ever look for or delete."""
        kept = tmp_path / "kept"
        allowing = settings.model_copy(
            update={"allowed_data_urls": (served.url,), "node_cache_dir": kept}
        )
        here = make_body(tmp_path / "www" / "images", name="here")
        fewer = f"{served.url}/images/train-00000-of-00003.parquet"
        async with open_client(allowing, database) as client:
            tried = make_body(f"{served.url}/images", name="remote")
            dry = await client.post("/datasets?dry_run=true", json=tried)
            assert dry.status_code == 200, dry.text
            assert not [each for each in kept.iterdir() if each.is_dir()]

            assert (await client.post("/datasets", json=here)).status_code == 201
            refused = await client.post("/datasets", json=make_body(fewer, name="fewer"))
            assert refused.status_code == 409
        assert not [each for each in kept.iterdir() if each.is_dir()]


@pytest.mark.parametrize("path", ["/datasets", "/ui/plan"])
async def test_however_many_budgets_there_are_they_are_asked_for_at_once(
    client, database, database_urls, path
) -> None:
    asked = []
    for names in ([], [f"copy-{number}" for number in range(12)]):
        copy_digits(database_urls, names)
        await client.get(path)  # what is asked once, at first, is not counted
        with RoundTrips.counted(database) as trips:
            answer = await client.get(path)
        assert answer.status_code == 200
        assert all(name in answer.text for name in names)
        asked.append(trips.number)
    assert asked[1] <= asked[0]


class TestStatedFeatures:
    """Columns that are read as their owner says, and nothing off the records."""

    STATED = ("a", {"column": "b", "choices": ["0", "1", "7"]})

    async def test_they_are_kept_as_they_were_stated_and_told_to_workers(self, client, table):
        features = [{"column": "a", "low": 0.0, "high": 1.0}, self.STATED[1]]

        made = (await client.post("/datasets", json=make_body(table, features=features))).json()

        assert made["features"] == features
        assert made["shape"] == [4]
        shown = (await client.get("/datasets/table")).json()
        assert shown["features"] == features

    async def test_a_choice_that_nobody_has_is_warned_of_and_not_refused(self, client, table):
        body = make_body(table, features=list(self.STATED))

        made = (await client.post("/datasets", params={"dry_run": "true"}, json=body)).json()

        (warning,) = [each for each in made["warnings"] if "choice" in each]
        assert "b=7" in warning
        assert "b=1" not in warning
