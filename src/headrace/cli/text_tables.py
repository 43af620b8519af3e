"""Plain text tables, as wide as the terminal or unlimited if redirected."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


_UNCUT = 100_000
"""Line width at which nothing is ever cut."""


def create_table(*columns: str) -> Any:
    """Create a table with these column titles; a leading > aligns right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column[0] == ">" else "left")
    return table


def create_console() -> Console:
    """Create a console on standard output for tables."""
    from rich.console import Console

    # Redirected output is never cut to a terminal width. Brackets and colons in rows are not markup.
    return Console(width=None if sys.stdout.isatty() else _UNCUT, markup=False, emoji=False)
