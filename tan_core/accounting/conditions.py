"""What must be true of a search for the price of a private selection to be its price.

The proofs hold for independent repetitions of one and the same mechanism, a random number of times, of
which the best output is all that leaves. Whatever breaks this is refused by name, not priced.
"""

from dataclasses import dataclass

from tan_core.accounting.trial_count import NegativeBinomialTrials, PoissonTrials, TrialCount
from tan_core.choice import Choice
from tan_core.errors import UnsupportedEventError


class Candidates(Choice):
    """Where the hyper-parameters of a trial come from."""

    FIXED_LAW = "fixed_law"
    """Each trial draws its own, independently, from one law that was fixed before the search."""
    ENUMERATED = "enumerated"
    """A grid or list is walked through."""
    ADAPTIVE = "adaptive"
    """Scores of earlier trials decide: TPE, CMA-ES, or pruning as by ASHA."""


class Released(Choice):
    """What leaves the search."""

    BEST_ONLY = "best_only"
    """The best trial alone: its model, hyper-parameters and score."""
    MORE = "more"
    """Anything else too: other scores, curves, a leaderboard, the number of trials."""


class Scores(Choice):
    """What the scores of trials are computed from."""

    TRIAL_OUTPUT = "trial_output"
    """The trial's released model and public data only; or a private query that is part of the price."""
    PRIVATE_DATA = "private_data"
    """Private data, held-out data among them, at no charge."""


_REFUSALS: dict[Choice, str] = {
    Candidates.ENUMERATED: (
        "candidates are enumerated: trials that walk through a list are not repetitions of one mechanism; "
        "accepted: fixed_law, such as a uniform draw, with repeats, from that very list"
    ),
    Candidates.ADAPTIVE: (
        "candidates are adaptive: TPE, CMA-ES and ASHA let the scores of some trials decide what others "
        "do, so trials are not independent; accepted: fixed_law, such as random search without pruning"
    ),
    Released.MORE: (
        "released is more than the best: every other score, curve, leaderboard row or count of trials is "
        "an output that the bound does not cover; accepted: best_only"
    ),
    Scores.PRIVATE_DATA: (
        "scores are computed from private data at no charge; accepted: trial_output, which is the model "
        "scored on public data, or a private query among the priced mechanisms of a trial"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionConditions:
    """How a search was, or will be, run, in the terms that the proofs of private selection need.

    Args:
        trial_count: the law that the number of trials is drawn from; a fixed number is described by that
            number, and refused by :meth:`check`.
        candidates: where hyper-parameters come from.
        released: what leaves the search.
        scores: what the scores are computed from.

    Raises:
        ParameterError: a choice that is none of those listed.

    Example:
        >>> as_usual = SelectionConditions(
        ...     trial_count=24, candidates="adaptive", released="more", scores="private_data"
        ... )
        >>> len(as_usual.broken)
        4
    """

    trial_count: TrialCount | int
    candidates: Candidates
    released: Released
    scores: Scores

    def __post_init__(self) -> None:
        # A plain string is as good as the member; what is neither is refused by name.
        object.__setattr__(self, "candidates", Candidates(self.candidates))
        object.__setattr__(self, "released", Released(self.released))
        object.__setattr__(self, "scores", Scores(self.scores))

    @property
    def broken(self) -> tuple[str, ...]:
        """Every condition that does not hold, with what would be accepted."""
        choices = (self.candidates, self.released, self.scores)
        refusals = [_REFUSALS[choice] for choice in choices if choice in _REFUSALS]
        if not isinstance(self.trial_count, NegativeBinomialTrials | PoissonTrials):
            refusals.insert(
                0,
                f"trial_count is fixed at {self.trial_count!r}: the best of a fixed number can reveal "
                "as much as all of them; accepted: a geometric, logarithmic, negative binomial or Poisson "
                "law, the number drawn from it kept secret",
            )
        return tuple(refusals)

    def check(self) -> TrialCount:
        """The law of the number of trials.

        Raises:
            UnsupportedEventError: a condition is broken; the message lists all that are.
        """
        if isinstance(self.trial_count, int) or self.broken:
            raise UnsupportedEventError(
                "this search has no price as a private selection: " + "; ".join(self.broken)
            )
        return self.trial_count
