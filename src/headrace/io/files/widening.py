"""Columns of files that are narrower than declared, or are missing beside one with nearly their name.

Values are widened, or null, with one warning per column. Widening never changes a value: an integer beyond
2**53 is no float64, and its row is unreadable.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import cast

from headrace.expr.types import Field, StructType
from headrace.io.source import printable

log = logging.getLogger("headrace.files")


@dataclass(frozen=True, slots=True)
class Widened:
    """A column of a file that is widened. found: its type in the file.

    near: a column of the file whose name differs by case or blanks alone, if this one is missing and null.
    """

    source: str
    column: str
    found: str
    declared: str
    file: str
    near: str = ""

    def __str__(self) -> str:
        if self.near:
            return (
                f"source {self.source!r}: column {self.column!r} is missing in {printable(self.file)}, "
                f"and null; the file has {printable(repr(self.near))}; later files are not reported"
            )
        return (
            f"source {self.source!r}: column {self.column!r} is {self.found} in {printable(self.file)}, "
            f"and was widened to {self.declared}; later files are not reported"
        )


def near_miss(
    source: str, missing: Field, declared: Collection[str], there: Iterable[str], file: str, within: str = ""
) -> Iterator[Widened]:
    """Yield a missing column, if a file has one whose name differs by case or blanks alone.

    declared: the names of all columns; a declared one is no misspelt one. within: prefix of the column's
    name, if it is a field of others.
    """
    name = _folded(missing.name)
    near = next((each for each in there if each not in declared and _folded(each) == name), None)
    if near is not None:
        yield Widened(source, f"{within}{missing.name}", "", str(missing.type), file, near)


def near_misses(
    source: str,
    fields: Iterable[Field],
    declared: Collection[str],
    found: object,
    file: str,
    within: str = "",
) -> Iterator[Widened]:
    """Yield nullable fields that are missing in a JSON object, or in one of its fields; see `near_miss`."""
    if not isinstance(found, dict):
        return
    there = cast("dict[str, object]", found)
    for each in fields:
        if each.name not in there:
            if each.nullable:
                yield from near_miss(source, each, declared, there, file, within)
        elif isinstance(each.type, StructType):
            inner = each.type.fields
            names = {f.name for f in inner}
            yield from near_misses(source, inner, names, there[each.name], file, f"{within}{each.name}.")


def _folded(name: str) -> str:
    return "".join(name.casefold().split()).strip("\ufeff")


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
