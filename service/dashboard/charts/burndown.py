"""The chart of a budget's burn-down: what was committed and charged after each entry of the journal."""

from service import text
from service.dashboard.charts.lines import Lines, Series
from service.dashboard.charts.table import Table
from service.ledger.schemas import Account, Burndown

_IN_SIGHT = 4
"""The budget is drawn where it is at most so many times what was committed: else nothing else is seen."""


def burndown_chart(
    found: Burndown, account: Account | None = None, *, over_time: bool = False
) -> Lines | None:
    """The chart, over the entries or over time; None while nothing was ever reserved.

    The lines are bounds. With the ``account`` of the same moment, what admits studies marks where it stands now.
    """
    points = found.points
    decides = account if account and account.accountant != found.accountant else None
    highest = max((point.committed_epsilon for point in points), default=0.0)
    if highest == 0:
        return None
    series = [
        Series("charged", "stairs", [p.charged_epsilon for p in points]),
        Series("charged and reserved", "stairs", [p.committed_epsilon for p in points]),
    ]
    if decides:
        by = f"now, by {decides.accountant.upper()}"
        before = [None] * (len(points) - 1)
        series += [
            Series(f"charged {by}", "dots", [*before, decides.charged_epsilon], "accent"),
            Series(f"charged and reserved {by}", "dots", [*before, decides.committed_epsilon], "amber"),
        ]  # fmt: skip
    if found.budget_epsilon <= _IN_SIGHT * highest:
        series.append(Series("budget", "line", [found.budget_epsilon] * len(points), "bad"))
    last = points[-1]
    return Lines(
        x_label="Time (UTC)" if over_time else "Entry of the journal",
        y_label="ε",
        x=[round(p.at.timestamp(), 3) if over_time else p.seq for p in points],
        series=series,
        summary=(
            f"After entry {last.seq} at most ε {text.epsilon(last.charged_epsilon)} is charged and "
            f"{text.epsilon(last.committed_epsilon)} with what is reserved, of "
            f"{text.number(found.budget_epsilon)} at δ {text.number(found.delta)}.{_marks(decides)}"
        ),
        table=Table(
            columns=("entry", "at", "charged_epsilon", "committed_epsilon"),
            rows=[
                (p.seq, p.at.isoformat(), p.charged_epsilon, p.committed_epsilon) for p in points
            ],
        ),
        is_time=over_time,
    )


def _marks(account: Account | None) -> str:
    if account is None:
        return ""
    return (
        f" By {account.accountant.upper()}, which admits studies, it is {text.epsilon(account.charged_epsilon)} and "
        f"{text.epsilon(account.committed_epsilon)}."
    )
