"""What is accepted, how often that errs, and what is said to be caught."""

import json

import numpy as np
import pytest
from scipy import stats

from worker.selftest.finding import FALSE_ALARM, Finding, broken, by_chance, for_certain


def found_of(value: float, **changes: object) -> Finding:
    words = {"check": "c", "claim": "", "statistic": "", "fault": ""}
    laws = {"law": stats.norm(), "law_of_fault": stats.norm(10)}
    return by_chance(**words, value=value, **laws | changes)  # type: ignore[arg-type]


class TestByChance:
    @pytest.mark.parametrize(
        "law", [stats.norm(), stats.binom(1000, 0.16)], ids=["normal", "count"]
    )
    @pytest.mark.parametrize("repeats", [1, 325])
    def test_a_correct_product_fails_as_often_as_is_said_at_most(self, law, repeats: int) -> None:
        found = found_of(float(law.mean()), law=law, repeats=repeats)

        below = law.cdf(np.nextafter(found.low, -np.inf))

        assert (
            0.2 * FALSE_ALARM < (below + law.sf(found.high)) * repeats <= FALSE_ALARM * (1 + 1e-9)
        )

    @pytest.mark.parametrize("value", [-5.0, 5.0])
    def test_values_far_off_on_either_side_fail_and_their_p_value_says_so(
        self, value: float
    ) -> None:
        found = found_of(value)

        assert not found.is_passed
        assert found.p_value == pytest.approx(2 * stats.norm.sf(5))
        assert found.p_value < FALSE_ALARM

    def test_the_power_is_how_often_the_fault_is_not_accepted(self) -> None:
        found = found_of(0.0, law_of_fault=stats.norm(5))

        values = stats.norm(5).rvs(20_000, random_state=0)

        assert found.power == pytest.approx(np.mean(values > found.high), abs=0.01)

    def test_no_number_is_no_pass(self) -> None:
        assert not found_of(float("nan")).is_passed


class TestFinding:
    def test_limits_are_accepted_themselves(self) -> None:
        limits = {"low": 0.98, "high": 1.02, "fault": ""}

        passed = [for_certain("c", "", "", v, **limits).is_passed for v in (0.97, 0.98, 1.02, 1.03)]

        assert passed == [False, True, True, False]

    def test_a_check_that_cannot_be_made_has_failed_and_says_why(self) -> None:
        document = json.loads(json.dumps(broken("c", ValueError("no model")).to_json()))

        assert document["passed"] is False
        assert document["error"] == "ValueError: no model"
