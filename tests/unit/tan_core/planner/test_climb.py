"""Who climbs, and that the search budget holds it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tan_core.planner import may_climb, most_examples, next_repeat
from tan_core.wire import TrialRecord, TrialState
from tests.support.trials import LADDER, RUNGS, STEPS, ladder, make_trial

NUM_TRIALS = 10
FIRSTS, CLIMB = NUM_TRIALS * RUNGS[0] * STEPS, RUNGS[1] * STEPS


def asked(trial: TrialRecord, *others: TrialRecord, max_examples: int = 10**9) -> bool:
    return may_climb(trial, others, rungs=RUNGS, num_trials=NUM_TRIALS, max_examples=max_examples)


def running(number: int, *accuracies: float | None) -> TrialRecord:
    return make_trial(number, accuracies, state=TrialState.RUNNING)


def pruned(number: int, *accuracies: float | None) -> TrialRecord:
    return make_trial(number, accuracies, state=TrialState.PRUNED)


class TestFirst:
    def test_the_first_climbs_whatever_it_costs(self) -> None:
        assert asked(running(0, 0.5), max_examples=0)
        assert asked(running(0, 0.5, 0.5), max_examples=0)

    def test_so_does_the_next_where_the_first_diverged(self) -> None:
        lost = make_trial(0, [0.9, None], state=TrialState.DIVERGED)

        assert asked(running(1, 0.5), lost, max_examples=0)

    def test_but_not_beside_one_that_is_as_high(self) -> None:
        assert not asked(running(1, 0.9), running(0, 0.5), max_examples=0)
        assert not asked(running(1, 0.9), make_trial(0, [0.5, 0.5, 0.5]), max_examples=0)

    def test_a_trial_at_its_first_rung_is_not_as_high(self) -> None:
        assert asked(running(1, 0.9), running(0), max_examples=0)


class TestBudget:
    def test_what_is_left_must_hold_the_rung_and_what_is_kept_back(self) -> None:
        first, best = make_trial(0, [0.8, 0.8, 0.8]), running(1, 0.9)
        needed = FIRSTS + (LADDER - RUNGS[0] * STEPS) + CLIMB + LADDER

        assert asked(best, first, max_examples=needed)
        assert not asked(best, first, max_examples=needed - 1)

    def test_a_repetition_of_another_size_is_kept_back_as_it_is(self) -> None:
        first, best = make_trial(0, [0.8, 0.8, 0.8]), running(1, 0.9)
        needed = FIRSTS + (LADDER - RUNGS[0] * STEPS) + CLIMB + 2048 * STEPS

        for less in (0, 1):
            assert may_climb(
                best,
                [first],
                rungs=RUNGS,
                num_trials=NUM_TRIALS,
                max_examples=needed - less,
                repetition=2048,
            ) == (less == 0)

    def test_what_climbs_beside_it_is_paid_and_so_is_the_rest_of_one_ladder(self) -> None:
        beside, best = running(0, 0.8), running(1, 0.9)
        needed = FIRSTS + 2 * CLIMB + RUNGS[2] * STEPS + LADDER

        assert asked(best, beside, max_examples=needed)
        assert not asked(best, beside, max_examples=needed - 1)

    def test_first_rungs_to_come_cost_what_those_before_did(self) -> None:
        twice = running(1, 0.9).scores[0].model_copy(update={"steps": 2 * STEPS})
        first = make_trial(0, [0.8, 0.8, 0.8])
        dear = running(1, 0.9).model_copy(update={"scores": [twice]})
        firsts = RUNGS[0] * STEPS * (1 + 2 + 8 * 1.5)
        needed = int(firsts) + (LADDER - RUNGS[0] * STEPS) + 2 * CLIMB + 2 * LADDER

        assert asked(dear, first, max_examples=needed)
        assert not asked(dear, first, max_examples=needed - 1)


class TestPace:
    """At two rungs, with room for five to climb."""

    FIRST = make_trial(0, [0.9, 0.9])

    @staticmethod
    def asked(trial: TrialRecord, *others: TrialRecord) -> bool:
        return may_climb(
            trial,
            others,
            rungs=RUNGS[:2],
            num_trials=NUM_TRIALS,
            max_examples=FIRSTS + 5 * CLIMB + sum(RUNGS[:2]) * STEPS,
        )

    def test_one_that_is_not_the_best_waits_for_its_turn(self) -> None:
        low = [pruned(number, 0.1) for number in range(1, 3)]

        assert not self.asked(running(1, 0.8), self.FIRST)
        assert self.asked(running(3, 0.8), self.FIRST, *low)

    def test_the_best_so_far_does_not(self) -> None:
        assert self.asked(running(1, 0.9), self.FIRST)


@pytest.mark.parametrize("trials", [1, 4, 24, 100])
def test_the_most_is_no_less_than_a_ladder_and_all_first_rungs(trials: int) -> None:
    most = most_examples(trials, RUNGS)

    assert most >= trials * RUNGS[0] + sum(RUNGS[1:]) + sum(RUNGS)


accuracies = st.integers(0, 100).map(lambda hundredths: hundredths / 100)


@given(
    found=st.lists(accuracies, min_size=NUM_TRIALS, max_size=NUM_TRIALS),
    workers=st.integers(1, 4),
    extra=st.integers(0, 3 * LADDER),
    draw=st.data(),
)
def test_a_search_never_processes_more(
    found: list[float], workers: int, extra: int, draw: st.DataObject
) -> None:
    """Every trial wants to climb; workers take them in turn and end their rungs in any order."""
    max_examples = FIRSTS + (LADDER - RUNGS[0] * STEPS) + LADDER + extra
    records: dict[int, TrialRecord] = {}
    active: list[int] = []
    while len(records) < NUM_TRIALS or active:
        if len(records) < NUM_TRIALS and len(active) < workers:
            active.append(len(records))
            records[active[-1]] = running(active[-1])
            continue
        number = draw.draw(st.sampled_from(active))
        height = len(records[number].scores) + 1
        scores = ladder([found[number]] * height)
        trial = records[number].model_copy(update={"scores": scores, "value": found[number]})
        others = [each for each in records.values() if each.number != number]
        if height < len(RUNGS) and asked(trial, *others, max_examples=max_examples):
            records[number] = trial
            continue
        state = TrialState.COMPLETED if height == len(RUNGS) else TrialState.PRUNED
        records[number] = trial.model_copy(update={"state": state})
        active.remove(number)

    trials = list(records.values())
    assert any(trial.state is TrialState.COMPLETED for trial in trials)
    while repeat := next_repeat(
        trials,
        num_rungs=len(RUNGS),
        running=[],
        costs=dict.fromkeys(records, LADDER),
        max_examples=max_examples,
    ):
        again = ladder([found[repeat.trial]] * len(RUNGS), seed=repeat.seed)
        old = trials[repeat.trial]
        trials[repeat.trial] = old.model_copy(update={"repeats": [*old.repeats, *again]})
    assert any(trial.repeats for trial in trials)
    assert sum(trial.examples for trial in trials) <= max_examples


def test_the_best_of_a_search_that_improves_finds_room_in_most_draws() -> None:
    """24 trials at two rungs, of which the budget holds 8 at the second; ASHA alone would let 12 climb."""
    random, rungs, num_trials = np.random.default_rng(5), (32, 128), 24
    max_examples = (num_trials * 32 + 8 * 128 + 160) * STEPS
    climbed = 0
    for _ in range(60):
        qualities = 0.5 + 0.05 * (random.normal(size=num_trials) + np.arange(num_trials) / 12)
        records: list[TrialRecord] = []
        for number, quality in enumerate(qualities):
            trial = running(number, float(quality))
            before = [each.scores[0].accuracy or 0.0 for each in records]
            wants = not before or quality >= np.quantile(before, 0.75)
            if wants and may_climb(
                trial, records, rungs=rungs, num_trials=num_trials, max_examples=max_examples
            ):
                records.append(make_trial(number, [float(quality), 0.9]))
            else:
                records.append(pruned(number, float(quality)))
        assert sum(trial.examples for trial in records) <= max_examples - 160 * STEPS
        climbed += records[int(qualities.argmax())].state is TrialState.COMPLETED

    assert climbed >= 38
