"""What a search costs, private run included, in each of the ways in which it may touch private data."""

from collections.abc import Sequence
from dataclasses import dataclass

from tan_core import _validate
from tan_core.accounting.conditions import SelectionConditions
from tan_core.accounting.price import Price, price
from tan_core.accounting.selection import SelectionBound, price_selection
from tan_core.choice import Choice
from tan_core.errors import ParameterError, UnsupportedEventError
from tan_core.mechanism import Accountant, Mechanism, NeighboringRelation, Sampling


class SearchAccounting(Choice):
    """How the search touches the private data. There is no default."""

    PUBLIC_PROXY = "public_proxy"
    """Simulations and scores read public data alone."""
    ACCOUNTED = "accounted"
    """Every trial is private at its own epsilon, and all are composed with the run."""
    PRIVATE_SELECTION = "private_selection"
    """A random number of private trials, of which the best alone is released."""
    DISJOINT_SPLIT = "disjoint_split"
    """The search reads a part of the data that the private run does not read."""
    DECLARED_UNACCOUNTED = "declared_unaccounted"
    """Simulations read the private data and are not charged: only where the owner waived it."""
    NO_SEARCH = "no_search"
    """Nothing is searched: the hyper-parameters are given with the study."""

    @property
    def is_free(self) -> bool:
        """Whether the private run is all that reads private data."""
        return self in (SearchAccounting.PUBLIC_PROXY, SearchAccounting.NO_SEARCH)

    @property
    def is_charged(self) -> bool:
        """Whether every trial is charged to the budget of the private data."""
        return self is SearchAccounting.ACCOUNTED


SEARCH_NOTES = {
    SearchAccounting.PUBLIC_PROXY: "hyper-parameters chosen on data registered as public",
    SearchAccounting.ACCOUNTED: "search on private data accounted, every trial of it",
    SearchAccounting.PRIVATE_SELECTION: "search on private data accounted as a private selection",
    SearchAccounting.DISJOINT_SPLIT: "search on a part of the private data that the run does not read",
    SearchAccounting.DECLARED_UNACCOUNTED: "search on private data NOT accounted",
    SearchAccounting.NO_SEARCH: "hyper-parameters given with the study, nothing searched",
}
"""The words beside every epsilon."""


def note_of_search(mode: SearchAccounting, *, learnt_from: str | None = None) -> str:
    """The words beside every epsilon of one study.

    Args:
        mode: how its search touched the private data.
        learnt_from: the trial, of an earlier search of the same private data that was not accounted, whose parameters
            the study has; None: no such trial is known.

    Example:
        >>> note_of_search(SearchAccounting.NO_SEARCH, learnt_from="trial 3 of s-1")
        'hyper-parameters given with the study, nothing searched; they are those of trial 3 of s-1: search on private data NOT accounted'
    """
    if learnt_from is None or mode is SearchAccounting.DECLARED_UNACCOUNTED:
        return SEARCH_NOTES[mode]
    which = "they" if mode is SearchAccounting.NO_SEARCH else "hyper-parameters that it fixes"
    unaccounted = SEARCH_NOTES[SearchAccounting.DECLARED_UNACCOUNTED]
    return f"{SEARCH_NOTES[mode]}; {which} are those of {learnt_from}: {unaccounted}"


_FIXED_IN_ADVANCE = (
    "the mechanisms (sampling rate, noise multiplier, steps) were fixed before any of them ran"
)
_CONDITIONS = {
    SearchAccounting.PUBLIC_PROXY: (
        "every simulation, and every score that chose the winner, read public data only",
    ),
    SearchAccounting.ACCOUNTED: (
        "every trial that read private data is listed, failed ones too, and a trial that a score could "
        "stop early at all the steps it was planned for",
        "scores that were computed from private data are listed as mechanisms too",
        _FIXED_IN_ADVANCE,
    ),
    SearchAccounting.PRIVATE_SELECTION: (
        "each trial draws its hyper-parameters independently from one law, fixed before the search",
        "the number of trials was drawn from the stated law, independently of the data, and is secret",
        "a trial that diverges or fails counts, and ranks last; none is repeated or stopped by its score",
        "only the best trial leaves: no other score or curve, no timing, no number of trials, not which it was",
        "scores use a trial's own output and public data, or are part of its priced mechanisms",
        _FIXED_IN_ADVANCE,
    ),
    SearchAccounting.DISJOINT_SPLIT: (
        "the split was frozen before the study, by a keyed hash of each unit's identity alone",
        "no unit is on both sides: all records of a unit follow its hash",
        "the search and its scores read one side only, the run the other side only",
        "sampling rates were fixed without looking at the sizes of the two sides",
        _FIXED_IN_ADVANCE,
    ),
    SearchAccounting.DECLARED_UNACCOUNTED: (
        "epsilon covers the private run alone; it is no promise about the search that chose it",
    ),
    SearchAccounting.NO_SEARCH: (
        "the hyper-parameters were not chosen by what private data showed; where an earlier release showed it, "
        "that release is paid for by itself",
        _FIXED_IN_ADVANCE,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPrice:
    """What may be claimed for a search and its private run, and on which conditions.

    Args:
        mode: how the search touched the private data.
        total: the price of all of it; None where it cannot be claimed.
        run: the price of the private run alone. Never to be shown without ``statement``.
        statement: the words to print beside every epsilon.
        conditions: what must be true for ``total`` (or else ``run``) to hold; all of it.
    """

    mode: SearchAccounting
    total: Price | None
    run: Price
    statement: str
    conditions: tuple[str, ...]

    @property
    def epsilon(self) -> float | None:
        """The total epsilon; None where it cannot be claimed."""
        return None if self.total is None else self.total.epsilon

    @property
    def delta(self) -> float:
        """The delta that every epsilon here holds at."""
        return self.run.delta

    @property
    def epsilon_of_run(self) -> float:
        """The epsilon of the private run alone."""
        return self.run.epsilon


@_validate.plainly
def price_search(
    mode: SearchAccounting,
    *,
    run: Mechanism,
    delta: float,
    trials: Sequence[Mechanism] = (),
    selection: SelectionConditions | None = None,
    accountant: Accountant = Accountant.PLD,
    bound: SelectionBound = SelectionBound.PROFILE,
) -> SearchPrice:
    """What a search and its private run cost together.

    ========================  ====================================================================
    mode                      total
    ========================  ====================================================================
    public_proxy              the run
    accounted                 the composition of all ``trials`` with the run
    private_selection         the selection among trials, each of them all of ``trials``, composed
                              with the run; without ``trials`` each trial is the run itself, and
                              the best of them is what is released
    disjoint_split            the larger of the composed ``trials`` and the run: adding or removing
                              a unit changes one side only, and says nothing to the other. Under
                              any other relation their composition: a replaced unit may leave one
                              side and enter the other
    declared_unaccounted      None: nothing can be claimed
    no_search                 the run
    ========================  ====================================================================

    Formal guarantees:

    * A total is an upper bound if all of ``conditions`` hold, and never below ``epsilon_of_run``.

    Args:
        mode: how the search touches the private data.
        run: the private run.
        delta: of the total, and of the run alone.
        trials: what the search does to the private data, at its own real noise; see the table.
        selection: how the search is run; for ``private_selection`` only, and required there.
        accountant: who prices everything but a selection.
        bound: which proof prices a selection.

    Raises:
        ParameterError: an argument does not belong to the mode, or one is missing.
        UnsupportedEventError: the conditions of a private selection are broken; all are listed.

    Example:
        >>> run = Mechanism(
        ...     sampling_rate=4096 / 50_000, noise_multiplier=3.0, clip_norm=1.0, steps=2500
        ... )
        >>> searched = price_search(
        ...     SearchAccounting.ACCOUNTED, run=run, trials=[run] * 4, delta=1e-5
        ... )
        >>> f"{searched.epsilon_of_run:.1f} became {searched.epsilon:.1f}"
        '6.6 became 17.7'
    """
    mode, bound = SearchAccounting(mode), SelectionBound(bound)
    _validate.instance(Mechanism, run=run)
    trials = _validate.sequence(Mechanism, trials=trials)
    _check_arguments(mode, trials, selection)
    alone = price([run], delta=delta, accountant=accountant)
    total: Price | None
    match mode:
        case SearchAccounting.PUBLIC_PROXY | SearchAccounting.NO_SEARCH:
            total = alone
        case SearchAccounting.ACCOUNTED:
            total = price([*trials, run], delta=delta, accountant=accountant)
        case SearchAccounting.PRIVATE_SELECTION:
            total = _price_selection(run, trials, selection, delta, bound)
        case SearchAccounting.DISJOINT_SPLIT:
            total = _price_split(run, trials, delta, accountant)
        case SearchAccounting.DECLARED_UNACCOUNTED:
            total = None
    if total is not None and total.epsilon < alone.epsilon:
        total = alone  # a looser accountant's word on the run alone: above a tighter one's on both
    return SearchPrice(
        mode=mode,
        total=total,
        run=alone,
        statement=SEARCH_NOTES[mode],
        conditions=_CONDITIONS[mode],
    )


def _price_selection(
    run: Mechanism,
    trials: Sequence[Mechanism],
    selection: SelectionConditions | None,
    delta: float,
    bound: SelectionBound,
) -> Price:
    if selection is None:
        raise ParameterError(
            "search.accounting private_selection needs its SelectionConditions, got none",
            field="selection",
        )
    law = selection.check()
    if not trials:
        return price_selection([run], law, delta=delta, bound=bound)
    return price_selection(trials, law, delta=delta, bound=bound, followed_by=[run])


def _price_split(
    run: Mechanism, trials: Sequence[Mechanism], delta: float, accountant: Accountant
) -> Price:
    everything = [*trials, run]
    relations = {mechanism.neighboring_relation for mechanism in everything}
    if relations != {NeighboringRelation.ADD_OR_REMOVE_ONE}:
        _refuse_public_sizes(everything)
        return price(everything, delta=delta, accountant=accountant)
    sides = [price(side, delta=delta, accountant=accountant) for side in (trials, [run])]
    return max(sides, key=lambda side: side.epsilon)


def _refuse_public_sizes(mechanisms: Sequence[Mechanism]) -> None:
    """A replaced unit may change sides. For Poisson batches that is a replacement by nothing, which the
    price of a replacement covers; where the price rests on the number of units, it is not.
    """
    for mechanism in mechanisms:
        if mechanism.sampling is not Sampling.POISSON:
            raise UnsupportedEventError(
                f"search.accounting disjoint_split cannot price {mechanism.sampling.value} sampling under "
                f"neighboring_relation {mechanism.neighboring_relation.value}, where the size of a side is "
                "no constant; accepted: poisson sampling"
            )


def _check_arguments(
    mode: SearchAccounting, trials: Sequence[Mechanism], selection: SelectionConditions | None
) -> None:
    composed = (SearchAccounting.ACCOUNTED, SearchAccounting.DISJOINT_SPLIT)
    if mode in composed and not trials:
        raise ParameterError(
            f"search.accounting {mode.value} needs the mechanisms of its trials, got none",
            field="trials",
        )
    if trials and mode not in (*composed, SearchAccounting.PRIVATE_SELECTION):
        raise ParameterError(
            f"search.accounting {mode.value} prices no trials, got {len(trials)}", field="trials"
        )
    _validate.optional(SelectionConditions, selection=selection)
    if selection is not None and mode is not SearchAccounting.PRIVATE_SELECTION:
        raise ParameterError(
            f"selection belongs to search.accounting private_selection, not {mode.value}",
            field="selection",
        )
