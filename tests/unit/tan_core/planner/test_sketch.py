import math
from dataclasses import replace

import pytest

from tan_core.errors import ParameterError, UnreachableTargetError
from tan_core.mechanism import NeighboringRelation
from tan_core.planner import plan_study
from tan_core.planner.sketch import TOLERANCE, Dials, sketch
from tan_core.spec import StudySpec
from tan_core.tan import constant_tan_curve, wall

CIFAR = Dials(num_examples=50_000, expected_batch_size=4096, steps=2500, epsilon=8.0, delta=1e-5)
DIGITS = Dials(num_examples=1149, expected_batch_size=256, steps=300, epsilon=3.0, delta=1e-5)


def spec_of(dials: Dials) -> StudySpec:
    return StudySpec.model_validate(
        {
            "name": "sketched",
            "privacy": {"epsilon": dials.epsilon, "delta": dials.delta},
            "dataset": "any",
            "model": {"name": "mlp"},
            "search": {
                "accounting": "public_proxy",
                "trials": dials.trials,
                "space": {"learning_rate": {"low": 0.1, "high": 1.0}},
            },
            "train": {"batch_size": dials.expected_batch_size, "steps": dials.steps},
        }
    )


class TestSketch:
    @pytest.mark.parametrize("dials", [CIFAR, DIGITS], ids=["cifar", "digits"])
    def test_is_the_plan_to_a_thousandth(self, dials: Dials) -> None:
        plan = plan_study(spec_of(dials), num_examples=dials.num_examples)

        found = sketch(dials)

        assert found.run.noise_multiplier == pytest.approx(
            plan.reference.noise_multiplier, rel=1e-3
        )
        assert found.epsilon == pytest.approx(plan.privacy.epsilon, rel=1e-3)
        assert found.overcharge == pytest.approx(plan.privacy.overcharge, rel=1e-3)
        assert found.signal_to_noise == pytest.approx(plan.privacy.signal_to_noise, rel=1e-3)

    def test_costs_what_the_plan_costs(self) -> None:
        plan = plan_study(spec_of(CIFAR), num_examples=CIFAR.num_examples)

        here = next(one.cost for one in sketch(CIFAR).costs if one.expected_batch_size == 4096)

        for name in ("private_run_examples", "search_examples", "full_search_examples", "saving"):
            assert getattr(here, name) == getattr(plan.cost, name)

    def test_the_wall_is_where_the_accountant_has_it(self) -> None:
        found = sketch(CIFAR)

        exact = wall(found.run, delta=CIFAR.delta, tolerance=TOLERANCE)
        assert found.wall == pytest.approx(exact, rel=0.02)

    def test_the_curve_is_an_upper_bound_within_a_hundredth(self) -> None:
        found = sketch(CIFAR)

        exact = constant_tan_curve(
            found.run,
            delta=CIFAR.delta,
            noise_multipliers=[point.noise_multiplier for point in found.curve],
        )
        for ours, theirs in zip(found.curve, exact, strict=True):
            assert theirs.epsilon is not None
            assert 0.999 * theirs.epsilon <= ours.epsilon <= 1.01 * theirs.epsilon

    def test_the_curve_ends_at_the_full_batch(self) -> None:
        found = sketch(DIGITS)

        assert found.curve[-1].sampling_rate <= 1
        assert found.run.noise_multiplier in [point.noise_multiplier for point in found.curve]

    def test_a_full_batch_is_not_overcharged(self) -> None:
        full = Dials(num_examples=100, expected_batch_size=100, steps=1, epsilon=1.0, delta=1e-5)

        found = sketch(full)

        assert math.isclose(found.overcharge, 1.0, rel_tol=1e-3)
        assert found.wall < found.run.noise_multiplier

    def test_without_a_smaller_noise_to_show_there_is_no_wall(self) -> None:
        found = sketch(
            Dials(num_examples=10, expected_batch_size=10, steps=1, epsilon=60.0, delta=1e-5)
        )

        assert len(found.curve) <= 1
        assert found.wall == 0.0

    def test_of_a_unit_that_is_replaced_there_is_a_run_and_no_curve(self) -> None:
        found = sketch(replace(DIGITS, neighboring_relation=NeighboringRelation.REPLACE_ONE))

        assert found.run.noise_multiplier > sketch(DIGITS).run.noise_multiplier
        assert found.curve == ()

    def test_what_cannot_be_had_is_refused_by_its_field(self) -> None:
        with pytest.raises(ParameterError, match="exceeds the 100") as refusal:
            sketch(Dials(num_examples=100, expected_batch_size=101, steps=1, epsilon=1, delta=1e-5))
        assert refusal.value.field == "train.batch_size"
        with pytest.raises(UnreachableTargetError):
            sketch(
                Dials(
                    num_examples=100, expected_batch_size=100, steps=1000, epsilon=1e-3, delta=1e-5
                )
            )
