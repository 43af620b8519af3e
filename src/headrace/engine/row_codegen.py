"""Rows in generated code: Python sources of the columns and of the weight."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Row:
    """A row in generated code.

    columns: source of each column, cheap to repeat (a name, a subscript, a constant).
    whole:   name of a variable that holds exactly this row as a tuple, if there is one.
    weight:  source of the weight; None on an append edge, where it is +1.
    """

    columns: tuple[str, ...]
    whole: str | None = None
    weight: str | None = None

    @property
    def source(self) -> str:
        """Source of the row as a tuple."""
        return self.whole if self.whole is not None else tuple_source(self.columns)

    def flat(self, *, append: bool) -> str:
        """Return the source of the row as carried by edges: a tuple, with the weight last unless `append`."""
        if append:
            assert self.weight in (None, "1"), "an append edge carries weights of +1 only"
            return self.source
        weight = self.weight or "1"
        if self.whole is not None and weight in ("1", "-1"):
            return f"{self.whole} + ({weight},)"
        return tuple_source((*self.columns, weight))

    @property
    def copies(self) -> str:
        """Source of the weight, even if it is known to be 1."""
        return self.weight or "1"


def tuple_source(parts: tuple[str, ...] | list[str]) -> str:
    """Return the source of a tuple with these items."""
    if len(parts) == 1:
        return f"({parts[0]},)"
    return "(" + ", ".join(parts) + ")"


def item_sources(source: str, count: int) -> tuple[str, ...]:
    """Return the sources of the items of a tuple or list."""
    return tuple(f"{source}[{at}]" for at in range(count))


def key_columns(key: str, count: int) -> tuple[str, ...]:
    """Return the column sources of a key with `count` expressions; a single one is the key itself."""
    return (key,) if count == 1 else item_sources(key, count)


def weight_product(one: str | None, other: str | None) -> str | None:
    """Return the source of the product of two weights, with None for +1."""
    if one in (None, "1"):
        return other
    if other in (None, "1"):
        return one
    return f"{one} * {other}"


def negated_weight(weight: str | None) -> str:
    """Return the source of the negated weight."""
    if weight in (None, "1"):
        return "-1"
    return "1" if weight == "-1" else f"-({weight})"


class ChangeSelection(Enum):
    """Selection of a table's changes in a loop: all, insertions or retractions."""

    ALL = ""
    GOES = "<"
    COMES = ">"
