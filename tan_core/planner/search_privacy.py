"""What the search of a plan would cost in privacy, were it charged."""

from collections.abc import Sequence

from tan_core.accounting import price, round_up
from tan_core.accounting.search import SEARCH_NOTES, SearchAccounting, price_search
from tan_core.errors import AccountantError
from tan_core.mechanism import Accountant, Mechanism
from tan_core.planner.candidates import simulation_of
from tan_core.planner.cost import Workload
from tan_core.planner.plan import PlannedSearchPrivacy
from tan_core.planner.privacy import DIGITS, Promise
from tan_core.planner.shape import Shape

MIN_NOISE = 0.1
"""A simulation below it costs thousands, however few there are: no figure would help."""

MAX_STEPS = 10_000_000
"""Of all simulations together: an accountant takes long over more."""

_UNPRICED_SCORES = "scores on private validation data would come on top"


def search_privacy(
    shape: Shape, promise: Promise, workload: Workload, *, mode: SearchAccounting | None
) -> PlannedSearchPrivacy:
    """The price of search and run in the study's mode, and with every trial charged.

    Every trial is counted at each planned rung with its own real noise, at the steps of the reference
    and by PLD, though a search may cut trials short. Scores on private validation data are no part of
    the figures, and the note says so.

    =================  ===========================================================================
    mode               epsilon
    =================  ===========================================================================
    public_proxy       of the run alone, as promised; no trial could be charged
    accounted          of all simulations composed with the run
    disjoint_split     of the costlier side, or of both where a unit may be replaced
    any other          None: nothing can be claimed, or the law of the number of trials is no part of
                       a plan
    =================  ===========================================================================

    Args:
        shape: the reference.
        promise: its delta and accountant.
        workload: trials and rungs.
        mode: ``search.accounting``; None where a mechanism was planned, and no study.
    """
    run = shape.run.mechanism
    words = [SEARCH_NOTES[mode]] if mode else []
    num_simulations = workload.trials * len(workload.rungs_of(shape.batch))
    if mode is SearchAccounting.PUBLIC_PROXY:
        promised = price([run], delta=promise.delta, accountant=promise.accountant).epsilon
        return PlannedSearchPrivacy(
            mode=mode,
            epsilon=round_up(promised, DIGITS),
            epsilon_if_accounted=None,
            simulations=num_simulations,
            note=words[0],
        )
    trials = _simulations(shape, workload)
    charged, of_mode, obstacle = None, None, _obstacle(trials)
    if obstacle is None:
        try:
            charged = _total(SearchAccounting.ACCOUNTED, run, trials, promise)
            if mode is SearchAccounting.ACCOUNTED:
                of_mode = charged
            elif mode is SearchAccounting.DISJOINT_SPLIT:
                of_mode = _total(mode, run, trials, promise)
        except AccountantError as error:
            obstacle = str(error)
    return PlannedSearchPrivacy(
        mode=mode,
        epsilon=of_mode,
        epsilon_if_accounted=charged,
        simulations=num_simulations,
        note="; ".join([*words, obstacle or _UNPRICED_SCORES]),
    )


def _simulations(shape: Shape, workload: Workload) -> list[Mechanism]:
    """What the trials do to the data; all trials of a rung are one mechanism of so many more steps."""
    return [
        dynamics.with_steps(dynamics.steps * workload.trials)
        for rung in workload.rungs_of(shape.batch)
        for dynamics in [
            simulation_of(
                shape.run, expected_batch_size=rung, num_examples=workload.search_num_examples
            ).dynamics
        ]
    ]


def _obstacle(trials: Sequence[Mechanism]) -> str | None:
    """Why pricing is not even tried."""
    least = min(trial.noise_multiplier for trial in trials)
    if least < MIN_NOISE:
        return f"trials were not priced: their noise multiplier {least:.3g} is below {MIN_NOISE:g}"
    steps = sum(trial.steps for trial in trials)
    if steps > MAX_STEPS:
        return f"trials were not priced: their {steps:,} steps are above {MAX_STEPS:,}"
    return None


def _total(
    mode: SearchAccounting, run: Mechanism, trials: Sequence[Mechanism], promise: Promise
) -> float | None:
    priced = price_search(
        mode, run=run, trials=trials, delta=promise.delta, accountant=Accountant.PLD
    )
    return None if priced.epsilon is None else round_up(priced.epsilon, DIGITS)
