import json
import math
from typing import Any

import numpy as np
import pytest

from tan_core.accounting import price
from tan_core.errors import AccountantError, ParameterError, UnreachableTargetError
from tan_core.mechanism import Accountant, NeighboringRelation
from tan_core.planner import (
    Plan,
    plan_mechanism,
    plan_study,
    reserved_mechanism,
    segment_rule,
)
from tan_core.planner import privacy as privacy_section
from tan_core.planner.shape import AUTO_STEPS
from tan_core.spec import StudySpec
from tan_core.spec.train import Precision

N = 60_000


@pytest.fixture(autouse=True)
def _two_voices(monkeypatch: pytest.MonkeyPatch) -> None:
    """PRV takes a process per answer; the one test that wants it asks for it."""
    monkeypatch.setattr(privacy_section, "PRV_MAX_EPSILON", 0.0)


def study(
    *,
    epsilon: float | None = 3.0,
    delta: float = 1e-5,
    accountant: str = "pld",
    space: dict[str, Any] | None = None,
    search: dict[str, Any] | None = None,
    **train: Any,
) -> StudySpec:
    return StudySpec.model_validate(
        {
            "name": "study",
            "privacy": {"epsilon": epsilon, "delta": delta, "accountant": accountant},
            "dataset": "data",
            "model": {"name": "tanh-cnn"},
            "search": {
                "accounting": "public_proxy",
                "space": space or {"learning_rate": {"low": 0.25, "high": 16.0, "log": True}},
                **(search or {}),
            },
            "train": train,
        }
    )


def cifar(**changes: Any) -> Plan:
    return plan_mechanism(
        **{
            "num_examples": 50_000,
            "expected_batch_size": 4096,
            "noise_multiplier": 3.0,
            "steps": 2500,
            "delta": 1e-5,
            **changes,
        }
    )


class TestPrecision:
    def test_the_plan_names_that_of_the_passes_and_nothing_else_changes(self) -> None:
        exact, rounded = (
            plan_study(study(batch_size=1024, precision=precision), num_examples=N)
            for precision in Precision
        )

        assert exact.reference.precision is Precision.FLOAT32
        assert rounded.reference.precision is Precision.BFLOAT16
        without = {"reference": {"precision"}}
        assert rounded.model_dump(exclude=without) == exact.model_dump(exclude=without)

    def test_it_names_none_where_candidates_differ_or_no_model_is_trained(self) -> None:
        searched = study(batch_size=1024, space={"precision": {"choices": list(Precision)}})

        assert plan_study(searched, num_examples=N).reference.precision is None
        assert cifar().reference.precision is None

    def test_a_plan_that_was_stored_before_says_nothing_of_it(self) -> None:
        stored = cifar().model_dump(mode="json")
        del stored["reference"]["precision"]

        assert Plan.model_validate(stored) == cifar()


class TestPlanMechanism:
    def test_reproduces_the_paper_reference(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(privacy_section, "PRV_MAX_EPSILON", 50.0)

        plan = json.loads(cifar().model_dump_json())

        privacy = plan["privacy"]
        assert privacy["epsilon"] == pytest.approx(6.579, abs=0.005)
        assert privacy["epsilon_by_accountant"] == {
            "pld": pytest.approx(6.579, abs=0.005),
            "rdp": pytest.approx(7.098, abs=0.005),
            "prv": pytest.approx(6.585, abs=0.01),
        }
        assert privacy["epsilon_tan"] == pytest.approx(7.484, abs=1e-3)
        assert privacy["signal_to_noise"] == pytest.approx(0.9654, abs=1e-4)
        assert privacy["overcharge"] == pytest.approx(1.044, abs=1e-3)
        assert plan["simulations"] == [
            {
                "scale_factor": 16,
                "expected_batch_size": 256,
                "sampling_rate": 0.00512,
                "noise_multiplier": 0.1875,
                "steps": 2500,
                "trials": 24,
                "learning_rate_factor": 1.0,
                "private": False,
            }
        ]
        assert {key: value for key, value in plan["cost"].items() if value is not None} == {
            "private_run_examples": 10_240_000,
            "search_examples": 15_360_000,
            "full_search_examples": 245_760_000,
            "finals_examples": 0,
            "saving": 16.0,
        }
        assert plan["reservation"] == {"steps": 2600, "slack_steps": 100, "segment_steps": 50}

    def test_gives_back_the_mechanism_that_was_priced_bit_by_bit(self) -> None:
        plan = cifar(expected_batch_size=777.7, noise_multiplier=1 / 3, clip_norm=0.1)

        run = Plan.model_validate_json(plan.model_dump_json()).private_run()

        assert run == plan.private_run()
        assert run.mechanism.noise_multiplier == 1 / 3
        assert run.mechanism.sampling_rate == 777.7 / 50_000

    def test_shows_no_epsilon_below_the_price(self) -> None:
        plan = cifar()

        exact = price([plan.private_run().mechanism], delta=1e-5).epsilon

        assert exact <= plan.privacy.epsilon <= exact + 1e-4
        assert plan.privacy.epsilon < plan.privacy.epsilon_reserved

    def test_warns_of_an_overcharge_with_its_ratio(self) -> None:
        assert any(
            "overcharged" in w and "1.97" in w
            for w in cifar(expected_batch_size=1024, noise_multiplier=0.75).warnings
        )
        assert not any("overcharged" in w for w in cifar().warnings)

    def test_warns_when_one_record_could_be_released_whole(self) -> None:
        assert any("1/num_examples" in warning for warning in cifar(delta=2e-5).warnings)

    def test_an_accountant_that_fails_is_silent_with_a_reason(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def failing(
            mechanisms: Any, *, delta: float, accountant: Accountant = Accountant.PLD
        ) -> Any:
            if accountant is Accountant.PRV:
                raise AccountantError("prv failed: out of memory")
            return price(mechanisms, delta=delta, accountant=accountant)

        monkeypatch.setattr(privacy_section, "PRV_MAX_EPSILON", 50.0)
        monkeypatch.setattr(privacy_section, "price", failing)

        plan = cifar()

        assert plan.privacy.epsilon_by_accountant[Accountant.PRV] is None
        assert "prv failed: out of memory" in plan.warnings

    @pytest.mark.parametrize(
        "rungs",
        [np.array([64, 256]), np.array([64, 256], np.int16), (64, 256), range(64, 257, 192)],
        ids=["int64", "int16", "tuple", "range"],
    )
    def test_rungs_are_those_of_any_sequence(self, rungs: Any) -> None:
        plan = cifar(rungs=rungs)

        assert plan == cifar(rungs=[64, 256])
        assert {type(rung) for rung in plan.rungs} == {int}

    @pytest.mark.parametrize(
        "rungs",
        [
            [],
            [256, 64],
            [64, 64],
            [0, 64],
            [64.5],
            np.array([0.5]),
            "all",
            64,
            None,
            [[64]],
            [True],
        ],
        ids=repr,
    )
    def test_rungs_that_are_no_ladder_are_refused_by_name(self, rungs: Any) -> None:
        with pytest.raises(ParameterError, match="rungs must be auto, or rising whole") as caught:
            cifar(rungs=rungs)

        assert caught.value.field == "rungs"

    def test_rungs_above_the_batch_are_refused_by_path(self) -> None:
        with pytest.raises(ParameterError, match="4096") as caught:
            cifar(rungs=[256, 8192])

        assert caught.value.field == "rungs"

    def test_the_search_is_priced_at_every_rung_with_the_trials_that_reach_it(self) -> None:
        plan = cifar(rungs=[64, 256], trials=10)

        # Of 4 the best goes on: the first does, and the n-th with probability 1/4 + (1 - 2/4)/n.
        climbing = 1 + sum(1 / 4 + 1 / (2 * n) for n in range(2, 11))
        assert plan.cost.search_examples == math.ceil((10 * 64 + climbing * 256) * 2500)
        assert plan.rungs == [64, 256]
        assert [rung.trials for rung in plan.simulations] == [10, 4.2]


class TestPlanStudy:
    @pytest.mark.parametrize("steps", [50, 300, 2000])
    @pytest.mark.parametrize("epsilon", [0.5, 3.0, 8.0])
    def test_steps_and_slack_meet_the_target_and_little_is_left(
        self, epsilon: float, steps: int
    ) -> None:
        plan = plan_study(study(epsilon=epsilon, steps=steps), num_examples=N)

        mechanism = plan.private_run().mechanism
        assert price([reserved_mechanism(mechanism)], delta=1e-5).epsilon <= epsilon
        assert 0.95 <= plan.privacy.epsilon / epsilon < 1
        assert plan.privacy.target_epsilon == epsilon

    def test_the_promise_is_kept_by_the_accountant_of_the_study(self) -> None:
        plan = plan_study(study(accountant="rdp"), num_examples=N)

        reserved = reserved_mechanism(plan.private_run().mechanism)
        by_rdp = price([reserved], delta=1e-5, accountant=Accountant.RDP).epsilon
        assert 2.99 < by_rdp <= 3.0

    def test_auto_takes_the_smallest_batch_with_enough_noise(self) -> None:
        chosen = plan_study(study(), num_examples=N).reference
        half = plan_study(
            study(batch_size=int(chosen.expected_batch_size) // 2), num_examples=N
        ).reference

        assert chosen.expected_batch_size == 8192
        assert chosen.noise_multiplier >= 2 > half.noise_multiplier
        assert chosen.steps == AUTO_STEPS

    @pytest.mark.slow
    def test_auto_says_when_the_data_is_too_small_for_enough_noise(self) -> None:
        plan = plan_study(study(epsilon=500.0), num_examples=N)

        assert plan.reference.expected_batch_size == 32_768
        assert any("batch_size: auto" in warning for warning in plan.warnings)

    def test_a_tiny_dataset_still_has_a_plan(self) -> None:
        plan = plan_study(study(), num_examples=10)

        assert plan.reference.expected_batch_size == 8
        assert plan.rungs == [8]

    def test_searched_steps_set_the_reference_to_their_largest(self) -> None:
        space = {"steps": {"choices": [600, 2400, 1200]}}

        assert plan_study(study(space=space), num_examples=N).reference.steps == 2400

    def test_fixed_noise_is_priced_not_calibrated(self) -> None:
        plan = plan_study(
            study(epsilon=None, noise_multiplier=1.35, batch_size=2048), num_examples=N
        )

        assert plan.reference.noise_multiplier == 1.35
        assert plan.privacy.target_epsilon is None
        assert plan.privacy.epsilon == pytest.approx(2.2355, abs=1e-3)

    def test_fixed_noise_takes_the_largest_batch_inside_the_target(self) -> None:
        plan = plan_study(study(epsilon=2.0, noise_multiplier=3.0), num_examples=N)

        assert plan.reference.expected_batch_size == 4096
        assert plan.privacy.epsilon_reserved <= 2.0

    @pytest.mark.parametrize(
        ("spec", "num_examples", "field", "fragment"),
        [
            (
                study(noise_multiplier=1.35, batch_size=2048, epsilon=2.0),
                N,
                "train.noise_multiplier",
                "2.28",
            ),
            (study(batch_size=512), 500, "train.batch_size", "500"),
            (study(search={"rungs": [64, 16_384]}), N, "search.rungs", "8192"),
            (study(delta=1e-15), N, "privacy.delta", "1e-10"),
            (study(epsilon=None, noise_multiplier=2.0), N, "train.batch_size", "give a number"),
        ],
    )
    def test_what_cannot_be_had_is_refused_by_path(
        self, spec: StudySpec, num_examples: int, field: str, fragment: str
    ) -> None:
        with pytest.raises(ParameterError, match=fragment) as caught:
            plan_study(spec, num_examples=num_examples)

        assert caught.value.field == field

    def test_an_impossible_target_says_what_is_possible(self) -> None:
        with pytest.raises(UnreachableTargetError, match="the smallest is") as caught:
            plan_study(study(epsilon=1e-6, delta=1e-9, batch_size=60_000), num_examples=N)

        assert caught.value.field == "privacy.epsilon"

    def test_a_rung_above_the_proxy_is_refused_by_path(self) -> None:
        with pytest.raises(ParameterError, match="100 examples") as caught:
            plan_study(study(search={"rungs": [128]}), num_examples=N, search_num_examples=100)

        assert caught.value.field == "search.rungs"

    def test_a_proxy_of_another_size_keeps_batch_and_noise(self) -> None:
        own, proxy = (
            plan_study(
                study(search={"rungs": [512]}), num_examples=N, search_num_examples=size
            ).simulations[0]
            for size in (None, 10_000)
        )

        assert proxy.noise_multiplier == own.noise_multiplier
        assert proxy.sampling_rate == 512 / 10_000

    def test_replace_one_is_promised_by_pld_alone(self) -> None:
        relation = NeighboringRelation.REPLACE_ONE

        plan = plan_study(study(), num_examples=N, neighboring_relation=relation)

        assert plan.private_run().mechanism.neighboring_relation is relation
        assert plan.privacy.epsilon_by_accountant[Accountant.RDP] is None
        with pytest.raises(ParameterError, match="accepted: pld") as caught:
            plan_study(study(accountant="rdp"), num_examples=N, neighboring_relation=relation)
        assert caught.value.field == "privacy.accountant"

    def test_views_multiply_the_cost(self) -> None:
        one = plan_study(study(), num_examples=N).cost
        searched = plan_study(
            study(space={"augmentation_multiplicity": {"choices": [1, 4]}}), num_examples=N
        ).cost

        # Either is rounded up once, from an expected number of trials; the finals have the rest.
        assert 0 <= 4 * one.search_examples - searched.search_examples < 4
        assert searched.search_examples + searched.finals_examples == searched.private_run_examples


class TestFinals:
    """Five trials on rungs 64 and 256 for a run of B = 1024 and S = 100."""

    LADDER = (64 + 256) * 100
    # Of 4 the best goes on: the first does, and the n-th with probability 1/4 + (1 - 2/4)/n.
    TRIALS = math.ceil((5 * 64 + 256 * (1 + sum(1 / 4 + 1 / (2 * n) for n in range(2, 6)))) * 100)

    @staticmethod
    def planned(budget: float) -> Plan:
        search = {"trials": 5, "rungs": [64, 256], "budget": budget}
        return plan_study(study(search=search, batch_size=1024, steps=100), num_examples=N)

    @pytest.mark.parametrize(
        ("budget", "examples"),
        [
            (0.01, LADDER),
            (1.0, LADDER),
            (2.0, 2 * 1024 * 100 - TRIALS),
            (100.0, 20 * LADDER),
        ],
        ids=["none left", "too little left", "what is left", "more than they may need"],
    )
    def test_they_have_what_the_trials_leave(self, budget: float, examples: int) -> None:
        cost = self.planned(budget).cost

        assert cost.search_examples == self.TRIALS
        assert cost.finals_examples == examples

    def test_each_rung_has_the_trials_that_are_expected_to_reach_it(self) -> None:
        rungs = self.planned(1.0).simulations

        assert [rung.trials for rung in rungs] == [5, pytest.approx(2.6, abs=0.05)]

    def test_trials_above_the_budget_are_warned_of_with_their_share(self) -> None:
        share = self.TRIALS / (1024 * 100)

        warnings = [each for each in self.planned(0.5).warnings if "search.budget" in each]

        assert len(warnings) == 1
        assert f"process {share:.2g} times the examples of the private run" in warnings[0]
        assert "search.budget = 0.5" in warnings[0]

    def test_trials_within_it_are_not(self) -> None:
        assert not any("search.budget" in each for each in self.planned(1.0).warnings)

    def test_a_mechanism_has_none(self) -> None:
        assert cifar().cost.finals_examples == 0


class TestSegments:
    @pytest.mark.parametrize(("steps", "segment"), [(1, 1), (50, 1), (51, 2), (300, 6), (2500, 50)])
    def test_a_run_has_at_most_fifty_segments_and_slack_for_two(
        self, steps: int, segment: int
    ) -> None:
        rule = segment_rule(steps)

        assert (rule.segment_steps, rule.slack_steps) == (segment, 2 * segment)


class TestWithoutASearch:
    def test_the_run_is_that_of_a_study_with_one_and_nothing_else_costs(self) -> None:
        searched = plan_study(study(), num_examples=1150)
        given = plan_study(
            StudySpec.model_validate(
                {**study().model_dump(mode="json"), "search": {"accounting": "no_search"}}
            ),
            num_examples=1150,
        )

        assert (given.reference, given.privacy) == (searched.reference, searched.privacy)
        assert given.reservation == searched.reservation
        assert (given.simulations, given.confirmation) == ([], None)
        cost = given.cost
        assert (cost.search_examples, cost.finals_examples, cost.full_search_examples) == (0, 0, 0)
        assert cost.saving == 1.0
