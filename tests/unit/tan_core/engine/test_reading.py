"""What a model reads of a draw: each unit once, in pieces that fit, whatever way it is read."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tan_core.engine.augment import Augmentation
from tan_core.engine.inputs import Picked
from tan_core.engine.reading import Reader
from tan_core.engine.users import Users


def make_reader(
    num_records: int, *, users: list[int] | None = None, views: int = 1, microbatch_size: int = 4
) -> Reader:
    inputs = torch.arange(num_records * 16, dtype=torch.float32).reshape(num_records, 1, 4, 4)
    return Reader(
        inputs=inputs,
        labels=torch.arange(num_records),
        users=None if users is None else Users(torch.tensor(users)),
        augmentation=Augmentation.of(
            (1, 4, 4),
            multiplicity=views,
            crop_padding=0,
            horizontal_flip=False,
            color_jitter=0.0,
            dtype=inputs.dtype,
        ),
        microbatch_size=microbatch_size,
        device=torch.device("cpu"),
        dtype=torch.float64,
    )


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def never() -> Any:
    raise AssertionError("nothing is drawn for records that are read as they are")


OWNERS = st.lists(st.integers(1, 5), min_size=1, max_size=8).map(
    lambda counts: [user for user, count in enumerate(counts) for _ in range(count)]
)


class TestPieces:
    @given(owners=OWNERS, views=st.integers(1, 3), size=st.integers(1, 12), data=st.data())
    def test_every_unit_is_in_one_piece_that_fits(
        self, owners: list[int], views: int, size: int, data: st.DataObject
    ) -> None:
        reader = make_reader(len(owners), users=owners, views=views, microbatch_size=size)
        counts = [owners.count(user) for user in range(owners[-1] + 1)]
        share = sorted(data.draw(st.sets(st.integers(0, owners[-1]))))

        pieces = [piece.tolist() for piece in reader.pieces(torch.tensor(share, dtype=torch.int64))]

        assert sorted(unit for piece in pieces for unit in piece) == share
        largest = [max(counts[unit] for unit in piece) for piece in pieces]
        assert all(
            len(piece) == 1 or len(piece) * most * views <= size
            for piece, most in zip(pieces, largest, strict=True)
        )
        assert all(before >= after for before, after in pairwise(largest))


class TestShown:
    def test_records_as_they_are_stay_where_they_are(self) -> None:
        reader = make_reader(6)
        units = torch.tensor([1, 4])
        draw = reader.draw(units, never)

        shown, gathered = reader.shown(units, draw), reader.gathered(units, draw)

        assert isinstance(shown.inputs, Picked)
        assert torch.equal(shown.inputs.floats(torch.float64), gathered.inputs)
        assert torch.equal(shown.labels, gathered.labels)
        assert (shown.views, shown.shares) == (1, None)

    @pytest.mark.parametrize(
        ("users", "views"), [([0, 0, 1, 2, 2, 2], 1), ([0, 0, 1, 2, 2, 2], 2), (None, 2)], ids=str
    )
    def test_the_shares_of_a_unit_are_one(self, users: list[int] | None, views: int) -> None:
        reader = make_reader(6, users=users, views=views)
        units = torch.tensor([0, 2])

        shown = reader.shown(units, reader.draw(units, seeded))

        assert isinstance(shown.inputs, Tensor)
        assert shown.inputs.dtype == torch.float64
        assert len(shown.inputs) == len(units) * shown.views
        if shown.shares is not None:
            assert shown.shares.sum(1).tolist() == pytest.approx([1.0, 1.0])

    def test_a_part_of_a_draw_has_the_views_that_the_whole_has(self) -> None:
        reader = make_reader(6, users=[0, 0, 1, 2, 2, 2], views=2)
        draw = reader.draw(torch.tensor([0, 1, 2]), seeded)

        def of(units: list[int]) -> Tensor:
            return reader.gathered(torch.tensor(units), draw).inputs

        assert torch.equal(of([2]), of([0, 2])[6:])

    def test_what_fills_a_user_up_is_its_first_record_in_the_views_of_that_one(self) -> None:
        reader = replace(
            make_reader(6, users=[0, 0, 1, 2, 2, 2]),
            augmentation=Augmentation(views=3, padding=1, flip=True),
        )
        draw = reader.draw(torch.tensor([0, 1, 2]), seeded)

        shown = reader.gathered(torch.tensor([0, 1, 2]), draw)

        assert isinstance(shown.inputs, Tensor)
        of_user, alone = shown.inputs[9:18], reader.gathered(torch.tensor([1]), draw).inputs
        assert torch.equal(of_user, alone.repeat(3, 1, 1, 1))
        assert not torch.equal(alone[0], alone[1])
