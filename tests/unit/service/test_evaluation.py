"""Accuracy by class: intervals against scipy, and what a reader is told."""

import pytest
from scipy.stats import binomtest

from service.evaluation import LEVEL, evaluation_view, wilson
from tests.support.evaluations import evaluation, with_small_parts


@pytest.mark.parametrize("num", [1, 2, 10, 37, 360, 10_000])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.93, 1.0])
def test_the_interval_is_wilson_s(num: int, share: float) -> None:
    correct = round(share * num)

    low, high = wilson(correct, num)

    oracle = binomtest(correct, num).proportion_ci(LEVEL, method="wilson")
    assert (low, high) == pytest.approx((oracle.low, oracle.high), abs=1e-12)
    assert 0 <= low <= correct / num <= high <= 1


class TestView:
    def test_each_part_stands_beside_its_own_of_the_baseline(self) -> None:
        view = evaluation_view({"evaluation": evaluation(baseline=True)})

        assert view is not None
        assert view.covered_by_epsilon is False
        assert [part.name for part in view.classes] == ["0", "1", "2"]
        assert [part.private.num for part in view.classes] == [200, 150, 10]
        assert view.classes[2].private.accuracy == 0.4
        assert view.classes[2].baseline is not None
        assert view.classes[2].baseline.accuracy == 0.9
        assert (view.group_column, [part.name for part in view.groups]) == (
            "hand",
            ["left", "right"],
        )
        assert view.all.private.accuracy == pytest.approx(333 / 360)

    def test_without_a_baseline_none_is_shown_and_the_reason_is(self) -> None:
        stored = evaluation() | {"baseline_reason": "its weights diverged"}
        view = evaluation_view({"evaluation": stored})

        assert view is not None
        assert view.baseline_reason == "its weights diverged"
        assert all(part.baseline is None for part in (view.all, *view.classes, *view.groups))

    def test_small_parts_are_shown_together_also_where_they_were_stored_one_by_one(self) -> None:
        view = evaluation_view({"evaluation": with_small_parts()})

        assert view is not None
        assert [(part.name, part.private.num) for part in view.classes] == [
            ("0", 200), ("(other)", 160),
        ]  # fmt: skip
        assert [(part.name, part.private.num) for part in view.groups] == [
            ("right", 240), ("(other)", 120),
        ]  # fmt: skip
        assert "X. Y." not in view.model_dump_json()
        assert "fewer than 10 test records, or users where one guarantee is for a user" in view.note
        assert "baseline" not in view.note

    @pytest.mark.parametrize("result", [None, {}, {"evaluation": None}])
    def test_nothing_is_made_of_nothing(self, result: dict | None) -> None:
        assert evaluation_view(result) is None
