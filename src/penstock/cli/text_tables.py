"""Tables of commands: plain, and as wide as what reads them allows."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


_UNCUT = 100_000
"""Characters of a line that nobody has."""


def table_of(*columns: str) -> Any:
    """columns: their heads; one that begins with > stands to the right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column[0] == ">" else "left")
    return table


def console() -> Console:
    """Standard output for tables."""
    from rich.console import Console

    # What is not read on a screen is not cut to one, however wide its rows are. Brackets and colons in rows
    # are no markup.
    return Console(width=None if sys.stdout.isatty() else _UNCUT, markup=False, emoji=False)
