"""Tables with a key: what becomes of each key in a tick, in one row, and which rows are held back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import BadInput
from penstock.expr.types import Schema
from penstock.io.bucketing import bucketing
from penstock.io.held_back import Row, Rows, named

GOES, COMES, REPLACES = -1, 1, 2
"""What stands behind a netted row, where a change has its weight."""


def key_of(sink: str, schema: Schema, key: tuple[str, ...]) -> tuple[str, ...]:
    """The key, checked. Raises `BadInput` for columns that the stream has not, or that may be null."""
    bucketing(sink, schema, key, 1)
    for name in key:
        position = schema.position(name)
        assert position is not None
        if schema.fields[position].nullable:
            raise BadInput(
                f"sink {sink!r}: the key's column {name!r} may be null",
                why="a row without a key could not be found again when it goes",
                fix=f"filter such rows out and declare it, or give it a value: coalesce(col.{name}, ...)",
                sink=sink,
                column=name,
            )
    return key


@dataclass(frozen=True, slots=True)
class Keys:
    """What a table with a key is: of which sink, its columns, and the sources of its rows."""

    sink: str
    schema: Schema
    key: tuple[str, ...]
    sources: tuple[str, ...] = ()

    def of(self) -> Callable[[Row], Row]:
        """What gives the key of a row."""
        return bucketing(self.sink, self.schema, self.key, 1).key


@dataclass(frozen=True, slots=True)
class Settled:
    """A table after some changes.

    rows: for each key that changes one row, with GOES, COMES or REPLACES behind it.
    held: rows with negative multiplicity, weight last.
    """

    rows: Rows
    held: Rows


def settled(
    keys: Keys, there: Iterable[Row], changes: Mapping[Row, int], *, replaces: bool = False
) -> Settled:
    """A table after `changes`, with what was held back of their keys among them.

    there:    the rows of the table that have one of these keys.
    replaces: a row that no change names may be of somebody else, and gives way.

    Raises `BadInput` where a key has two rows then.
    """
    key = keys.of()
    now = {key(row): row for row in there}
    groups: dict[Row, dict[Row, int]] = {}
    for row, weight in changes.items():
        groups.setdefault(key(row), {})[row] = weight
    rows: Rows = []
    held: Rows = []
    for found, counts in groups.items():
        old = now.get(found)
        if old is not None and not (replaces and old not in counts and max(counts.values()) > 0):
            counts[old] = counts.get(old, 0) + 1
        shown = [row for row, count in counts.items() for _ in range(min(count, 2))]
        less = [(*row, count) for row, count in counts.items() if count < 0]
        if len(shown) > 1:
            raise two_rows(keys, *shown[:2], held=less)
        held += less
        if not shown and old is not None:
            rows.append((*old, GOES))
        elif shown and shown[0] != old:
            rows.append((*shown[0], COMES if old is None else REPLACES))
    return Settled(rows, held)


_TABLE_FIX = "give the columns that tell rows apart as key, or write a changelog, which keeps all changes"


def two_rows(
    keys: Keys,
    one: object,
    other: object,
    *,
    held: Sequence[Row] = (),
    fix: str = _TABLE_FIX,
    **facts: Any,
) -> BadInput:
    """The error for two rows of one key. held: rows of this key that are held back, weight last."""
    why = f"{one!r}\nand {other!r}"
    if held:
        why += "".join(f"\n{row[:-1]!r} was taken back, and is not there." for row in held)
        origin = f" It comes of {named(keys.sources)}." if keys.sources else ""
        why += f"{origin}\nThe row that goes must be told as it came, column by column."
        fix = f"correct the change that took back a row that never came; or {fix}"
        facts |= {"held": tuple(held), "sources": keys.sources}
    return BadInput(
        f"sink {keys.sink!r}: two rows have the same key ({', '.join(keys.key)})",
        why=why,
        fix=fix,
        sink=keys.sink,
        **facts,
    )
