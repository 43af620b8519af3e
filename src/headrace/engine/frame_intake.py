"""Conversion of frames that users give a source to internal rows: by values if few, by columns if many."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cached_property
from typing import Any

from headrace.columns.frames import rows_of_frame
from headrace.engine.change import Change
from headrace.engine.source_intake import Intake, source_intake
from headrace.expr.types import Rows
from headrace.operators.source import KeyedSource, Source

CHECKED_IN_COLUMNS = 256
"""Number of rows from which it is cheaper to check a frame's columns by Polars than its values one by one."""


class FrameIntake:
    """Converter of one source's frames.

    intake: the source's converter of rows.
    unread: columns that nobody reads: frames may lack them, or have nulls where their fields are not
    nullable."""

    def __init__(self, operator: Source, append: bool, intake: Intake, unread: AbstractSet[str]) -> None:
        self._operator = operator
        self._append = append
        self._intake = intake
        self._unread = unread

    @property
    def is_keyed(self) -> bool:
        return isinstance(self._operator, KeyedSource)

    def __call__(self, frame: Any) -> Rows:
        """Convert a frame that was read whole. Raises `BadInput` and `BadRow`."""
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
        """The converter of rows with nulls in columns that nobody reads."""
        if not self._unread:
            return self._intake
        fields = tuple(
            replace(f, nullable=f.nullable or f.name in self._unread) for f in self._operator.schema.fields
        )
        schema = replace(self._operator.schema, fields=fields)
        return source_intake(replace(self._operator, schema=schema), self._append, trusted=False)
