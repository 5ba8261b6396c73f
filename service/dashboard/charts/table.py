"""The numbers of a chart: shown as a table beside it, and given away as CSV."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from service.text import in_cell

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under named columns, in the order of the chart."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]

    def csv(self) -> str:
        r"""As RFC 4180 has it. Text that a spreadsheet would run as a formula is quoted.

        Example:
            >>> Table(("trial", "note"), [(3, "=1+1"), (-1, None)]).csv()
            "trial,note\r\n3,'=1+1\r\n-1,\r\n"
        """
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(self.columns)
        writer.writerows(map(in_cell, row) for row in self.rows)
        return text.getvalue()
