"""Who is repeated with which seed, and when it ends."""

from collections.abc import Callable, Collection, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tan_core.planner import Goal, Repeat, next_repeat
from tan_core.planner.finals import ENOUGH_SEEDS, MAX_FINALISTS, MAX_REPEATS, MAX_SEEDS
from tan_core.wire import TrialRecord, TrialState
from tests.support.trials import LADDER, RUNGS, ladder, make_trial

Outcome = Callable[[Repeat], Sequence[float | None]]
"""The accuracies that a repetition finds, rung by rung."""


def asked(
    *trials: TrialRecord, running: Collection[Repeat] = (), max_examples: int = 10**9
) -> tuple[int, int] | None:
    """The trial and the seed that come next."""
    repeat = next_repeat(
        trials,
        num_rungs=len(RUNGS),
        running=running,
        costs={trial.number: LADDER for trial in trials},
        max_examples=max_examples,
    )
    return None if repeat is None else (repeat.trial, repeat.seed)


def explored(number: int, accuracy: float, **fresh: Sequence[float | None]) -> TrialRecord:
    """A trial whose larger batches do a little worse; ``s1`` are the scores with seed 1."""
    of_seeds = {int(seed[1:]): found for seed, found in fresh.items()}
    return make_trial(number, level(accuracy), of_seeds)


def level(accuracy: float) -> list[float]:
    return [accuracy + 0.02, accuracy + 0.01, accuracy]


def played(trials: Sequence[TrialRecord], outcome: Outcome, *, max_examples: int) -> list[Repeat]:
    """Every repetition, one after the other."""
    records, given_out = {trial.number: trial for trial in trials}, list[Repeat]()
    while found := asked(*records.values(), max_examples=max_examples):
        repeat = Repeat(trial=found[0], seed=found[1])
        assert repeat not in given_out
        given_out.append(repeat)
        records[repeat.trial] = told(records[repeat.trial], repeat, outcome(repeat))
    return given_out


def told(trial: TrialRecord, repeat: Repeat, accuracies: Sequence[float | None]) -> TrialRecord:
    """The trial with one more ladder, or the rungs of it that are new."""
    known = [score for score in trial.repeats if score.seed != repeat.seed]
    scores = [*known, *ladder(accuracies, seed=repeat.seed)]
    return trial.model_copy(update={"repeats": scores})


class TestFinalists:
    def test_they_are_the_best_of_the_search(self) -> None:
        trials = [explored(n, 0.9 + 0.001 * n) for n in range(MAX_FINALISTS + 2)]

        repeats = played(trials, lambda _: level(0.9), max_examples=10**9)

        assert {repeat.trial for repeat in repeats} == {2, 3, 4, 5}
        assert [repeat.trial for repeat in repeats[:4]] == [5, 4, 3, 2]

    def test_who_is_clearly_behind_in_the_search_never_comes_back(self) -> None:
        trials = [explored(0, 0.90), explored(1, 0.88), explored(2, 0.89)]

        repeats = played(
            trials, lambda each: level([0.5, 0.9, 0.5][each.trial]), max_examples=10**9
        )

        assert {repeat.trial for repeat in repeats} == {0, 2}

    @pytest.mark.parametrize("state", [TrialState.PRUNED, TrialState.DIVERGED, TrialState.FAILED])
    def test_only_completed_trials_are_among_them(self, state: TrialState) -> None:
        ended = make_trial(0, level(0.95), state=state)

        assert asked(ended, explored(1, 0.9)) == (1, 1)
        assert asked(ended) is None

    def test_one_choice_of_parameters_is_one_of_them(self) -> None:
        """However often it was tried: its twins have the same scores with every seed."""
        twins = [
            explored(n, 0.9).model_copy(update={"params": {"learning_rate": 9.0}}) for n in (0, 2)
        ]

        repeats = played([*twins, explored(1, 0.9)], lambda _: level(0.9), max_examples=10**9)

        assert {repeat.trial for repeat in repeats} == {0, 1}

    def test_a_choice_that_diverged_in_the_finals_has_no_second_chance(self) -> None:
        gave_up = explored(0, 0.95, s1=[None]).model_copy(update={"params": {}})
        twin = explored(1, 0.95).model_copy(update={"params": {}})

        assert asked(gave_up, twin, explored(2, 0.9)) == (2, 1)

    def test_of_equal_trials_the_earlier_is_first(self) -> None:
        assert asked(explored(3, 0.9), explored(1, 0.9)) == (1, 1)


class TestElimination:
    def test_equal_ups_and_downs_of_both_do_not_hide_a_difference(self) -> None:
        best = explored(0, 0.9, s1=level(0.93), s2=level(0.87))
        behind = explored(1, 0.9, s1=level(0.92), s2=level(0.86))

        assert asked(best, behind) is None

    def test_differences_that_change_their_sign_tell_nothing(self) -> None:
        best = explored(0, 0.9, s1=level(0.93), s2=level(0.87))
        other = explored(1, 0.9, s1=level(0.90), s2=level(0.88))

        assert asked(best, other) == (0, 3)

    def test_a_seed_that_only_one_has_is_no_comparison(self) -> None:
        best = explored(0, 0.9, s1=level(0.90), s2=level(0.97))
        other = explored(1, 0.9, s1=level(0.90))

        assert asked(best, other) == (1, 2)

    def test_one_seed_tells_one_and_a_half_points(self) -> None:
        best = explored(0, 0.9, s1=level(0.9))

        assert asked(best, explored(1, 0.9, s1=level(0.886))) == (0, 2)
        assert asked(best, explored(1, 0.9, s1=level(0.885)), explored(2, 0.9)) == (2, 1)

    @pytest.mark.parametrize(("seeds", "following"), [(2, (0, 3)), (4, None)])
    def test_six_tenths_of_a_point_are_told_by_four_seeds_and_not_by_two(
        self, seeds: int, following: tuple[int, int] | None
    ) -> None:
        best, behind = (
            explored(number, 0.9, **{f"s{seed}": level(top) for seed in range(1, seeds + 1)})
            for number, top in enumerate((0.9, 0.894))
        )

        assert asked(best, behind) == following

    def test_only_the_largest_rung_counts(self) -> None:
        best = explored(0, 0.9, s1=[0.5, 0.5, 0.9])
        other = explored(1, 0.9, s1=[0.99, 0.99, 0.9])

        assert asked(best, other) == (0, 2)

    def test_the_better_of_two_wins_in_most_draws(self) -> None:
        random = np.random.default_rng(20)
        truths, seed_std, paired = (0.90, 0.91), 0.003, 0.5
        wins = 0
        for _ in range(60):
            shared = random.normal(0, seed_std * paired**0.5, 1 + MAX_SEEDS)
            own = random.normal(0, seed_std * (1 - paired) ** 0.5, (2, 1 + MAX_SEEDS))
            drawn = np.array(truths)[:, None] + shared + own
            trials = [explored(n, drawn[n, 0]) for n in range(2)]

            def outcome(repeat: Repeat, drawn: np.ndarray = drawn) -> list[float]:
                return level(float(drawn[repeat.trial, repeat.seed]))

            repeats = played(trials, outcome, max_examples=10**9)
            means = [
                np.mean([drawn[n, each.seed] for each in repeats if each.trial == n] or [0.0])
                for n in range(2)
            ]
            wins += means[1] > means[0]

        assert wins >= 57

    def test_trials_that_differ_by_nothing_cost_all_there_is_in_most_draws(self) -> None:
        random = np.random.default_rng(21)
        trials = [explored(n, 0.9) for n in range(2)]

        spent = [
            len(
                played(
                    trials,
                    lambda _: level(0.9 + float(random.normal(0, 0.003))),
                    max_examples=10**9,
                )
            )
            for _ in range(60)
        ]

        assert max(spent) == 2 * MAX_SEEDS
        assert np.mean(np.array(spent) == 2 * MAX_SEEDS) > 0.7


class TestDivergence:
    def test_the_next_best_takes_the_place_of_one_that_diverges(self) -> None:
        lost = explored(0, 0.95, s1=[0.96, None])

        assert asked(lost, explored(1, 0.9), explored(2, 0.8)) == (1, 1)

    def test_the_next_best_has_no_free_repetition(self) -> None:
        lost, next_best = explored(0, 0.95, s1=[0.96, None]), explored(1, 0.9)
        spent = lost.examples + next_best.examples

        assert asked(lost, next_best, max_examples=spent + LADDER) == (1, 1)
        assert asked(lost, next_best, max_examples=spent + LADDER - 1) is None

    def test_where_all_diverge_it_ends_with_the_most_repetitions(self) -> None:
        trials = [explored(n, 0.9) for n in range(MAX_REPEATS + 5)]

        repeats = played(trials, lambda _: [None], max_examples=10**9)

        assert len(repeats) == MAX_REPEATS


class TestBudget:
    def test_the_first_repetition_is_given_whatever_it_costs_and_no_second(self) -> None:
        rivals = [explored(0, 0.9), explored(1, 0.9)]

        assert played(rivals, lambda _: level(0.9), max_examples=0) == [Repeat(trial=0, seed=1)]

    @pytest.mark.parametrize("ladders", [1, 2, 3, 7])
    def test_it_ends_the_finals(self, ladders: int) -> None:
        rivals = [explored(0, 0.9), explored(1, 0.9)]
        budget = sum(trial.examples for trial in rivals) + ladders * LADDER

        for less in (0, 1):
            repeats = played(rivals, lambda _: level(0.9), max_examples=budget - less)
            assert len(repeats) == max(ladders - less, 1)

    def test_what_runs_is_spent_already(self) -> None:
        rivals = [explored(0, 0.9), explored(1, 0.9)]
        first = Repeat(trial=0, seed=1)
        budget = sum(trial.examples for trial in rivals) + 2 * LADDER

        assert asked(*rivals, running=[first], max_examples=budget) == (1, 1)
        assert asked(*rivals, running=[first], max_examples=budget - 1) is None

    def test_a_ladder_that_was_begun_is_finished(self) -> None:
        """After a crash: it had been paid when it began, and its lower rungs decide nothing."""
        crashed = explored(1, 0.9, s1=[0.5])

        assert asked(explored(0, 0.9, s1=level(0.9)), crashed, max_examples=0) == (1, 1)

    def test_and_is_paid_in_full_before_another_begins(self) -> None:
        crashed, other = explored(0, 0.9, s1=[0.92]), explored(1, 0.9)
        running = [Repeat(trial=0, seed=1)]
        begun = sum(score.examples for score in crashed.repeats)
        budget = crashed.examples + other.examples + LADDER - begun + LADDER

        assert asked(crashed, other, running=running, max_examples=budget) == (1, 1)
        assert asked(crashed, other, running=running, max_examples=budget - 1) is None


class TestEnd:
    def test_a_single_contender_has_the_seeds_that_a_prediction_needs(self) -> None:
        repeats = played([explored(0, 0.9)], lambda _: level(0.9), max_examples=10**9)

        assert [repeat.seed for repeat in repeats] == list(range(1, ENOUGH_SEEDS + 1))

    def test_rivals_have_one_seed_each_before_anybody_has_the_next(self) -> None:
        rivals = [explored(0, 0.9), explored(1, 0.9)]

        repeats = played(rivals, lambda _: level(0.9), max_examples=10**9)

        expected = [(n, seed) for seed in range(1, MAX_SEEDS + 1) for n in (0, 1)]
        assert [(repeat.trial, repeat.seed) for repeat in repeats] == expected

    def test_workers_run_ahead_as_far_as_there_is_anything(self) -> None:
        rivals = [explored(0, 0.9), explored(1, 0.9)]
        running: list[Repeat] = []
        while found := asked(*rivals, running=running):
            assert Repeat(trial=found[0], seed=found[1]) not in running
            running.append(Repeat(trial=found[0], seed=found[1]))

        assert running == played(rivals, lambda _: level(0.9), max_examples=10**9)

    def test_without_a_completed_trial_there_are_none(self) -> None:
        assert asked() is None


accuracies = st.integers(850, 950).map(lambda thousandths: thousandths / 1000)


@given(
    tops=st.lists(accuracies, min_size=1, max_size=8),
    workers=st.integers(1, 4),
    ladders=st.integers(0, 25),
    draw=st.data(),
)
def test_whatever_is_found_it_ends_in_time_and_in_budget(
    tops: list[float], workers: int, ladders: int, draw: st.DataObject
) -> None:
    """Workers begin in turn, end in any order, diverge, and die in the middle of a ladder."""
    records = {n: explored(n, top) for n, top in enumerate(tops)}
    exploration = sum(trial.examples for trial in records.values())
    max_examples = exploration + ladders * LADDER
    running: list[Repeat] = []
    begun: set[Repeat] = set()
    for _ in range(4 * MAX_REPEATS):
        found = asked(*records.values(), running=running, max_examples=max_examples)
        if found is not None and len(running) < workers:
            repeat = Repeat(trial=found[0], seed=found[1])
            scores = [each for each in records[repeat.trial].repeats if each.seed == repeat.seed]
            assert repeat not in running
            assert len(scores) < len(RUNGS)
            assert all(score.accuracy is not None for score in scores)
            running.append(repeat)
            begun.add(repeat)
        elif running:
            repeat = running.pop(draw.draw(st.integers(0, len(running) - 1)))
            top = draw.draw(accuracies)
            ends = st.sampled_from([level(top), level(top), level(top)[:2], [top, None]])
            records[repeat.trial] = told(records[repeat.trial], repeat, draw.draw(ends))
        else:
            break

    assert not running
    assert asked(*records.values(), max_examples=max_examples) is None
    assert 1 <= len(begun) <= MAX_REPEATS
    total = sum(trial.examples for trial in records.values())
    assert total <= max_examples + LADDER


class TestForesight:
    GOAL = Goal(expected_batch_size=4096, guessing=0.1)

    @staticmethod
    def asked_for(goal: Goal | None, *trials: TrialRecord) -> int | None:
        repeat = next_repeat(
            trials,
            num_rungs=len(RUNGS),
            running=(),
            costs={trial.number: LADDER for trial in trials},
            max_examples=10**9,
            goal=goal,
        )
        return None if repeat is None else repeat.trial

    def test_the_first_to_be_repeated_is_who_would_be_best_at_the_private_batch(self) -> None:
        """Tanh networks on CIFAR-10 (JPEG): what is slower in small batches overtakes."""
        level, rising = make_trial(0, [0.46, 0.465, 0.465]), make_trial(1, [0.36, 0.43, 0.46])

        assert self.asked_for(None, level, rising) == 0
        assert self.asked_for(self.GOAL, level, rising) == 1

    def test_what_would_be_released_counts(self) -> None:
        steady = make_trial(0, [0.46, 0.465, 0.465])
        shaken = make_trial(1, [0.46, 0.467, 0.467])
        shaken = shaken.model_copy(
            update={
                "scores": [
                    score.model_copy(update={"released": (score.accuracy or 0) - 0.03})
                    for score in shaken.scores
                ]
            }
        )

        assert self.asked_for(None, steady, shaken) == 1
        assert self.asked_for(self.GOAL, steady, shaken) == 0

    @given(points=st.lists(st.integers(50, 90), min_size=2, max_size=6, unique=True))
    def test_level_ladders_are_compared_as_by_their_scores(self, points: list[int]) -> None:
        trials = [make_trial(n, [each / 100] * len(RUNGS)) for n, each in enumerate(points)]

        assert self.asked_for(self.GOAL, *trials) == self.asked_for(None, *trials)


class TestConfirmation:
    """Finalists are simulated once with each fresh seed, one rung above the ladder."""

    CONFIRMATION = 1024
    COST = CONFIRMATION * 100
    GOAL = Goal(expected_batch_size=4096, guessing=0.1)

    def asked(
        self, *trials: TrialRecord, max_examples: int = 10**9, goal: Goal | None = GOAL
    ) -> tuple[int, int] | None:
        repeat = next_repeat(
            trials,
            num_rungs=len(RUNGS),
            running=(),
            costs={trial.number: self.COST for trial in trials},
            max_examples=max_examples,
            goal=goal,
            is_confirmed=True,
        )
        return None if repeat is None else (repeat.trial, repeat.seed)

    def told(self, trial: TrialRecord, seed: int, accuracy: float | None) -> TrialRecord:
        score = ladder([0.5])[0].model_copy(
            update={
                "rung": len(RUNGS),
                "seed": seed,
                "expected_batch_size": self.CONFIRMATION,
                "accuracy": accuracy,
            }
        )
        return trial.model_copy(update={"repeats": [*trial.repeats, score]})

    @pytest.mark.parametrize("goal", [GOAL, None])
    def test_one_simulation_is_a_whole_repetition(self, goal: Goal | None) -> None:
        best = explored(0, 0.9)

        assert self.asked(best, goal=goal) == (0, 1)
        best = self.told(best, 1, 0.9)
        assert self.asked(best, goal=goal) == (0, 2)
        assert self.asked(self.told(best, 2, 0.9), goal=goal) is None

    def test_the_ladder_again_would_not_be_one(self) -> None:
        assert self.asked(explored(0, 0.9, s1=level(0.9))) == (0, 1)

    @pytest.mark.parametrize("goal", [GOAL, None])
    def test_who_is_behind_there_drops_out(self, goal: Goal | None) -> None:
        best, other = self.told(explored(0, 0.9), 1, 0.90), explored(1, 0.899)

        assert self.asked(best, other, goal=goal) == (1, 1)
        assert self.asked(best, self.told(other, 1, 0.86), goal=goal) == (0, 2)
        assert self.asked(best, self.told(other, 1, 0.899), goal=goal) == (0, 2)
        twice = self.told(best, 2, 0.90)
        assert self.asked(twice, self.told(other, 1, 0.86), goal=goal) is None
        assert self.asked(twice, self.told(other, 1, 0.899), goal=goal) == (1, 2)

    def test_the_first_is_given_whatever_it_costs_and_no_second(self) -> None:
        rivals = [explored(0, 0.9), explored(1, 0.9)]
        spent = sum(trial.examples for trial in rivals)

        assert self.asked(*rivals, max_examples=0) == (0, 1)
        first = self.told(rivals[0], 1, 0.9)
        budget = spent + 2 * self.COST
        assert self.asked(first, rivals[1], max_examples=budget) == (1, 1)
        assert self.asked(first, rivals[1], max_examples=budget - 1) is None

    def test_one_that_diverges_gives_its_place_to_the_next(self) -> None:
        lost = self.told(explored(0, 0.95), 1, None)

        assert self.asked(lost, explored(1, 0.9)) == (1, 1)
