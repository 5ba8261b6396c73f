import csv
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from tan_core.errors import ParameterError
from tan_core.tan import Law, LawMethod, Observation, Prediction, fit_law
from tan_core.tan.law import (
    BEND,
    LEAST_LEFT,
    PRIOR,
    PUBLISHED_SLOPE,
    PUBLISHED_SLOPE_STD,
    SATURATION_STD,
)

TABLE = Path(__file__).parents[3] / "golden" / "tan_extrapolation.csv"
POINT = 0.01  # of accuracy


def read_curves(use: str) -> dict[str, list[tuple[float, float]]]:
    """Per published curve the (batch, accuracy) of what is fitted, or of what is predicted.

    Read off Figures 1 and 4 of Sander et al. (2023) to about 0.05 points.
    """
    curves: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with TABLE.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["use"] == use:
                point = (float(row["expected_batch_size"]), float(row["accuracy_percent"]) / 100)
                curves[row["curve"]].append(point)
    return dict(curves)


FITTED, HELD_OUT = read_curves("fit"), read_curves("predict")
IMAGENET = [name for name in FITTED if name.startswith("imagenet")]
CIFAR = [name for name in FITTED if name.startswith("cifar")]


def law_of(points: list[tuple[float, float]], *, seed: int = 0, guessing: float = 0.0) -> Law:
    observed = [Observation(expected_batch_size=b, accuracy=a, seed=seed) for b, a in points]
    return fit_law(observed, guessing=guessing)


def ladder(
    accuracies: list[float], *, first: float = 64, ratio: float = 4
) -> list[tuple[float, float]]:
    return [(first * ratio**rung, accuracy) for rung, accuracy in enumerate(accuracies)]


def width(prediction: Prediction) -> float:
    return prediction.high - prediction.low


class TestPublishedCurves:
    @pytest.mark.parametrize("curve", IMAGENET)
    def test_every_imagenet_star_is_predicted_within_a_point(self, curve: str) -> None:
        law = law_of(FITTED[curve])

        for batch, accuracy in HELD_OUT[curve]:
            assert law.predict(batch).accuracy == pytest.approx(accuracy, abs=1.0 * POINT)

    def test_the_private_run_of_the_paper_is_predicted_from_three_small_batches(self) -> None:
        ahead = law_of(FITTED["imagenet-ours"]).predict(16384)

        assert ahead.accuracy == pytest.approx(0.3690, abs=0.6 * POINT)
        assert ahead.low < 0.3690 < ahead.high

    @pytest.mark.parametrize(("curves", "asked"), [(IMAGENET, 8), (CIFAR, 12)])
    def test_the_interval_covers_nine_in_ten(self, curves: list[str], asked: int) -> None:
        covered = []
        for curve in curves:
            law = law_of(FITTED[curve])
            for batch, accuracy in HELD_OUT[curve]:
                ahead = law.predict(batch, level=0.9)
                covered.append(ahead.low <= accuracy <= ahead.high)

        assert len(covered) == asked
        assert np.mean(covered) >= 0.9

    @pytest.mark.parametrize(
        ("curves", "points"), [([c for c in IMAGENET if c != "imagenet-ours"], 4.0), (CIFAR, 4.0)]
    )
    def test_the_interval_is_not_vacuous(self, curves: list[str], points: float) -> None:
        widths = [width(law_of(FITTED[curve]).predict(16384)) for curve in curves]

        assert np.median(widths) < points * POINT

    def test_the_slopes_are_those_of_the_paper(self) -> None:
        slopes = {curve: law_of(FITTED[curve]).predict(4096).slope for curve in FITTED}

        assert slopes["imagenet-72k"] == pytest.approx(-0.0210, abs=1e-4)
        assert slopes["imagenet-ours"] == pytest.approx(-0.0181, abs=1e-4)
        assert np.mean(list(slopes.values())) == pytest.approx(PUBLISHED_SLOPE, abs=1e-3)
        assert np.std(list(slopes.values()), ddof=1) == pytest.approx(PUBLISHED_SLOPE_STD, abs=1e-3)

    def test_the_bend_is_what_the_line_does_not_explain(self) -> None:
        """Mean squared misses less what residual scatter gives them, over squared distances."""
        squares, spare, misses = 0.0, 0, []
        for curve, points in FITTED.items():
            x, y = np.log2([b for b, _ in points]), np.array([a for _, a in points])
            line = np.polyfit(x, y, 1)
            squares += float(np.sum((y - np.polyval(line, x)) ** 2))
            spare += len(x) - 2
            for batch, accuracy in HELD_OUT[curve]:
                at = math.log2(batch)
                leverage = 1 / len(x) + (at - x.mean()) ** 2 / np.sum((x - x.mean()) ** 2)
                misses.append((accuracy - np.polyval(line, at), 1 + leverage, at - x.max()))
        residual_variance = squares / spare
        unexplained = sum(miss**2 - residual_variance * factor for miss, factor, _ in misses)

        assert math.sqrt(residual_variance) == pytest.approx(0.29 * POINT, abs=0.01 * POINT)
        bend = math.sqrt(unexplained / sum(distance**2 for *_, distance in misses))
        assert bend == pytest.approx(BEND, abs=0.1 * POINT)


class TestLine:
    def test_a_balanced_design_gives_ordinary_least_squares_on_the_means(self) -> None:
        rng = np.random.default_rng(1)
        accuracies = 0.6 - 0.01 * np.arange(4)[:, None] + 0.01 * rng.normal(size=(4, 3))
        law = fit_law(
            [
                Observation(expected_batch_size=32 * 4.0**rung, accuracy=float(a), seed=seed)
                for rung, row in enumerate(accuracies)
                for seed, a in enumerate(row)
            ]
        )
        slope, intercept = np.polyfit(5 + 2 * np.arange(4), accuracies.mean(axis=1), 1)

        ahead = law.predict(32 * 4.0**5)

        assert ahead.method is LawMethod.LINE
        assert ahead.slope == pytest.approx(slope)
        assert law.accuracy(32) == pytest.approx(intercept + slope * 5)
        assert ahead.accuracy == pytest.approx(intercept + slope * 15)
        assert ahead.num_batch_sizes == 4
        assert ahead.caution is None

    def test_a_lucky_seed_on_the_largest_rung_alone_does_not_bend_the_line(self) -> None:
        """Seed 2 is three points better everywhere, and the only one that reached the last rung."""
        runs = [(64, 0), (64, 1), (64, 2), (256, 1), (256, 2), (1024, 2)]
        accuracies = [0.7 - 0.01 * math.log2(b) + 0.03 * (seed == 2) for b, seed in runs]
        law = fit_law(
            [
                Observation(expected_batch_size=b, accuracy=a, seed=seed)
                for (b, seed), a in zip(runs, accuracies, strict=True)
            ]
        )
        unpaired = np.polyfit([math.log2(b) for b, _ in runs], accuracies, 1)[0]

        assert unpaired > -0.006
        assert law.predict(4096).slope == pytest.approx(-0.01, abs=0.002)

    def test_the_spreads_find_out_which_is_which(self) -> None:
        noisy_seeds = [
            Observation(expected_batch_size=b, accuracy=0.6 + 0.02 * shift, seed=seed)
            for b in (64.0, 256.0, 1024.0)
            for seed, shift in enumerate((-1.2, 0.1, 1.1))
        ]
        noisy_rungs = [
            Observation(expected_batch_size=b, accuracy=0.6 + 0.005 * shift, seed=seed)
            for b, shift in zip((64.0, 256.0, 1024.0, 4096.0), (1, -1, -1, 1), strict=True)
            for seed in range(3)
        ]

        of_seeds, of_rungs = fit_law(noisy_seeds).predict(4096), fit_law(noisy_rungs).predict(4096)

        assert of_seeds.seed_std > 3 * of_seeds.residual_std
        assert of_rungs.residual_std > 3 * of_rungs.seed_std

    def test_rungs_fall_where_the_line_through_all_of_them_does(self) -> None:
        """Though the last is above the first."""
        assert law_of(ladder([0.600, 0.613, 0.594, 0.6015])).method is LawMethod.LINE

    def test_what_seeds_do_not_share_spreads_runs_too(self) -> None:
        """Two seeds that take turns at being the better one: nothing of it is a seed's own."""
        law = fit_law(
            [
                Observation(
                    expected_batch_size=64 * 4.0**rung,
                    accuracy=0.6 + 0.02 * (-1) ** (rung + seed),
                    seed=seed,
                )
                for rung in range(4)
                for seed in range(2)
            ]
        )

        ahead = law.predict(4**7)

        assert ahead.seed_std == pytest.approx(0.02, rel=0.3)
        assert ahead.residual_std < 0.01

    def test_three_points_on_a_perfect_line_are_no_reason_to_be_sure(self) -> None:
        ahead = law_of(ladder([0.60, 0.59, 0.58])).predict(16384)

        assert ahead.accuracy == pytest.approx(0.56)
        assert 1 * POINT < width(ahead) < 6 * POINT

    def test_more_seeds_on_the_same_line_make_it_surer(self) -> None:
        few, many = (
            fit_law(
                [
                    Observation(expected_batch_size=b, accuracy=a, seed=seed)
                    for b, a in ladder([0.60, 0.594, 0.58])
                    for seed in range(num_seeds)
                ]
            ).predict(16384)
            for num_seeds in (1, 4)
        )

        assert width(many) < 0.8 * width(few)

    def test_two_batch_sizes_are_a_line_with_a_caution(self) -> None:
        ahead = law_of(ladder([0.60, 0.58])).predict(4096)

        assert ahead.method == "line"
        assert ahead.accuracy == pytest.approx(0.54)
        assert ahead.caution == "Two batch sizes cannot tell a bend from a line."

    def test_interpolation_is_surer_than_extrapolation(self) -> None:
        law = law_of(ladder([0.60, 0.59, 0.585, 0.57]))

        assert width(law.predict(512)) < width(law.predict(16384))

    def test_is_as_unsure_below_the_rungs_as_beyond_them(self) -> None:
        law = law_of(ladder([0.60, 0.595, 0.58, 0.57]))

        assert width(law.predict(64 / 16)) == pytest.approx(width(law.predict(4096 * 16)))

    def test_rungs_that_scatter_as_their_seeds_do_are_no_reason_to_leave_it(self) -> None:
        def law(between_seeds: float) -> Law:
            return fit_law(
                [
                    Observation(
                        expected_batch_size=b, accuracy=a + sign * between_seeds / 2, seed=seed
                    )
                    for b, a in ladder([0.60, 0.53, 0.58])
                    for seed, sign in enumerate((-1, 1))
                ]
            )

        # They are off by 0.049: three times 0.016, which seeds that differ by 0.023 deviate by.
        assert law(0.020).method is LawMethod.LARGEST_RUNG
        assert law(0.026).method is LawMethod.LINE

    def test_stays_inside_the_possible(self) -> None:
        law = law_of(ladder([0.30, 0.20, 0.10]))

        ahead = law.predict(2**20)

        assert (ahead.accuracy, ahead.low) == (0, 0)
        assert law.accuracy(2**20) == 0
        assert "rungs" not in (ahead.caution or "")


class TestSaturation:
    """Accuracies of short runs, 200 steps."""

    LADDERS = (
        # tanh-cnn, then scatter-linear on MNIST, then scatter-linear on CIFAR-10 (JPEG).
        ((0.9465, 0.9608), 0.9645),
        ((0.9490, 0.9672), 0.9713),
        ((0.9647, 0.9737), 0.9778),
        ((0.9658, 0.9770), 0.9805),
        ((0.5780, 0.6214), 0.6364),
        ((0.5812, 0.6232), 0.6350),
        ((0.5782, 0.5980), 0.6078),
        ((0.5664, 0.5944), 0.5966),
    )
    """Validation accuracies at 32 and 128, and at 2048."""

    @staticmethod
    def law(accuracies: tuple[float, ...]) -> Law:
        return law_of(list(zip((16, 64, 128), accuracies, strict=True)))

    @pytest.mark.parametrize(("rungs", "reached"), LADDERS)
    def test_a_rise_dies_away(self, rungs: tuple[float, float], reached: float) -> None:
        ahead = law_of(list(zip((32, 128), rungs, strict=True)), guessing=0.1).predict(2048)

        assert ahead.method is LawMethod.SATURATION
        assert ahead.accuracy == pytest.approx(reached, abs=0.8 * POINT)
        assert ahead.low < reached < ahead.high

    def test_is_neither_too_high_nor_too_low_on_the_whole(self) -> None:
        missed = [
            law_of(list(zip((32, 128), rungs, strict=True)), guessing=0.1).predict(2048).accuracy
            - reached
            for rungs, reached in self.LADDERS
        ]

        assert sum(missed) / len(missed) == pytest.approx(0, abs=0.15 * POINT)

    STEEP = (
        ((0.391, 0.465), 0.492),
        ((0.357, 0.463), 0.515),
        ((0.357, 0.447), 0.493),
        ((0.354, 0.452), 0.492),
        ((0.377, 0.446), 0.493),
        ((0.305, 0.442), 0.508),
        ((0.334, 0.440), 0.495),
        ((0.324, 0.443), 0.509),
    )
    """The same of tanh-cnn on CIFAR-10 (JPEG) at epsilon 3, of the mean weights at 2048, too."""

    def test_a_steep_rise_dies_away_the_later(self) -> None:
        missed = [
            law_of(list(zip((32, 128), rungs, strict=True)), guessing=0.1).predict(2048).accuracy
            - reached
            for rungs, reached in self.STEEP
        ]

        assert max(map(abs, missed)) < 2 * POINT
        assert sum(missed) / len(missed) == pytest.approx(0, abs=0.5 * POINT)

    @given(
        limit=st.floats(0.2, 0.99),
        guessing=st.sampled_from([0.0, 0.1, 0.01]),
        lost=st.floats(1e-4, 0.25),
        steps=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    )
    def test_finds_the_curve_that_rungs_lie_on(
        self, limit: float, guessing: float, lost: float, steps: list[int]
    ) -> None:
        """Whatever is lost at the largest rung, where the others still know most of it."""
        below = np.cumsum([0, *steps])[::-1].astype(float)
        shares = lost * 2.0**below

        def curve(share: np.ndarray) -> np.ndarray:
            return (limit + share * guessing) / (1 + share)

        known = curve(shares) - guessing
        assume(np.all(known[:-1] > np.maximum(LEAST_LEFT, 2.0 ** (-below[:-1] / 2)) * known[-1]))
        batches = 1024 * 2.0**-below
        law = law_of(
            list(zip(batches.tolist(), curve(shares).tolist(), strict=True)), guessing=guessing
        )

        assert law.accuracy(16384) == pytest.approx(float(curve(np.array(lost / 16))), abs=1e-6)

    @pytest.mark.parametrize("batches", [(8, 16), (32, 45), (64, 65)])
    def test_rungs_side_by_side_that_are_worlds_apart_have_a_curve(
        self, batches: tuple[int, int]
    ) -> None:
        ahead = law_of(list(zip(batches, (0.0, 0.9), strict=True))).predict(4096)

        assert 0.9 <= ahead.accuracy <= 1

    def test_is_the_curve_that_it_says(self) -> None:
        batches = np.array([64, 256, 1024, 4096])
        lost = 0.002 * 1024 / batches
        accuracies = (0.9 + 0.1 * lost) / (1 + lost)
        law = law_of(
            list(zip(batches[:3].tolist(), accuracies[:3].tolist(), strict=True)), guessing=0.1
        )

        assert [law.accuracy(int(batch)) for batch in batches[1:]] == pytest.approx(accuracies[1:])
        assert law.predict(4096).slope == pytest.approx((accuracies[3] - accuracies[2]) / 2)
        for batch in (64, 1024):  # at the largest rung and below: of the doubling ahead
            ahead = law.accuracy(2048) - law.accuracy(1024)
            assert law.predict(batch).slope == pytest.approx(ahead)

    def test_meets_the_line_where_nothing_rises(self) -> None:
        """A little more at the largest rung never promises less: where it did, the lesser of two trials won."""
        above, below = (
            law_of(ladder([0.6, 0.6, 0.6 + slope])).predict(16384) for slope in (1e-9, -1e-9)
        )

        assert (above.method, below.method) == (LawMethod.SATURATION, LawMethod.LINE)
        assert above.accuracy == pytest.approx(below.accuracy, abs=1e-6)

    def test_what_is_left_of_the_rise_is_uncertain(self) -> None:
        """A steep rise widens the interval, and by nothing at the largest rung itself."""
        steep = self.law((0.60, 0.80, 0.83))
        left = steep.accuracy(2048) - steep.accuracy(128)
        there, here = width(steep.predict(2048)), width(steep.predict(128))

        assert left > 0.5 * POINT
        assert there > math.hypot(here, SATURATION_STD * left)
        # Between rungs nothing is left to rise.
        assert width(steep.predict(64)) < here

    def test_never_promises_the_impossible(self) -> None:
        assert self.law((0.1, 0.9, 0.99)).predict(2**20).accuracy <= 1


class TestLeftOut:
    """Rungs that know too little of what is known at the largest."""

    def test_the_rest_says_what_it_would_by_itself(self) -> None:
        """Of two candidates of tanh-cnn on CIFAR-10 (JPEG); with all three rungs they were told 48.1 and 47.0 %."""
        for rungs, reached in (
            [(0.254, 0.401, 0.481), 0.517],
            [(0.248, 0.370, 0.470), 0.500],
        ):
            batches = (32, 128, 512)
            every = law_of(list(zip(batches, rungs, strict=True)), guessing=0.1)
            rest = law_of(list(zip(batches[1:], rungs[1:], strict=True)), guessing=0.1)

            assert every.accuracy(2048) == rest.accuracy(2048) == pytest.approx(reached, abs=0.015)

    def test_it_is_said(self) -> None:
        law = law_of([(32, 0.25), (128, 0.44), (512, 0.50)], guessing=0.1)

        caution = law.predict(2048).caution
        assert caution is not None
        assert caution.startswith("What was simulated at batch 32 knows too little to be counted")

    def test_a_collapsed_smallest_rung_is_among_them(self) -> None:
        ahead = law_of(ladder([0.10, 0.62, 0.60, 0.59])).predict(16384)

        assert ahead.method is LawMethod.LINE
        assert ahead.num_batch_sizes == 3
        assert 0.55 < ahead.accuracy < 0.59

    def test_one_at_a_time_is_left_out(self) -> None:
        """Who knows enough stays, however near it is to one who does not."""
        rungs = law_of([(32, 0.20), (45, 0.40), (128, 0.44), (512, 0.50)], guessing=0.1)

        assert rungs.num_batch_sizes == 3

    def test_two_rungs_stay_however_little_the_smaller_knows(self) -> None:
        assert law_of([(32, 0.15), (128, 0.44)], guessing=0.1).num_batch_sizes == 2
        assert law_of([(8, 0.11), (32, 0.15), (128, 0.44)], guessing=0.1).num_batch_sizes == 2

    def test_falling_rungs_are_all_counted(self) -> None:
        assert law_of([(32, 0.6), (128, 0.5), (512, 0.4)], guessing=0.1).num_batch_sizes == 3


class TestFallback:
    def test_one_batch_size_predicts_from_it_by_the_published_slopes(self) -> None:
        ahead = law_of([(256, 0.60)]).predict(1024)

        assert ahead.method is LawMethod.LARGEST_RUNG
        assert ahead.accuracy == pytest.approx(0.60 + 2 * PUBLISHED_SLOPE)
        assert ahead.slope == pytest.approx(PUBLISHED_SLOPE)
        assert ahead.caution is not None
        assert ahead.caution.startswith("Only one batch size")

    def test_a_collapsed_rung_is_not_extrapolated(self) -> None:
        ahead = law_of(ladder([0.62, 0.10, 0.60, 0.59])).predict(16384)

        assert ahead.method is LawMethod.LARGEST_RUNG
        assert 0.50 < ahead.accuracy <= 0.59
        assert ahead.low < 0.56 < ahead.high
        assert ahead.caution is not None
        assert "too far from any" in ahead.caution

    @pytest.mark.parametrize(
        ("fitted", "above"),
        [
            ((0.900, 0.9425, 0.930), (0.901, 0.9445, 0.931)),
            ((0.55, 0.6225, 0.62), (0.551, 0.6245, 0.621)),
        ],
    )
    def test_rungs_that_rise_are_not_told_to_fall(
        self, fitted: tuple[float, ...], above: tuple[float, ...]
    ) -> None:
        """A little above a ladder that is a curve yet: better at every rung, and 4.5 points worse it was."""
        batches = (64, 256, 1024)
        curve, fallback = (
            law_of(list(zip(batches, rungs, strict=True)), guessing=0.1)
            for rungs in (fitted, above)
        )

        assert curve.method is LawMethod.SATURATION
        assert fallback.method is LawMethod.LARGEST_RUNG
        ahead = fallback.predict(4096)
        assert ahead.accuracy > curve.predict(4096).accuracy - 1.5 * POINT
        assert "slope is none" in (ahead.caution or "")

    def test_a_largest_rung_that_collapsed_turns_no_rise_into_a_fall(self) -> None:
        """Two of three slopes rise, though their mean falls steeply."""
        ahead = law_of(ladder([0.60, 0.61, 0.62, 0.10])).predict(16384)

        assert "slope is none" in (ahead.caution or "")

    def test_is_as_unsure_below_its_rung_as_beyond_it(self) -> None:
        """Though there are rungs there: they are what it does not count."""
        law = law_of(ladder([0.62, 0.10, 0.60, 0.59]))

        assert width(law.predict(4096 / 16)) == pytest.approx(width(law.predict(4096 * 16)))

    def test_one_run_alone_says_what_the_prior_says_about_two(self) -> None:
        """Of a flat mean and its prior the difference of two runs is a Student t, in closed form."""
        law = law_of([(128, 0.5)])

        for level in (0.5, 0.9, 0.99, 0.999):
            reach = stats.t.ppf((1 + level) / 2, PRIOR.weight) * PRIOR.std * math.sqrt(2)
            assert width(law.predict(128, level=level)) == pytest.approx(2 * reach, rel=0.03)

    def test_is_wider_than_the_line_it_replaces(self) -> None:
        line = law_of(ladder([0.61, 0.60, 0.59])).predict(16384)
        fallback = law_of([(1024, 0.59)]).predict(16384)

        assert width(fallback) > 2 * width(line)

    def test_a_collapse_of_the_largest_rung_makes_it_wider_still(self) -> None:
        stays = law_of([(1024, 0.30)]).predict(4096)
        collapsed = law_of(ladder([0.62, 0.61, 0.30])).predict(4096)

        assert collapsed.method is LawMethod.LARGEST_RUNG
        assert width(collapsed) > 2 * width(stays)

    @pytest.mark.parametrize("curve", FITTED)
    def test_no_published_curve_needs_it(self, curve: str) -> None:
        assert law_of(FITTED[curve]).method is not LawMethod.LARGEST_RUNG

    @pytest.mark.parametrize("rungs", [[0.80, 0.70, 0.55, 0.45], [0.80, 0.75, 0.55, 0.45]])
    def test_a_steep_curve_that_bends_a_little_is_still_a_line(self, rungs: list[float]) -> None:
        assert law_of(ladder(rungs)).method is LawMethod.LINE


class TestCaution:
    def test_far_beyond_what_was_ever_checked(self) -> None:
        law = law_of(ladder([0.60, 0.59, 0.58]))

        assert law.predict(2**15).caution is None
        assert "6.0 doublings beyond" in (law.predict(2**16).caution or "")


class TestEvaluation:
    @pytest.mark.parametrize("std", [0.003, 0.02])
    def test_another_set_adds_its_sampling_error(self, std: float) -> None:
        """The interval is that of the sum, drawn out as a table of both its terms."""
        law = law_of(ladder([0.62, 0.6, 0.585]))
        upper = [law.predict(2**12, level=level).high for level in np.arange(0.0025, 1, 0.005)]
        lower = [law.predict(2**12, level=level).low for level in np.arange(0.0025, 1, 0.005)]
        noise = stats.norm.ppf(np.arange(0.0025, 1, 0.005), scale=std)
        sums = np.add.outer([*lower, *upper], noise)

        ahead = law.predict(2**12, level=0.9, evaluation_std=std)

        assert [ahead.low, ahead.accuracy, ahead.high] == pytest.approx(
            np.quantile(sums, [0.05, 0.5, 0.95]), abs=3e-4
        )

    @pytest.mark.parametrize("shift", [-0.03, 0.02])
    def test_what_another_set_differs_by_moves_the_whole_interval(self, shift: float) -> None:
        law = law_of(ladder([0.62, 0.6, 0.585]))
        here, there = law.predict(2**12), law.predict(2**12, evaluation_shift=shift)

        assert [there.low, there.accuracy, there.high] == pytest.approx(
            [here.low + shift, here.accuracy + shift, here.high + shift]
        )
        assert there.slope == here.slope

    @pytest.mark.parametrize("shift", [-1.1, 1.1, math.nan])
    def test_what_is_no_difference_of_accuracies_is_refused(self, shift: float) -> None:
        with pytest.raises(ParameterError, match="evaluation_shift"):
            law_of(ladder([0.6, 0.5])).predict(64, evaluation_shift=shift)

    def test_one_set_for_both_is_what_is_meant_where_none_is_named(self) -> None:
        law = law_of(ladder([0.62, 0.6, 0.585]))

        assert law.predict(2**12, evaluation_std=0) == law.predict(2**12)

    @pytest.mark.parametrize("std", [-1e-9, 1.1, math.nan, math.inf])
    def test_what_is_no_deviation_of_accuracies_is_refused(self, std: float) -> None:
        with pytest.raises(ParameterError, match="evaluation_std"):
            law_of(ladder([0.6, 0.5])).predict(64, evaluation_std=std)


class TestRefusals:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("accuracy", math.nan),
            ("accuracy", 62.5),
            ("accuracy", -0.01),
            ("expected_batch_size", 0),
            ("expected_batch_size", -64),
            ("expected_batch_size", math.inf),
            ("seed", 0.5),
        ],
    )
    def test_an_observation_outside_its_domain_is_refused_by_name(
        self, field: str, value: float
    ) -> None:
        good = {"expected_batch_size": 64, "accuracy": 0.5, "seed": 0}

        with pytest.raises(ParameterError, match=f"{field} must be .* got {value!r}") as refusal:
            Observation(**{**good, field: value})

        assert refusal.value.field == field

    def test_no_observations_are_refused(self) -> None:
        with pytest.raises(ParameterError, match="observations must hold at least one, got none"):
            fit_law([])

    @pytest.mark.parametrize("guessing", [-0.1, 1.0, math.nan])
    def test_an_accuracy_that_nobody_guesses_is_refused(self, guessing: float) -> None:
        with pytest.raises(ParameterError, match=r"guessing must be in \[0, 1\)"):
            law_of([(64, 0.5)], guessing=guessing)

    @pytest.mark.parametrize(("batch", "level"), [(0, 0.9), (math.nan, 0.9), (64, 0), (64, 1)])
    def test_a_prediction_outside_its_domain_is_refused(self, batch: float, level: float) -> None:
        with pytest.raises(ParameterError, match="must be"):
            law_of(ladder([0.6, 0.5])).predict(batch, level=level)


class TestAgainstTheDefinition:
    def test_the_interval_holds_its_level_by_brute_force(self) -> None:
        """Normals conditioned one by one over a grid of total variances: no Student t, no evidence."""
        runs = [(64, 0, 0.60), (64, 1, 0.63), (256, 0, 0.58), (1024, 1, 0.59), (1024, 2, 0.55)]
        law = fit_law([Observation(expected_batch_size=b, seed=s, accuracy=a) for b, s, a in runs])
        ahead = law.predict(512, level=0.8)

        below_low, below_high = _posterior_cdf(runs, at=512, values=[ahead.low, ahead.high])

        assert below_low == pytest.approx(0.1, abs=2e-3)
        assert below_high == pytest.approx(0.9, abs=2e-3)


def _posterior_cdf(
    runs: list[tuple[float, int, float]], *, at: float, values: list[float]
) -> np.ndarray:
    """Posterior probability of a new run below each value; weights by the joint normal density."""
    labels = [(b, s) for b, s, _ in runs] + [(at, -1)]
    y = np.array([a for *_, a in runs]) - 0.6
    x = np.log2([b for b, _ in labels])
    diffuse = 10.0 * (1 + np.outer(x - 8, x - 8))  # intercept and slope, as good as flat
    same = [np.array([[a[k] == b[k] for b in labels] for a in labels], float) for k in (0, 1)]
    levels = [(r, s, e) for r in range(5) for s in range(5) for e in range(5) if min(r, s, e) == 0]
    total, below = 0.0, np.zeros(len(values))
    for r, s, e in levels:
        parts = np.array([4.0**-r, 4.0**-s, 4.0**-e])
        parts /= parts.sum()
        kernel = parts[0] * same[0] + parts[1] * same[1] + parts[2] * np.eye(len(labels))
        for variance in np.geomspace(1e-6, 3e-2, 60):
            scaled = PRIOR.weight * PRIOR.std**2 / variance
            prior = stats.chi2.pdf(scaled, PRIOR.weight) * scaled  # in log variance
            cov = variance * kernel + diffuse
            seen, cross = cov[:-1, :-1], cov[:-1, -1]
            gain = np.linalg.solve(seen, cross)
            density = math.exp(-0.5 * (np.linalg.slogdet(seen)[1] + y @ np.linalg.solve(seen, y)))
            mean, std = gain @ y, math.sqrt(cov[-1, -1] - gain @ cross)
            total += prior * density
            below += prior * density * stats.norm.cdf(np.array(values) - 0.6, mean, std)
    return below / total


class TestRoom:
    def test_spreads_are_those_of_a_frequency(self) -> None:
        """The same ladder at the middle and near 1, where a tenth of the room is left."""
        middle, near_one = (
            law_of(ladder([top - 0.002, top - 0.001, top])).predict(4096) for top in (0.5, 0.9975)
        )

        assert width(near_one) / width(middle) == pytest.approx(
            2 * math.sqrt(0.995 * 0.005), rel=0.3
        )

    def test_it_is_that_of_the_largest_rung(self) -> None:
        """Two perfect lines to one half, from next to it and from next to 1."""
        flat, steep = (
            law_of(ladder([0.5 + 2 * fall, 0.5 + fall, 0.5])).predict(4096)
            for fall in (0.001, 0.2475)
        )

        assert steep.method is LawMethod.LINE
        assert width(steep) == pytest.approx(width(flat), rel=1e-3)

    @pytest.mark.parametrize("accuracy", [0.0, 1.0])
    def test_there_is_always_some(self, accuracy: float) -> None:
        ahead = law_of([(64, accuracy), (256, accuracy), (1024, accuracy)]).predict(4096)

        assert 0.001 < width(ahead) < 0.02


class TestCoverage:
    """Ladders of three rungs with two paired seeds each, predicted two doublings ahead."""

    RUNGS, NUM_SEEDS, AHEAD, NUM_STUDIES = (6, 8, 10), 2, 12, 1000

    @pytest.mark.slow
    def test_is_the_level_where_spreads_are_drawn_from_the_prior(self) -> None:
        """0.90 within three binomial standard deviations of 0.0095 each."""
        rng = np.random.default_rng(20230)
        hits = [self._hit(rng, *_spreads(rng)) for _ in range(self.NUM_STUDIES)]

        assert np.mean(hits) == pytest.approx(0.90, abs=0.03)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("rung_std", "seed_std", "rest_std", "at_least"),
        [(0.3, 0.3, 0.3, 0.90), (0.1, 0.9, 0.3, 0.85), (0.3, 0.1, 0.1, 0.90)],
    )
    def test_is_kept_where_spreads_are_like_those_published(
        self, rung_std: float, seed_std: float, rest_std: float, at_least: float
    ) -> None:
        """In points; below the stated share by chance at most twice in a hundred (binomial)."""
        rng = np.random.default_rng(7)
        spreads = (rung_std * POINT, seed_std * POINT, rest_std * POINT)
        hits = [self._hit(rng, *spreads) for _ in range(self.NUM_STUDIES)]

        assert np.sum(hits) >= stats.binom.ppf(0.02, self.NUM_STUDIES, at_least)

    def _hit(
        self, rng: np.random.Generator, rung_std: float, seed_std: float, rest_std: float
    ) -> bool:
        """Whether one study's interval holds the private run, whose slope bends beyond the rungs."""
        seeds = rng.normal(0, seed_std, self.NUM_SEEDS)
        observations = [
            Observation(
                expected_batch_size=2.0**rung,
                accuracy=float(np.clip(level + seeds[seed] + rng.normal(0, rest_std), 0, 1)),
                seed=seed,
            )
            for rung in self.RUNGS
            for level in [0.6 - 0.01 * rung + rng.normal(0, rung_std)]
            for seed in range(self.NUM_SEEDS)
        ]
        spread = math.hypot(rung_std, seed_std, rest_std)
        bend = rng.normal(0, BEND) * (self.AHEAD - self.RUNGS[-1])
        truth = np.clip(0.6 - 0.01 * self.AHEAD + bend + rng.normal(0, spread), 0, 1)
        ahead = fit_law(observations).predict(2.0**self.AHEAD, level=0.9)
        return bool(ahead.low <= truth <= ahead.high)


def _spreads(rng: np.random.Generator) -> np.ndarray:
    """Standard deviations of rungs, seeds and rest, as the prior has them."""
    powers = rng.integers(0, 5, 3)
    while powers.min() > 0:
        powers = rng.integers(0, 5, 3)
    variances = 4.0**-powers
    total = min(
        PRIOR.weight * PRIOR.std**2 / rng.chisquare(PRIOR.weight), 0.1**2
    )  # a spread of 10 points leaves the unit interval
    return np.sqrt(total * variances / variances.sum())


class TestBorrowedSlope:
    ALONE = fit_law([Observation(expected_batch_size=128, accuracy=0.4, seed=0)])
    LADDER = fit_law(
        [
            Observation(expected_batch_size=batch, accuracy=accuracy, seed=0)
            for batch, accuracy in [(128, 0.5), (512, 0.48)]
        ]
    )

    def test_one_batch_size_moves_as_another_law_does(self) -> None:
        found = self.ALONE.with_slope_of(self.LADDER, expected_batch_size=2048)

        moved = self.LADDER.accuracy(2048) - self.LADDER.accuracy(128)
        assert found.predict(2048).accuracy == pytest.approx(0.4 + moved)
        assert found.predict(128).accuracy == pytest.approx(0.4)

    def test_it_is_as_uncertain_as_published_ones_or_as_the_other_is(self) -> None:
        """A line's own slope is surer than that of one run of it is to be that of another."""
        collapsed = law_of(ladder([0.62, 0.61, 0.30], first=8))
        alone, borrowed, doubtful = (
            law.predict(2048)
            for law in (
                self.ALONE,
                self.ALONE.with_slope_of(self.LADDER, expected_batch_size=2048),
                self.ALONE.with_slope_of(collapsed, expected_batch_size=2048),
            )
        )

        assert width(borrowed) == pytest.approx(width(alone))
        assert width(doubtful) > 2 * width(alone)
        assert borrowed.caution == (
            "Only one batch size was scored: the slope is that of a repeated trial."
        )

    @pytest.mark.parametrize(
        ("own", "other", "batch"),
        [(ALONE, ALONE, 2048), (LADDER, LADDER, 2048), (ALONE, LADDER, 128), (ALONE, LADDER, 64)],
        ids=["the other has none", "it has its own", "the same batch", "a smaller one"],
    )
    def test_others_stay_as_they_are(self, own: Law, other: Law, batch: float) -> None:
        assert own.with_slope_of(other, expected_batch_size=batch) is own

    @pytest.mark.parametrize("batch", [0, -1.0, math.nan])
    def test_a_batch_that_is_none_is_refused(self, batch: float) -> None:
        with pytest.raises(ParameterError, match="expected_batch_size"):
            self.ALONE.with_slope_of(self.LADDER, expected_batch_size=batch)
