from typing import Any

import pytest

from tan_core.accounting import price
from tan_core.planner import (
    Plan,
    Target,
    candidate,
    plan_study,
    reservations,
    reserved_mechanism,
)
from tan_core.planner import privacy as privacy_section
from tan_core.spec import StudySpec

N = 1437
BUDGET_DELTA = 1e-3


@pytest.fixture(autouse=True)
def _two_voices(monkeypatch: pytest.MonkeyPatch) -> None:
    """PRV takes a process per answer, and nothing here asks for it."""
    monkeypatch.setattr(privacy_section, "PRV_MAX_EPSILON", 0.0)


def make_study(space: dict[str, Any], *, accountant: str = "pld") -> tuple[StudySpec, Plan]:
    spec = StudySpec.model_validate(
        {
            "name": "study",
            "privacy": {"epsilon": 3.0, "delta": 1e-6, "accountant": accountant},
            "dataset": "data",
            "model": {"name": "linear"},
            "search": {
                "accounting": "declared_unaccounted",
                "space": {"learning_rate": 1.0, **space},
            },
            "train": {"batch_size": 256},
        }
    )
    return spec, plan_study(spec, num_examples=N)


class TestReservations:
    def test_without_searched_steps_only_the_plan_is_held(self) -> None:
        spec, plan = make_study({"clip_norm": {"choices": [0.5, 1.0]}})

        assert reservations(spec, plan) == [reserved_mechanism(plan.private_run().mechanism)]

    @pytest.mark.parametrize("key", ["steps", "train.steps"])
    def test_every_choice_is_there_and_the_plan_comes_first(self, key: str) -> None:
        spec, plan = make_study({key: {"choices": [50, 400, 100]}})
        held = reservations(spec, plan)

        assert held[0] == reserved_mechanism(plan.private_run().mechanism)
        assert sorted(mechanism.steps for mechanism in held) == [52, 104, 416]

    @pytest.mark.slow
    def test_a_range_is_held_at_both_ends_and_between(self) -> None:
        spec, plan = make_study({"steps": {"low": 20, "high": 2000}})
        steps = [mechanism.steps for mechanism in reservations(spec, plan)]

        assert {22, 2080} <= set(steps)
        assert len(steps) == 5

    @pytest.mark.slow
    def test_two_neighbouring_ends_are_two(self) -> None:
        assert len(reservations(*make_study({"steps": {"low": 3, "high": 4}}))) == 2

    @pytest.mark.slow
    def test_of_many_choices_the_ends_and_some_between_are_held(self) -> None:
        spec, plan = make_study({"steps": {"choices": list(range(100, 200))}})
        steps = [mechanism.steps for mechanism in reservations(spec, plan)]

        assert (min(steps), max(steps)) == (104, 207)
        assert len(steps) == 16

    @pytest.mark.slow
    @pytest.mark.parametrize("accountant", ["pld", "rdp"])
    def test_no_candidate_costs_the_budget_more_than_the_costliest_held(
        self, accountant: str
    ) -> None:
        """Within the tolerance of calibration, 0.1 %, for values between the ends of a range."""
        spec, plan = make_study({"steps": {"low": 20, "high": 2000}}, accountant=accountant)
        highest = max(price([m], delta=BUDGET_DELTA).epsilon for m in reservations(spec, plan))

        for steps in (20, 31, 150, 777, 1990, 2000):
            chosen = candidate(
                trainer=spec.train.trainer(),
                model=spec.model,
                reference=plan.private_run(),
                params={"steps": steps},
                target=Target.of(spec),
            ).private_run.mechanism
            cost = price([reserved_mechanism(chosen)], delta=BUDGET_DELTA).epsilon
            assert cost <= highest * 1.001
