"""Tables in the house's style. On a terminal that is too narrow for one, each row is a card."""

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

PROSE = 24
"""Columns in which sentences can still be read."""
MOST_OF_NAMES = 2 / 3
"""Of a card's width: names that leave less to the values are broken."""
UNBOUNDED = 10_000


def table(
    title: str | None,
    *columns: str,
    right: Sequence[str] = (),
    prose: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> "FittingTable":
    """An empty table.

    Args:
        title: above it, if there is one.
        columns: their names.
        right: those that hold numbers.
        prose: those that hold sentences, which may wrap; nothing else is ever broken.
        notes: lines below it.
    """
    made = FittingTable(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False
    )
    made.notes = notes
    for column in columns:
        made.add_column(
            column,
            justify="right" if column in right else "left",
            overflow="fold",
            no_wrap=column not in prose,
        )
    return made


class FittingTable(Table):
    """A table, or where names and figures would not stay whole in it, its rows one below the other."""

    notes: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What is printed."""
        if not self.fits(console, options):
            self.collapse_padding = True
            self.show_edge = False
        if self.fits(console, options):
            yield from super().__rich_console__(console, options)
        else:
            yield from self._stacked(console, options)
        yield from map(Text, self.notes)

    def fits(self, console: Console, options: ConsoleOptions) -> bool:
        """Whether there is room for every word, and for a few words on each line of a sentence."""
        unbounded = options.update(max_width=UNBOUNDED)
        on_one_line = Measurement.get(console, unbounded, self).maximum
        sentences = [
            [Measurement.get(console, unbounded, each) for each in (column.header, *column.cells)]
            for column in self.columns
            if not column.no_wrap
        ]
        words = [size.minimum for column in sentences for size in column]
        # Rich cuts the widest columns to one width, with their padding, which may differ by one.
        least = max([PROSE, *words]) + 1
        spared = sum(max(0, max(size.maximum for size in column) - least) for column in sentences)
        return on_one_line - spared <= options.max_width

    def _stacked(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Each row as names and values; what has no name stands with no name, what is empty is left out."""
        if self.title:
            yield Text(str(self.title), style="bold")
        names = [Measurement.get(console, options, column.header) for column in self.columns]
        leaves_room = max(name.maximum for name in names) <= MOST_OF_NAMES * options.max_width
        cells = zip(*(column.cells for column in self.columns), strict=True)
        for row, values in zip(self.rows, cells, strict=True):
            card = Table.grid(padding=(0, 2))
            card.add_column(style="dim", overflow="fold", no_wrap=leaves_room)
            card.add_column(overflow="fold")
            for column, value in zip(self.columns, values, strict=True):
                if value:
                    card.add_row(column.header, value, style=row.style)
            yield Text()
            yield card
        yield Text()


class FirstThatFits:
    """The first of some tables that fits as one; the last where none does."""

    def __init__(self, *tables: FittingTable) -> None:
        self.tables = tables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What is printed."""
        fitting = (each for each in self.tables if each.fits(console, options))
        yield next(fitting, self.tables[-1])
