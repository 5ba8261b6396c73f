"""Batches with a cap: planned, priced and carried to the run, or refused by name."""

import doctest
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from tan_core.accounting import price
from tan_core.errors import ParameterError
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation, Sampling
from tan_core.planner import (
    Plan,
    Target,
    candidate,
    plan_study,
    reservations,
    reserved_mechanism,
    simulation,
)
from tan_core.planner import privacy as privacy_section
from tan_core.planner.cap import cap_caution, free_cap, with_cap
from tan_core.spec import StudySpec

N = 50_000


@pytest.fixture(autouse=True)
def _without_prv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privacy_section, "PRV_MAX_EPSILON", 0.0)


def study(
    *,
    accountant: str = "pld",
    accounting: str = "public_proxy",
    space: dict[str, Any] | None = None,
    rungs: Any = "auto",
    **train: Any,
) -> StudySpec:
    return StudySpec.model_validate(
        {
            "name": "study",
            "privacy": {"epsilon": 3.0, "delta": 1e-5, "accountant": accountant},
            "dataset": "data",
            "model": {"name": "linear"},
            "search": {
                "accounting": accounting,
                "trials": 2,
                "rungs": rungs,
                "space": space or {"learning_rate": {"low": 0.25, "high": 16.0, "log": True}},
            },
            "train": train,
        }
    )


def plan(relation: NeighboringRelation = NeighboringRelation.ZERO_OUT, **changes: Any) -> Plan:
    return plan_study(study(**changes), num_examples=N, neighboring_relation=relation)


def warned(planned: Plan) -> str:
    return "; ".join(planned.warnings)


class TestPlan:
    def test_the_run_is_the_truncated_mechanism_that_was_priced(self) -> None:
        planned = plan(batch_size=4096, steps=500, max_batch_size=4500)

        mechanism = planned.private_run().mechanism

        assert mechanism.sampling is Sampling.TRUNCATED_POISSON
        assert (mechanism.num_examples, mechanism.max_batch_size) == (N, 4500)
        assert price([mechanism], delta=1e-5).epsilon <= planned.privacy.epsilon
        assert 2.99 < price([reserved_mechanism(mechanism)], delta=1e-5).epsilon <= 3.0
        assert (
            Plan.model_validate_json(planned.model_dump_json()).private_run().mechanism == mechanism
        )

    @pytest.mark.slow
    def test_a_cap_six_deviations_up_is_free_and_one_at_the_mean_says_what_it_costs(self) -> None:
        whole, free, dear = (
            plan(batch_size=4096, steps=500, max_batch_size=cap) for cap in (None, 4464, 4096)
        )

        noise = whole.reference.noise_multiplier
        assert free.reference.noise_multiplier == pytest.approx(noise, rel=2e-3)
        assert dear.reference.noise_multiplier > 2 * noise
        assert "max_batch_size" not in warned(free)
        assert "max_batch_size = 4096 cuts batches" in warned(dear)
        assert "from 4464 on it costs nothing" in warned(dear)

    def test_where_whole_batches_cost_nothing_a_cap_is_free_or_says_what_it_costs(self) -> None:
        """At a delta above what the run could ever tell there is no epsilon to divide by."""
        small = Mechanism(
            sampling_rate=0.002,
            noise_multiplier=2.0,
            clip_norm=1.0,
            steps=100,
            sampling=Sampling.TRUNCATED_POISSON,
            neighboring_relation=NeighboringRelation.ZERO_OUT,
            num_examples=1000,
            max_batch_size=2,
        )
        dear = replace(small, sampling_rate=0.5, noise_multiplier=1.0, steps=1, max_batch_size=400)

        assert cap_caution(small, delta=0.01) == []
        (caution,) = cap_caution(dear, delta=0.2)
        assert (
            "so often that epsilon is 1.07, where it is 0 of whole batches; from 595 on" in caution
        )

    def test_one_voice_alone_speaks_and_the_others_say_why_not(self) -> None:
        planned = plan(batch_size=4096, steps=500, max_batch_size=4500)

        assert planned.privacy.epsilon_by_accountant[Accountant.RDP] is None
        assert "accountant rdp cannot price truncated_poisson sampling" in warned(planned)

    @pytest.mark.slow
    def test_auto_takes_no_batch_that_the_cap_would_cut(self) -> None:
        free, held = (plan(max_batch_size=cap).reference.expected_batch_size for cap in (None, 600))

        assert free > held == 256

    def test_a_replaced_unit_is_priced_as_well(self) -> None:
        planned = plan(NeighboringRelation.REPLACE_ONE, batch_size=4096, max_batch_size=4500)

        assert planned.privacy.neighboring_relation is NeighboringRelation.REPLACE_ONE

    @pytest.mark.slow
    @pytest.mark.parametrize("accounting", ["accounted", "disjoint_split", "public_proxy"])
    def test_the_search_is_priced_with_it_or_says_why_not(self, accounting: str) -> None:
        planned = plan(
            accounting=accounting, rungs=[256], batch_size=4096, steps=400, max_batch_size=4500
        )

        search = planned.search_privacy
        assert search is not None
        if accounting == "disjoint_split":
            assert search.epsilon is None
            assert "cannot price truncated_poisson sampling" in search.note
        else:
            assert search.epsilon is not None


class TestCandidates:
    @pytest.mark.slow
    def test_other_steps_are_calibrated_with_the_cap_and_simulated_without(self) -> None:
        spec = study(space={"steps": {"choices": [100, 400]}}, batch_size=4096, max_batch_size=4200)
        planned = plan_study(
            spec, num_examples=N, neighboring_relation=NeighboringRelation.ZERO_OUT
        )

        chosen = candidate(
            trainer=spec.train.trainer(),
            model=spec.model,
            reference=planned.private_run(),
            params={"steps": 100},
            target=Target.of(spec),
        )
        simulated = simulation(chosen, expected_batch_size=256, num_examples=1000)

        mechanism = chosen.private_run.mechanism
        assert mechanism.max_batch_size == 4200
        assert 2.99 < price([reserved_mechanism(mechanism)], delta=1e-5).epsilon <= 3.0
        assert reserved_mechanism(mechanism) in reservations(spec, planned)
        assert simulated.dynamics.sampling is Sampling.POISSON
        assert simulated.dynamics.sampling_rate == 256 / 1000


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "field", "message"),
        [
            (
                {"relation": NeighboringRelation.ADD_OR_REMOVE_ONE, "max_batch_size": 4500},
                "train.max_batch_size",
                "register the dataset with neighboring_relation zero_out or replace_one",
            ),
            (
                {"accountant": "rdp", "max_batch_size": 4500},
                "privacy.accountant",
                "cannot price batches with a cap .*accepted: pld",
            ),
            (
                {"batch_size": 4096, "max_batch_size": 4000},
                "train.max_batch_size",
                "at least train.batch_size = 4096, got 4000",
            ),
            ({"max_batch_size": 20}, "train.max_batch_size", ">= 40, got 20"),
        ],
        ids=["relation", "accountant", "below-batch", "below-auto"],
    )
    def test_what_cannot_be_priced_or_drawn_is_refused_by_path(
        self, changes: dict[str, Any], field: str, message: str
    ) -> None:
        with pytest.raises(ParameterError, match=message) as refused:
            plan(**changes)

        assert refused.value.field == field

    @pytest.mark.parametrize("cap", [0, -1, 1.5, "auto"])
    def test_what_is_no_cap_is_refused(self, cap: Any) -> None:
        with pytest.raises(ValueError, match="max_batch_size"):
            study(max_batch_size=cap)


class TestFreeCap:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("num_examples", "batch", "noise_multiplier", "steps"),
        [(1000, 16, 0.9, 300), (1295, 128, 2.0, 300), (60_000, 64, 0.8, 10_000)],
    )
    def test_it_adds_less_than_a_thousandth(
        self, num_examples: int, batch: int, noise_multiplier: float, steps: int
    ) -> None:
        poisson = Mechanism(
            sampling_rate=batch / num_examples,
            noise_multiplier=noise_multiplier,
            clip_norm=1.0,
            steps=steps,
            neighboring_relation=NeighboringRelation.ZERO_OUT,
        )
        capped = with_cap(poisson, free_cap(batch, num_examples), num_examples)

        whole, cut = (price([each], delta=1e-5).epsilon for each in (poisson, capped))

        assert whole <= cut * (1 + 1e-6)
        assert cut <= whole * 1.001

    def test_the_whole_data_is_the_largest_cap(self) -> None:
        assert free_cap(100, 100) == 100

    def test_the_example_in_its_docstring_is_true(self) -> None:
        results = doctest.testmod(import_module("tan_core.planner.cap"))

        assert results.attempted
        assert not results.failed
