"""The price of a private selection against published settings and dp-accounting's own implementation."""

import csv
import math
from pathlib import Path

import dp_accounting
import pytest
from dp_accounting.dp_event import RepeatAndSelectDpEvent, SelfComposedDpEvent
from dp_accounting.rdp import RdpAccountant

from tan_core.accounting import calibrate_noise_multiplier, price
from tan_core.accounting.pld import PldProfile
from tan_core.accounting.rdp import ORDERS
from tan_core.accounting.selection import (
    SelectionBound,
    calibrate_selection,
    price_selection,
    selected_epsilon,
)
from tan_core.accounting.trial_count import NegativeBinomialTrials, PoissonTrials, TrialCount
from tan_core.errors import (
    AccountantError,
    ParameterError,
    UnreachableTargetError,
    UnsupportedEventError,
)
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation

GOLDEN = Path(__file__).parents[3] / "golden"
Q, DELTA = 4096 / 50_000, 1e-5
GEOMETRIC = NegativeBinomialTrials(mean=10.0, shape=1.0)
LOGARITHMIC = NegativeBinomialTrials(mean=10.0, shape=0.0)


def rows_of(table: str) -> pytest.MarkDecorator:
    with (GOLDEN / table).open(newline="") as file:
        rows = list(csv.DictReader(file))
    return pytest.mark.parametrize("row", rows, ids=[row["id"] for row in rows])


def trial_of(
    sigma: float = 10.0,
    steps: int = 875,
    relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
) -> Mechanism:
    return Mechanism(
        sampling_rate=Q,
        noise_multiplier=sigma,
        clip_norm=1.0,
        steps=steps,
        neighboring_relation=relation,
    )


def law_of(mean: float, shape: float) -> TrialCount:
    if math.isinf(shape):
        return PoissonTrials(mean=mean)
    return NegativeBinomialTrials(mean=mean, shape=shape)


def last_digit(printed: str) -> float:
    """What one unit of the last printed digit is worth."""
    return 10.0 ** -len(printed.partition(".")[2])


def selected(trial: Mechanism, law: TrialCount, bound: SelectionBound) -> float:
    return price_selection([trial], law, delta=DELTA, bound=bound).epsilon


class TestGoldenTables:
    @rows_of("selection_rdp.csv")
    def test_rdp_reproduces_the_published_analysis(self, row: dict[str, str]) -> None:
        trial = trial_of(float(row["noise_multiplier"]), int(row["steps"]))
        alone = price([trial], delta=DELTA, accountant=Accountant.RDP).epsilon

        found = selected(trial, law_of(float(row["mean"]), float(row["shape"])), SelectionBound.RDP)

        assert alone == pytest.approx(float(row["base"]), rel=1e-3)
        assert found == pytest.approx(float(row["epsilon"]), rel=0.007, abs=0.006)

    @rows_of("selection_profile.csv")
    def test_both_published_bounds_reproduce_on_a_calibrated_trial(
        self, row: dict[str, str]
    ) -> None:
        sigma = calibrate_noise_multiplier(
            sampling_rate=Q, steps=2500, epsilon=float(row["base"]), delta=DELTA
        )
        law = law_of(float(row["mean"]), float(row["shape"]))

        rdp, profile, sharp = (
            selected(trial_of(sigma, 2500), law, bound) for bound in SelectionBound
        )

        assert rdp == pytest.approx(float(row["rdp"]), rel=0.008, abs=0.06)
        assert profile == pytest.approx(float(row["profile"]), abs=0.6 * last_digit(row["profile"]))
        assert sharp <= profile < rdp


class TestPriceSelection:
    @pytest.mark.parametrize("law", [GEOMETRIC, LOGARITHMIC, PoissonTrials(mean=10.0)], ids=str)
    def test_rdp_is_what_dp_accounting_itself_finds(self, law: TrialCount) -> None:
        step = dp_accounting.PoissonSampledDpEvent(Q, dp_accounting.GaussianDpEvent(5.0))
        shape = math.inf if isinstance(law, PoissonTrials) else law.shape
        theirs = RdpAccountant(orders=ORDERS)
        theirs.compose(RepeatAndSelectDpEvent(SelfComposedDpEvent(step, 500), law.mean, shape))

        ours = selected(trial_of(5.0, 500), law, SelectionBound.RDP)

        assert ours == pytest.approx(theirs.get_epsilon(DELTA), rel=1e-9)

    def test_says_everything_that_is_needed_to_compute_it_again(self) -> None:
        by_rdp, by_profile = (
            price_selection([trial_of()], GEOMETRIC, delta=DELTA, bound=bound)
            for bound in (SelectionBound.RDP, SelectionBound.PROFILE)
        )

        assert (by_rdp.accountant, by_profile.accountant) == (Accountant.RDP, Accountant.PLD)
        assert by_profile.conversion == (
            "private selection by profile; number of trials geometric, mean 10"
        )
        assert (by_profile.delta, by_profile.library) == (DELTA, "dp-accounting")

    @pytest.mark.parametrize("bound", SelectionBound)
    def test_costs_more_than_one_trial_and_less_than_the_expected_number_of_them(
        self, bound: SelectionBound
    ) -> None:
        one, ten = trial_of(), trial_of(steps=8750)

        found = selected(one, GEOMETRIC, bound)

        assert price([one], delta=DELTA).epsilon < found < price([ten], delta=DELTA).epsilon

    @pytest.mark.parametrize("bound", [SelectionBound.PROFILE, SelectionBound.SHARP_PROFILE])
    def test_a_single_trial_costs_what_it_costs(self, bound: SelectionBound) -> None:
        one = NegativeBinomialTrials(mean=1.0, shape=1.0)

        assert selected(trial_of(), one, bound) == pytest.approx(
            price([trial_of()], delta=DELTA).epsilon, rel=1e-5
        )

    @pytest.mark.parametrize("bound", [SelectionBound.PROFILE, SelectionBound.SHARP_PROFILE])
    def test_selection_and_what_follows_share_delta(self, bound: SelectionBound) -> None:
        """Half and half: basic composition, of two guarantees whose deltas add up to the one that is stated."""
        run = trial_of(3.0, 2500)

        found = price_selection(
            [trial_of()], GEOMETRIC, delta=DELTA, bound=bound, followed_by=[run]
        )

        of_selection = price_selection([trial_of()], GEOMETRIC, delta=DELTA / 2, bound=bound)
        of_run = price([run], delta=DELTA / 2)
        assert found.epsilon == of_selection.epsilon + of_run.epsilon
        assert found.delta == of_selection.delta + of_run.delta

    def test_by_rdp_what_follows_adds_to_the_divergences(self) -> None:
        run = trial_of(3.0, 2500)

        found = price_selection(
            [trial_of()], GEOMETRIC, delta=DELTA, bound=SelectionBound.RDP, followed_by=[run]
        )

        alone = selected(trial_of(), GEOMETRIC, SelectionBound.RDP)
        of_run = price([run], delta=DELTA, accountant=Accountant.RDP).epsilon
        assert max(alone, of_run) < found.epsilon < alone + of_run

    def test_a_profile_that_the_second_implementation_does_not_confirm_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        true_epsilon = PldProfile.epsilon
        monkeypatch.setattr(PldProfile, "epsilon", lambda *of: true_epsilon(*of) / 2)

        with pytest.raises(AccountantError, match="two accountants differ"):
            selected(trial_of(9.0), GEOMETRIC, SelectionBound.PROFILE)

    @pytest.mark.parametrize("bound", [SelectionBound.PROFILE, SelectionBound.SHARP_PROFILE])
    def test_replacing_one_is_priced_on_its_own_profile(self, bound: SelectionBound) -> None:
        replaced = trial_of(relation=NeighboringRelation.REPLACE_ONE)

        found = price_selection([replaced], GEOMETRIC, delta=DELTA, bound=bound)

        assert found.neighboring_relation is NeighboringRelation.REPLACE_ONE
        assert found.epsilon > selected(trial_of(), GEOMETRIC, bound) * 1.5

    def test_the_rdp_bound_names_the_relation_that_it_cannot_price(self) -> None:
        with pytest.raises(UnsupportedEventError, match="replace_one"):
            selected(
                trial_of(relation=NeighboringRelation.REPLACE_ONE), GEOMETRIC, SelectionBound.RDP
            )

    @pytest.mark.parametrize("count", [10, 10.0, None])
    def test_a_number_of_trials_is_no_law(self, count: object) -> None:
        with pytest.raises(ParameterError, match="random, secret number of trials"):
            price_selection([trial_of()], count, delta=DELTA)  # type: ignore[arg-type]

    @pytest.mark.parametrize("delta", [0.0, 1.0, 5e-12, math.nan])
    def test_a_delta_out_of_range_is_refused(self, delta: float) -> None:
        with pytest.raises(ParameterError, match="delta"):
            price_selection([trial_of()], GEOMETRIC, delta=delta)

    def test_nothing_and_unlike_relations_have_no_price(self) -> None:
        unlike = [trial_of(), trial_of(relation=NeighboringRelation.REPLACE_ONE)]

        with pytest.raises(ParameterError, match="at least one mechanism"):
            price_selection([], GEOMETRIC, delta=DELTA)
        with pytest.raises(ParameterError, match="add_or_remove_one, replace_one"):
            price_selection(unlike, GEOMETRIC, delta=DELTA)
        with pytest.raises(ParameterError, match="add_or_remove_one, replace_one"):
            price_selection(unlike[:1], GEOMETRIC, delta=DELTA, followed_by=unlike[1:])

    def test_an_unknown_bound_is_refused_by_name(self) -> None:
        with pytest.raises(ParameterError, match="selection_bound must be one of rdp, profile"):
            price_selection([trial_of()], GEOMETRIC, delta=DELTA, bound="guess")  # type: ignore[arg-type]

    def test_a_bound_given_as_a_plain_string_is_the_member(self) -> None:
        found = price_selection([trial_of()], GEOMETRIC, delta=DELTA, bound="sharp_profile")  # type: ignore[arg-type]

        assert found.epsilon == selected(trial_of(), GEOMETRIC, SelectionBound.SHARP_PROFILE)


class PureProfile:
    """Randomised response: delta falls linearly in e^epsilon to 0 at ``epsilon0``."""

    def __init__(self, epsilon0: float) -> None:
        self.top = math.exp(epsilon0)

    def delta(self, epsilon: float) -> float:
        return max(0.0, (self.top - math.exp(epsilon)) / (1 + self.top))

    def epsilon(self, delta: float) -> float:
        return math.log(max(1.0, self.top - delta * (1 + self.top)))


class TestSelectedEpsilon:
    @pytest.mark.parametrize(("shape", "times"), [(0.0, 2), (1.0, 3), (2.0, 4)])
    def test_many_pure_trials_approach_shape_plus_two_times_one(
        self, shape: float, times: int
    ) -> None:
        """Liu and Talwar (2019): three times epsilon, at shape 1; Papernot and Steinke (2022)."""
        law = NegativeBinomialTrials(mean=10_000.0, shape=shape)

        found = selected_epsilon(
            PureProfile(0.5), law, delta=1e-5, bound=SelectionBound.SHARP_PROFILE
        )

        assert found == pytest.approx(times * 0.5, rel=2e-3)
        assert found <= times * 0.5

    def test_the_rdp_bound_reads_no_profile(self) -> None:
        with pytest.raises(ParameterError, match="rdp"):
            selected_epsilon(PureProfile(1.0), GEOMETRIC, delta=1e-5, bound=SelectionBound.RDP)


class TestCalibrateSelection:
    @pytest.mark.parametrize(
        ("law", "base", "sigma"),
        [
            (LOGARITHMIC, 5.29, 3.58),
            (GEOMETRIC, 4.72, 3.93),
            (NegativeBinomialTrials(mean=30.0, shape=1.0), 3.97, 4.54),
        ],
        ids=str,
    )
    def test_reproduces_the_noise_that_ends_at_eight(
        self, law: TrialCount, base: float, sigma: float
    ) -> None:
        found = calibrate_selection(
            epsilon=8.0, delta=DELTA, sampling_rate=Q, steps=2500, trial_count=law
        )

        assert found == pytest.approx(sigma, abs=0.006)
        alone = price([trial_of(found, 2500)], delta=DELTA).epsilon
        assert alone == pytest.approx(base, abs=0.01)

    @pytest.mark.slow
    @pytest.mark.parametrize("bound", SelectionBound)
    @pytest.mark.parametrize("epsilon", [0.5, 20.0])
    def test_never_overshoots_and_lands_close(self, bound: SelectionBound, epsilon: float) -> None:
        found = calibrate_selection(
            epsilon=epsilon,
            delta=DELTA,
            sampling_rate=0.01,
            steps=300,
            trial_count=GEOMETRIC,
            bound=bound,
        )

        def reached(sigma: float) -> float:
            trial = Mechanism(sampling_rate=0.01, noise_multiplier=sigma, clip_norm=1.0, steps=300)
            return selected(trial, GEOMETRIC, bound)

        assert reached(found) <= epsilon < reached(found * 0.998)

    def test_a_target_out_of_reach_is_refused(self) -> None:
        with pytest.raises(UnreachableTargetError, match=r"epsilon = 1e-06"):
            calibrate_selection(
                epsilon=1e-6, delta=1e-10, sampling_rate=1.0, steps=10_000, trial_count=GEOMETRIC
            )
