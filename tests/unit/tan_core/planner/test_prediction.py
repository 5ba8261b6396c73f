"""What each trial would reach as the private run, from all its seeds and none that was luck."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tan_core.planner import Evaluation, Standing, rests_on, standings
from tan_core.planner.lineage import GAINED
from tan_core.planner.prediction import ERROR_STD, LUCK, SHIFT_STD, foreseen, without_noise
from tan_core.tan import Observation, Prediction, fit_law
from tan_core.wire import TrialRecord, TrialState
from tests.support.trials import RUNGS, make_trial

BATCH = 4096
ENDLESS = Evaluation(num_validation=10**12, num_test=10**12)
LUCKY, OWN = (0.95, 0.94, 0.93), (0.94, 0.93, 0.912)
FIRST, SECOND = (0.92, 0.91, 0.90), (0.93, 0.918, 0.907)


def standing(*trials: TrialRecord, evaluation: Evaluation = ENDLESS) -> list[Standing]:
    return standings(trials, expected_batch_size=BATCH, evaluation=evaluation)


def law(*seeds: tuple[float, ...]) -> Prediction:
    """What the law says of ladders with unlike seeds, on an endless evaluation set."""
    observations = [
        Observation(expected_batch_size=batch, accuracy=accuracy, seed=seed)
        for seed, ladder in enumerate(seeds)
        for batch, accuracy in zip(RUNGS, ladder, strict=True)
    ]
    return fit_law(observations).predict(BATCH, evaluation_std=SHIFT_STD)


def assert_same(found: Prediction, expected: Prediction) -> None:
    assert (found.accuracy, found.low, found.high) == pytest.approx(
        (expected.accuracy, expected.low, expected.high), abs=1e-6
    )


class TestStandings:
    def test_a_repeated_trial_is_predicted_from_all_its_seeds(self) -> None:
        (found,) = standing(make_trial(0, OWN, {1: FIRST, 2: SECOND}))

        assert_same(found.prediction, law(OWN, FIRST, SECOND))
        assert (found.trial, found.seeds, found.is_fresh) == (0, 3, True)

    def test_what_fresh_seeds_show_to_have_been_luck_does_not_count(self) -> None:
        (found,) = standing(make_trial(0, LUCKY, {1: FIRST, 2: SECOND}))

        luck = LUCKY[-1] - (FIRST[-1] + SECOND[-1]) / 2 - LUCK
        lowered = tuple(accuracy - luck for accuracy in LUCKY)
        assert luck > 0.01
        assert_same(found.prediction, law(lowered, FIRST, SECOND))
        assert (found.trial, found.seeds, found.is_fresh) == (0, 3, True)

    @pytest.mark.slow
    @given(own=st.lists(st.floats(0.5, 0.99), min_size=2, max_size=6))
    def test_a_better_score_never_predicts_less_nor_more_than_it_says(
        self, own: list[float]
    ) -> None:
        scores = sorted(own)
        found = [standing(make_trial(0, (one,), {1: (0.8,)}))[0].prediction for one in scores]

        predicted = [each.accuracy for each in found]
        for score, other, at, ahead in zip(
            scores, scores[1:], predicted, predicted[1:], strict=False
        ):
            assert -1e-9 <= ahead - at <= (other - score) / 2 + 1e-9

    def test_bad_luck_counts_too(self) -> None:
        (found,) = standing(make_trial(0, FIRST, {1: LUCKY}))

        assert_same(found.prediction, law(FIRST, LUCKY))

    def test_fresh_scores_of_other_rungs_than_the_searchs_say_nothing(self) -> None:
        (found,) = standing(make_trial(0, (None, 0.9), {1: (0.8,)}))

        assert (found.seeds, found.is_fresh) == (1, False)

    def test_a_share_of_what_chose_a_trial_is_left_in_its_prediction(self) -> None:
        """The best of 24 that differ by nothing but their seeds is predicted too high by less than it scored."""
        random, own, predicted = np.random.default_rng(7), [], []
        for _ in range(200):
            best, repeated = max(random.normal(0.9, 0.003, 24)), random.normal(0.9, 0.003)
            own.append(best - 0.9)
            trial = make_trial(0, (best,), {1: (repeated,)})
            predicted.append(rests_on(trial))
        means = [np.mean([one.accuracy for one in each]) - 0.9 for each in predicted]

        assert np.mean(means) == pytest.approx(np.mean(own) / 2, abs=0.0005)

    def test_one_that_was_not_is_predicted_from_what_chose_it(self) -> None:
        (found,) = standing(make_trial(0, LUCKY))

        assert_same(found.prediction, law(LUCKY))
        assert (found.seeds, found.is_fresh) == (1, False)

    def test_a_repeated_trial_stands_before_luckier_ones_that_were_not(self) -> None:
        found = standing(make_trial(0, LUCKY), make_trial(1, FIRST, {1: FIRST}))

        assert [one.trial for one in found] == [1, 0]

    def test_the_order_is_that_of_the_predictions_at_the_private_batch(self) -> None:
        falling, rising = (0.95, 0.94, 0.93), (0.90, 0.91, 0.92)

        found = standing(make_trial(0, falling, {1: falling}), make_trial(1, rising, {1: rising}))

        assert [one.trial for one in found] == [1, 0]

    def test_a_ladder_that_was_left_on_the_way_promises_nothing(self) -> None:
        left = make_trial(0, FIRST, {1: LUCKY[:1]})
        whole_and_left = make_trial(1, FIRST, {1: SECOND, 2: LUCKY[:2]})

        found = standing(left, whole_and_left)

        assert [(one.trial, one.seeds, one.is_fresh) for one in found] == [
            (1, 2, True),
            (0, 1, False),
        ]
        assert_same(found[0].prediction, law(FIRST, SECOND))
        assert_same(found[1].prediction, law(FIRST))

    def test_one_that_diverges_under_a_fresh_seed_is_not_among_them(self) -> None:
        lost = make_trial(0, LUCKY, {1: LUCKY, 2: (0.96, None)})

        assert [one.trial for one in standing(lost, make_trial(1, FIRST))] == [1]

    @pytest.mark.parametrize("state", [state for state in TrialState if state != "completed"])
    def test_only_completed_trials_are(self, state: TrialState) -> None:
        assert standing(make_trial(0, LUCKY, state=state)) == []

    def test_one_rung_predicts_too_and_says_how(self) -> None:
        (found,) = standing(make_trial(0, FIRST[:1], {1: FIRST[:1], 2: SECOND[:1]}))

        assert "only one batch size" in (found.prediction.caution or "").lower()


class TestEvaluation:
    @pytest.mark.parametrize(
        ("accuracy", "num_validation", "num_test"),
        [(0.98, 5000, 10_000), (0.6, 300, 200), (0.9, 400, 10**9)],
    )
    def test_it_is_the_spread_of_two_samples_and_what_sets_differ_by(
        self, accuracy: float, num_validation: int, num_test: int
    ) -> None:
        random = np.random.default_rng(4)
        draws = 40_000
        differences = (
            random.binomial(num_test, accuracy, draws) / num_test
            - random.binomial(num_validation, accuracy, draws) / num_validation
        )

        std = Evaluation(num_validation=num_validation, num_test=num_test).std(accuracy)

        assert std == pytest.approx(math.hypot(differences.std(), SHIFT_STD), rel=0.02)

    @pytest.mark.parametrize("studies", [1, 2, 3, 5, 9, 30])
    def test_what_sets_differ_by_is_known_as_well_as_is_said(self, studies: int) -> None:
        """Over sets that differ and errors that scatter as they are taken to."""
        rng = np.random.default_rng(studies)
        differences = rng.normal(0, SHIFT_STD, 4000)
        found = [
            Evaluation(
                num_validation=10**12,
                num_test=10**12,
                errors=rng.normal(difference, ERROR_STD, studies).tolist(),
            )
            for difference in differences
        ]

        missed = np.array([each.shift for each in found]) - differences

        assert math.sqrt(float(np.mean(missed**2))) == pytest.approx(found[0].std(0.9), rel=0.12)

    @given(errors=st.lists(st.floats(-0.02, 0.02), min_size=1, max_size=30), wrong=st.floats(-1, 1))
    def test_a_private_run_that_went_wrong_spoils_nothing(
        self, errors: list[float], wrong: float
    ) -> None:
        evaluation = Evaluation(num_validation=500, num_test=500, errors=[*errors, wrong])

        assert min(0, *errors) <= evaluation.shift <= max(0, *errors)

    def test_sampling_of_the_sets_is_learnt_with_the_rest(self) -> None:
        """Studies on these very sets had the same one."""
        fresh = Evaluation(num_validation=500, num_test=500)
        known = replace(fresh, errors=[0.004] * 100)

        assert fresh.std(0.5) > 0.03
        assert known.std(0.5) < 0.001

    def test_ladders_that_were_not_measured_at_their_top_say_nothing_of_what_is_released(
        self,
    ) -> None:
        """At small batches the draw of the records is nearly all of it."""
        trial = make_trial(0, OWN, {1: FIRST})
        low, *rest = trial.scores
        shaken = low.model_copy(update={"released": 0.1})
        left = trial.repeats[0].model_copy(update={"seed": 2, "released": 0.1})

        (at_the_low_rung,) = standing(trial.model_copy(update={"scores": [shaken, *rest]}))
        (by_a_ladder_left,) = standing(trial.model_copy(update={"repeats": [*trial.repeats, left]}))

        assert at_the_low_rung.ahead == by_a_ladder_left.ahead == 0

    def test_what_released_weights_are_ahead_by_is_followed_to_the_private_batch(self) -> None:
        """Two thirds of a gap that the draw makes are gone at twice the batch, and what noise makes stays."""
        plain = make_trial(0, OWN, {1: FIRST, 2: SECOND})
        # Of the draw: 0.04 at 64, 0.02 at 128, 0.01 at 256; of the noise 0.005.
        shaken = plain.model_copy(
            update={
                name: [
                    score.model_copy(
                        update={
                            "released": score.accuracy
                            - 0.005
                            - 0.04 * 64 / score.expected_batch_size
                        }
                    )
                    for score in getattr(plain, name)
                ]
                for name in ("scores", "repeats")
            }
        )
        assert [score.expected_batch_size for score in plain.scores] == list(RUNGS)

        (before,), (after,) = standing(plain), standing(shaken)

        expected = 3 / 4 * (-0.005 - 0.04 * 64 / BATCH)  # three simulations at the largest rung
        assert before.ahead == 0
        assert after.ahead == pytest.approx(expected, abs=1e-9)
        moved = after.prediction.accuracy - before.prediction.accuracy
        assert moved == pytest.approx(expected, abs=1e-4)
        width = before.prediction.high - before.prediction.low
        assert after.prediction.high - after.prediction.low > width

    def test_rungs_side_by_side_promise_nothing_impossible(self) -> None:
        """A gap that closes within a step of the ladder: followed to B it was 64 times itself."""
        scores = [
            score.model_copy(
                update={"expected_batch_size": batch, "accuracy": 0.9, "released": own}
            )
            for score, batch, own in zip(
                make_trial(0, [0.9, 0.9]).scores, (64, 65), (0.1, 0.89), strict=True
            )
        ]
        trial = make_trial(0, [0.9, 0.9]).model_copy(update={"scores": scores})

        (found,) = standing(trial)

        assert abs(found.ahead) < 1
        assert found.prediction.low < found.prediction.accuracy <= found.prediction.high <= 1

    def test_a_trial_that_learns_on_is_ahead_of_its_mean_by_a_half_of_what_one_simulation_says(
        self,
    ) -> None:
        trial = make_trial(0, OWN, {1: FIRST, 2: SECOND})
        learning = trial.model_copy(
            update={
                "scores": [
                    score.model_copy(update={"released": (score.accuracy or 0) + 0.01})
                    for score in trial.scores
                ]
            }
        )

        (found,) = standing(learning)

        assert found.ahead == pytest.approx(0.01 / 2)

    def test_what_was_learnt_moves_the_prediction_and_no_choice(self) -> None:
        trials = [
            make_trial(0, OWN, {1: FIRST, 2: SECOND}),
            make_trial(1, tuple(each - 0.01 for each in OWN), {1: FIRST, 2: FIRST}),
        ]
        learnt = replace(ENDLESS, errors=[0.01] * 9)

        before, after = standing(*trials), standing(*trials, evaluation=learnt)

        assert [one.trial for one in before] == [one.trial for one in after]
        for own, moved in zip(before, after, strict=True):
            gained = moved.prediction.accuracy - own.prediction.accuracy
            assert gained == pytest.approx(learnt.shift, abs=1e-6)
            assert learnt.shift == pytest.approx(0.01)
            width = own.prediction.high - own.prediction.low
            assert moved.prediction.high - moved.prediction.low < width

    def test_an_accuracy_of_one_is_no_certainty(self) -> None:
        few = Evaluation(num_validation=20, num_test=20)

        assert few.std(1.0) > 0.04

    def test_small_sets_widen_the_interval_and_leave_its_middle(self) -> None:
        trial = make_trial(0, LUCKY, {1: FIRST, 2: SECOND})

        (whole,) = standing(trial)
        (small,) = standing(trial, evaluation=Evaluation(num_validation=200, num_test=300))

        middle = whole.prediction.accuracy
        sampling = math.sqrt(middle * (1 - middle) * (1 / 200 + 1 / 300))
        assert small.prediction.accuracy == pytest.approx(middle, abs=1e-3)
        # A normal deviation alone would reach 1.645 of it to either side.
        assert small.prediction.high - small.prediction.low > 2 * 1.6 * sampling
        assert small.prediction.low < whole.prediction.low
        assert small.prediction.high > whole.prediction.high


class TestConfirmation:
    """A fresh seed one rung above the ladder."""

    def confirmed(self, accuracy: float | None) -> TrialRecord:
        trial = make_trial(0, OWN, {1: OWN})
        score = trial.repeats[-1].model_copy(
            update={"rung": len(RUNGS), "expected_batch_size": 2048, "accuracy": accuracy}
        )
        return trial.model_copy(update={"repeats": [score]})

    def test_it_counts_with_the_ladder_that_chose_the_trial(self) -> None:
        (found,) = standing(self.confirmed(0.89))

        observations = [
            Observation(expected_batch_size=batch, accuracy=accuracy, seed=seed)
            for batch, accuracy, seed in [
                *((batch, own, 0) for batch, own in zip(RUNGS, OWN, strict=True)),
                (2048, 0.89, 1),
            ]
        ]
        assert_same(
            found.prediction, fit_law(observations).predict(BATCH, evaluation_std=SHIFT_STD)
        )
        assert (found.seeds, found.is_fresh) == (2, True)

    def test_it_narrows_the_interval(self) -> None:
        (alone,), (found,) = standing(make_trial(0, OWN)), standing(self.confirmed(0.9))

        assert (
            found.prediction.high - found.prediction.low
            < alone.prediction.high - alone.prediction.low
        )

    def test_one_that_diverges_there_is_no_winner(self) -> None:
        assert standing(self.confirmed(None)) == []


class TestOneBatchSize:
    """Of a search whose only rung begins with a heat, the finalist alone knows what a larger batch is worth."""

    @staticmethod
    def trials() -> tuple[TrialRecord, TrialRecord]:
        best = make_trial(0, [0.44], {1: [0.44]})
        again = best.repeats[0].model_copy(
            update={"rung": 1, "expected_batch_size": 512, "accuracy": 0.49}
        )
        return best.model_copy(update={"repeats": [again]}), make_trial(1, [0.45])

    def test_a_trial_that_was_not_repeated_rises_as_the_repeated_one(self) -> None:
        first, second = standing(*self.trials())

        assert (first.trial, second.trial) == (0, 1)
        rise = first.compared.accuracy - 0.44
        assert rise > 0.05
        assert second.compared.accuracy == pytest.approx(0.45 + rise, abs=1e-3)
        assert second.prediction.low < first.prediction.low
        assert second.prediction.caution.startswith(
            "Only one batch size was scored: the slope is that of a repeated trial"
        )

    def test_one_that_was_repeated_at_the_same_batch_alone_teaches_no_slope(self) -> None:
        best, other = self.trials()
        again = make_trial(2, [0.40], {1: [0.40]})

        rises = {
            each.trial: each.compared.accuracy - each_score
            for each in standing(best, other, again)
            for each_score in [{0: 0.44, 1: 0.45, 2: 0.40}[each.trial]]
        }

        assert rises[1] == pytest.approx(rises[0], abs=1e-3)
        assert rises[2] == pytest.approx(rises[0], abs=1e-3)

    @pytest.mark.parametrize(("batch", "counts"), [(BATCH, RUNGS[0] / BATCH), (RUNGS[0], 1.0)])
    def test_what_it_releases_ahead_of_its_mean_ranks_it_as_far_as_it_is_the_private_batch(
        self, batch: int, counts: float
    ) -> None:
        (score,) = make_trial(0, [0.44]).scores
        alike = score.model_copy(update={"released": 0.44})
        ahead = score.model_copy(update={"released": 0.54})
        first, second = (
            foreseen([one], expected_batch_size=batch, guessing=0.1) for one in (ahead, alike)
        )

        assert first is not None
        assert second is not None
        assert first - second == pytest.approx(0.1 / 2 * counts)

    def test_alone_it_moves_by_the_slope_of_published_curves(self) -> None:
        (found,) = standing(self.trials()[1])

        assert found.prediction.accuracy < 0.45


class TestNoisyScores:
    NOISY = replace(ENDLESS, score_std=0.05)

    def trials(self, *accuracies: float) -> list[TrialRecord]:
        made = [make_trial(number, (accuracy,)) for number, accuracy in enumerate(accuracies)]
        return [
            each.model_copy(update={"value": accuracy})
            for each, accuracy in zip(made, accuracies, strict=True)
        ]

    def test_the_luck_of_the_best_one_is_taken_off_and_the_order_kept(self) -> None:
        scores = (0.88, 0.94, 0.96, 0.92, 0.99, 0.91)
        plain = standing(*self.trials(*scores))
        noisy = standing(*self.trials(*scores), evaluation=self.NOISY)

        assert [each.trial for each in noisy] == [each.trial for each in plain]
        assert noisy[0].prediction.accuracy < plain[0].prediction.accuracy - 0.03
        assert noisy[0].prediction.high - noisy[0].prediction.low > 0.1

    @given(
        true=st.lists(st.floats(0.5, 0.9), min_size=4, max_size=12),
        seed=st.integers(0, 2**32 - 1),
    )
    def test_no_score_leaves_the_span_of_its_rivals(self, true: list[float], seed: int) -> None:
        noise = np.random.default_rng(seed).normal(0, 0.02, len(true))
        scores = np.clip(np.array(true) + noise, 0, 1).tolist()
        found = without_noise(self.trials(*scores), 0.02)
        values = [each.value for each in found]

        assert min(scores) - 1e-12 <= min(values) <= max(values) <= max(scores) + 1e-12  # type: ignore[type-var]
        assert np.argmax(values) == np.argmax(scores)

    def test_it_is_nearer_to_the_truth_on_average(self) -> None:
        """Eight trials, spread as much as the noise: the best score is a deviation too high, what is left a third."""
        draw = np.random.default_rng(0)
        plain, drawn = [], []
        for _ in range(300):
            true = draw.normal(0.85, 0.02, 8)
            scores = np.clip(true + draw.normal(0, 0.02, 8), 0, 1)
            best = int(np.argmax(scores))
            found = without_noise(self.trials(*scores.tolist()), 0.02)
            plain.append(scores[best] - true[best])
            drawn.append((found[best].value or 0.0) - true[best])

        assert np.mean(plain) > 0.015
        assert abs(np.mean(drawn)) < 0.006

    def test_one_that_no_other_comes_near_stays_as_it_is(self) -> None:
        found = without_noise(self.trials(0.95, 0.5, 0.4), 0.02)

        assert [each.value for each in found] == [0.95, 0.5, 0.4]

    def test_of_a_line_the_trial_is_chosen_that_is_worth_most_and_the_deeper_the_less_it_gains(
        self,
    ) -> None:
        """What going on gains counts alike for all: else the first of a line would be promised once more what others showed."""
        quiet = replace(self.NOISY, goes_on=True, score_std=0.001)
        digest = "5b" * 32
        start = {"trial": 0, "weights_sha256": digest, "learning_rate_factor": 0.5}
        first, second = (
            trial.model_copy(update={"weights_sha256": digest}) for trial in self.trials(0.8, 0.81)
        )
        second = type(second).model_validate({**second.model_dump(), "began_from": start})

        best, other = standing(first, second, evaluation=quiet)

        assert (best.trial, other.trial) == (1, 0)
        errors = [1 - (each.prediction.accuracy - each.ahead) for each in (best, other)]
        assert best.ahead == pytest.approx(GAINED / 1.5 * errors[0])
        assert other.ahead == pytest.approx(GAINED * errors[1])
        assert other.prediction.accuracy > best.prediction.accuracy

        bare = second.model_copy(update={"weights_sha256": None})
        assert [each.trial for each in standing(first, bare, evaluation=quiet)] == [0]

    def test_a_run_that_goes_on_makes_good_a_part_of_the_errors_and_how_much_is_not_known(
        self,
    ) -> None:
        (trial,) = self.trials(0.6)
        goes_on = replace(self.NOISY, goes_on=True)
        (alone,) = standing(trial, evaluation=goes_on)
        kept = trial.model_copy(update={"weights_sha256": "5b" * 32})
        (on,) = standing(kept, evaluation=goes_on)
        assert (alone,) == tuple(standing(kept, evaluation=self.NOISY))

        assert on.ahead == pytest.approx(GAINED * (1 - alone.prediction.accuracy))
        assert on.prediction.accuracy == pytest.approx(alone.prediction.accuracy + on.ahead)
        widths = [each.prediction.high - each.prediction.low for each in (alone, on)]
        assert widths[1] > widths[0]
