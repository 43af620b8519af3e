"""Columns of files that are narrower than declared: their values are widened, with one warning per column.

Widening never changes a value: an integer beyond 2**53 is no float64, and its row is unreadable.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.io.source import printable

log = logging.getLogger("penstock.files")


@dataclass(frozen=True, slots=True)
class Widened:
    """A column of a file that is widened. found: its type in the file."""

    source: str
    column: str
    found: str
    declared: str
    file: str

    def __str__(self) -> str:
        return (
            f"source {self.source!r}: column {self.column!r} is {self.found} in {printable(self.file)}, "
            f"and was widened to {self.declared}; later files are not reported"
        )


@dataclass(slots=True)
class WideningLog:
    """Warnings of a run, one per source and column."""

    _warned: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def warn(self, found: Iterable[Widened]) -> None:
        # Tasks report in any order.
        for each in sorted(found, key=lambda widened: (widened.source, widened.file, widened.column)):
            key = each.source, each.column
            if key not in self._warned:
                self._warned.add(key)
                log.warning("%s", each)
