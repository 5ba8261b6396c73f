"""Tables in the house's style. On a terminal that is too narrow for one, each row is a card."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

NARROW = 72
"""Below so many columns a table that does not fit would cut its figures, or break them letter by letter."""
UNBOUNDED = 10_000


def table(title: str | None, *columns: str, right: Sequence[str] = ()) -> Table:
    """An empty table; the columns in ``right`` hold numbers."""
    made = FittingTable(
        title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False
    )
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


class FittingTable(Table):
    """A table, or where there is no room for it, its rows one below the other."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What is printed."""
        if options.max_width < NARROW and not self._fits(console, options):
            self.collapse_padding = True
            self.show_edge = False
        if options.max_width >= NARROW or self._fits(console, options):
            yield from super().__rich_console__(console, options)
            return
        if self.title:
            yield Text(str(self.title), style="bold")
        for row in zip(*(column.cells for column in self.columns), strict=True):
            yield Text()
            yield self._card(list(map(str, row)))
        yield Text()

    def _fits(self, console: Console, options: ConsoleOptions) -> bool:
        unbounded = options.update(max_width=UNBOUNDED)
        return Measurement.get(console, unbounded, self).maximum <= options.max_width

    def _card(self, cells: Sequence[str]) -> Table:
        """Names and values; what has no name stands with no name, what is empty is left out."""
        card = Table.grid(padding=(0, 2))
        card.add_column(style="dim", overflow="fold")
        card.add_column(overflow="fold")
        for column, cell in zip(self.columns, cells, strict=True):
            if cell:
                card.add_row(str(column.header), cell)
        return card
