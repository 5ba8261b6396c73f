"""The cut of a stored part: every record in one split, and the same one for ever."""

from collections import Counter
from itertools import chain

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tan_core.data.part import ArrayInputs, Members, Part, Parts
from tan_core.data.splits import split_indices

NUM_USERS = 200
"""So many that every split has some, whatever the seed."""


def part(num_records: int, owners: list[int] | None = None) -> Part:
    users = None
    if owners is not None:
        users = Members(tuple(f"u{n}" for n in range(max(owners) + 1)), np.array(owners))
    return Part(ArrayInputs(np.zeros((num_records, 1))), np.zeros(num_records, np.int64), users)


def cut(parts: Parts, seed: int = 0, *, most: int = 1) -> dict[str, list[int]]:
    splits = split_indices(parts, split_seed=seed, records_per_unit=most)
    return {role: indices.tolist() for role, (_, indices) in splits.items()}


class TestPinned:
    """A dataset is registered with the counts of its splits: cut otherwise, test records would be trained on."""

    def test_of_records(self) -> None:
        found = cut({"train": part(30)}, seed=7)

        assert found["test"] == [4, 8, 16, 23, 25, 29]
        assert found["validation"] == [14, 26]

    def test_of_users(self) -> None:
        owners = [n % 20 for n in range(80)]

        found = cut({"train": part(80, owners)}, seed=7, most=2)

        assert {owners[row] for row in found["test"]} == {0, 3, 16}
        assert {owners[row] for row in found["validation"]} == {11, 18, 19}
        # Of users 1, 2, 4, ... two of four each.
        assert found["train"] == [
            *(1, 2, 4, 7, 10, 12, 15, 17, 22, 26, 28, 29, 33, 34),
            *(44, 45, 46, 47, 48, 49, 53, 61, 65, 70, 72, 74, 75, 77),
        ]


class TestRecords:
    @given(num_records=st.integers(12, 300), seed=st.integers(0, 2**63 - 1))
    def test_each_is_in_one_split_and_the_cuts_are_a_fifth_and_a_tenth_of_the_rest(
        self, num_records: int, seed: int
    ) -> None:
        found = cut({"train": part(num_records)}, seed)

        assert sorted(chain(*found.values())) == list(range(num_records))
        assert all(rows == sorted(rows) for rows in found.values())
        assert len(found["test"]) == num_records // 5
        assert len(found["validation"]) == (num_records - num_records // 5) // 10

    @given(num_records=st.integers(20, 300), seed=st.integers(0, 2**63 - 1))
    def test_test_is_the_same_whether_or_not_validation_is_stored(
        self, num_records: int, seed: int
    ) -> None:
        alone = cut({"train": part(num_records)}, seed)
        beside = cut({"train": part(num_records), "validation": part(5)}, seed)

        assert beside["test"] == alone["test"]
        assert beside["validation"] == list(range(5))
        assert beside["train"] == sorted(alone["train"] + alone["validation"])


class TestUsers:
    @given(
        more=st.lists(st.integers(0, NUM_USERS - 1), max_size=300),
        seed=st.integers(0, 2**63 - 1),
        most=st.integers(1, 4),
    )
    def test_each_is_in_one_split_and_only_train_is_bounded(
        self, more: list[int], seed: int, most: int
    ) -> None:
        """Whoever is scored on is scored on with all records."""
        owners = [*range(NUM_USERS), *more]
        records = Counter(owners)

        found = cut({"train": part(len(owners), owners)}, seed, most=most)

        of_each = {role: Counter(owners[row] for row in rows) for role, rows in found.items()}
        assert sorted(chain(*of_each.values())) == list(range(NUM_USERS))
        for role, counts in of_each.items():
            bound = most if role == "train" else len(owners)
            assert counts == {user: min(records[user], bound) for user in counts}
        assert all(rows == sorted(rows) for rows in found.values())
