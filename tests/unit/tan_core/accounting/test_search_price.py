"""Six ways for a search to touch private data, and what each lets one claim."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tan_core.accounting import price
from tan_core.accounting.conditions import SelectionConditions
from tan_core.accounting.search import SEARCH_NOTES, SearchAccounting, price_search
from tan_core.accounting.selection import SelectionBound, price_selection
from tan_core.accounting.trial_count import NegativeBinomialTrials
from tan_core.errors import ParameterError, UnsupportedEventError
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation, Sampling

GOLDEN = Path(__file__).parents[3] / "golden"
with (GOLDEN / "selection_trials.csv").open(newline="") as _file:
    ROWS = list(csv.DictReader(_file))
with (GOLDEN / "accounted_search.csv").open(newline="") as _file:
    ACCOUNTED = list(csv.DictReader(_file))

DELTA = 1e-5
RUN = Mechanism(sampling_rate=4096 / 50_000, noise_multiplier=3.0, clip_norm=1.0, steps=2500)
TRIAL = replace(RUN, noise_multiplier=10.0, steps=875)
LAW = NegativeBinomialTrials(mean=10.0, shape=0.0)
SOUND = SelectionConditions(
    trial_count=LAW,
    candidates="fixed_law",  # type: ignore[arg-type]
    released="best_only",  # type: ignore[arg-type]
    scores="trial_output",  # type: ignore[arg-type]
)


def steps_of(sampling_rate: str, noise_multiplier: str, steps: str) -> Mechanism:
    return Mechanism(
        sampling_rate=float(sampling_rate),
        noise_multiplier=float(noise_multiplier),
        clip_norm=1.0,
        steps=int(steps),
    )


def run_of(row: dict[str, str]) -> Mechanism:
    return steps_of(row["sampling_rate"], row["noise_multiplier"], row["steps"])


def simulations_of(row: dict[str, str]) -> list[Mechanism]:
    found = [re.fullmatch(r"(\d+)x(.+)@(.+)", each) for each in row["simulations"].split()]
    return [steps_of(each[2], each[3], each[1]) for each in found if each]


def replaced(mechanism: Mechanism) -> Mechanism:
    return replace(mechanism, neighboring_relation=NeighboringRelation.REPLACE_ONE)


def epsilon(*mechanisms: Mechanism) -> float:
    return price(mechanisms, delta=DELTA).epsilon


class TestPublicProxy:
    def test_costs_the_run_alone(self) -> None:
        found = price_search(SearchAccounting.PUBLIC_PROXY, run=RUN, delta=DELTA)

        assert found.epsilon == found.epsilon_of_run == epsilon(RUN)
        assert found.statement == "hyper-parameters chosen on data registered as public"


class TestAccounted:
    @pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
    def test_a_search_at_constant_tan_costs_what_was_measured(self, row: dict[str, str]) -> None:
        """K runs in all: K - 1 trials, and a run like them. The measured grid was up to 2 % coarser."""
        one = Mechanism(
            sampling_rate=int(row["expected_batch_size"]) / 50_000,
            noise_multiplier=float(row["noise_multiplier"]),
            clip_norm=1.0,
            steps=2500,
        )
        others = int(row["trials"]) - 1
        measured = float(row["epsilon"])

        found = (
            price_search(
                SearchAccounting.ACCOUNTED,
                run=one,
                trials=[one.with_steps(2500 * others)],
                delta=DELTA,
            ).epsilon
            if others
            else price_search(SearchAccounting.PUBLIC_PROXY, run=one, delta=DELTA).epsilon
        )

        assert found is not None
        assert 0.98 * measured <= found <= measured + 0.4

    @pytest.mark.parametrize("row", ACCOUNTED, ids=[row["id"] for row in ACCOUNTED])
    def test_run_and_search_lie_between_both_roundings_of_their_losses(
        self, row: dict[str, str]
    ) -> None:
        found = price_search(
            SearchAccounting.ACCOUNTED,
            run=run_of(row),
            trials=simulations_of(row),
            delta=float(row["delta"]),
        )

        assert found.epsilon is not None
        assert float(row["low"]) <= found.epsilon <= float(row["high"])
        assert float(row["run_low"]) <= found.epsilon_of_run <= float(row["run_high"])

    @pytest.mark.parametrize("row", ACCOUNTED, ids=[row["id"] for row in ACCOUNTED])
    def test_its_renyi_bound_is_close_to_that_of_the_best_order(self, row: dict[str, str]) -> None:
        exact = float(row["rdp_exact"])

        found = price_search(
            SearchAccounting.ACCOUNTED,
            run=run_of(row),
            trials=simulations_of(row),
            delta=float(row["delta"]),
            accountant=Accountant.RDP,
        )

        assert found.epsilon is not None
        assert exact - 2e-5 <= found.epsilon <= exact + 0.01

    def test_is_the_composition_of_everything(self) -> None:
        found = price_search(
            SearchAccounting.ACCOUNTED, run=RUN, trials=[TRIAL, TRIAL], delta=DELTA
        )

        assert found.epsilon == pytest.approx(epsilon(RUN, TRIAL.with_steps(1750)), rel=1e-4)
        assert found.epsilon_of_run == epsilon(RUN)

    def test_needs_its_trials(self) -> None:
        with pytest.raises(ParameterError, match="needs the mechanisms of its trials"):
            price_search(SearchAccounting.ACCOUNTED, run=RUN, delta=DELTA)


class TestPrivateSelection:
    def test_without_trials_of_their_own_the_best_run_is_what_is_released(self) -> None:
        found = price_search(
            SearchAccounting.PRIVATE_SELECTION, run=RUN, delta=DELTA, selection=SOUND
        )

        assert found.total == price_selection([RUN], LAW, delta=DELTA)
        assert found.epsilon_of_run == epsilon(RUN)

    @pytest.mark.parametrize("bound", SelectionBound)
    def test_trials_of_their_own_are_selected_from_and_then_composed_with_the_run(
        self, bound: SelectionBound
    ) -> None:
        found = price_search(
            SearchAccounting.PRIVATE_SELECTION,
            run=RUN,
            trials=[TRIAL],
            delta=DELTA,
            selection=SOUND,
            bound=bound,
        )

        assert found.total == price_selection(
            [TRIAL], LAW, delta=DELTA, bound=bound, followed_by=[RUN]
        )
        assert found.epsilon is not None
        assert found.epsilon > found.epsilon_of_run

    def test_a_broken_condition_is_refused(self) -> None:
        with pytest.raises(UnsupportedEventError, match="fixed at 24"):
            price_search(
                SearchAccounting.PRIVATE_SELECTION,
                run=RUN,
                delta=DELTA,
                selection=replace(SOUND, trial_count=24),
            )

    def test_undeclared_conditions_are_refused(self) -> None:
        with pytest.raises(ParameterError, match="needs its SelectionConditions"):
            price_search(SearchAccounting.PRIVATE_SELECTION, run=RUN, delta=DELTA)


class TestDisjointSplit:
    def test_adding_or_removing_a_unit_costs_the_dearer_side(self) -> None:
        dear, cheap = (
            price_search(SearchAccounting.DISJOINT_SPLIT, run=RUN, trials=trials, delta=DELTA)
            for trials in ([RUN, TRIAL], [TRIAL])
        )

        assert dear.epsilon == epsilon(RUN, TRIAL)
        assert cheap.epsilon == cheap.epsilon_of_run == epsilon(RUN)

    def test_a_replaced_unit_may_change_sides_so_both_are_paid(self) -> None:
        found = price_search(
            SearchAccounting.DISJOINT_SPLIT,
            run=replaced(RUN),
            trials=[replaced(TRIAL)],
            delta=DELTA,
        )

        assert found.epsilon == epsilon(replaced(TRIAL), replaced(RUN))
        assert found.epsilon > epsilon(replaced(RUN))

    def test_replacing_a_unit_covers_removing_it(self) -> None:
        """What a side that a replaced unit leaves, or enters, relies on."""
        for mechanism in (TRIAL, RUN, replace(RUN, sampling_rate=0.01, noise_multiplier=0.8)):
            for delta in (1e-3, 1e-5, 1e-8):
                removed = price([mechanism], delta=delta).epsilon
                assert price([replaced(mechanism)], delta=delta).epsilon >= removed

    def test_sides_of_unlike_relations_are_refused(self) -> None:
        with pytest.raises(ParameterError, match="add_or_remove_one, replace_one"):
            price_search(
                SearchAccounting.DISJOINT_SPLIT, run=RUN, trials=[replaced(TRIAL)], delta=DELTA
            )

    def test_a_price_that_rests_on_the_number_of_units_is_refused_when_units_change_sides(
        self,
    ) -> None:
        truncated = replace(
            replaced(RUN),
            sampling=Sampling.TRUNCATED_POISSON,
            num_examples=50_000,
            max_batch_size=4500,
        )

        with pytest.raises(UnsupportedEventError, match=r"truncated_poisson .* accepted: poisson"):
            price_search(
                SearchAccounting.DISJOINT_SPLIT,
                run=replaced(RUN),
                trials=[truncated],
                delta=DELTA,
            )


class TestDeclaredUnaccounted:
    def test_claims_no_total_and_says_so(self) -> None:
        found = price_search(SearchAccounting.DECLARED_UNACCOUNTED, run=RUN, delta=DELTA)

        assert (found.total, found.epsilon) == (None, None)
        assert found.epsilon_of_run == epsilon(RUN)
        assert found.delta == DELTA
        assert found.statement == "search on private data NOT accounted"


class TestEveryMode:
    def test_has_its_own_words(self) -> None:
        assert set(SEARCH_NOTES) == set(SearchAccounting)
        assert len(set(SEARCH_NOTES.values())) == len(SearchAccounting)

    @pytest.mark.parametrize("mode", SearchAccounting)
    def test_lists_the_conditions_that_its_claim_stands_on(self, mode: SearchAccounting) -> None:
        priced = (SearchAccounting.ACCOUNTED, SearchAccounting.DISJOINT_SPLIT)
        selection = SOUND if mode is SearchAccounting.PRIVATE_SELECTION else None

        found = price_search(
            mode,
            run=RUN,
            trials=[TRIAL] if mode in priced else [],
            selection=selection,
            delta=DELTA,
        )

        assert found.conditions
        assert all(found.conditions)
        assert found.epsilon is None or found.epsilon >= found.epsilon_of_run

    @pytest.mark.parametrize("mode", ["public_proxy", "declared_unaccounted"])
    def test_trials_that_would_not_be_priced_are_refused(self, mode: str) -> None:
        with pytest.raises(ParameterError, match="prices no trials, got 1"):
            price_search(SearchAccounting(mode), run=RUN, trials=[TRIAL], delta=DELTA)

    def test_selection_conditions_of_another_mode_are_refused(self) -> None:
        with pytest.raises(ParameterError, match="selection belongs to"):
            price_search(SearchAccounting.PUBLIC_PROXY, run=RUN, delta=DELTA, selection=SOUND)

    def test_an_unknown_mode_is_refused_by_name(self) -> None:
        with pytest.raises(ParameterError, match="search_accounting must be one of public_proxy"):
            price_search("free", run=RUN, delta=DELTA)  # type: ignore[arg-type]


class TestWithoutASearch:
    def test_it_costs_the_run(self) -> None:
        found = price_search(SearchAccounting.NO_SEARCH, run=RUN, delta=DELTA)

        assert found.epsilon == found.epsilon_of_run == epsilon(RUN)
        assert "given with the study" in found.statement

    def test_trials_contradict_it(self) -> None:
        with pytest.raises(ParameterError, match="no_search prices no trials, got 1"):
            price_search(SearchAccounting.NO_SEARCH, run=RUN, trials=[TRIAL], delta=DELTA)
