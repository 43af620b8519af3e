"""From what users give to the values of signals, which are Python's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.expr.rows import from_user, to_user
from penstock.expr.types import AnyType
from penstock.flow.operators.signals.signal_source import SignalSource

Rows = list[tuple[Any, ...]]


def checked_values(source: SignalSource) -> Callable[[Iterable[Any]], list[Any]]:
    """A function from values to the same values, made right where the type of the signal allows it.

    It raises `BadRow` for a value of another type. A signal of any type takes all as they are.
    """
    schema = source.schema
    if isinstance(schema.fields[0].type, AnyType) and schema.scalar:
        return list
    row, user = from_user(schema, what=f"signal {source.name!r}"), to_user(schema)
    exact = schema.row_class if not schema.fields[0].nullable or not schema.scalar else None

    def check(values: Iterable[Any]) -> list[Any]:
        given = list(values)
        if exact is not None and set(map(type, given)) <= {exact}:
            return given
        return [value if type(value) is exact else user(row([value])[0]) for value in given]

    return check


def values_of(source: SignalSource) -> Callable[[Iterable[Any]], Rows]:
    """`checked_values` as rows of one value each."""
    check = checked_values(source)
    return lambda values: [(value,) for value in check(values)]
