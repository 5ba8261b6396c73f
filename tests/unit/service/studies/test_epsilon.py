from typing import Any

import pytest

from service.db.tables import Study
from service.studies import epsilon


def make_study(
    *, searched: str = "learning_rate", accounting: str = "declared_unaccounted", **fields: Any
) -> Study:
    """100 steps that cost 2.9, 2.99 with the spare ones; the target is 3."""
    return Study(
        search_accounting=accounting,
        spec={"search": {"space": {searched: {"choices": [50, 100]}}}},
        plan={
            "reference": {"steps": 100},
            "privacy": {"epsilon": 2.9, "epsilon_reserved": 2.99, "target_epsilon": 3.0},
        },
        **fields,
    )


class TestShown:
    def test_a_statement_has_the_last_word(self) -> None:
        study = make_study(statement={"privacy": {"epsilon": 2.95}}, charged_epsilon=1.0)

        assert epsilon.shown(study, charged_steps=102) == 2.95

    @pytest.mark.parametrize("charged", [0.0, 1.5, 2.99])
    def test_a_study_that_ended_without_one_shows_what_was_charged(self, charged: float) -> None:
        assert epsilon.shown(make_study(charged_epsilon=charged), charged_steps=102) == charged

    @pytest.mark.parametrize(("steps", "shown"), [(None, 2.9), (0, 2.9), (100, 2.9), (101, 2.99)])
    def test_more_steps_than_planned_show_the_whole_reservation(
        self, steps: int | None, shown: float
    ) -> None:
        assert epsilon.shown(make_study(), charged_steps=steps) == shown

    @pytest.mark.parametrize("key", ["steps", "train.steps"])
    @pytest.mark.parametrize("steps", [None, 0, 51, 104])
    def test_while_steps_are_searched_the_target_is_shown(
        self, key: str, steps: int | None
    ) -> None:
        assert epsilon.shown(make_study(searched=key), charged_steps=steps) == 3.0

    @pytest.mark.parametrize("steps", [None, 0, 100])
    def test_of_a_search_that_is_charged_all_that_is_held_is_shown(self, steps: int | None) -> None:
        assert epsilon.shown(make_study(accounting="accounted"), charged_steps=steps) == 2.99


class TestReserved:
    def test_it_is_the_plan_with_its_spare_steps(self) -> None:
        assert epsilon.reserved(make_study()) == 2.99

    def test_of_searched_steps_it_is_the_target(self) -> None:
        assert epsilon.reserved(make_study(searched="steps")) == 3.0
