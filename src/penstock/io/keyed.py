"""Tables with a key: what becomes of each key in a tick, in one row, and which rows are held back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from penstock.errors import BadInput, DuplicateKey
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

    Raises `DuplicateKey` where a key has two rows then.
    """
    key = keys.of()
    now = {key(row): row for row in there}
    groups: dict[Row, dict[Row, int]] = {}
    for row, weight in changes.items():
        groups.setdefault(key(row), {})[row] = weight
    rows: Rows = []
    held: Rows = []
    twice: list[Row] = []
    for found, counts in groups.items():
        old = now.get(found)
        if old is not None and not (replaces and old not in counts and max(counts.values()) > 0):
            counts[old] = counts.get(old, 0) + 1
        shown = [row for row, count in counts.items() for _ in range(min(count, 2))]
        held += [(*row, count) for row, count in counts.items() if count < 0]
        if len(shown) > 1:
            twice = twice or shown[:2]
        elif not shown and old is not None:
            rows.append((*old, GOES))
        elif shown and shown[0] != old:
            rows.append((*shown[0], COMES if old is None else REPLACES))
    if twice:
        raise two_rows(keys, twice[0], twice[1], held=held)
    return Settled(rows, held)


_TABLE_FIX = "give the columns that tell rows apart as key, or write a changelog, which keeps all changes"
_ALSO = 3
"""So many rows of other keys are told one by one."""


def two_rows(keys: Keys, one: Row, other: object, *, held: Rows, fix: str = _TABLE_FIX) -> DuplicateKey:
    """The error for two rows of one key. held: rows that the tick would hold back, of any key, weight last.

    An update whose old row has another key takes back a row of that key, and leaves the one that was meant.
    """
    key = keys.of()
    own = [row for row in held if key(row) == key(one)]
    also = [row for row in held if key(row) != key(one)]
    parts = [f"{one!r}\nand {other!r}"]
    parts += [f"{row[:-1]!r} was taken back, and is not there." for row in own]
    parts += [f"{row[:-1]!r} was also taken back and is not there in this tick." for row in also[:_ALSO]]
    if len(also) > _ALSO:
        parts.append(f"So were {len(also) - _ALSO:,} more.")
    if keys.sources and own:
        parts[-1] += f" It comes of {named(keys.sources)}."
    elif keys.sources:
        parts.append(f"The rows come of {named(keys.sources)}.")
    if held:
        parts.append("The row that goes must be told as it came, column by column.")
        fix = f"correct the change that took back a row that never came; or {fix}"
    return DuplicateKey(
        f"sink {keys.sink!r}: two rows have the same key ({', '.join(keys.key)})",
        why="\n".join(parts),
        fix=fix,
        sink=keys.sink,
        key=key(one),
        held=tuple(own),
        also_held=tuple(also),
        sources=keys.sources,
    )
