"""Trials that go on from what earlier ones have paid for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tan_core.planner.lineage import (
    GAINED,
    GAINED_STD,
    REACH,
    TIRES,
    depths,
    factor_of,
    peak_of,
    start_of,
    trials_anew,
    worth_of,
)
from tan_core.wire import TrialRecord, TrialStart, TrialState

DIGEST = "5b" * 32
STD = 0.01


def trial(
    number: int,
    value: float | None,
    *,
    parent: int | None = None,
    factor: float = 0.5,
    state: TrialState = TrialState.COMPLETED,
    kept: bool = True,
) -> TrialRecord:
    return TrialRecord(
        number=number,
        state=state,
        params={"learning_rate": 1.0 + number},
        value=value,
        weights_sha256=DIGEST if kept else None,
        began_from=None
        if parent is None
        else TrialStart(trial=parent, weights_sha256=DIGEST, learning_rate_factor=factor),
    )


class TestTrialsAnew:
    @given(st.integers(1, 1000))
    def test_some_begin_anew_and_of_three_or_more_one_goes_on(self, trials: int) -> None:
        anew = trials_anew(trials)

        assert 1 <= anew <= trials
        assert trials < 2 or anew < trials


class TestStartOf:
    def test_the_first_trials_begin_anew(self) -> None:
        known = [trial(0, 0.8), trial(1, 0.9)]

        assert start_of(2, known, anew=3, score_std=STD) is None
        assert start_of(3, known, anew=3, score_std=STD) is not None

    def test_later_ones_go_on_from_the_best_at_other_parts_of_its_learning_rate(self) -> None:
        known = [trial(0, 0.5), trial(1, 0.9)]
        found = [start_of(number, known, anew=3, score_std=STD) for number in range(3, 11)]
        starts = [each for each in found if each is not None]

        assert len(starts) == 8
        assert (
            {parent.number for parent, _ in starts} == {start.trial for _, start in starts} == {1}
        )
        factors = [start.learning_rate_factor for _, start in starts]
        assert factors == [0.5, 1.0, 0.5, 2.0, 0.5, 1.0, 2 / 3, 2.0]
        assert {start.weights_sha256 for _, start in starts} == {DIGEST}

    def test_parts_of_parts_multiply(self) -> None:
        known = [trial(0, 0.5), trial(1, 0.9, parent=0, factor=0.25)]
        found = start_of(2, known, anew=1, score_std=STD)
        assert found is not None
        parent, start = found

        assert (factor_of(known[0]), factor_of(parent)) == (1.0, 0.25)
        assert start.learning_rate_factor == 0.25 * 1.0

    @pytest.mark.parametrize("rounds", [1, 2, 25, 1000])
    def test_the_rate_of_a_line_falls_as_one_over_its_rounds(self, rounds: int) -> None:
        line = [trial(0, 0.1)]
        for number in range(1, 4 * rounds + 1):
            found = start_of(number, line, anew=1, score_std=0.0)
            assert found is not None
            start = found[1]
            line = [trial(number, 0.5, parent=start.trial, factor=start.learning_rate_factor)]

        assert factor_of(line[0]) == pytest.approx(1 / (rounds + 1))

    @pytest.mark.parametrize(
        "best",
        [
            trial(1, 0.9, kept=False),
            trial(1, None),
            trial(1, 0.9, state=TrialState.FAILED),
            trial(1, 0.9, state=TrialState.RUNNING),
            trial(1, 0.9, state=TrialState.DIVERGED),
        ],
    )
    def test_of_what_left_no_weights_or_did_not_complete_none_goes_on(
        self, best: TrialRecord
    ) -> None:
        found = start_of(3, [trial(0, 0.5), best], anew=2, score_std=STD)
        assert found is not None

        assert found[0].number == 0
        assert start_of(3, [best], anew=2, score_std=STD) is None

    def test_one_that_another_failed_to_go_on_from_is_passed_over(self) -> None:
        known = [trial(0, 0.5), trial(1, 0.9), trial(2, None, parent=1, state=TrialState.FAILED)]
        found = start_of(3, known, anew=2, score_std=STD)
        assert found is not None

        assert found[0].number == 0

    def test_of_equals_the_later_one_is_gone_on_from(self) -> None:
        found = start_of(3, [trial(0, 0.7), trial(1, 0.7)], anew=2, score_std=0.0)
        assert found is not None

        assert found[0].number == 1


class TestWhereALineBegins:
    """Where the parabola through the scores is highest, not at the rate that happened to be tried."""

    RATES = (0.5, 2.0, 8.0)

    def anew(self, scores: list[float], **changes: float) -> list[TrialRecord]:
        return [
            TrialRecord(
                number=number,
                state=TrialState.COMPLETED,
                params={
                    "learning_rate": rate,
                    **({key: value * number for key, value in changes.items()}),
                },
                value=score,
                weights_sha256=DIGEST,
            )
            for number, (rate, score) in enumerate(zip(self.RATES, scores, strict=True))
        ]

    def begun(self, known: list[TrialRecord]) -> tuple[int, float]:
        found = start_of(3, known, anew=3, score_std=0.0)
        assert found is not None
        return found[0].number, found[1].learning_rate_factor

    @given(
        top=st.floats(-1.0, 2.5),
        height=st.floats(0.3, 0.9),
        bend=st.floats(0.001, 0.05),
        shift=st.floats(-0.5, 0.5),
    )
    def test_the_top_of_a_parabola_is_found(
        self, top: float, height: float, bend: float, shift: float
    ) -> None:
        rates = [float(np.exp(shift + 1.4 * place)) for place in range(-1, 3)]
        scores = {rate: height - bend * (np.log(rate) - top) ** 2 for rate in rates}
        assert peak_of(scores) == pytest.approx(np.exp(top), rel=1e-6)

    def test_the_first_of_a_line_takes_half_of_the_rate_at_the_top(self) -> None:
        assert self.begun(self.anew([0.2, 0.41, 0.4])) == (1, pytest.approx(0.5 * 1.8779, rel=1e-3))

    def test_a_top_that_is_far_off_is_not_gone_to(self) -> None:
        assert self.begun(self.anew([0.2, 0.4, 0.55])) == (2, pytest.approx(0.5 * REACH))
        assert self.begun(self.anew([0.55, 0.4, 0.2])) == (0, pytest.approx(0.5 / REACH))

    def test_scores_that_do_not_bend_down_say_nothing(self) -> None:
        assert self.begun(self.anew([0.2, 0.3, 0.5])) == (2, 0.5)

    @pytest.mark.parametrize("scores", [[0.3, 0.5, 0.6999], [0.6999, 0.5, 0.3], [0.1, 0.4, 0.7]])
    def test_scores_that_are_nearly_on_a_line_have_a_top_too(self, scores: list[float]) -> None:
        number, factor = self.begun(self.anew(scores))
        assert number == scores.index(max(scores))
        assert 0.5 / REACH <= factor <= 0.5 * REACH

    @given(scores=st.lists(st.floats(0, 1), min_size=3, max_size=3))
    def test_whatever_the_scores_a_line_begins_within_reach(self, scores: list[float]) -> None:
        _, factor = self.begun(self.anew(scores))
        assert 0.499 / REACH <= factor <= 0.501 * REACH

    def test_two_rates_make_no_parabola(self) -> None:
        low, middle, high = self.anew([0.2, 0.41, 0.4])
        assert self.begun([low, middle]) == (1, 0.5)
        failed = high.model_copy(update={"state": TrialState.DIVERGED, "value": None})
        assert self.begun([low, middle, failed]) == (1, 0.5)
        again = high.model_copy(update={"params": middle.params})
        assert self.begun([low, middle, again]) == (1, 0.5)

    def test_where_more_than_the_rate_differs_it_is_not_the_rate_that_scores_tell_of(self) -> None:
        assert self.begun(self.anew([0.2, 0.41, 0.4], momentum=0.1)) == (1, 0.5)

    def test_later_ones_keep_to_their_line(self) -> None:
        known = [*self.anew([0.2, 0.41, 0.4]), trial(3, 0.5, parent=1, factor=0.95)]
        found = start_of(4, known, anew=3, score_std=0.0)
        assert found is not None
        assert (found[0].number, found[1].learning_rate_factor) == (3, 0.95)


class TestWorth:
    def test_scores_without_noise_are_worth_what_they_say(self) -> None:
        known = [trial(0, 0.7), trial(1, 0.9, parent=0), trial(2, 0.6, parent=1)]

        worth = worth_of(known, 0.0)

        assert {number: each.accuracy for number, each in worth.items()} == {0: 0.7, 1: 0.9, 2: 0.6}
        assert all(each.variance == 0 for each in worth.values())

    def test_it_is_the_mean_of_a_normal_law_given_all_scores(self) -> None:
        """The same law as one matrix: x0 is as its score says, each later one follows from its parent, all scores have noise."""
        parents, scores = [None, 0, 1, 1, 0], [0.8, 0.79, 0.85, 0.7, 0.83]
        known = [
            trial(at, s, parent=p) for at, (s, p) in enumerate(zip(scores, parents, strict=True))
        ]

        worth = worth_of(known, STD)

        precision, weight = np.eye(5) / STD**2, np.array(scores) / STD**2
        depth = depths(known)
        assert depth == {0: 0, 1: 1, 2: 2, 3: 2, 4: 1}
        for child, parent in enumerate(parents):
            if parent is None:
                continue
            left = 1 / (1 + TIRES * depth[parent])
            gained = GAINED * left
            drift = (GAINED_STD * left * (1 - scores[parent])) ** 2
            row = np.zeros(5)
            row[child], row[parent] = 1, -(1 - gained)
            precision += np.outer(row, row) / drift
            weight += row * gained / drift
        covariance = np.linalg.inv(precision)
        assert [worth[at].accuracy for at in range(5)] == pytest.approx(covariance @ weight)
        assert [worth[at].variance for at in range(5)] == pytest.approx(np.diag(covariance))

    def test_where_noise_is_loud_going_on_counts_for_more_than_a_score(self) -> None:
        loud = worth_of([trial(0, 0.9), trial(1, 0.88, parent=0)], 0.05)
        quiet = worth_of([trial(0, 0.9), trial(1, 0.88, parent=0)], 0.001)

        assert loud[1].accuracy > loud[0].accuracy
        assert quiet[1].accuracy < quiet[0].accuracy

    @given(
        st.lists(st.floats(0, 1), min_size=1, max_size=12),
        st.floats(1e-6, 0.2),
        st.randoms(use_true_random=False),
    )
    def test_every_score_is_worth_something_and_more_is_known_than_it_says(
        self, scores: list[float], std: float, random: "np.random.Generator"
    ) -> None:
        parents = [random.choice([None, *range(at)]) for at in range(len(scores))]
        known = [
            trial(at, score, parent=parent)
            for at, (score, parent) in enumerate(zip(scores, parents, strict=True))
        ]
        worth = worth_of(known, std)

        assert worth.keys() == set(range(len(scores)))
        assert all(0 < each.variance <= std**2 * (1 + 1e-9) for each in worth.values())
        assert all(-1 <= each.accuracy <= 2 for each in worth.values())

    def test_what_is_said_of_equals_that_began_anew_is_as_uncertain_as_it_is_wrong(self) -> None:
        draw = np.random.default_rng(7)
        off = []
        for _ in range(400):
            scores = 0.8 + draw.normal(0, STD, 3)
            worth = worth_of([trial(at, float(score)) for at, score in enumerate(scores)], STD)
            off += [(each.accuracy - 0.8) / np.sqrt(each.variance) for each in worth.values()]

        assert 0.6 < np.sqrt(np.mean(np.square(off))) < 1.1

    def test_a_parent_that_is_not_there_or_not_earlier_makes_a_trial_one_of_its_own(self) -> None:
        """Reports may be anything."""
        worth = worth_of([trial(3, 0.7, parent=2), trial(4, 0.2, parent=4)], STD)

        assert (worth[3].accuracy, worth[4].accuracy) == (0.7, 0.2)

    def test_it_is_nearer_to_the_truth_than_scores_are(self) -> None:
        draw = np.random.default_rng(5)
        plain, weighed = [], []
        for _ in range(300):
            true = [0.8]
            for depth in range(5):
                gained = draw.normal(GAINED, GAINED_STD) / (1 + TIRES * depth)
                true.append(true[-1] + (1 - true[-1]) * gained)
            scores = np.array(true) + draw.normal(0, 0.03, 6)
            known = [
                trial(at, float(score), parent=at - 1 if at else None)
                for at, score in enumerate(scores)
            ]
            worth = worth_of(known, 0.03)
            plain.append(scores[5] - true[5])
            weighed.append(worth[5].accuracy - true[5])

        assert np.std(weighed) < 0.85 * np.std(plain)
        assert abs(np.mean(weighed)) < 0.005
