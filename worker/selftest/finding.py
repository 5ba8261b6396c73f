"""What a check found: the statistic, what is accepted, how often it errs, and what it would catch."""

from dataclasses import asdict, dataclass
from typing import Any, Final

from scipy import stats

FALSE_ALARM: Final = 5e-5
"""Of each finding that chance has a part in: with 19 of them, one fails in less than 1 run of 1,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One measurement against one claim."""

    check: str
    claim: str
    """What must be true."""
    statistic: str
    """What ``value`` is, with its unit."""
    value: float | None
    """None: it could not be measured, and ``error`` says why."""
    low: float | None
    high: float | None
    """``value`` is accepted from ``low`` to ``high``; None: no limit on that side."""
    p_value: float | None
    """How often chance alone gives a value as far off; None: chance has no part in it."""
    false_alarm: float
    """How often a correct product fails."""
    fault: str
    """What ``power`` is against."""
    power: float
    """How often that fault is caught."""
    error: str | None = None

    @property
    def is_passed(self) -> bool:
        """Whether the claim stands."""
        return (
            self.error is None
            and self.value is not None
            and (self.low is None or self.value >= self.low)
            and (self.high is None or self.value <= self.high)
        )

    def to_json(self) -> dict[str, Any]:
        """All of it, and whether it passed."""
        return {**asdict(self), "passed": self.is_passed}


def by_chance(
    check: str,
    claim: str,
    statistic: str,
    value: float,
    *,
    law: Any,
    fault: str,
    law_of_fault: Any,
    repeats: int = 1,
) -> Finding:
    """A two-sided test of ``value``, the most extreme of ``repeats``, against its law.

    Args:
        check: its name.
        claim: what must be true.
        statistic: what ``value`` is.
        value: as measured.
        law: a frozen distribution of SciPy, of each of the ``repeats`` on a correct product.
        fault: what the power is against.
        law_of_fault: the distribution of one of them under the fault.
        repeats: values that the most extreme was taken of, by Bonferroni whatever their dependence.
    """
    level = FALSE_ALARM / repeats / 2
    low, high = float(law.ppf(level)), float(law.isf(level))
    discrete = isinstance(law.dist, stats.rv_discrete)
    beyond = float(law.sf(value - 1) if discrete else law.sf(value))
    tail = min(float(law.cdf(value)), beyond)
    missed = float(law_of_fault.cdf(high) - law_of_fault.cdf(low - 1 if discrete else low))
    return Finding(
        check=check,
        claim=claim,
        statistic=statistic,
        value=float(value),
        low=low,
        high=high,
        p_value=float(min(1.0, 2 * repeats * tail)),
        false_alarm=FALSE_ALARM,
        fault=fault,
        power=1 - missed,
    )


def for_certain(
    check: str,
    claim: str,
    statistic: str,
    value: float,
    *,
    low: float | None = None,
    high: float | None = None,
    fault: str,
) -> Finding:
    """A measurement that chance has no part in: the fault is always caught."""
    return Finding(
        check=check,
        claim=claim,
        statistic=statistic,
        value=float(value),
        low=low,
        high=high,
        p_value=None,
        false_alarm=0.0,
        fault=fault,
        power=1.0,
    )


def broken(check: str, error: Exception) -> Finding:
    """A check that could not be made: the product refused, or failed, what it must do."""
    return Finding(
        check=check,
        claim="the check can be made",
        statistic="",
        value=None,
        low=None,
        high=None,
        p_value=None,
        false_alarm=0.0,
        fault="anything that stops a step",
        power=1.0,
        error=f"{type(error).__name__}: {error}",
    )
