"""From what users give to the values of signals, which are Python's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.expr.rows import from_user, to_user
from penstock.expr.types import AnyType

if TYPE_CHECKING:
    from penstock.flow.operators.signals.signal_source import SignalSource

Rows = list[tuple[Any, ...]]


class ValueCheck:
    """Takes values of one signal as they are, or made right where its type allows it.

    exact: the class whose instances are taken as they are; `object` where all are.

    Raises `BadRow` for a value of another type.
    """

    def __init__(self, source: SignalSource) -> None:
        schema = source.schema
        field = schema.fields[0]
        self.exact: type | None = schema.row_class
        self._takes_all = schema.scalar and isinstance(field.type, AnyType)
        if self._takes_all:
            self.exact = object
        elif schema.scalar and field.nullable:
            self.exact = None
        self._source = source

    def __call__(self, values: Iterable[Any]) -> list[Any]:
        given = list(values)
        if self._takes_all or (self.exact is not None and set(map(type, given)) <= {self.exact}):
            return given
        row, user = self._made_right
        return [user(made) for made in row(given)]

    @cached_property
    def _made_right(self) -> tuple[Callable[[Iterable[Any]], Rows], Callable[[tuple[Any, ...]], Any]]:
        # Compiled when it is first needed: a flow may have thousands of signals, given what they declare.
        schema = self._source.schema
        return from_user(schema, what=f"signal {self._source.name!r}"), to_user(schema)


def rows_of_signal(source: SignalSource) -> Callable[[Iterable[Any]], Rows]:
    """From values of a signal to internal rows: of one value, or of the columns of its row class."""
    if not source.schema.scalar:
        return from_user(source.schema, what=f"signal {source.name!r}")
    check = ValueCheck(source)
    return lambda values: [(value,) for value in check(values)]
