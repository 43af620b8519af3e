"""Validation of user input to a source, and its conversion from rows and frames to internal rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cached_property, partial
from types import GeneratorType
from typing import Any, TypeAlias

from headrace.columns.columns import rows_of_frame
from headrace.engine.change import Change, KeyDeletion, Update
from headrace.engine.signals.row_values import rows_of_signal
from headrace.errors import BadInput, SourceLocation, did_you_mean
from headrace.expr.row_classes import from_trusted, from_user
from headrace.expr.types import Rows
from headrace.operators.endpoints import KeyedSource, SourceOperator
from headrace.operators.signals.earlier_values import SignalSource

Intake: TypeAlias = "Callable[[Iterable[Any]], Rows]"


def source_intake(operator: object, append: bool, trusted: bool) -> Intake:
    """Create the function from user input to internal rows. It raises `BadRow`."""
    if isinstance(operator, SignalSource):
        return rows_of_signal(operator)
    assert isinstance(operator, SourceOperator)
    what = f"source {operator.name!r}"
    if isinstance(operator, KeyedSource):
        # Imported here, so that flows without such tables need not load it.
        from headrace.engine.keyed_intake import KeyedIntake

        return KeyedIntake(operator.keyed, what, trusted)
    make = from_trusted if trusted else partial(from_user, what=what, elsewhere=_elsewhere(append))
    return make(operator.schema, change=None if append else Change)


def _elsewhere(append: bool) -> Mapping[type, str]:
    """Return the fixes to suggest, by class, for items that are not rows of the source."""
    keyed = 'flow.table("name", RowClass, key="...") takes updates and deletions by key'
    table = 'flow.table("name", RowClass) takes changes; a source without changes takes rows alone'
    return {Update: keyed, KeyDeletion: keyed} | ({Change: table} if append else {})


def unknown_source(name: str, sources: Collection[str]) -> BadInput:
    """Build the error for an unknown source name."""
    return BadInput(
        f"the flow has no source {name!r}",
        where=[SourceLocation.of_caller()],
        why=f"Its sources are {', '.join(map(repr, sources)) or 'none'}.",
        fix=did_you_mean(name, sources) or "use the name that was given to flow.source(...)",
        source=name,
    )


def unnamed_rows(method: str, sources: Iterable[str]) -> BadInput:
    """Build the error for rows given without a source name."""
    named = ", ".join(f"{name}=[...]" for name in sources)
    return BadInput(
        f"{method}() takes rows by source name",
        where=[SourceLocation.of_caller()],
        fix=f"{method}({named}); for a dict, {method}(**rows)",
    )


def check_iterable(name: str, rows: object) -> None:
    """Raise `BadInput` unless given a collection of rows: not a text, a row or an exhausted generator."""
    is_row = hasattr(rows, "_fields")
    if is_row or isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        got = f"one row, {rows!r}" if is_row else type(rows).__name__
        fix = f"give a list of rows; in a tick, leave {name}= out to give it nothing"
        if is_row:
            fix = f"put it into a list: [{type(rows).__name__}(...)]"
        elif hasattr(rows, "collect"):  # a LazyFrame of Polars, a DataFrame of Spark
            fix = f"call .collect() on it, which reads it: {name}=frame.collect()"
        raise BadInput(
            f"source {name!r} takes an iterable of rows, got {got}",
            where=[SourceLocation.of_caller()],
            fix=fix,
            source=name,
        )
    if isinstance(rows, GeneratorType) and rows.gi_frame is None:
        raise BadInput(
            f"source {name!r} is given a generator that has been read to its end",
            where=[SourceLocation.of_caller()],
            why="A generator yields its rows only once.",
            fix="create a new one for each tick, or pass a list",
            source=name,
        )


CHECKED_IN_COLUMNS = 256
"""Number of rows from which it is cheaper to check a frame's columns by Polars than its values one by one."""


class FrameIntake:
    """Converter of one source's frames.

    intake: the source's converter of rows.
    unread: columns that nobody reads: frames may lack them, or have nulls where their fields are not
    nullable."""

    def __init__(
        self, operator: SourceOperator, append: bool, intake: Intake, unread: AbstractSet[str]
    ) -> None:
        self._operator = operator
        self._append = append
        self._intake = intake
        self._unread = unread

    @property
    def is_keyed(self) -> bool:
        return isinstance(self._operator, KeyedSource)

    def __call__(self, frame: Any) -> Rows:
        """Convert a fully read frame. Raises `BadInput` and `BadRow`."""
        if isinstance(self._operator, KeyedSource):
            return self._intake(rows_of_frame(frame, self._operator.keyed.rows, Change))
        if len(frame) >= CHECKED_IN_COLUMNS:
            rows = self._checked_in_columns(frame)
            if rows is not None:
                return rows
        change = None if self._append else Change
        return self._of_few_columns(rows_of_frame(frame, self._operator.schema, change, unread=self._unread))

    def _checked_in_columns(self, frame: Any) -> Rows | None:
        """Convert a frame that is checked as columns; None if its rows must be validated one by one."""
        try:
            from headrace.engine.columnar.columnar_intake import columns_of_frame
        except ImportError:
            return None
        columns = columns_of_frame(self._operator.schema, self._append, frame, unread=self._unread)
        return None if columns is None else columns.rows()

    @cached_property
    def _of_few_columns(self) -> Intake:
        """Converter of rows whose unread columns are null."""
        if not self._unread:
            return self._intake
        fields = tuple(
            replace(f, nullable=f.nullable or f.name in self._unread) for f in self._operator.schema.fields
        )
        schema = replace(self._operator.schema, fields=fields)
        return source_intake(replace(self._operator, schema=schema), self._append, trusted=False)
