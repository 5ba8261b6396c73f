"""What the search of a plan would cost in privacy, were it charged."""

from collections.abc import Mapping, Sequence

from tan_core.accounting import SEARCH_NOTES, SearchAccounting, price_search, round_up
from tan_core.accounting.effort import spare_effort
from tan_core.errors import AccountantError, UnsupportedEventError
from tan_core.execution import PrivateRun
from tan_core.mechanism import Accountant, Mechanism
from tan_core.planner.candidates import simulation_of
from tan_core.planner.charged import MAX_STEPS, ChargedSearch
from tan_core.planner.plan import PlannedSearchPrivacy
from tan_core.planner.privacy import DIGITS, Promise
from tan_core.planner.segments import reserved_mechanism

MIN_NOISE = 0.1
"""A simulation below it costs thousands, however few there are: no figure would help."""

_UNPRICED_SCORES = "scores on private validation data would come on top"
_SCORES = "scores are noisy counts and charged too; spare trials are in the figures, and given back where none is needed"
_COSTLIEST = "every trial at the searched steps that cost most"


def search_privacy(
    runs: Sequence[PrivateRun],
    promise: Promise,
    simulated: Mapping[int, int],
    search_num_examples: int,
    *,
    mode: SearchAccounting | None,
    charged_search: ChargedSearch | None = None,
) -> PlannedSearchPrivacy:
    """The price of search and run in the study's mode, and with every trial charged.

    Every trial is counted at each planned rung with its own real noise, though a search may cut trials
    short, and so are as many repetitions of finalists as there may be, each where it would be simulated; the run with its slack. Where steps are searched, all trials have the steps that cost
    most: fewer steps need less noise, and their simulations lie further behind the wall. Scores on
    private validation data are no part of the figures, and the note says so. Where the study's own search
    is charged, the figures are of what it is charged: its trials, spare ones too, and its scores.

    =================  ===========================================================================
    mode               epsilon
    =================  ===========================================================================
    public_proxy       of the run alone, slack included; no trial could be charged
    no_search          of the run alone, slack included; there is no trial
    accounted          of all simulations composed with the run
    disjoint_split     of the costlier side, or of both where a unit may be replaced
    any other          None: nothing can be claimed, or the law of the number of trials is no part of
                       a plan
    =================  ===========================================================================

    Args:
        runs: the planned run first, and those at other steps that the search may choose.
        promise: the study's delta and accountant; a study by PRV is priced by PLD here.
        simulated: batch sizes, and how often each is simulated at most, finals included.
        search_num_examples: examples that the simulations read.
        mode: ``search.accounting``; None where a mechanism was planned, and no study.
        charged_search: of a study whose own search is charged.
    """
    words = [SEARCH_NOTES[mode]] if mode else []
    accountant = Accountant.PLD if promise.accountant is Accountant.PRV else promise.accountant

    def total(of_mode: SearchAccounting) -> float:
        return max(
            _total(of_mode, run, simulations, promise.delta, accountant)
            for run, simulations in zip(runs, searches, strict=True)
        )

    searches = [
        _simulations(run, simulated, search_num_examples)
        if charged_search is None
        else charged_search.reserved(run)
        for run in runs
    ]
    count = sum(simulated.values())
    if mode is not None and mode.is_free:
        return PlannedSearchPrivacy(
            mode=mode,
            epsilon=total(mode),
            epsilon_if_accounted=None,
            accountant=accountant,
            simulations=count,
            note=words[0],
        )
    charged, of_mode, obstacle = None, None, _obstacle(searches)
    if obstacle is None:
        try:
            with spare_effort():
                charged = total(SearchAccounting.ACCOUNTED)
                if mode is SearchAccounting.ACCOUNTED:
                    of_mode = charged
                elif mode is SearchAccounting.DISJOINT_SPLIT:
                    of_mode = total(mode)
        except (AccountantError, UnsupportedEventError) as error:
            obstacle = str(error)
    if obstacle is None and len(runs) > 1:
        words.append(_COSTLIEST)
    return PlannedSearchPrivacy(
        mode=mode,
        epsilon=of_mode,
        epsilon_if_accounted=charged,
        accountant=accountant,
        simulations=count,
        note="; ".join([*words, obstacle or (_SCORES if charged_search else _UNPRICED_SCORES)]),
    )


def _simulations(
    run: PrivateRun, simulated: Mapping[int, int], num_examples: int
) -> list[Mechanism]:
    """What the trials do to the data; all simulations of a batch are one mechanism of so many more steps."""
    return [
        dynamics.with_steps(dynamics.steps * times)
        for batch, times in simulated.items()
        for dynamics in [
            simulation_of(run, expected_batch_size=batch, num_examples=num_examples).dynamics
        ]
    ]


def _obstacle(searches: Sequence[Sequence[Mechanism]]) -> str | None:
    """Why pricing is not even tried."""
    least = min(trial.noise_multiplier for search in searches for trial in search)
    if least < MIN_NOISE:
        return f"trials were not priced: their noise multiplier {least:.3g} is below {MIN_NOISE:g}"
    steps = max(sum(trial.steps for trial in search) for search in searches)
    if steps > MAX_STEPS:
        return f"trials were not priced: their {steps:,} steps are above {MAX_STEPS:,}"
    return None


def _total(
    mode: SearchAccounting,
    run: PrivateRun,
    simulations: Sequence[Mechanism],
    delta: float,
    accountant: Accountant,
) -> float:
    priced = price_search(
        mode,
        run=reserved_mechanism(run.mechanism),
        trials=() if mode.is_free else simulations,
        delta=delta,
        accountant=accountant,
    )
    if priced.epsilon is None:
        raise AccountantError(f"search.accounting {mode.value} claims nothing")
    return round_up(priced.epsilon, DIGITS)
