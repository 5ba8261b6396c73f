"""Optuna filled from the control plane's trials, and ASHA over rungs of batch size."""

from typing import Any

import pytest
from optuna.trial import TrialState as OptunaState
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from tan_core.spec import SearchSpec
from tan_core.wire import RungScore, TrialRecord, TrialState
from worker.schedule import RESOURCE, build_scheduler, reduction_factor, resource
from worker.searcher import METRIC, ConstantTanSearch, hydrated_storage

RUNGS = [16, 64, 256]
SPACE: dict[str, Any] = {
    "learning_rate": {"low": 0.25, "high": 16.0, "log": True},
    "optimizer": {"choices": ["sgd", "adam"]},
    "steps": {"low": 10, "high": 20},
    "model.hidden": 32,
}


def spec(**changes: Any) -> SearchSpec:
    return SearchSpec.model_validate(
        {"accounting": "declared_unaccounted", "trials": 8, "space": SPACE, **changes}
    )


def record(
    number: int,
    state: TrialState,
    *,
    learning_rate: float = 1.0,
    accuracies: tuple[float | None, ...] = (),
) -> TrialRecord:
    scores = [
        RungScore(
            rung=rung,
            expected_batch_size=RUNGS[rung],
            noise_multiplier=0.1,
            steps=10,
            accuracy=accuracy,
            seconds=1.0,
        )
        for rung, accuracy in enumerate(accuracies)
    ]
    return TrialRecord(
        number=number,
        state=state,
        params={
            "learning_rate": learning_rate,
            "optimizer": "sgd",
            "steps": 10,
            "model.hidden": 32,
        },
        scores=scores,
        value=accuracies[-1] if accuracies else None,
    )


KNOWN = [
    record(0, TrialState.COMPLETED, learning_rate=2.0, accuracies=(0.5, 0.6, 0.7)),
    record(1, TrialState.INTERRUPTED, learning_rate=3.0, accuracies=(0.4,)),
    record(2, TrialState.PRUNED, learning_rate=0.5, accuracies=(0.2,)),
    record(3, TrialState.DIVERGED, learning_rate=15.0, accuracies=(None,)),
    record(5, TrialState.FAILED, learning_rate=4.0),
]


def suggest(searcher: ConstantTanSearch, trial_id: str) -> dict[str, Any]:
    suggestion = searcher.suggest(trial_id)
    assert suggestion is not None
    return suggestion


def result(rung: int, score: float, outcome: str) -> dict[str, Any]:
    return {"rung": rung, METRIC: score, "outcome": outcome}


def states(searcher: ConstantTanSearch) -> list[OptunaState]:
    return [trial.state for trial in searcher._ot_study.trials]


def test_a_fresh_search_numbers_its_trials_from_zero() -> None:
    searcher = ConstantTanSearch(spec(), [])
    assert [suggest(searcher, f"t{n}")["number"] for n in range(3)] == [0, 1, 2]


def test_a_suggestion_has_every_key_of_the_space_within_its_ends() -> None:
    searcher = ConstantTanSearch(spec(), [])
    for n in range(30):
        params = suggest(searcher, f"t{n}")["params"]
        assert set(params) == set(SPACE)
        assert 0.25 <= params["learning_rate"] <= 16.0
        assert params["optimizer"] in ("sgd", "adam")
        assert isinstance(params["steps"], int)
        assert 10 <= params["steps"] <= 20
        assert params["model.hidden"] == 32


def test_equal_seeds_suggest_equal_trials_and_other_seeds_do_not() -> None:
    def drawn(seed: int) -> list[Any]:
        searcher = ConstantTanSearch(spec(seed=seed), [])
        return [suggest(searcher, f"t{n}")["params"] for n in range(5)]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_an_interrupted_trial_runs_first_under_its_own_number() -> None:
    first = suggest(ConstantTanSearch(spec(), KNOWN), "t0")
    assert first == {"number": 1, "params": KNOWN[1].params}


def test_a_number_that_was_never_reported_is_used_before_new_ones() -> None:
    searcher = ConstantTanSearch(spec(), KNOWN)
    assert [suggest(searcher, f"t{n}")["number"] for n in range(4)] == [1, 4, 6, 7]


def test_a_resumed_search_does_not_draw_its_first_trials_again() -> None:
    fresh = ConstantTanSearch(spec(), [])
    before = [suggest(fresh, f"t{n}")["params"] for n in range(4)]
    known = [
        TrialRecord(number=n, state=TrialState.COMPLETED, params=params, value=0.5)
        for n, params in enumerate(before)
    ]
    resumed = ConstantTanSearch(spec(), known)
    after = [suggest(resumed, f"u{n}")["params"] for n in range(4)]
    rates = {params["learning_rate"] for params in before}
    assert not rates & {params["learning_rate"] for params in after}


def test_known_trials_reach_optuna_in_their_own_state() -> None:
    trials = hydrated_storage(spec(), KNOWN).get_all_trials(0)
    assert [trial.state for trial in trials] == [
        OptunaState.COMPLETE,
        OptunaState.WAITING,
        OptunaState.PRUNED,
        OptunaState.PRUNED,
        OptunaState.WAITING,
        OptunaState.FAIL,
    ]
    assert trials[0].value == 0.7
    assert trials[0].intermediate_values == {1: 0.5, 2: 0.6, 3: 0.7}


def test_a_trial_stopped_below_the_last_rung_is_told_as_pruned() -> None:
    searcher = ConstantTanSearch(spec(), [])
    suggest(searcher, "t0")
    searcher.on_trial_result("t0", result(0, 0.3, "running"))
    searcher.on_trial_complete("t0", result(0, 0.3, "running"))
    assert states(searcher) == [OptunaState.PRUNED]


def test_a_trial_that_reached_the_last_rung_is_told_as_complete_with_its_last_score() -> None:
    searcher = ConstantTanSearch(spec(), [])
    suggest(searcher, "t0")
    searcher.on_trial_result("t0", result(0, 0.3, "running"))
    searcher.on_trial_complete("t0", result(1, 0.8, "completed"))
    assert states(searcher) == [OptunaState.COMPLETE]
    assert searcher._ot_study.trials[0].value == 0.8


@pytest.mark.parametrize(
    ("outcome", "error", "told"),
    [
        ("diverged", False, OptunaState.PRUNED),
        ("failed", False, OptunaState.FAIL),
        ("running", True, OptunaState.FAIL),
    ],
)
def test_a_trial_without_a_final_score_is_never_told_as_complete(
    outcome: str, error: bool, told: OptunaState
) -> None:
    searcher = ConstantTanSearch(spec(), [])
    suggest(searcher, "t0")
    searcher.on_trial_complete("t0", result(0, 0.0, outcome), error=error)
    assert states(searcher) == [told]


def test_a_trial_that_lost_its_worker_may_report_a_rung_twice() -> None:
    searcher = ConstantTanSearch(spec(), [])
    suggest(searcher, "t0")
    searcher.on_trial_result("t0", result(0, 0.3, "running"))
    searcher.on_trial_result("t0", result(0, 0.4, "running"))
    assert searcher._ot_study.trials[0].intermediate_values == {1: 0.3}


@pytest.mark.parametrize(
    ("rungs", "factor"),
    [([64], 2.0), ([16, 64, 256], 4.0), ([10, 15], 2.0), ([8, 4096], 4.0), ([9, 27, 81], 3.0)],
)
def test_a_rung_keeps_the_share_of_trials_that_makes_rungs_cost_alike(
    rungs: list[int], factor: float
) -> None:
    assert reduction_factor(rungs) == pytest.approx(factor)


def test_one_rung_needs_no_pruning() -> None:
    assert type(build_scheduler([64], [])) is FIFOScheduler


@pytest.mark.parametrize("num_rungs", [2, 3, 4, 5, 6, 8])
def test_every_rung_below_the_last_is_a_milestone(num_rungs: int) -> None:
    rungs = [4 * 3**n for n in range(num_rungs)]
    for cut_at in range(num_rungs - 1):
        scheduler = build_scheduler(rungs, [])
        assert decide(scheduler, "good", cut_at, 0.9, rungs) == TrialScheduler.CONTINUE
        assert decide(scheduler, "bad", cut_at, 0.1, rungs) == TrialScheduler.STOP


def test_the_scores_of_an_earlier_attempt_still_prune() -> None:
    known = [record(n, TrialState.PRUNED, accuracies=(0.8,)) for n in range(4)]
    assert decide(build_scheduler(RUNGS, known), "new", 0, 0.5, RUNGS) == TrialScheduler.STOP
    assert decide(build_scheduler(RUNGS, []), "new", 0, 0.5, RUNGS) == TrialScheduler.CONTINUE


class Stub:
    def __init__(self, trial_id: str) -> None:
        self.trial_id = trial_id


def decide(scheduler: Any, trial_id: str, rung: int, score: float, rungs: list[int]) -> str:
    trial = Stub(trial_id)
    scheduler.on_trial_add(None, trial)
    reported = {RESOURCE: resource(rung, rungs), METRIC: score}
    return scheduler.on_trial_result(None, trial, reported)
