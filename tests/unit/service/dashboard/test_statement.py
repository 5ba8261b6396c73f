"""What a guarantee means for somebody who is no statistician must be true."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.dashboard.statement import CASES, FALSE_ALARMS, meaning, told
from tan_core.mechanism import NeighboringRelation

STATEMENT = Path(__file__).parents[1] / "cli/statement.json"


@pytest.fixture
def statement() -> dict[str, Any]:
    return json.loads(STATEMENT.read_text())


class TestMeaning:
    @given(epsilon=st.floats(0, 40), delta=st.floats(1e-12, 0.1))
    def test_no_mechanism_that_keeps_the_guarantee_reveals_more(
        self, epsilon: float, delta: float
    ) -> None:
        """The worst one: with probability delta it tells, else it answers as randomised response does."""
        found = meaning(epsilon, delta, relation="add_or_remove_one", unit="record")

        honest = 1 / (1 + math.exp(-epsilon))
        right = delta + (1 - delta) * honest
        assert float(found.right) >= min(100.0, 100 * right) - 1e-9
        assert float(found.right) <= 100 * right + 0.1 + 1e-9
        if found.false_alarms is not None and found.recognised is not None:
            # A part of its "used" answers, so that no more are wrong than the test may have.
            wrong = float(found.false_alarms) / 100
            kept = min(1.0, wrong / ((1 - delta) * (1 - honest)))
            recognised = delta + kept * (1 - delta) * honest
            assert float(found.recognised) >= 100 * recognised - 1e-9

    def test_nothing_is_revealed_at_zero(self) -> None:
        found = meaning(0.0, 1e-9, relation="zero_out", unit="user")

        assert (found.false_alarms, found.recognised, found.right) == ("1", "1.1", "50.1")

    @pytest.mark.parametrize(
        ("epsilon", "false_alarms"), [(4.6, "1"), (4.7, "0.1"), (9.0, "0.01"), (9.3, None)]
    )
    def test_a_limit_that_limits_nothing_is_not_told(
        self, epsilon: float, false_alarms: str | None
    ) -> None:
        found = meaning(epsilon, 1e-9, relation="replace_one", unit="record")

        assert found.false_alarms == false_alarms
        assert (found.recognised is None) is (false_alarms is None)

    @pytest.mark.parametrize(
        ("epsilon", "right"), [(6.0, "99.8"), (7.356, "99.94"), (9.0, "99.99"), (30.0, "100.0")]
    )
    def test_what_is_less_than_all_is_not_rounded_to_all(self, epsilon: float, right: str) -> None:
        assert meaning(epsilon, 1e-9, relation="replace_one", unit="record").right == right

    def test_no_epsilon_is_too_large_to_be_told(self) -> None:
        assert meaning(1e9, 1e-5, relation="replace_one", unit="record").right == "100.0"

    def test_every_relation_has_words(self) -> None:
        assert set(CASES) == {relation.value for relation in NeighboringRelation}
        assert sorted(FALSE_ALARMS, reverse=True) == list(FALSE_ALARMS)


class TestTold:
    def test_what_is_covered_and_what_is_not(self, statement: dict[str, Any]) -> None:
        found = told(statement)

        assert found is not None
        assert [line[:20] for line in found.covered] == ["The released weights"]
        assert [line[:17] for line in found.not_covered] == ["The test accuracy"]
        (run,) = found.mechanisms
        assert run.sampling_rate == float.fromhex(statement["events"][0]["sampling_rate"])

    def test_public_data_means_nothing(self, statement: dict[str, Any]) -> None:
        found = told({**statement, "protects": False})
        assert found is not None
        assert found.meaning is None

    @pytest.mark.parametrize(
        "gone",
        ["study", "events", "privacy", "unit", "issued_at", "weights", "steps", "signature"],
    )
    def test_what_lacks_a_part_is_left_to_its_json(
        self, statement: dict[str, Any], gone: str
    ) -> None:
        del statement[gone]
        assert told(statement) is None

    @pytest.mark.parametrize(
        "change", [{"events": [{}]}, {"unit": None, "neighboring_relation": "x"}]
    )
    def test_so_is_what_has_another_form(
        self, statement: dict[str, Any], change: dict[str, Any]
    ) -> None:
        assert told({**statement, **change}) is None
