"""Scales: ticks that hold every value, and where a value lies among them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.dashboard.charts.scale import (
    SIZE,
    Frame,
    Scale,
    accuracy_scale,
    accuracy_ticks,
    doublings_scale,
    number_scale,
    number_ticks,
)

shares = st.floats(0.0, 1.0)
positive = st.floats(1e-3, 1e6)


class TestScale:
    def test_a_value_lies_between_the_first_tick_and_the_last(self) -> None:
        scale = Scale((2.0, 3.0, 4.0), ("2", "3", "4"))

        assert [scale.right(value) for value in (2, 2.5, 4)] == [0, 250, SIZE]
        assert [scale.down(value) for value in (2, 2.5, 4)] == [SIZE, 750, 0]

    def test_what_is_beyond_the_ticks_lies_at_the_edge(self) -> None:
        scale = Scale((2.0, 3.0), ("2", "3"))

        assert (scale.right(-9), scale.right(9)) == (0, SIZE)

    def test_a_frame_has_a_line_at_each_tick_and_its_labels_from_the_top(self) -> None:
        frame = Frame.of(number_scale([0.0, 1.0]), Scale((0.0, 1.0, 2.0), ("low", "mid", "high")))

        assert frame.grid == "M0 1000h1000M0 500h1000M0 0h1000"
        assert frame.y_labels == ("high", "mid", "low")


class TestDoublings:
    @given(low=st.floats(1, 1e6), factor=st.floats(1, 1e5))
    def test_the_ticks_are_powers_of_two_that_hold_both_ends(
        self, low: float, factor: float
    ) -> None:
        scale = doublings_scale(low, low * factor)

        assert 2.0 ** scale.ticks[0] <= low * (1 + 1e-9)
        assert 2.0 ** scale.ticks[-1] >= low * factor * (1 - 1e-9)
        assert len({b - a for a, b in pairwise(scale.ticks)}) == 1
        assert 2 <= len(scale.ticks) <= 8
        assert all(tick == int(tick) for tick in scale.ticks)


class TestNumbers:
    @given(one=positive, other=positive)
    def test_the_ticks_hold_both_ends_and_no_two_share_a_label(
        self, one: float, other: float
    ) -> None:
        scale = number_scale([one, other])

        assert scale.ticks[0] <= min(one, other) * (1 + 1e-6)
        assert scale.ticks[-1] >= max(one, other) * (1 - 1e-6)
        assert len(set(scale.labels)) == len(scale.labels) >= 2


class TestAccuracies:
    @given(one=shares, other=shares)
    def test_no_two_ticks_share_a_label(self, one: float, other: float) -> None:
        labels = accuracy_scale([one, other]).labels

        assert len(set(labels)) == len(labels)


class TestAccuracyTicks:
    @given(one=shares, other=shares)
    def test_the_ticks_hold_every_value_and_are_evenly_spaced(
        self, one: float, other: float
    ) -> None:
        low, high = sorted((one, other))

        ticks = accuracy_ticks(low, high)

        assert ticks[0] <= low + 1e-9
        assert ticks[-1] >= high - 1e-9
        gaps = [b - a for a, b in pairwise(ticks)]
        assert gaps
        assert min(gaps) == pytest.approx(max(gaps))
        assert len(ticks) <= 8

    def test_equal_values_still_make_an_axis(self) -> None:
        assert len(accuracy_ticks(0.5, 0.5)) >= 2


class TestNumberTicks:
    @given(highest=st.integers(0, 10**6))
    def test_the_ticks_are_whole_evenly_spaced_and_hold_the_highest(self, highest: int) -> None:
        ticks = number_ticks(highest)

        assert ticks[0] == 0
        assert ticks[-1] >= highest
        assert len({b - a for a, b in pairwise(ticks)}) == 1
        assert len(ticks) <= 11
