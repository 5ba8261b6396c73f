from typing import Any

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from tan_core.accounting import SearchAccounting
from tan_core.execution import PrivateRun
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation
from tan_core.planner import Plan, plan_mechanism, plan_study
from tan_core.planner import privacy as privacy_section
from tan_core.planner.finals import MAX_REPEATS, most_simulations
from tan_core.planner.plan import PlannedSearchPrivacy
from tan_core.planner.privacy import Promise
from tan_core.planner.search_privacy import search_privacy
from tan_core.planner.segments import reserved_mechanism
from tan_core.spec import StudySpec

N = 50_000
UNACCOUNTED = "search on private data NOT accounted"


@pytest.fixture(autouse=True)
def _two_voices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privacy_section, "PRV_MAX_EPSILON", 0.0)


def cifar(**changes: Any) -> Plan:
    return plan_mechanism(
        **{
            "num_examples": N,
            "expected_batch_size": 4096,
            "noise_multiplier": 3.0,
            "steps": 2500,
            "delta": 1e-5,
            **changes,
        }
    )


def study_spec(mode: str, accountant: Accountant = Accountant.PLD) -> StudySpec:
    return StudySpec.model_validate(
        {
            "name": "study",
            "privacy": {"epsilon": 3.0, "delta": 1e-5, "accountant": accountant},
            "dataset": "data",
            "model": {"name": "linear"},
            "search": {
                "accounting": mode,
                "trials": 5,
                "rungs": [512],
                "space": {"learning_rate": 1.0},
            },
            "train": {"batch_size": 1024, "steps": 100},
        }
    )


def study(mode: str, **options: Any) -> PlannedSearchPrivacy:
    return priced(plan_study(study_spec(mode), num_examples=N, **options))


def priced(plan: Plan) -> PlannedSearchPrivacy:
    assert plan.search_privacy is not None
    return plan.search_privacy


@pytest.mark.parametrize(
    ("batch", "trials", "published"),
    [(256, 20, 2843), (512, 20, 448), (1024, 5, 33), (2048, 100, 179)],
)
def test_charging_every_trial_costs_at_least_what_the_trials_alone_do(
    batch: int, trials: int, published: float
) -> None:
    """The published figures are of the trials alone; one private run more adds little to so many."""
    found = priced(cifar(rungs=[batch], trials=trials))

    assert found.epsilon_if_accounted == pytest.approx(published, rel=0.07)
    assert found.simulations == trials


@pytest.mark.slow
def test_the_figure_is_that_of_the_library_on_the_events_written_out() -> None:
    found = priced(cifar(rungs=[512, 1024], trials=3))

    oracle = PLDAccountant()
    for rung, sigma, times in ((512, 0.375, 3), (1024, 0.75, 3), (4096, 3.0, 1)):
        event = PoissonSampledDpEvent(rung / N, GaussianDpEvent(sigma))
        oracle.compose(SelfComposedDpEvent(event, 2500 * times))
    expected = oracle.get_epsilon(1e-5)
    assert found.epsilon_if_accounted == pytest.approx(expected, rel=1e-3)
    assert found.simulations == 6


@pytest.mark.slow
def test_every_repetition_that_the_finals_may_begin_is_charged_as_a_trial() -> None:
    spec = study_spec("declared_unaccounted", accountant=Accountant.RDP)
    plan = plan_study(spec, num_examples=N)

    run, oracle = plan.reference, RdpAccountant()
    reserved = plan.reservation.steps
    for rung, times, steps in ((512, 5 + MAX_REPEATS, run.steps), (1024, 1, reserved)):
        event = PoissonSampledDpEvent(rung / N, GaussianDpEvent(run.noise_multiplier * rung / 1024))
        oracle.compose(SelfComposedDpEvent(event, steps * times))
    assert priced(plan).simulations == 5 + MAX_REPEATS
    charged = priced(plan).epsilon_if_accounted
    assert charged == pytest.approx(oracle.get_epsilon(1e-5), rel=1e-2)


def test_so_is_every_confirmation_where_the_finals_are_one_rung_above_the_ladder() -> None:
    mechanism = Mechanism(sampling_rate=2048 / N, noise_multiplier=16.0, clip_norm=1.0, steps=100)
    found = search_privacy(
        [PrivateRun(mechanism=mechanism, num_examples=N)],
        Promise(delta=1e-5, accountant=Accountant.RDP, target_epsilon=None),
        most_simulations(24, [32, 128], 512),
        N,
        mode=SearchAccounting.ACCOUNTED,
    )

    oracle = RdpAccountant()
    for batch, times in ((32, 24), (128, 24), (512, MAX_REPEATS), (2048, 1)):
        steps = 100 * times if times > 1 else reserved_mechanism(mechanism).steps
        event = PoissonSampledDpEvent(batch / N, GaussianDpEvent(16.0 * batch / 2048))
        oracle.compose(SelfComposedDpEvent(event, steps))
    assert found.simulations == 48 + MAX_REPEATS
    assert found.epsilon == pytest.approx(oracle.get_epsilon(1e-5), rel=1e-2)


def test_a_plan_prices_its_confirmation_and_not_the_ladder_again() -> None:
    spec = study_spec("declared_unaccounted")
    search = spec.search.model_copy(update={"rungs": "auto", "trials": 24})
    train = spec.train.model_copy(update={"batch_size": 2048})
    plan = plan_study(spec.model_copy(update={"search": search, "train": train}), num_examples=N)

    assert (plan.rungs, plan.confirmation_batch) == ([32, 128], 512)
    assert priced(plan).simulations == 2 * 24 + MAX_REPEATS


def test_a_mechanism_has_no_mode_and_so_no_figure_of_one() -> None:
    found = priced(cifar(rungs=[1024]))

    assert found.mode is None
    assert found.epsilon is None


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("declared_unaccounted", UNACCOUNTED),
        ("private_selection", "private selection"),
        ("disjoint_split", "a part of the private data"),
    ],
)
def test_every_mode_says_its_words_and_that_scores_come_on_top(mode: str, words: str) -> None:
    found = study(mode)

    assert found.mode == mode
    assert words in found.note
    assert "scores on private validation data" in found.note


def test_nothing_is_claimed_where_nothing_can_be() -> None:
    assert study("declared_unaccounted").epsilon is None
    assert study("private_selection").epsilon is None


def test_an_accounted_search_costs_more_than_a_split_and_a_split_at_least_the_run() -> None:
    split = study("disjoint_split")

    assert split.epsilon is not None
    assert split.epsilon_if_accounted is not None
    assert split.epsilon_if_accounted > split.epsilon > 2.9


@pytest.mark.slow
def test_a_split_does_not_help_where_a_unit_is_replaced() -> None:
    found = study("disjoint_split", neighboring_relation=NeighboringRelation.REPLACE_ONE)

    assert found.epsilon == found.epsilon_if_accounted


def test_a_public_proxy_costs_the_run_alone() -> None:
    found = study("public_proxy", search_num_examples=10_000)

    assert 2.8 < (found.epsilon or 0) < 3.0
    assert found.epsilon_if_accounted is None
    assert found.note == "hyper-parameters chosen on data registered as public"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rungs": [64]}, "0.0469 is below 0.1"),
        ({"rungs": [512], "trials": 5000}, "12,500,000 steps are above 10,000,000"),
    ],
)
def test_what_no_figure_would_help_with_is_not_priced_and_says_why(
    changes: dict[str, Any], reason: str
) -> None:
    found = priced(cifar(**changes))

    assert found.epsilon_if_accounted is None
    assert reason in found.note


def test_the_accountant_of_the_study_prices_the_search_too() -> None:
    by_rdp = priced(cifar(rungs=[512], trials=2, accountant=Accountant.RDP))
    by_pld = priced(cifar(rungs=[512], trials=2))

    assert (by_rdp.accountant, by_pld.accountant) == (Accountant.RDP, Accountant.PLD)
    assert by_rdp.epsilon_if_accounted is not None
    assert by_pld.epsilon_if_accounted is not None
    assert by_rdp.epsilon_if_accounted > by_pld.epsilon_if_accounted


@pytest.mark.slow
@pytest.mark.parametrize("accountant", [Accountant.PLD, Accountant.RDP])
@pytest.mark.parametrize("mode", ["public_proxy", "disjoint_split", "accounted"])
def test_no_total_is_below_what_the_run_reserves(mode: str, accountant: Accountant) -> None:
    plan = plan_study(study_spec(mode, accountant=accountant), num_examples=N)

    assert priced(plan).epsilon is not None
    assert priced(plan).epsilon >= plan.privacy.epsilon_reserved  # type: ignore[operator]


def test_searched_steps_are_priced_where_they_cost_most() -> None:
    """Fewer steps need less noise at the same target, and their simulations cost far more."""
    spec = study_spec("declared_unaccounted")
    steps = {"learning_rate": 1.0, "steps": {"choices": [25, 400]}}
    searched = StudySpec.model_validate(
        spec.model_dump()
        | {"search": spec.search.model_dump() | {"space": steps}}
        | {"train": {"batch_size": 1024}}
    )

    found = priced(plan_study(searched, num_examples=N))

    alone = [
        priced(
            plan_study(
                StudySpec.model_validate(
                    spec.model_dump() | {"train": {"batch_size": 1024, "steps": each}}
                ),
                num_examples=N,
            )
        ).epsilon_if_accounted
        for each in (25, 400)
    ]
    assert found.epsilon_if_accounted == pytest.approx(
        max(each for each in alone if each), rel=1e-2
    )
    assert "searched steps that cost most" in found.note
