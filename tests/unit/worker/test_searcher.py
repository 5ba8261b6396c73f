"""Optuna filled from the control plane's trials, ASHA over rungs of batch size, and the finals."""

import math
from typing import Any

import numpy as np
import pytest
from optuna.samplers import CmaEsSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import TrialState as OptunaState
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from tan_core.mechanism import Mechanism
from tan_core.spec.study import Sampler
from tan_core.wire import (
    CURVE_POINTS,
    CurvePoint,
    KnownPoint,
    RungScore,
    SearchAssignment,
    TrialRecord,
    TrialState,
)
from tests.support.assignments import DIGITS, search_assignment
from worker.curves import FEWEST_RUNS, SHARES, CurveStopper
from worker.rung import QUICK_VALIDATION
from worker.schedule import RESOURCE, build_scheduler, cut_of, resource
from worker.searcher import METRIC, ConstantTanSearch, hydrated_storage, sampler

RUNGS = [16, 64, 256]
STEPS = 40
SPACE: dict[str, Any] = {
    "learning_rate": {"low": 0.25, "high": 16.0, "log": True},
    "optimizer": {"choices": ["sgd", "adam"]},
    "steps": {"low": 10, "high": 20},
    "model.hidden": 32,
}


def assignment_of(
    *,
    trials: int = 8,
    space: dict[str, Any] = SPACE,
    seed: int = 0,
    sampler: str = "tpe",
    **changes: Any,
) -> SearchAssignment:
    mechanism = Mechanism(sampling_rate=0.1, noise_multiplier=2.0, clip_norm=1.0, steps=STEPS)
    search = {"trials": trials, "space": space, "seed": seed, "sampler": sampler}
    return search_assignment(
        DIGITS,
        mechanism=mechanism,
        search=search,
        **{"model": {"name": "mlp"}, "rungs": RUNGS, **changes},
    )


def searching(known: list[TrialRecord] | None = None, **changes: Any) -> ConstantTanSearch:
    records = {trial.number: trial for trial in known or []}
    return ConstantTanSearch(assignment_of(**changes), records)


def score_of(rung: int, accuracy: float | None, *, seed: int = 0) -> RungScore:
    return RungScore(
        rung=rung,
        seed=seed,
        expected_batch_size=RUNGS[rung],
        noise_multiplier=0.1,
        steps=STEPS,
        accuracy=accuracy,
        seconds=1.0,
    )


def record(
    number: int,
    state: TrialState,
    *,
    learning_rate: float = 1.0,
    accuracies: tuple[float | None, ...] = (),
) -> TrialRecord:
    return TrialRecord(
        number=number,
        state=state,
        params={
            "learning_rate": learning_rate,
            "optimizer": "sgd",
            "steps": 10,
            "model.hidden": 32,
        },
        scores=[score_of(rung, accuracy) for rung, accuracy in enumerate(accuracies)],
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


def result(rung: int, score: float, outcome: str, *, point: int | None = None) -> dict[str, Any]:
    """A report of a trial: of a rung's end, or of a point on its curve."""
    return {
        "rung": rung,
        METRIC: score,
        "outcome": outcome,
        "is_scored": point is None,
        "point": point or 0,
    }


def states(searcher: ConstantTanSearch) -> list[OptunaState]:
    """Of the trials that were asked for."""
    trials = searcher._ot_study.trials
    return [trial.state for trial in trials if trial.state is not OptunaState.WAITING]


def test_a_fresh_search_numbers_its_trials_from_zero() -> None:
    searcher = searching()
    assert [suggest(searcher, f"t{n}")["number"] for n in range(3)] == [0, 1, 2]


def test_a_suggestion_has_every_key_of_the_space_within_its_ends() -> None:
    searcher = searching(trials=30)
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
        searcher = searching(seed=seed)
        return [suggest(searcher, f"t{n}")["params"] for n in range(5)]

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


RATES: dict[str, Any] = {"learning_rate": {"low": 0.25, "high": 16.0, "log": True}}


def sixteenths(searcher: ConstantTanSearch, count: int) -> list[int]:
    """Where in the range, by ratio, learning rates are that are proposed one after another."""
    rates = [suggest(searcher, f"s{n}")["params"]["learning_rate"] for n in range(count)]
    return [int(16 * math.log(rate / 0.25) / math.log(64)) for rate in rates]


@pytest.mark.parametrize("kind", ["tpe", "gp"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_trials_that_know_nothing_yet_are_spread_over_the_space(kind: str, seed: int) -> None:
    found = sixteenths(searching(space=RATES, sampler=kind, seed=seed), 8)
    assert sorted(place // 2 for place in found) == [*range(8)]
    assert found != sorted(found)


def test_who_asks_for_random_draws_has_them() -> None:
    found = [
        sixteenths(searching(space=RATES, sampler="random", seed=seed), 8) for seed in range(4)
    ]
    assert any(len({place // 2 for place in places}) < 8 for places in found)


def test_a_search_that_is_resumed_goes_on_over_the_same_points() -> None:
    whole = searching(space=RATES)
    points = [suggest(whole, f"t{n}")["params"] for n in range(8)]
    known = [
        TrialRecord(number=n, state=TrialState.COMPLETED, params=points[n], value=0.5)
        for n in range(3)
    ]
    resumed = searching(known, space=RATES)
    assert [suggest(resumed, f"u{n}")["params"] for n in range(5)] == points[3:]


def test_points_that_are_known_take_the_place_of_the_first_ones() -> None:
    known = [KnownPoint(params={"learning_rate": 1.0}, source="trial 1 of s-1")]
    searcher = searching(space=RATES, points=known, trials=5)
    first, *others = [suggest(searcher, f"t{n}")["params"]["learning_rate"] for n in range(5)]
    assert first == 1.0
    assert sorted(int(4 * math.log(rate / 0.25) / math.log(64)) for rate in others) == [0, 1, 2, 3]


OWN = [
    KnownPoint(params={"learning_rate": 1.0}, source="the study's own list"),
    KnownPoint(params={"optimizer": "adam"}, source="the study's own list"),
]


@pytest.mark.parametrize("kind", ["tpe", "gp", "cmaes", "random"])
def test_what_a_known_point_leaves_out_is_chosen(kind: str) -> None:
    searcher = searching(points=OWN, sampler=kind)

    first, second, third = (suggest(searcher, f"t{n}")["params"] for n in range(3))

    assert first["learning_rate"] == 1.0
    assert second["optimizer"] == "adam"
    assert {*first} == {*second} == {*third} == {*SPACE}


@pytest.mark.parametrize("known", [0, 1, 2, 5])
def test_known_points_are_neither_lost_nor_repeated_by_a_driver_that_dies(known: int) -> None:
    whole = searching(points=OWN)
    points = [suggest(whole, f"t{n}")["params"] for n in range(8)]
    records = [
        TrialRecord(number=n, state=TrialState.COMPLETED, params=points[n], value=0.5)
        for n in range(known)
    ]

    resumed = searching(records, points=OWN)
    found = [suggest(resumed, f"u{n}") for n in range(8 - known)]

    assert [(each["number"], each["params"]) for each in found] == [*enumerate(points)][known:]


GRID: dict[str, Any] = {
    "optimizer": {"choices": ["sgd", "adam"]},
    "beta2": {"choices": [0.9, 0.95, 0.99]},
    "learning_rate": {"choices": [1.0, 2.0, 4.0]},
    "augmentation_multiplicity": {"low": 1, "high": 2},
}
"""Of 2 * 3 * (1 + 3) combinations."""


class TestGrid:
    def walked(
        self, count: int, known: list[TrialRecord] | None = None, **changes: Any
    ) -> list[Any]:
        given: dict[str, Any] = {"trials": 24, "space": GRID, "sampler": "grid", **changes}
        searcher = searching(known, **given)
        return [suggest(searcher, f"t{n}")["params"] for n in range(count)]

    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_each_combination_is_tried_once(self, seed: int) -> None:
        found = self.walked(24, seed=seed)

        assert all(found.count(params) == 1 for params in found)
        assert all(("beta2" in params) is (params["optimizer"] == "adam") for params in found)

    @pytest.mark.parametrize("seed", range(4))
    def test_its_first_ones_look_at_all_of_the_space(self, seed: int) -> None:
        first = self.walked(10, seed=seed)

        assert {params["learning_rate"] for params in first[:10]} == {1.0, 2.0, 4.0}
        assert 4 <= sum(params["optimizer"] == "sgd" for params in first) <= 6

    def test_a_seed_is_an_order(self) -> None:
        assert self.walked(24, seed=1) == self.walked(24, seed=1) != self.walked(24, seed=2)

    @pytest.mark.parametrize("died", [1, 12, 23])
    def test_a_driver_that_dies_goes_on_where_it_was(self, died: int) -> None:
        whole = self.walked(24)
        known = [
            TrialRecord(number=n, state=TrialState.COMPLETED, params=whole[n], value=0.5)
            for n in range(died)
        ]
        assert self.walked(24 - died, known) == whole[died:]

    def test_known_points_are_a_part_of_it(self) -> None:
        own = {
            "optimizer": "adam",
            "beta2": 0.95,
            "learning_rate": 2.0,
            "augmentation_multiplicity": 2,
        }
        points = [
            KnownPoint(params=params, source="earlier") for params in (own, {"optimizer": "sgd"})
        ]

        found = self.walked(24, points=points)

        assert found[0] == own
        assert found[1]["optimizer"] == "sgd"
        assert all(found.count(params) == 1 for params in found)


def test_an_interrupted_trial_runs_first_under_its_own_number() -> None:
    first = suggest(searching(KNOWN), "t0")
    assert (first["number"], first["params"], first["seed"]) == (1, KNOWN[1].params, 0)


def test_an_interrupted_trial_keeps_the_rungs_that_were_scored() -> None:
    known = record(0, TrialState.INTERRUPTED, accuracies=(0.4, 0.5, None))
    first = suggest(searching([known]), "t0")
    assert [RungScore.model_validate(score) for score in first["scores"]] == known.scores[:2]


def test_a_number_that_was_never_reported_is_used_before_new_ones() -> None:
    searcher = searching(KNOWN)
    assert [suggest(searcher, f"t{n}")["number"] for n in range(4)] == [1, 4, 6, 7]


def test_a_resumed_search_does_not_draw_its_first_trials_again() -> None:
    fresh = searching()
    before = [suggest(fresh, f"t{n}")["params"] for n in range(4)]
    known = [
        TrialRecord(number=n, state=TrialState.COMPLETED, params=params, value=0.5)
        for n, params in enumerate(before)
    ]
    resumed = searching(known)
    after = [suggest(resumed, f"u{n}")["params"] for n in range(4)]
    rates = {params["learning_rate"] for params in before}
    assert not rates & {params["learning_rate"] for params in after}


def test_known_trials_reach_optuna_in_their_own_state() -> None:
    trials = hydrated_storage(assignment_of(trials=6), KNOWN).get_all_trials(0)
    assert [trial.state for trial in trials] == [
        OptunaState.COMPLETE,
        OptunaState.WAITING,
        OptunaState.PRUNED,
        OptunaState.PRUNED,
        OptunaState.WAITING,
        OptunaState.FAIL,
    ]
    assert trials[0].value == 0.7
    assert trials[0].intermediate_values == {4: 0.5, 8: 0.6, 12: 0.7}


def test_a_trial_stopped_below_the_last_rung_is_told_as_pruned() -> None:
    searcher = searching()
    suggest(searcher, "t0")
    searcher.on_trial_result("t0", result(0, 0.3, "running"))
    searcher.on_trial_complete("t0", result(0, 0.3, "running"))
    assert states(searcher) == [OptunaState.PRUNED]


def test_a_trial_that_reached_the_last_rung_is_told_as_complete_with_its_last_score() -> None:
    searcher = searching()
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
    searcher = searching()
    suggest(searcher, "t0")
    searcher.on_trial_complete("t0", result(0, 0.0, outcome, point=1), error=error)
    assert states(searcher) == [told]


def test_a_trial_that_lost_its_worker_may_report_a_rung_twice() -> None:
    searcher = searching()
    suggest(searcher, "t0")
    searcher.on_trial_result("t0", result(0, 0.3, "running"))
    searcher.on_trial_result("t0", result(0, 0.4, "running"))
    assert searcher._ot_study.trials[0].intermediate_values == {4: 0.3}


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


HEATED = [RUNGS[0] / CURVE_POINTS, *RUNGS]


def heat_of(accuracy: float) -> RungScore:
    point = CurvePoint(step=STEPS // CURVE_POINTS, accuracy=accuracy)
    changes = {"heat": True, "steps": point.step, "curve": [point]}
    return score_of(0, accuracy).model_copy(update=changes)


def after_heat(number: int, accuracy: float, *, state: TrialState) -> TrialRecord:
    return record(number, state).model_copy(
        update={"scores": [heat_of(accuracy)], "value": accuracy}
    )


def test_the_end_of_a_heat_is_the_first_milestone() -> None:
    scheduler = build_scheduler(HEATED, [], has_heat=True)
    assert decide(scheduler, "good", 0, 0.9, HEATED) == TrialScheduler.CONTINUE
    assert decide(scheduler, "bad", 0, 0.1, HEATED) == TrialScheduler.STOP
    assert type(build_scheduler([16, 64], [], has_heat=True)) is not FIFOScheduler


def test_heats_of_an_earlier_attempt_still_prune_whether_they_went_on_or_not() -> None:
    went_on = score_of(0, 0.95).model_copy(
        update={
            "curve": [
                CurvePoint(step=STEPS * n // CURVE_POINTS, accuracy=accuracy)
                for n, accuracy in enumerate([0.8, 0.85, 0.9, 0.95], 1)
            ]
        }
    )
    known = [
        after_heat(0, 0.6, state=TrialState.PRUNED),
        record(1, TrialState.PRUNED).model_copy(update={"scores": [went_on], "value": 0.95}),
    ]
    scheduler = build_scheduler(HEATED, known, has_heat=True)
    assert decide(scheduler, "low", 0, 0.7, HEATED) == TrialScheduler.STOP
    assert decide(scheduler, "high", 0, 0.8, HEATED) == TrialScheduler.CONTINUE
    assert decide(scheduler, "high", 1, 0.9, HEATED) == TrialScheduler.STOP


@pytest.mark.parametrize(
    ("score", "cut"),
    [
        (heat_of(0.3), 0),
        (score_of(0, None), 0),
        (heat_of(0.3).model_copy(update={"heat": False, "accuracy": None, "steps": STEPS - 1}), 1),
        (score_of(1, 0.5), 2),
    ],
    ids=["heat", "lost in it", "lost after it", "next rung"],
)
def test_a_score_is_at_its_cut(score: RungScore, cut: int) -> None:
    assert cut_of(score, has_heat=True) == cut
    assert cut_of(score, has_heat=False) == score.rung


def test_a_heat_is_told_to_optuna_as_the_point_of_a_curve_and_begun_again_after_a_crash() -> None:
    known = [
        after_heat(0, 0.25, state=TrialState.PRUNED),
        after_heat(1, 0.75, state=TrialState.INTERRUPTED),
    ]
    searcher = searching(known, heat=True)
    assert searcher._ot_study.trials[0].intermediate_values == {1: 0.25}
    assert suggest(searcher, "t1")["number"] == 1
    assert suggest(searching(known, heat=True), "t1")["scores"] == []


class Stub:
    def __init__(self, trial_id: str) -> None:
        self.trial_id = trial_id


def decide(scheduler: Any, trial_id: str, rung: int, score: float, rungs: list[int]) -> str:
    trial = Stub(trial_id)
    scheduler.on_trial_add(None, trial)
    reported = {RESOURCE: resource(rung, rungs), METRIC: score}
    return scheduler.on_trial_result(None, trial, reported)


CONDITIONAL: dict[str, Any] = {
    "beta2": {"low": 0.9, "high": 0.999},
    "dampening": {"low": 0.1, "high": 0.5},
    "optimizer": {"choices": ["sgd", "adam"]},
    "momentum": {"choices": [0.0, 0.9]},
}


def test_a_candidate_has_only_the_dimensions_that_it_reads() -> None:
    searcher = searching(trials=40, space=CONDITIONAL)
    seen = [suggest(searcher, f"t{n}")["params"] for n in range(40)]
    for params in seen:
        is_sgd = params["optimizer"] == "sgd"
        assert ("beta2" in params) is not is_sgd
        assert ("dampening" in params) is (is_sgd and params["momentum"] > 0)
    assert len({frozenset(params) for params in seen}) == 3


@pytest.mark.parametrize("momentum", [{"low": 0.0, "high": 0.99}, {"choices": [0.5, 0.9]}, 0.9])
def test_momentum_is_asked_of_sgd_and_beta1_of_adam(momentum: Any) -> None:
    space = {  # whichever is written first
        "momentum": momentum,
        "beta1": {"low": 0.8, "high": 0.99},
        "optimizer": {"choices": ["sgd", "adam"]},
    }
    searcher = searching(space=space, trials=12)

    drawn = [suggest(searcher, f"ray-{i}")["params"] for i in range(12)]

    assert {params["optimizer"] for params in drawn} == {"sgd", "adam"}
    for params in drawn:
        is_sgd = params["optimizer"] == "sgd"
        assert ("momentum" in params, "beta1" in params) == (is_sgd, not is_sgd)


def test_momentum_alone_is_asked_of_adam_too() -> None:
    space = {"momentum": {"low": 0.1, "high": 0.9}, "optimizer": {"choices": ["adam", "adamw"]}}
    searcher = searching(space=space, trials=4)

    assert all("momentum" in suggest(searcher, f"ray-{i}")["params"] for i in range(4))


def test_a_conditional_search_is_resumed_from_trials_that_lack_dimensions() -> None:
    known = [
        TrialRecord(
            number=n,
            state=TrialState.COMPLETED,
            params={"optimizer": "sgd", "momentum": 0.0},
            value=0.5,
        )
        for n in range(12)
    ]
    params = suggest(searching(known, trials=14, space=CONDITIONAL), "t0")["params"]
    assert "optimizer" in params


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("tpe", TPESampler),
        ("cmaes", CmaEsSampler),
        ("gp", GPSampler),
        ("random", RandomSampler),
        ("grid", RandomSampler),
    ],
)
def test_every_sampler_proposes_before_and_after_it_has_learnt(kind: str, made: type) -> None:
    assert type(sampler(Sampler(kind), seed=1, is_conditional=True)) is made
    space = {
        "learning_rate": {"low": 0.25, "high": 16.0, "log": True},
        "ema_decay": {"low": 0.0, "high": 0.9},
    }
    known = [
        TrialRecord(
            number=n,
            state=TrialState.COMPLETED,
            params={"learning_rate": 1.0 + n, "ema_decay": 0.1 * n},
            value=0.1 * n,
        )
        for n in range(8)
    ]
    for before in ([], known):
        params = suggest(searching(before, trials=10, space=space, sampler=kind), "t0")["params"]
        assert 0.25 <= params["learning_rate"] <= 16.0
        assert 0.0 <= params["ema_decay"] <= 0.9


def test_known_points_are_tried_first_and_finished_ones_not_again() -> None:
    points = [
        KnownPoint(params=record(0, TrialState.RUNNING, learning_rate=rate).params, source="s")
        for rate in (3.0, 5.0)
    ]
    fresh = searching(points=points)
    rates = [suggest(fresh, f"t{n}")["params"]["learning_rate"] for n in range(3)]
    assert rates[:2] == [3.0, 5.0]
    assert rates[2] not in (3.0, 5.0)
    done = record(0, TrialState.COMPLETED, learning_rate=3.0, accuracies=(0.1, 0.2, 0.3))
    first = suggest(searching([done], points=points), "t0")
    assert (first["number"], first["params"]["learning_rate"]) == (1, 5.0)


def test_a_seed_does_not_draw_again_what_it_drew_in_the_study_that_is_learnt_from() -> None:
    source = searching(trials=12)
    drawn = [suggest(source, f"t{n}")["params"] for n in range(4)]
    points = [KnownPoint(params=params, source="s") for params in (drawn[2], drawn[0])]

    warm = searching(trials=12, points=points)

    tried = [suggest(warm, f"t{n}")["params"] for n in range(10)]
    assert tried[:2] == [drawn[2], drawn[0]]
    again = {params["learning_rate"] for params in tried[2:]}
    assert not again & {params["learning_rate"] for params in drawn}


def test_of_parameters_that_were_simulated_every_score_is_known() -> None:
    """Of so few choices some come again; the same seed would score them the same."""
    space = {"optimizer": {"choices": ["sgd", "adam"]}}
    known = [
        TrialRecord(
            number=n,
            state=TrialState.COMPLETED,
            params={"optimizer": name},
            scores=[score_of(rung, 0.5 + 0.1 * rung) for rung in range(rungs)],
            value=0.5,
        )
        for n, (name, rungs) in enumerate([("sgd", 3), ("adam", 2)])
    ]
    searcher = searching(known, trials=12, space=space)

    for turn in range(10):
        suggestion = suggest(searcher, f"t{turn}")
        (twin,) = [one for one in known if one.params == suggestion["params"]]
        assert suggestion["number"] == 2 + turn
        found = [RungScore.model_validate(one) for one in suggestion["scores"]]
        assert found == [one.model_copy(update={"seconds": 0.0}) for one in twin.scores]


def test_what_a_trial_takes_over_from_another_took_it_no_time_and_its_own_did() -> None:
    """budget.gpu_hours sums the seconds of all scores: it would be used up by work that nobody did."""
    space = {"optimizer": {"choices": ["sgd"]}}
    done, begun = (
        TrialRecord(number=n, state=state, params={"optimizer": "sgd"}, scores=[score_of(0, 0.5)])
        for n, state in enumerate([TrialState.PRUNED, TrialState.INTERRUPTED])
    )
    searcher = searching([done, begun], trials=3, space=space)

    again, twin = (suggest(searcher, f"t{n}") for n in range(2))

    assert [one["seconds"] for one in again["scores"]] == [1.0]
    assert [one["seconds"] for one in twin["scores"]] == [0.0]


def test_of_a_charged_search_every_trial_runs_whatever_the_scores() -> None:
    """Scores that choose the parameters would else choose how many trials are charged, too: that was to be fixed before."""
    charged = {
        "mechanism": {"event": assignment_of().reference.event},
        "score_noise_multiplier": 20.0,
    }
    space = {"optimizer": {"choices": ["sgd", "adam"]}}
    known = [
        TrialRecord(
            number=n,
            state=TrialState.COMPLETED,
            params={"optimizer": name},
            scores=[score_of(0, 0.5)],
            value=0.5,
        )
        for n, name in enumerate(["sgd", "adam"])
    ]
    searcher = searching(known, trials=12, space=space, rungs=RUNGS[:1], charged=charged)

    suggestions = [suggest(searcher, f"t{turn}") for turn in range(10)]

    assert [each["number"] for each in suggestions] == list(range(2, 12))
    assert [each["scores"] for each in suggestions] == [[]] * 10


class TestGoingOn:
    """Of a search that is charged, later trials go on from what earlier ones have left."""

    DIGEST = "5b" * 32

    def charged(self, *, anew: int | None = 2) -> dict[str, Any]:
        return {
            "mechanism": {"event": assignment_of().reference.event},
            "score_noise_multiplier": 3.0,
            "score_std": 0.01,
            "anew": anew,
        }

    def trial(
        self, number: int, accuracy: float, *, state: TrialState = TrialState.COMPLETED
    ) -> TrialRecord:
        made = record(number, state, learning_rate=2.0 + number, accuracies=(accuracy,))
        return made.model_copy(update={"weights_sha256": self.DIGEST})

    def searcher(self, known: list[TrialRecord], **changes: Any) -> ConstantTanSearch:
        given: dict[str, Any] = {"trials": 6, "rungs": RUNGS[:1], "charged": self.charged()}
        return searching(known, **{**given, **changes})

    def test_the_first_ones_begin_anew_side_by_side_and_the_next_waits_for_them(self) -> None:
        searcher = self.searcher([])

        first, second = suggest(searcher, "t0"), suggest(searcher, "t1")
        assert [each["number"] for each in (first, second)] == [0, 1]
        assert [each["began_from"] for each in (first, second)] == [None, None]
        assert searcher.suggest("t2") is None

    @pytest.mark.parametrize("kind", ["tpe", "gp", "cmaes"])
    def test_those_that_begin_anew_are_spread_over_the_space(self, kind: str) -> None:
        """Few as they are, they are all that is seen of it."""
        charged = self.charged(anew=4)
        for seed in range(3):
            searcher = self.searcher([], space=RATES, sampler=kind, seed=seed, charged=charged)
            assert sorted(place // 4 for place in sixteenths(searcher, 4)) == [0, 1, 2, 3]

    def test_a_grid_orders_those_that_begin_anew(self) -> None:
        rates = {"learning_rate": {"choices": [1.0, 2.0, 4.0]}}
        searcher = self.searcher([], space=rates, sampler="grid", charged=self.charged(anew=3))

        begun = [suggest(searcher, f"t{turn}") for turn in range(3)]

        assert sorted(each["params"]["learning_rate"] for each in begun) == [1.0, 2.0, 4.0]
        assert searcher.suggest("t3") is None

    def test_each_later_one_has_the_parameters_of_the_best_and_waits_for_the_one_before(
        self,
    ) -> None:
        known = [self.trial(0, 0.5), self.trial(1, 0.8)]
        searcher = self.searcher(known)

        third = suggest(searcher, "t0")
        assert searcher.suggest("t1") is None
        assert (third["number"], third["params"]) == (2, known[1].params)
        start = third["began_from"]
        assert (start["trial"], start["weights_sha256"]) == (1, self.DIGEST)
        searcher._records[2] = TrialRecord.model_validate(
            {**self.trial(2, 0.9).model_dump(), "params": third["params"], "began_from": start}
        )
        ended = {METRIC: 0.9, "outcome": "completed", "is_scored": True, "rung": 0, "point": 0}
        searcher.on_trial_complete("t0", ended)

        fourth = suggest(searcher, "t1")
        assert (fourth["number"], fourth["began_from"]["trial"]) == (3, 2)
        assert fourth["params"] == known[1].params
        assert (start["learning_rate_factor"], fourth["began_from"]["learning_rate_factor"]) == (
            0.5,
            0.5,
        )

    def test_one_whose_driver_died_begins_as_it_did_before(self) -> None:
        start = {"trial": 0, "weights_sha256": self.DIGEST, "learning_rate_factor": 0.25}
        left = self.trial(2, 0.0, state=TrialState.INTERRUPTED)
        left = TrialRecord.model_validate(
            {**left.model_dump(), "began_from": start, "scores": [], "value": None}
        )
        searcher = self.searcher([self.trial(0, 0.5), self.trial(1, 0.8), left])

        again, after = suggest(searcher, "t0"), searcher.suggest("t1")
        assert (again["number"], again["params"], again["began_from"]) == (2, left.params, start)
        assert after is None

    def test_points_that_are_known_begin_anew_whatever_their_number(self) -> None:
        points = [
            KnownPoint(params={**record(0, TrialState.FAILED).params, "learning_rate": 1.0 + at}, source="earlier")
            for at in range(4)
        ]  # fmt: skip
        searcher = self.searcher([self.trial(0, 0.5), self.trial(1, 0.8)], points=points)

        third = suggest(searcher, "t0")
        assert (third["number"], third["began_from"]) == (2, None)
        assert third["params"]["learning_rate"] == 3.0

    def test_where_nothing_was_kept_all_begin_anew(self) -> None:
        bare = [self.trial(at, 0.5).model_copy(update={"weights_sha256": None}) for at in range(3)]
        assert suggest(self.searcher(bare), "t0")["began_from"] is None

        told_not_to = self.searcher(
            [self.trial(0, 0.5), self.trial(1, 0.8)], charged=self.charged(anew=None)
        )
        begun = [suggest(told_not_to, f"t{turn}")["began_from"] for turn in range(4)]
        assert begun == [None] * 4


FINISHED = [
    record(0, TrialState.COMPLETED, learning_rate=2.0, accuracies=(0.5, 0.6, 0.700)),
    record(1, TrialState.COMPLETED, learning_rate=3.0, accuracies=(0.5, 0.6, 0.705)),
    record(2, TrialState.PRUNED, accuracies=(0.2,)),
]
LADDER = STEPS * sum(RUNGS)


class TestFinals:
    def test_the_best_is_repeated_whatever_it_costs_and_nothing_else(self) -> None:
        searcher = searching(FINISHED, trials=3, max_examples=0)
        first = suggest(searcher, "t0")
        assert (first["number"], first["seed"], first["scores"]) == (1, 1, [])
        assert first["params"] == FINISHED[1].params
        assert searcher.suggest("t1") is None

    def test_they_wait_for_the_last_trial(self) -> None:
        searcher = searching(FINISHED, trials=4, max_examples=10 * LADDER)
        assert suggest(searcher, "t0")["seed"] == 0
        assert searcher.suggest("t1") is None
        searcher.on_trial_complete("t0", result(0, 0.3, "running"))
        searcher._records[3] = record(3, TrialState.PRUNED, accuracies=(0.3,))
        assert suggest(searcher, "t1")["seed"] == 1

    def test_a_trial_without_a_worker_ends_the_round(self) -> None:
        searcher = searching(FINISHED, trials=4)
        suggest(searcher, "t0")
        searcher.on_trial_complete("t0", None, error=True)
        searcher._records[3] = record(3, TrialState.INTERRUPTED)
        assert searcher.suggest("t1") == Searcher.FINISHED

    def test_they_end_with_the_budget(self) -> None:
        spent = sum(trial.examples for trial in FINISHED)
        searcher = searching(FINISHED, trials=3, max_examples=spent + 3 * LADDER)
        asked = [suggest(searcher, f"t{n}") for n in range(3)]
        assert [(each["number"], each["seed"]) for each in asked] == [(1, 1), (0, 1), (1, 2)]
        assert searcher.suggest("t3") is None

    @pytest.mark.parametrize(("short_of", "second"), [(0, True), (1, False)])
    def test_one_above_the_ladder_costs_what_its_own_batch_does(
        self, short_of: int, second: bool
    ) -> None:
        *rungs, above = RUNGS
        finished = [
            record(0, TrialState.COMPLETED, learning_rate=2.0, accuracies=(0.6, 0.700)),
            record(1, TrialState.COMPLETED, learning_rate=3.0, accuracies=(0.6, 0.705)),
            record(2, TrialState.PRUNED, accuracies=(0.2,)),
        ]
        budget = sum(trial.examples for trial in finished) + 2 * STEPS * above - short_of
        searcher = searching(
            finished, trials=3, rungs=rungs, confirmation=above, max_examples=budget
        )

        assert suggest(searcher, "t0")["seed"] == 1
        assert (searcher.suggest("t1") is not None) is second

    def test_optuna_hears_nothing_of_them(self) -> None:
        searcher = searching(FINISHED, trials=3)
        suggest(searcher, "t0")
        before = states(searcher)
        searcher.on_trial_result("t0", result(0, 0.9, "running"))
        searcher.on_trial_complete("t0", result(2, 0.9, "completed"))
        assert states(searcher) == before

    def test_a_repetition_that_keeps_losing_its_worker_is_given_up_for_now(self) -> None:
        searcher = searching(FINISHED, trials=3, max_examples=0)
        suggest(searcher, "t0")
        searcher.on_trial_complete("t0", None, error=True)
        assert searcher.suggest("t1") == Searcher.FINISHED

    def test_nor_is_one_that_fails_by_itself(self) -> None:
        searcher = searching(FINISHED, trials=3, max_examples=0)
        suggest(searcher, "t0")
        searcher.on_trial_complete("t0", result(0, 0.0, "failed", point=0))
        assert searcher.suggest("t1") == Searcher.FINISHED

    def test_one_under_way_goes_on_after_the_rungs_it_has(self) -> None:
        begun = FINISHED[1].model_copy(update={"repeats": [score_of(0, 0.55, seed=1)]})
        searcher = searching([FINISHED[0], begun, FINISHED[2]], trials=3)
        first = suggest(searcher, "t0")
        assert [score["accuracy"] for score in first["scores"]] == [0.55]


class TestCurves:
    @staticmethod
    def report(
        *accuracies: float,
        number: int = 99,
        rung: int = 0,
        score: float | None = None,
        seed: int = 0,
    ) -> dict[str, Any]:
        """A trial at a point of its curve, or at the end of the rung."""
        curve = [
            CurvePoint(step=10 * n, accuracy=accuracy) for n, accuracy in enumerate(accuracies, 1)
        ]
        found = score_of(rung, score, seed=seed).model_copy(update={"curve": curve})
        report = {"number": number, "seed": seed, "rung_score": found.model_dump_json()}
        return report | {"done": False}

    def climbed(self, stopper: CurveStopper, number: int, *curve: float, rung: int = 0) -> None:
        """A trial reaches the end of a rung."""
        report = self.report(*curve, number=number, rung=rung, score=curve[-1])
        assert not stopper(f"t{number}", report)

    def test_a_curve_below_most_earlier_ones_is_ended_with_a_reason(self) -> None:
        stopper = CurveStopper(RUNGS, [])
        for n in range(FEWEST_RUNS):
            assert not stopper(f"t{n}", self.report(0.5, 0.5 + n / 100, number=n))
        hopeless = self.report(0.2, 0.2)
        assert stopper("bad", hopeless)
        assert hopeless["reason"].startswith("20.0 % at step 20 of batch 16, where 75 % of earlier")
        assert hopeless[RESOURCE] == resource(0, RUNGS)
        assert not stopper("good", self.report(0.5, 0.52))

    def test_no_verdict_on_few_runs_on_finalists_or_on_other_points(self) -> None:
        stopper = CurveStopper(RUNGS, [])
        for n in range(FEWEST_RUNS - 1):
            assert not stopper(f"t{n}", self.report(0.5, 0.5))
        assert not stopper("few", self.report(0.1, 0.1))
        assert not stopper("finalist", self.report(0.01, 0.01, seed=1))
        assert not stopper("early", self.report(0.01))

    def test_none_is_ended_by_what_the_quick_validation_cannot_tell(self) -> None:
        stopper = CurveStopper(RUNGS, [])
        for n in range(20):
            assert not stopper(f"t{n}", self.report(0.5, 0.5, 0.5, number=n))
        error = math.sqrt(0.25 / QUICK_VALIDATION)
        assert not stopper("close", self.report(0.5, 0.5, 0.5 - 0.9 * error))
        assert stopper("below", self.report(0.5, 0.5, 0.5 - 1.1 * error))

    def test_a_balanced_accuracy_is_told_apart_by_less(self) -> None:
        stopper = CurveStopper(RUNGS, [], num_quick=64)
        for n in range(20):
            assert not stopper(f"t{n}", self.report(0.5, 0.5, 0.5, number=n))
        error = math.sqrt(0.25 / 64)
        assert not stopper("close", self.report(0.5, 0.5, 0.5 - 0.9 * error))
        assert stopper("below", self.report(0.5, 0.5, 0.5 - 1.1 * error))

    @pytest.mark.parametrize("point", range(3))
    def test_of_like_runs_no_more_are_ended_than_it_says(self, point: int) -> None:
        rng, runs, searches = np.random.default_rng(point), 24, 100
        ended = 0
        for _ in range(searches):
            stopper = CurveStopper(RUNGS, [])
            for n, accuracy in enumerate(rng.uniform(size=runs)):
                ended += stopper(f"t{n}", self.report(*[0.5] * point, accuracy, number=n))

        assert 0.3 * SHARES[point] < ended / (runs * searches) <= SHARES[point]

    def test_after_a_heat_the_best_are_not_judged_by_their_curves(self) -> None:
        stopper = CurveStopper(HEATED, [], has_heat=True)
        for n in range(FEWEST_RUNS):
            assert not stopper(f"t{n}", self.report(0.5, 0.5 + n / 100, number=n))
        assert not stopper("slow", self.report(0.4, 0.2))

    def test_above_the_first_rung_a_slow_start_is_known(self) -> None:
        stopper = CurveStopper(RUNGS, [])
        for n in range(FEWEST_RUNS):
            self.climbed(stopper, n, 0.5, 0.55, 0.57, 0.58)
            self.climbed(stopper, n, 0.55, 0.58, 0.60, 0.61, rung=1)
        self.climbed(stopper, 50, 0.3, 0.4, 0.5, 0.6)
        self.climbed(stopper, 51, 0.5, 0.5, 0.5, 0.5)

        assert not stopper("slow", self.report(0.32, 0.42, number=50, rung=1))
        hopeless = self.report(0.5, 0.5, number=51, rung=1)
        assert stopper("hopeless", hopeless)
        assert hopeless["reason"].startswith(
            "50.0 % at step 20 of batch 64 with 50.0 % expected at its end, where 75 % of earlier"
        )

    def test_what_is_expected_is_a_share(self) -> None:
        """A trial that fell at the rung below may be expected to fall below nothing."""
        stopper = CurveStopper(RUNGS, [])
        for n in range(FEWEST_RUNS + 1):
            self.climbed(stopper, n, 0.05, 0.05, 0.05, 0.03)
            stopper(f"t{n}", self.report(0.02, 0.01, number=n, rung=1))
            stopper(f"t{n}", self.report(0.02, 0.01, 0.01, number=n, rung=1))

    def test_a_lost_trial_that_begins_again_is_not_judged_by_what_it_did_later(self) -> None:
        stopper = CurveStopper(RUNGS, [])
        for n in range(FEWEST_RUNS + 3):
            self.climbed(stopper, n, 0.4, 0.45, 0.5, 0.55)
        self.climbed(stopper, 3, 0.5, 0.6, 0.62, 0.63, rung=1)

        assert not stopper("again", self.report(0.4, 0.45, number=3))

    def test_what_was_ended_counts_in_the_next_attempt(self) -> None:
        stopper, trials = CurveStopper(RUNGS, []), []
        for n, accuracy in enumerate(np.random.default_rng(0).uniform(0.3, 0.7, size=40)):
            below = [0.4, 0.45, 0.5, 0.55]
            self.climbed(stopper, n, *below)
            curve = [accuracy - 0.15, accuracy - 0.1]
            ended = stopper(f"t{n}", self.report(*curve, number=n, rung=1))
            if not ended:
                self.climbed(stopper, n, *curve, accuracy - 0.05, accuracy, rung=1)
            trials.append((n, ended, curve, accuracy))
        known = [self.known(*trial) for trial in trials]

        again = CurveStopper(RUNGS, known)

        assert sum(ended for _, ended, _, _ in trials) >= 3
        assert sorted(again._reached[1]) == pytest.approx(sorted(stopper._reached[1]))

    def known(self, number: int, ended: bool, curve: list[float], accuracy: float) -> TrialRecord:
        """A trial as the control plane has it."""
        whole = curve if ended else [*curve, accuracy - 0.05, accuracy]
        scores = [
            self.report(0.4, 0.45, 0.5, 0.55, score=0.55)["rung_score"],
            self.report(*whole, rung=1, score=None if ended else accuracy)["rung_score"],
        ]
        return TrialRecord(
            number=number,
            state=TrialState.PRUNED,
            params={},
            scores=[RungScore.model_validate_json(score) for score in scores],
        )

    def test_a_rung_too_short_for_a_curve_says_nothing_of_its_beginning(self) -> None:
        curve = [CurvePoint(step=STEPS, accuracy=0.9)]
        short = score_of(0, 0.9).model_copy(update={"curve": curve})
        known = [
            TrialRecord(number=n, state=TrialState.PRUNED, params={}, scores=[short])
            for n in range(FEWEST_RUNS)
        ]
        assert not CurveStopper(RUNGS, known)("new", self.report(0.2))

    def test_runs_of_an_earlier_attempt_count(self) -> None:
        curve = [CurvePoint(step=10 * (n + 1), accuracy=0.6) for n in range(4)]
        scored = score_of(0, 0.6).model_copy(update={"curve": curve})
        known = [
            TrialRecord(number=n, state=TrialState.PRUNED, params={}, scores=[scored])
            for n in range(FEWEST_RUNS)
        ]
        assert CurveStopper(RUNGS, known)("bad", self.report(0.2, 0.2))
        assert not CurveStopper(RUNGS, [])("bad", self.report(0.2, 0.2))
