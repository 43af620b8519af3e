"""Changes of a tick, netted by key: what becomes of each key, in one row."""

from __future__ import annotations

from typing import Any, TypeAlias

from penstock.errors import BadInput
from penstock.expr.types import Schema
from penstock.io.bucketing import bucketing

Rows: TypeAlias = list[tuple[Any, ...]]

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


def by_key(sink: str, schema: Schema, key: tuple[str, ...], rows: Rows) -> Rows:
    """For each key that changes one row: the one that goes, comes, or replaces another.

    rows: all changes of these keys. Raises `BadInput` where a key gets two rows.
    """
    weights: dict[tuple[Any, ...], int] = {}
    for *values, weight in rows:
        row = tuple(values)
        weights[row] = weights.get(row, 0) + weight
    columns = bucketing(sink, schema, key, 1)
    going: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    coming: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row, weight in weights.items():
        if weight < 0:
            going[columns.key(row)] = row
        elif weight > 0:
            other = coming.setdefault(columns.key(row), row)
            if other is not row or weight > 1:
                raise two_rows(sink, key, other, row)
    return [
        *((*row, GOES) for found, row in going.items() if found not in coming),
        *((*row, REPLACES if found in going else COMES) for found, row in coming.items()),
    ]


def two_rows(sink: str, key: tuple[str, ...], one: object, other: object) -> BadInput:
    return BadInput(
        f"sink {sink!r}: two rows have the same key ({', '.join(key)})",
        why=f"{one!r}\nand {other!r}",
        fix="give the columns that tell rows apart as key, or write a changelog, which keeps all changes",
        sink=sink,
    )
