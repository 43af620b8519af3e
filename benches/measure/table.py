"""Tables on a terminal: columns as wide as what stands in them."""

from __future__ import annotations

from collections.abc import Sequence


class Table:
    """Rows of text under headings; the first column to the left, the others to the right."""

    def __init__(self, title: str, *headings: str) -> None:
        self._title = title
        self._rows: list[Sequence[str]] = [headings]

    def add(self, *cells: object) -> None:
        self._rows.append([f"{c:,.2f}" if isinstance(c, float) else str(c) for c in cells])

    def show(self) -> None:
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        print(f"\n{self._title}")
        for row in self._rows:
            first, *others = (
                cell.ljust(w) if at == 0 else cell.rjust(w)
                for at, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            print("  " + "  ".join([first, *others]))


class LiveTable:
    """A table whose rows are printed as they come, so that a run that is broken off shows what it has."""

    def __init__(self, title: str, *headings: str) -> None:
        self._widths = [max(10, len(heading)) for heading in headings]
        print(f"\n{title}")
        self.add(*headings)

    def add(self, *cells: str) -> None:
        first, *others = zip(cells, self._widths, strict=True)
        print("  ".join(["", first[0].ljust(first[1]), *(c.rjust(w) for c, w in others)]), flush=True)
