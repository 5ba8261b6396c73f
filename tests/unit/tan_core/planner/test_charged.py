"""A search whose every trial is charged: what it is planned to cost, held against the library itself."""

import math
import re
from typing import Any

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tan_core.accounting import price
from tan_core.errors import ParameterError, TooHardError
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation
from tan_core.planner import Counted, Plan, plan_study
from tan_core.planner import privacy as privacy_section
from tan_core.planner.charged import ChargedSearch, charged_batch, score_mechanism
from tan_core.planner.search_modes import search_privacy_by_mode
from tan_core.planner.shape import ENOUGH_NOISE
from tan_core.spec import StudySpec
from tan_core.spec.study import Metric
from tan_core.tan import epsilon_tan

N = 50_000
DELTA = 1e-5


@pytest.fixture(autouse=True)
def _two_voices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privacy_section, "PRV_MAX_EPSILON", 0.0)


def spec_of(**changes: Any) -> StudySpec:
    sections: dict[str, Any] = {
        "name": "charged",
        "privacy": {"epsilon": 3.0, "delta": DELTA},
        "dataset": "data",
        "model": {"name": "linear"},
        "search": {
            "accounting": "accounted",
            "trials": 8,
            "space": {"learning_rate": {"low": 0.1, "high": 10.0, "log": True}},
        },
        "train": {"batch_size": 4096, "steps": 500},
    }
    for name, change in changes.items():
        sections[name] = {**sections[name], **change}
    return StudySpec.model_validate(sections)


def planned(num_examples: int = N, **changes: Any) -> Plan:
    return plan_study(spec_of(**changes), num_examples=num_examples, num_validation=10_000)


def by_the_library(plan: Plan, *, spare: bool, grid: float = 2e-4) -> float:
    """Run, trials and scores, written out as its own events."""
    charged, run = plan.charged_search, plan.reference
    assert charged is not None
    count = charged.trials + (charged.spare_trials if spare else 0)
    steps = plan.reservation.steps if spare else run.steps
    oracle = PLDAccountant(value_discretization_interval=grid)
    parts = [
        (run.sampling_rate, run.noise_multiplier, steps),
        (charged.sampling_rate, charged.noise_multiplier, charged.steps * count),
    ]
    for rate, noise, times in parts:
        event = PoissonSampledDpEvent(rate, GaussianDpEvent(noise))
        oracle.compose(SelfComposedDpEvent(event, times))
    oracle.compose(SelfComposedDpEvent(GaussianDpEvent(charged.score_noise_multiplier), count))
    return oracle.get_epsilon(DELTA)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"privacy": {"epsilon": 8.0}},
        {"search": {"trials": 24}},
        {"search": {"rungs": [256]}},
        {"train": {"batch_size": "auto"}},
    ],
)
def test_the_target_holds_for_run_trials_and_scores_together(changes: dict[str, Any]) -> None:
    plan = planned(**changes)
    target = plan.privacy.target_epsilon

    assert target is not None
    assert plan.privacy.epsilon_reserved == pytest.approx(by_the_library(plan, spare=True), 2e-3)
    assert plan.privacy.epsilon == pytest.approx(by_the_library(plan, spare=False), 2e-3)
    assert 0.99 * target < plan.privacy.epsilon_reserved <= target
    assert plan.privacy.epsilon < plan.privacy.epsilon_reserved


@pytest.mark.slow
def test_each_part_is_told_alone_and_the_library_agrees() -> None:
    plan = planned()
    charged, run = plan.charged_search, plan.reference
    assert charged is not None

    def alone(rate: float, noise: float, times: int) -> float:
        oracle = PLDAccountant(value_discretization_interval=2e-4)
        event = PoissonSampledDpEvent(rate, GaussianDpEvent(noise))
        return oracle.compose(SelfComposedDpEvent(event, times)).get_epsilon(DELTA)

    told = (charged.epsilon_of_run, charged.epsilon_of_trials, charged.epsilon_of_scores)
    assert told == pytest.approx(
        (
            alone(run.sampling_rate, run.noise_multiplier, run.steps),
            alone(charged.sampling_rate, charged.noise_multiplier, charged.steps * charged.trials),
            alone(1.0, charged.score_noise_multiplier, charged.trials),
        ),
        2e-3,
    )
    assert all(part is not None and part < plan.privacy.epsilon for part in told)


@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_a_score_never_costs_less_than_a_count_that_one_record_moves_by_one(
    relation: NeighboringRelation,
) -> None:
    scores = score_mechanism(6.0, count=5, neighboring_relation=relation)

    exact = PLDAccountant(value_discretization_interval=1e-4)
    exact.compose(SelfComposedDpEvent(GaussianDpEvent(6.0), 5))
    moved_by_two = PLDAccountant(value_discretization_interval=1e-4)
    moved_by_two.compose(SelfComposedDpEvent(GaussianDpEvent(3.0), 5))

    priced = price([scores], delta=DELTA).epsilon
    oracle = moved_by_two if relation is NeighboringRelation.REPLACE_ONE else exact
    assert priced == pytest.approx(oracle.get_epsilon(DELTA), 2e-3)
    assert priced > exact.get_epsilon(DELTA) * 0.999


def test_a_part_that_cannot_be_priced_in_time_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_hard(*_: object, **__: object) -> None:
        raise TooHardError("too hard")

    plan = planned()
    monkeypatch.setattr(privacy_section, "price", too_hard)
    promise = privacy_section.Promise(delta=DELTA, accountant=Accountant.PLD, target_epsilon=3.0)
    assert privacy_section.epsilon_alone(plan.private_run().mechanism, promise) is None


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(
    epsilon=st.floats(0.5, 16),
    trials=st.integers(1, 40),
    batch=st.sampled_from([64, 256, 1024]),
    steps=st.integers(20, 400),
    accountant=st.sampled_from([Accountant.PLD, Accountant.RDP]),
)
def test_whatever_is_asked_for_the_library_agrees_that_it_is_kept(
    epsilon: float, trials: int, batch: int, steps: int, accountant: Accountant
) -> None:
    plan = planned(
        5_000,
        privacy={"epsilon": epsilon, "accountant": accountant},
        search={"trials": trials},
        train={"batch_size": batch, "steps": steps},
    )

    # So coarse a grid rounds up by as much.
    assert by_the_library(plan, spare=True, grid=2e-3) <= epsilon * 1.01 + 0.05


def test_the_estimate_beside_epsilon_is_of_all_that_is_composed_too() -> None:
    """Of noise that adds up: the run alone would seem to cost a third of it."""
    plan = planned()
    charged, run = plan.charged_search, plan.reference
    assert charged is not None
    etas = [
        run.sampling_rate / run.noise_multiplier * math.sqrt(run.steps / 2),
        charged.sampling_rate / charged.noise_multiplier * math.sqrt(charged.steps * 8 / 2),
        1 / charged.score_noise_multiplier * math.sqrt(8 / 2),
    ]
    assert plan.privacy.signal_to_noise == pytest.approx(etas[0], abs=1e-4)
    found = epsilon_tan(signal_to_noise=math.hypot(*etas), delta=DELTA)
    assert plan.privacy.epsilon_tan == pytest.approx(found, abs=1e-3)
    assert plan.privacy.epsilon_tan > 0.9 * plan.privacy.epsilon


def test_what_is_reserved_is_what_was_priced() -> None:
    plan = planned()
    charged, relation = plan.charged_search, plan.privacy.neighboring_relation
    assert charged is not None
    trials, scores = charged.reserved(relation)

    assert trials == charged.trial(relation).with_steps(500 * 9)
    assert (scores.sampling_rate, scores.clip_norm, scores.steps) == (1.0, 1.0, 9)
    assert (charged.trials, charged.spare_trials) == (8, 1)
    assert plan.search_privacy is not None
    assert plan.search_privacy.epsilon == plan.privacy.epsilon_reserved
    assert plan.search_privacy.simulations == 8


def test_a_trial_is_a_simulation_of_the_run_and_the_plan_says_that_it_is_private() -> None:
    plan = planned()
    (rung,) = plan.simulations
    charged = plan.charged_search
    assert charged is not None

    scale = plan.reference.expected_batch_size / rung.expected_batch_size
    assert charged.noise_multiplier == pytest.approx(plan.reference.noise_multiplier / scale)
    assert (charged.sampling_rate, charged.steps) == (rung.sampling_rate, rung.steps)
    assert rung.private
    assert not any(
        each.private for each in planned(search={"accounting": "declared_unaccounted"}).simulations
    )


@pytest.mark.slow
def test_auto_takes_the_smallest_batch_whose_trials_have_enough_noise() -> None:
    plan = planned()
    charged = plan.charged_search
    assert charged is not None

    assert ENOUGH_NOISE <= charged.noise_multiplier < 2 * ENOUGH_NOISE
    smaller = planned(search={"rungs": [plan.rungs[0] // 4]})
    assert smaller.reference.noise_multiplier > 1.1 * plan.reference.noise_multiplier
    assert "costs more than its total noise" in " ".join(smaller.warnings)


def test_the_batch_of_trials_hardly_matters_while_they_have_enough_noise() -> None:
    whole, chosen = planned(search={"rungs": [4096]}), planned()

    assert chosen.rungs[0] < 4096
    assert chosen.reference.noise_multiplier < 1.06 * whole.reference.noise_multiplier
    assert "8 times the examples of the private run" in " ".join(whole.warnings)


@pytest.mark.parametrize(("batch", "noise", "found"), [(4096, 18.0, 512), (4096, 3.9, 4096), (4096, 4.0, 2048), (64, 90.0, 32), (20, 9.0, 20)])  # fmt: skip
def test_the_batch_is_a_half_of_a_half(batch: int, noise: float, found: int) -> None:
    assert charged_batch(batch, noise, enough_noise=2.0) == found


def test_scores_take_at_most_a_tenth_and_no_more_noise_than_that_needs() -> None:
    few, many = (
        ChargedSearch.of(
            8,
            epsilon=3.0,
            delta=DELTA,
            accountant=Accountant.PLD,
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
            counted=Counted.by(size, Metric.ACCURACY, None),
            expected_batch_size=None,
        )
        for size in (100, 1_000_000)
    )

    alone = PLDAccountant()
    alone.compose(SelfComposedDpEvent(GaussianDpEvent(few.score_noise_multiplier * 0.1**0.5), 9))
    assert alone.get_epsilon(DELTA) == pytest.approx(3.0, rel=2e-2)
    assert many.score_noise_multiplier == 300.0  # what the split's own draw does to a count


def test_where_a_balanced_accuracy_counts_scores_are_as_loud_as_the_draw_of_the_rarest_class() -> (
    None
):
    """Of a split with 2 % of one class an accuracy would need 784 records of 10,000 to be drawn as loudly."""
    balanced = {"metric": "balanced_accuracy"}
    train = {"class_shares": [98, 2]}

    plan = planned(search=balanced, train=train)

    charged, alike = plan.charged_search, planned(train=train).charged_search
    assert charged is not None
    assert alike is not None
    deviation = 0.5 * (0.09 / 9800 + 0.09 / 200) ** 0.5
    assert charged.score_std is not None
    assert charged.score_std >= deviation * 0.999
    assert charged.score_noise_multiplier == pytest.approx(charged.score_std * 400, rel=0.01)
    assert charged.score_noise_multiplier < alike.score_noise_multiplier


def test_scores_that_hardly_tell_trials_apart_are_warned_of() -> None:
    train = {"class_shares": [98, 2]}
    loud = plan_study(
        spec_of(search={"metric": "balanced_accuracy"}, train=train),
        num_examples=N,
        num_validation=500,
    )
    found = [each for each in loud.warnings if each.startswith("scores are noisy by")]
    assert loud.charged_search is not None
    assert loud.charged_search.score_std is not None
    assert loud.charged_search.score_std >= 0.1
    assert len(found) == 1
    assert "scores are noisy" not in " ".join(planned(train=train).warnings)


def test_noise_of_more_than_the_whole_split_is_told_in_digits() -> None:
    loud = plan_study(
        spec_of(train={"batch_size": 1024, "steps": 100}), num_examples=N, num_validation=8
    )

    (said,) = (each for each in loud.warnings if each.startswith("scores are noisy by"))
    assert re.match(r"scores are noisy by ± \d{3} points, ", said)


def test_noise_that_is_given_is_priced_with_its_search() -> None:
    plan = planned(privacy={"epsilon": None}, train={"noise_multiplier": 12.0})

    assert plan.privacy.epsilon_reserved == pytest.approx(by_the_library(plan, spare=True), 2e-3)
    assert plan.rungs == [1024]
    with pytest.raises(ParameterError, match="above privacy\\.epsilon") as refused:
        planned(privacy={"epsilon": 1.0}, train={"noise_multiplier": 12.0})
    assert refused.value.field == "train.noise_multiplier"


def test_more_trials_than_can_be_priced_are_refused_by_name() -> None:
    with pytest.raises(ParameterError, match="at most 20,000") as refused:
        planned(search={"trials": 90_000})
    assert refused.value.field == "search.trials"


def test_a_rung_above_every_batch_is_refused() -> None:
    with pytest.raises(ParameterError, match="cannot exceed") as refused:
        planned(400, search={"rungs": [512]}, train={"batch_size": "auto"})
    assert refused.value.field == "search.rungs"


def test_other_modes_are_shown_beside_it_and_its_own_figure_stays() -> None:
    spec = spec_of()
    plan = plan_study(spec, num_examples=N, num_validation=10_000)
    found = {each.mode: each for each in search_privacy_by_mode(spec, plan, search_num_examples=N)}

    assert found[spec.search.accounting] == plan.search_privacy


def test_two_accountants_are_heard_and_nobody_is_warned_of_the_third(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    plan = planned()

    voices = plan.privacy.epsilon_by_accountant
    assert voices[Accountant.PLD] < voices[Accountant.RDP]  # type: ignore[operator]
    assert voices[Accountant.PRV] is None
    assert "prv" not in " ".join(plan.warnings)


def test_no_step_candidates_are_offered_that_were_not_planned_with_their_search() -> None:
    assert [one.reference for one in planned().step_candidates] == [True]


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"search": {"rungs": [64, 256]}}, ("search", "rungs"), "none climbs"),
        ({"search": {"budget": 2.0}}, ("search", "budget"), "leave it out"),
        ({"privacy": {"accountant": "prv"}}, ("privacy", "accountant"), "accepted: pld, rdp"),
        (
            {"search": {"space": {"clip_norm": [0.1, 1.0]}}},
            ("search", "space", "clip_norm"),
            "fix clip_norm below train",
        ),
        (
            {"search": {"space": {"train.steps": [100, 200]}}, "train": {"steps": "auto"}},
            ("search", "space", "train.steps"),
            "fix steps below train",
        ),
    ],
)
def test_what_would_change_the_mechanism_of_a_trial_is_refused_by_path(
    changes: dict[str, Any], path: tuple[str, ...], words: str
) -> None:
    if "space" in changes.get("search", {}):
        (key,) = changes["search"]["space"]
        changes = {**changes, "search": {"space": {key: {"choices": changes["search"]["space"][key]}}}}  # fmt: skip
    with pytest.raises(ValidationError) as refused:
        spec_of(**changes)

    (fault,) = refused.value.errors()
    assert fault["loc"] == path
    assert words in fault["msg"]


def test_a_plan_that_was_stored_reads_back() -> None:
    plan = planned()

    assert Plan.model_validate(plan.model_dump(mode="json")) == plan
    assert isinstance(plan.charged_search.trial(plan.privacy.neighboring_relation), Mechanism)  # type: ignore[union-attr]
    assert "charged_search" not in planned(
        search={"accounting": "declared_unaccounted"}
    ).model_dump(mode="json")


def test_the_run_begins_with_its_trials_weights_unless_it_is_told_not_to() -> None:
    """No epsilon depends on it: what a trial leaves is made of noisy sums that are charged."""
    on, anew = planned(), planned(train={"begin_from": "scratch"})

    assert (on.goes_on, anew.goes_on) == (True, False)
    assert [plan.simulations[0].learning_rate_factor for plan in (on, anew)] == [0.5, 1.0]
    assert "goes_on" not in anew.model_dump()
    assert on.privacy == anew.privacy
    assert on.private_run() == anew.private_run()


@pytest.mark.parametrize(
    "search",
    [
        {"accounting": "declared_unaccounted"},
        {"accounting": "public_proxy"},
        {"accounting": "public_proxy", "dataset": "data"},
        {"accounting": "no_search", "trials": 0, "space": {}},
    ],
)
def test_weights_of_a_simulation_of_the_data_themselves_are_no_beginning(
    search: dict[str, Any],
) -> None:
    """Those of a public proxy that is another dataset are."""
    assert not spec_of(search=search).goes_on_from_trial
    with pytest.raises(ValidationError, match="accepted here: auto, scratch") as refused:
        spec_of(search=search, train={"begin_from": "trial"})
    (fault,) = refused.value.errors()
    assert fault["loc"] == ("train", "begin_from")

    proxy = {"accounting": "public_proxy", "dataset": "other"}
    assert not spec_of(search=proxy).goes_on_from_trial
    on = planned(search=proxy, train={"begin_from": "trial"})
    assert on.goes_on
    assert on.confirmation is not None
    assert {each.learning_rate_factor for each in (*on.simulations, on.confirmation)} == {0.5}
