"""Data of users: no user is in two splits, and nobody's records depend on anybody else's."""

from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from tan_core import data
from tan_core.errors import DatasetError, ParameterError
from tan_core.wire import DatasetRef
from tests.support.datasets import dataset_ref
from tests.unit.tan_core.data.test_dataset import grey_images, png

Rows = list[tuple[str, int]]


def rows_of(num_users: int, seed: int = 0) -> Rows:
    """Users with 1 to 9 records each, in mixed order; the number of a record is unique."""
    generator = np.random.default_rng(seed)
    users = [f"u{u}" for u in range(num_users) for _ in range(generator.integers(1, 10))]
    generator.shuffle(users)
    return [(user, number) for number, user in enumerate(users)]


def table_of(rows: Rows) -> pa.Table:
    """``x`` is the number of the record, by which it is known again."""
    return pa.table(
        {
            "who": [user for user, _ in rows],
            "x": pa.array([number + 0.25 for _, number in rows]),
            "label": pa.array([number % 2 for _, number in rows], pa.int64()),
            "sex": [("f", "m", "d")[number % 3] for _, number in rows],
        }
    )


def write(folder: Path, rows: Rows, name: str = "all.csv") -> Path:
    folder.mkdir(exist_ok=True)
    pa_csv.write_csv(table_of(rows), folder / name)
    return folder


def ref_of(path: Path, **settings) -> DatasetRef:
    facts = data.inspect(str(path), unit="who", **settings)
    named = {key: settings[key] for key in ("group", "split_seed") if key in settings}
    return dataset_ref(facts, name="made", path=path, unit="who", **named)


def splits_of(ref: DatasetRef) -> dict[str, data.Split]:
    return {role: data.load_split(ref, role) for role in ("train", "validation", "test")}


def numbers(split: data.Split) -> list[int]:
    return split.inputs[:, 0].astype(int).tolist()


class TestSplits:
    def test_every_user_is_in_one_split_with_all_of_its_records(self, tmp_path: Path) -> None:
        rows = rows_of(60)
        ref = ref_of(write(tmp_path / "a", rows), records_per_unit=9)
        user = {number: name for name, number in rows}

        found = {role: numbers(split) for role, split in splits_of(ref).items()}

        users = {role: {user[number] for number in own} for role, own in found.items()}
        assert sum(len(own) for own in users.values()) == 60
        assert sorted(chain(*found.values())) == list(range(len(rows)))
        assert ref.num_train == len(users["train"]) < ref.num_train_records == len(found["train"])
        facts = data.inspect(tmp_path / "a", unit="who", records_per_unit=9)
        assert facts.num_validation_users == len(users["validation"]) > 1

    def test_a_user_more_changes_nothing_for_anybody_else(self, tmp_path: Path) -> None:
        rows = rows_of(60)
        fewer = [row for row in rows if row[0] != "u7"]
        whole = splits_of(ref_of(write(tmp_path / "a", rows), records_per_unit=3))
        without = splits_of(ref_of(write(tmp_path / "b", fewer), records_per_unit=3))
        of_the_user = {number for name, number in rows if name == "u7"}

        for role, split in whole.items():
            left = [number for number in numbers(split) if number not in of_the_user]
            assert numbers(without[role]) == left

    def test_the_bound_keeps_that_many_of_each_user_and_not_only_the_first(
        self, tmp_path: Path
    ) -> None:
        rows = rows_of(200)
        folder = write(tmp_path / "a", rows)
        user = {number: name for name, number in rows}
        whole = numbers(splits_of(ref_of(folder, records_per_unit=9))["train"])

        train = splits_of(ref_of(folder, records_per_unit=2))["train"]

        counts = Counter(user[number] for number in whole)
        kept = Counter(user[number] for number in numbers(train))
        assert kept == {name: min(count, 2) for name, count in counts.items()}
        places = {number: place for _, own in by_user(rows).items() for place, number in enumerate(own)}  # fmt: skip
        assert max(places[number] for number in numbers(train)) > 1
        assert numbers(train) == sorted(numbers(train))

    def test_unless_it_is_said_sixteen_of_each_user_are_trained_on(self, tmp_path: Path) -> None:
        folder = write(tmp_path / "a", [(f"u{n % 30}", n) for n in range(30 * 20)])

        facts = data.inspect(str(folder), unit="who")

        assert facts.records_per_unit == 16
        assert facts.num_train_records == 16 * facts.num_train
        assert facts.num_train_records + facts.num_validation + facts.num_test < 30 * 20

    def test_users_are_numbered_from_zero_and_hold_their_own_records(self, tmp_path: Path) -> None:
        rows = rows_of(30)
        splits = splits_of(ref_of(write(tmp_path / "a", rows)))
        user = {number: name for name, number in rows}

        for split in splits.values():
            assert split.users is not None
            pairs = {(user[n], int(u)) for n, u in zip(numbers(split), split.users, strict=True)}

            assert len(pairs) == split.num_units == len({name for name, _ in pairs})
            assert {number for _, number in pairs} == set(range(split.num_units))

    def test_another_seed_cuts_other_users(self, tmp_path: Path) -> None:
        folder = write(tmp_path / "a", rows_of(60))

        first, again, other = (
            numbers(splits_of(ref_of(folder, split_seed=seed))["test"]) for seed in (0, 0, 1)
        )

        assert first == again != other

    def test_stored_parts_are_taken_whole_where_they_share_no_user(self, tmp_path: Path) -> None:
        rows = rows_of(40)
        train = [row for row in rows if int(row[0][1:]) >= 10]
        write(tmp_path / "a", train, "train.csv")
        folder = write(tmp_path / "a", [row for row in rows if row not in train], "test.csv")

        assert len(splits_of(ref_of(folder))["test"]) == len(rows) - len(train)

    def test_a_user_in_two_stored_parts_is_refused(self, tmp_path: Path) -> None:
        write(tmp_path / "a", rows_of(40), "train.csv")
        folder = write(tmp_path / "a", [("u3", 900)], "test.csv")

        with pytest.raises(
            DatasetError, match=r"record .* of a user with records in .*too"
        ) as error:
            data.inspect(str(folder), unit="who")

        assert error.value.field == "unit"

    @pytest.mark.parametrize("others", [["007"], ["7"], ["7", "guest"], ["007", "guest"]])
    def test_a_user_is_known_again_by_its_number(self, tmp_path: Path, others: list[str]) -> None:
        """CSV tells no types: 007 is 7 in every part, also beside a name."""
        folder = tmp_path / "a"
        folder.mkdir()
        rows = [f"{number:03},{number / 40},{number % 2}" for number in range(40)]
        (folder / "train.csv").write_text("\n".join(["who,x,label", *rows]))
        rows = [f"{who},0.5,{place}" for place, who in enumerate(others)]
        (folder / "test.csv").write_text("\n".join(["who,x,label", *rows]))

        with pytest.raises(DatasetError, match="of a user with records in") as error:
            data.inspect(str(folder), unit="who")

        assert error.value.field == "unit"

    def test_a_user_more_moves_nobody_whatever_it_is_called(self, tmp_path: Path) -> None:
        """One that is a word makes no text of the others' numbers, whose zeros would count then."""
        rows = [f"{number % 40:03},{number}.25,{number % 2}" for number in range(80)]

        def read(folder: str, *more: str) -> dict[str, set[int]]:
            (tmp_path / folder).mkdir()
            file = tmp_path / folder / "all.csv"
            file.write_text("\n".join(["who,x,label", *rows, *more]))
            return {role: {*numbers(split)} for role, split in splits_of(ref_of(file)).items()}

        without, found = read("a"), read("b", "guest,900.25,1")

        assert {role: own - {900} for role, own in found.items()} == without

    @pytest.mark.parametrize("cell", ["", "NA", "null"])
    def test_records_of_nobody_are_not_those_of_one_user(self, tmp_path: Path, cell: str) -> None:
        (tmp_path / "all.csv").write_text(f"who,x,label\n7,0.5,0\n{cell},0.5,1\nguest,0.5,1\n")

        with pytest.raises(DatasetError, match="'who' of record 1 is empty") as error:
            data.inspect(tmp_path / "all.csv", unit="who")

        assert error.value.field == "unit"

    def test_too_few_users_are_counted_as_users(self, tmp_path: Path) -> None:
        folder = write(tmp_path / "a", [("one", number) for number in range(50)])

        with pytest.raises(DatasetError, match="1 train users are too few"):
            data.inspect(str(folder), unit="who")


def by_user(rows: Rows) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for user, number in rows:
        found.setdefault(user, []).append(number)
    return found


class TestSources:
    @pytest.mark.parametrize("kind", ["csv", "parquet", "integers", "categories", "images"])
    def test_tables_and_images_name_their_users_in_any_type(
        self, tmp_path: Path, kind: str
    ) -> None:
        rows = rows_of(40)
        table = table_of(rows)
        whole = splits_of(ref_of(write(tmp_path / "csv", rows)))["train"]
        ids = pa.array([int(name[1:]) for name, _ in rows])
        if kind == "integers":
            table = table.set_column(0, "who", ids)
        elif kind == "categories":
            table = table.set_column(0, "who", table.column("who").dictionary_encode())
        elif kind == "images":
            pixels = grey_images(len(rows))
            images = [{"bytes": png(each), "path": ""} for each in pixels]
            table = table.drop_columns(["x"]).append_column("image", pa.array(images))
        folder = tmp_path / kind
        folder.mkdir(exist_ok=True)
        if kind != "csv":
            pq.write_table(table, folder / "all.parquet")

        found = splits_of(ref_of(folder))["train"]

        assert found.users is not None
        if kind == "images":
            assert found.inputs.shape[1:] == (1, 5, 5)
        elif kind != "integers":  # there the identities are others: "7", no longer "u7"
            assert found.inputs.shape[1:] == (1,)
            assert numbers(found) == numbers(whole)
        if kind != "integers":
            assert np.array_equal(found.users, whole.users)

    def test_features_that_are_kept_keep_their_users(self, tmp_path: Path) -> None:
        ref = ref_of(write(tmp_path / "a", rows_of(40)), group="sex")

        def load(role: str) -> data.Split:
            return data.load_features(
                ref,
                role,
                fingerprint="twice",
                extract=lambda x, _: [2 * x],
                cache_dir=tmp_path / "kept",
            )

        made, kept = load("train"), load("train")

        assert np.array_equal(made.users, data.load_split(ref, "train").users)
        assert np.array_equal(kept.users, made.users)
        assert load("test").groups is not None
        assert load("train").groups is None

    def test_as_many_users_with_fewer_records_are_not_those_that_were_registered(
        self, tmp_path: Path
    ) -> None:
        rows = rows_of(60)
        ref = ref_of(write(tmp_path / "a", rows), records_per_unit=9)
        first = numbers(data.load_split(ref, "train"))[0]
        of_first = [user for user, number in rows if number == first]
        assert len([user for user, _ in rows if user == of_first[0]]) > 1
        table = table_of(rows)
        fewer = table.take([row for row in range(len(rows)) if row != first])
        pa_csv.write_csv(fewer, tmp_path / "a" / "all.csv")

        with pytest.raises(DatasetError, match="records, registered were"):
            data.load_split(ref, "train")

    def test_what_is_kept_is_not_joined_with_users_in_another_order(self, tmp_path: Path) -> None:
        """A person over more units than one would cost more than is said."""
        rows = rows_of(60)
        for name, part in (("train-2", rows[::2]), ("train-10", rows[1::2])):
            write(tmp_path / "a", part, f"{name}.csv")
        ref = ref_of(tmp_path / "a")
        data.load_split(ref, "train", cache_dir=tmp_path / "kept")

        (tmp_path / "a/train-2.csv").rename(tmp_path / "a/train-02.csv")

        with pytest.raises(DatasetError, match="other labels than its files") as error:
            data.load_split(ref, "train", cache_dir=tmp_path / "kept")
        assert error.value.field == "cache_dir"
        with pytest.raises(DatasetError, match="not the one that was registered"):
            data.verify(ref)

    def test_one_column_more_makes_other_splits_and_other_kept_files(self, tmp_path: Path) -> None:
        folder, kept = write(tmp_path / "a", rows_of(40)), tmp_path / "kept"
        records = dataset_ref(data.inspect(str(folder)), name="made", path=folder)
        whole = data.load_split(records, "train", cache_dir=kept)

        train = data.load_split(ref_of(folder), "train", cache_dir=kept)

        assert numbers(train) != numbers(whole)

    def test_neither_who_nor_which_group_is_a_feature_by_itself(self, tmp_path: Path) -> None:
        table = table_of(rows_of(40))
        ids = pa.array(range(len(table)), pa.int64())
        for name in ("who", "sex"):
            table = table.set_column(table.column_names.index(name), name, ids)
        table = table.set_column(3, "sex", pa.array([i % 2 for i in range(len(table))]))
        pq.write_table(table, tmp_path / "a.parquet")
        file = str(tmp_path / "a.parquet")

        assert data.inspect(file).shape == (3,)
        assert data.inspect(file, unit="who").shape == (2,)
        assert data.inspect(file, unit="who", group="sex").shape == (1,)
        assert data.inspect(file, group="sex", features=["x", "sex"]).shape == (2,)

    @pytest.mark.parametrize(
        ("settings", "field", "told"),
        [
            ({"unit": "whom"}, "unit", r"'whom' is no column beside the label.*'who', 'x', 'sex'"),
            ({"unit": "label"}, "unit", "'label' is no column beside the label"),
            ({"unit": "x"}, "unit", "'x' is double; accepted: integers, truth values and text"),
            ({"group": "age"}, "group", "'age' is no column beside the label"),
            ({"unit": "who", "features": ["who"]}, "features", "'who' is not a feature column"),
            ({"records_per_unit": 2}, "records_per_unit", "a unit of one record has 1, got 2"),
        ],
    )
    def test_what_cannot_be_is_refused_by_field(
        self, tmp_path: Path, settings: dict, field: str, told: str
    ) -> None:
        folder = write(tmp_path / "a", [(f"u{n}", n) for n in range(60)])

        with pytest.raises(DatasetError, match=told) as error:
            data.inspect(str(folder), **settings)

        assert error.value.field == field

    def test_a_unit_of_one_record_may_be_said_to_have_one(self) -> None:
        assert data.inspect(None, source="digits", records_per_unit=1).records_per_unit == 1

    def test_a_bound_out_of_its_domain_is_refused(self, tmp_path: Path) -> None:
        folder = write(tmp_path / "a", rows_of(40))

        for most in (0, 1025):
            with pytest.raises(ParameterError, match="records_per_unit"):
                data.inspect(str(folder), unit="who", records_per_unit=most)

    def test_a_record_of_nobody_is_refused(self, tmp_path: Path) -> None:
        pq.write_table(
            pa.table({"who": ["a", None] * 20, "x": [1.0] * 40, "label": [0, 1] * 20}),
            tmp_path / "a.parquet",
        )

        with pytest.raises(DatasetError, match="column 'who' of record 1 is empty"):
            data.inspect(str(tmp_path / "a.parquet"), unit="who")

    def test_an_empty_cell_of_text_is_nobody_too(self, tmp_path: Path) -> None:
        folder = write(tmp_path / "a", [("u1", 0), ("", 1), ("", 2), *rows_of(40)])

        with pytest.raises(DatasetError, match="column 'who' of record 1 is empty") as error:
            data.inspect(str(folder), unit="who")
        assert error.value.field == "unit"

        assert data.inspect(str(folder), group="who").num_classes == 2

    def test_a_source_without_columns_has_no_users(self) -> None:
        with pytest.raises(DatasetError, match="source digits has no columns") as error:
            data.inspect(None, source="digits", unit="who")

        assert error.value.field == "unit"

    def test_more_than_a_hundred_groups_are_none(self, tmp_path: Path) -> None:
        folder = write(tmp_path / "a", [(f"u{n}", n) for n in range(150)])

        with pytest.raises(DatasetError, match="train has 150 groups; accepted: at most 100"):
            data.inspect(str(folder), group="who")
        folder = write(tmp_path / "b", [(f"u{n % 100}", n) for n in range(150)])
        assert data.inspect(str(folder), group="who").num_train > 0


class TestGroups:
    def test_the_test_split_says_which_group_each_record_is_of(self, tmp_path: Path) -> None:
        ref = ref_of(write(tmp_path / "a", rows_of(60)), group="sex")

        test = splits_of(ref)["test"]

        assert test.groups is not None
        named = [test.groups.names[group] for group in test.groups.of]
        assert named == [("f", "m", "d")[number % 3] for number in numbers(test)]
