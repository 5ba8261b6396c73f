"""Which trial becomes the private run, and the sentence that says why."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from tan_core.planner import Evaluation, Promotion, choose_winner
from tan_core.wire import TrialRecord, TrialState
from tests.support.trials import make_trial

EVALUATION = Evaluation(num_validation=10_000, num_test=10_000)


def chosen(*trials: TrialRecord, batch: float = 4096) -> Promotion:
    promotion = choose_winner(trials, expected_batch_size=batch, evaluation=EVALUATION)
    assert promotion is not None
    return promotion


def falling(top: float, *, slope: float = 0.005) -> tuple[float, float, float]:
    """Two doublings from rung to rung."""
    return (top + 4 * slope, top + 2 * slope, top)


def repeated(number: int, top: float, *, seeds: int = 2, spread: float = 0.002) -> TrialRecord:
    """Seeds that differ by the spread and whose mean is the top."""
    offsets = [spread * (seed - (seeds - 1) / 2) for seed in range(seeds)]
    fresh = {seed: falling(top + offset) for seed, offset in enumerate(offsets, start=1)}
    return make_trial(number, falling(top), fresh)


def search_scores_only(number: int, top: float) -> TrialRecord:
    return make_trial(number, falling(top))


class TestWinner:
    def test_it_is_the_best_prediction_at_the_private_batch(self) -> None:
        """Ahead at every rung is not ahead where it counts."""
        ahead = make_trial(0, falling(0.92, slope=0.01), {1: falling(0.92, slope=0.01)})
        steady = make_trial(1, falling(0.915, slope=0), {1: falling(0.915, slope=0)})

        assert chosen(ahead, steady).winner.trial == 1
        assert chosen(ahead, steady, batch=512).winner.trial == 0

    def test_one_without_fresh_seeds_does_not_beat_one_with(self) -> None:
        promotion = chosen(search_scores_only(0, 0.92), repeated(1, 0.90))

        assert promotion.winner.trial == 1
        assert promotion.winner.is_fresh
        assert [one.trial for one in promotion.standings] == [1, 0]

    def test_unless_fresh_seeds_show_that_the_repeated_one_was_luck(self) -> None:
        lucky = make_trial(0, falling(0.95), {1: falling(0.25)})

        promotion = chosen(lucky, search_scores_only(1, 0.93), search_scores_only(2, 0.92))

        assert promotion.winner.trial == 1
        assert promotion.reason.endswith("trial 0 fell surely below it under fresh seeds")
        assert [one.trial for one in promotion.standings] == [0, 1, 2]

    def test_nor_does_it_by_a_tie(self) -> None:
        assert chosen(search_scores_only(0, 0.9), repeated(1, 0.9)).winner.trial == 1

    def test_of_equal_promises_it_is_the_surer_one(self) -> None:
        barely, surer = repeated(0, 0.9005, seeds=1), repeated(1, 0.9, seeds=5)

        promotion = chosen(barely, surer)

        assert promotion.standings[0].trial == 0
        assert promotion.winner.trial == 1
        assert promotion.winner.prediction.low > promotion.standings[0].prediction.low

    def test_of_unequal_ones_it_is_the_higher_however_sure(self) -> None:
        higher, surer = repeated(0, 0.9015, seeds=1), repeated(1, 0.9, seeds=5)

        promotion = chosen(higher, surer)

        assert promotion.winner.trial == 0
        widths = [one.prediction.high - one.prediction.low for one in promotion.standings]
        assert widths[0] > 1.05 * widths[1]

    @pytest.mark.parametrize("errors", [[0.0] * 100, [0.05] * 9, [-0.05] * 9])
    def test_what_earlier_studies_taught_chooses_nothing(self, errors: list[float]) -> None:
        """It narrows intervals and moves past 1, by which trials would be told apart."""
        trials = [
            make_trial(0, (0.95, 0.965, 0.97), {1: (0.92, 0.93, 0.94)}),
            make_trial(1, (0.955, 0.968, 0.974)),
            make_trial(2, (0.94, 0.955, 0.96), {1: (0.94, 0.955, 0.96)}),
            make_trial(3, (0.99, 0.992, 0.993), {1: (0.99, 0.992, 0.993)}),
            make_trial(4, (0.985, 0.99, 0.992), {1: (0.985, 0.99, 0.992)}),
        ]
        known = replace(EVALUATION, errors=errors)

        for few in (trials[:2], trials[:3], trials):
            plain, taught = (
                choose_winner(few, expected_batch_size=4096, evaluation=evaluation)
                for evaluation in (EVALUATION, known)
            )

            assert plain is not None
            assert taught is not None
            assert taught.winner.trial == plain.winner.trial
            assert [one.trial for one in taught.standings] == [one.trial for one in plain.standings]

    @pytest.mark.parametrize("errors", [[], [0.0] * 100])
    def test_nor_does_it_tell_which_of_equal_promises_is_the_surer(
        self, errors: list[float]
    ) -> None:
        """Of sets as small as these a trial's own seeds say little, and of known ones all there is to say."""
        barely, surer = repeated(0, 0.9005, seeds=1), repeated(1, 0.9, seeds=5)
        small = Evaluation(num_validation=200, num_test=200, errors=errors)

        promotion = choose_winner([barely, surer], expected_batch_size=4096, evaluation=small)

        assert promotion is not None
        assert promotion.winner.trial == 0

    def test_of_equal_trials_it_is_the_earlier_in_any_order(self) -> None:
        trials = [repeated(number, 0.9) for number in (7, 3, 5)]

        assert {chosen(*order).winner.trial for order in permutations(trials)} == {3}

    def test_without_fresh_seeds_anywhere_the_search_itself_decides(self) -> None:
        promotion = chosen(search_scores_only(0, 0.8), search_scores_only(1, 0.9))

        assert promotion.winner.trial == 1
        assert not promotion.winner.is_fresh

    def test_who_did_not_complete_or_diverged_later_is_passed_over(self) -> None:
        pruned = make_trial(0, (0.99,), state=TrialState.PRUNED)
        diverged = make_trial(1, falling(0.98), {1: (None,)})

        assert chosen(pruned, diverged, search_scores_only(2, 0.7)).winner.trial == 2

    @pytest.mark.parametrize(
        "trials",
        [
            [],
            [make_trial(0, (), state=TrialState.COMPLETED)],
            [make_trial(0, falling(0.9), state=TrialState.PRUNED)],
            [make_trial(0, falling(0.9), {1: (0.9, None)})],
        ],
        ids=["none", "unscored", "pruned", "diverged"],
    )
    def test_where_none_is_left_there_is_no_winner(self, trials: list[TrialRecord]) -> None:
        assert choose_winner(trials, expected_batch_size=4096, evaluation=EVALUATION) is None

    def test_the_better_of_two_wins_in_most_draws(self) -> None:
        """One point apart, seeds of 0.3 points, and rungs that scatter a little."""
        random = np.random.default_rng(5)

        def drawn(number: int, top: float) -> TrialRecord:
            fresh = {
                seed: tuple(
                    falling(top)[rung] + shift + random.normal(0, 0.001) for rung in range(3)
                )
                for seed, shift in enumerate(random.normal(0, 0.003, 2), start=1)
            }
            return make_trial(number, falling(top), fresh)

        wins = [chosen(drawn(0, 0.90), drawn(1, 0.91)).winner.trial for _ in range(40)]

        assert sum(wins) >= 36


class TestReason:
    def test_it_has_the_prediction_and_the_lead(self) -> None:
        reason = chosen(repeated(0, 0.92), repeated(4, 0.90)).reason

        winner = chosen(repeated(0, 0.92)).winner.prediction
        assert reason.startswith(f"trial 0: predicted {100 * winner.accuracy:.1f} % [")
        assert f"[{100 * winner.low:.1f}, {100 * winner.high:.1f}] at batch 4096; " in reason
        assert reason.endswith("2.00 points above trial 4")

    def test_a_tie_is_told(self) -> None:
        reason = chosen(repeated(0, 0.9005, seeds=1), repeated(1, 0.9, seeds=5)).reason

        assert reason.startswith("trial 1: ")
        assert reason.endswith("level with trial 0, and with the highest lower bound")

    def test_a_lead_over_none_with_fresh_seeds_is_no_lead(self) -> None:
        reason = chosen(search_scores_only(0, 0.92), repeated(1, 0.90)).reason

        assert reason.endswith("no other trial was repeated with fresh seeds")

    def test_a_single_one_is_told_so(self) -> None:
        diverged = make_trial(1, falling(0.98), {1: (None,)})

        assert chosen(repeated(0, 0.9), diverged).reason.endswith("no other trial is left")
