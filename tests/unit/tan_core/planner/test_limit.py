"""Rates, seconds and ``budget.gpu_hours``."""

from typing import Any

import pytest

from tan_core.errors import ParameterError
from tan_core.planner import MeasuredRate, ModelCost, Plan, build, plan_mechanism, plan_study
from tan_core.planner import privacy as privacy_section
from tan_core.spec import StudySpec

N = 60_000
FAST = MeasuredRate(examples_per_second=3600.0, source="made up")
"""One hour is 3,600 * 3,600 examples."""
EXAMPLES_PER_HOUR = 3600 * 3600


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two voices and no candidates: neither has a part in the cost."""
    monkeypatch.setattr(privacy_section, "PRV_MAX_EPSILON", 0.0)
    monkeypatch.setattr(build, "step_candidates", lambda *_: [])


def study(
    *,
    gpu_hours: float | None = None,
    rungs: Any = "auto",
    trials: int = 16,
    space: dict[str, Any] | None = None,
    **train: Any,
) -> StudySpec:
    return StudySpec.model_validate(
        {
            "name": "study",
            "privacy": {"epsilon": 3.0, "delta": 1e-5},
            "dataset": "data",
            "model": {"name": "linear"},
            "search": {
                "accounting": "public_proxy",
                "trials": trials,
                "rungs": rungs,
                "space": {"learning_rate": 1.0, **(space or {})},
            },
            "train": {"workers": 1, **train},
            "budget": {"gpu_hours": gpu_hours},
        }
    )


def planned(spec: StudySpec, rate: MeasuredRate | None = FAST, **options: Any) -> Plan:
    return plan_study(spec, num_examples=N, private_run_rate=rate, **options)


def hours(plan: Plan) -> float:
    cost = plan.cost
    examples = cost.private_run_examples + cost.search_examples + cost.finals_examples
    return examples / EXAMPLES_PER_HOUR


class TestSeconds:
    def test_without_a_rate_there_are_none(self) -> None:
        cost = planned(study(), None).cost

        assert cost.private_run_seconds is cost.search_seconds is cost.examples_per_second is None
        assert cost.rate_source is None

    def test_each_part_is_timed_at_its_own_rate(self) -> None:
        slow = MeasuredRate(examples_per_second=100.0, source="small batches")

        cost = planned(study(batch_size=4096, steps=300), search_rate=slow).cost

        assert cost.private_run_seconds == pytest.approx(4096 * 300 / 3600, abs=0.1)
        whole_budget = 4096 * 300  # one private run: what the trials leave of it is for the finals
        assert cost.search_seconds == pytest.approx(whole_budget / 100, abs=0.1)
        assert (cost.examples_per_second, cost.search_examples_per_second) == (3600, 100)
        assert cost.rate_source == "made up; small batches"

    def test_one_rate_stands_in_for_the_other(self) -> None:
        only_search = plan_study(study(), num_examples=N, search_rate=FAST).cost

        assert only_search.examples_per_second == only_search.search_examples_per_second == 3600
        assert only_search.rate_source == "made up"

    def test_workers_share_the_private_run_and_views_multiply_it(self) -> None:
        one = planned(study(batch_size=4096, steps=300)).cost
        four = planned(
            study(batch_size=4096, steps=300, workers=4, augmentation_multiplicity=8)
        ).cost

        assert one.private_run_seconds is not None
        assert four.private_run_seconds == pytest.approx(2 * one.private_run_seconds, abs=0.2)

    @pytest.mark.parametrize(("most", "times"), [(None, 1), (8, 1), (4, 1), (3, 4 / 3), (1, 4)])
    def test_no_more_share_it_than_there_are(self, most: int | None, times: float) -> None:
        few = MeasuredRate(examples_per_second=100.0, source="here", most_devices=most)
        spec = study(batch_size=4096, steps=300, workers=4)

        seconds = planned(spec, few).cost.private_run_seconds

        assert seconds == pytest.approx(times * 4096 * 300 / 400, abs=0.1)

    def test_no_devices_at_all_are_refused(self) -> None:
        with pytest.raises(ParameterError, match="most_devices"):
            MeasuredRate(examples_per_second=1.0, source="nowhere", most_devices=0)

    def test_a_mechanism_is_timed_at_the_rate_that_is_given(self) -> None:
        cost = plan_mechanism(
            num_examples=N,
            expected_batch_size=3600,
            noise_multiplier=3.0,
            steps=100,
            delta=1e-5,
            rate=FAST,
        ).cost

        assert cost.private_run_seconds == 100

    @pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
    def test_a_rate_that_is_none_is_refused(self, rate: float) -> None:
        with pytest.raises(ParameterError, match="examples_per_second"):
            MeasuredRate(examples_per_second=rate, source="nowhere")

    def test_memory_is_known_only_with_the_model(self) -> None:
        model = ModelCost(num_parameters=1000, activation_floats_per_example=10)

        assert planned(study()).cost.memory_bytes is None
        assert planned(study(), model=model).cost.memory_bytes == 4 * (5000 + 256 * 1020)


class TestLimit:
    def test_a_limit_that_is_wide_enough_changes_nothing_but_is_no_warning(self) -> None:
        free, limited = planned(study()), planned(study(gpu_hours=10.0))

        assert limited == free

    def test_without_a_rate_the_limit_is_said_not_to_be_applied(self) -> None:
        plan = planned(study(gpu_hours=1e-9), None)

        assert plan.reference == planned(study()).reference
        assert any("budget.gpu_hours was not applied" in warning for warning in plan.warnings)

    @pytest.mark.parametrize("rungs", ["auto", [8, 16]])
    @pytest.mark.parametrize("gpu_hours", [0.05, 0.1, 0.15])
    def test_a_limit_that_binds_gives_the_largest_batch_inside_it(
        self, gpu_hours: float, rungs: Any
    ) -> None:
        plan = planned(study(gpu_hours=gpu_hours, rungs=rungs))
        batch = plan.reference.expected_batch_size
        double = planned(study(batch_size=int(2 * batch), steps=300, rungs=rungs))

        assert hours(plan) <= gpu_hours < hours(double)
        assert plan.reference.steps == 300
        assert plan.reference.noise_multiplier < 2

    def test_a_limit_that_binds_says_what_it_costs_and_what_would_help(self) -> None:
        free = planned(study())
        plan = planned(study(gpu_hours=0.1))

        warning = next(w for w in plan.warnings if w.startswith("budget.gpu_hours = 0.1"))
        assert f"batch {free.reference.expected_batch_size} needs about" in warning
        assert float(warning.split("needs about ")[1].split()[0]) == pytest.approx(
            hours(free), abs=1e-3
        )
        assert any(w.startswith("overcharged") for w in plan.warnings)

    @pytest.mark.slow
    def test_auto_steps_give_way_only_where_no_batch_fits_them(self) -> None:
        run, trials, one_repetition = 16, 16 * 8, 8
        least = 300 * (run + trials + one_repetition) / EXAMPLES_PER_HOUR

        for share, steps in ((1.01, 300), (0.99, 150), (0.26, 75)):
            plan = planned(study(gpu_hours=least * share, rungs=[8]))
            assert plan.reference.steps == steps

    @pytest.mark.parametrize(
        "spec",
        [
            study(gpu_hours=1e-4),
            study(gpu_hours=0.01, batch_size=4096, steps=300),
            study(gpu_hours=0.001, steps=300),
            study(gpu_hours=0.001, space={"steps": {"choices": [100, 400]}}),
            study(gpu_hours=0.01, batch_size=4096, steps=300, noise_multiplier=8.0),
        ],
        ids=str,
    )
    def test_a_limit_that_nothing_fits_is_refused_by_field(self, spec: StudySpec) -> None:
        with pytest.raises(ParameterError, match="do not hold the smallest plan") as caught:
            planned(spec)

        assert caught.value.field == "budget.gpu_hours"
        assert "made up" in str(caught.value)

    def test_fixed_noise_takes_the_largest_batch_inside_limit_and_target(self) -> None:
        free = planned(study(noise_multiplier=6.0))
        plan = planned(study(noise_multiplier=6.0, gpu_hours=0.1))

        assert plan.reference.expected_batch_size < free.reference.expected_batch_size
        assert hours(plan) <= 0.1 < 2 * hours(plan)
