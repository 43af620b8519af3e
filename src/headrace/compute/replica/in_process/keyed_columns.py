"""Rows of an index in columns: batches sorted by the code of their key, read by key or all in order.

A key is found by its code in each batch, and its rows are compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from headrace.arrangement.batch import Layout, SortedBatch
from headrace.arrangement.codes import coder
from headrace.arrangement.reading import RowReader, RowReaders
from headrace.arrangement.spine import Spine, SumOverflow
from headrace.compute.protocol.responses import Counted
from headrace.compute.protocol.row_batch import (
    WEIGHT,
    NotColumnar,
    RowBatch,
    column_types,
    encoder_of,
    single_row_decoder,
)
from headrace.expr.types import Schema

_FEW = 16
"""Number of rows up to which they are read one by one."""


_KNOWN = 256
"""Number of keys whose rows are remembered."""


class KeyColumns:
    """Layout of an index: its columns, and the codes of keys.

    positions: of the key columns. of_row: function from a row to its key.
    """

    def __init__(self, schema: Schema, positions: Sequence[int], of_row: Callable[[Any], Any]) -> None:
        fields = [schema.fields[at] for at in positions]
        types = column_types(schema)
        names = tuple(map(str, positions))
        self.schema = schema
        self.layout = Layout(types, names, (WEIGHT,), nullable=any(field.nullable for field in fields))
        self._of_row = of_row
        self._single = len(fields) == 1
        self._encoders = [encoder_of(field.type) for field in fields]
        self._read = single_row_decoder([field.type for field in schema.fields])
        self._code = coder([types[name] for name in names], exact=self.layout.exact)

    def code(self, key: Any) -> int | None:
        """Return the code of a key; None if its types do not match, so that no row can have it."""
        values = (key,) if self._single else key
        try:
            return self._code(
                [
                    value if encode is None or value is None else encode(value)
                    for value, encode in zip(values, self._encoders, strict=True)
                ]
            )
        except (TypeError, ValueError, AttributeError, ArithmeticError):
            return None

    def rows_of(self, key: Any, code: int, reader: RowReader) -> list[Counted]:
        """Return a batch's rows with a key."""
        places = reader.places(code)
        if len(places) > _FEW:
            found = RowBatch(self.schema, reader.batch.frame.slice(places.start, len(places))).rows()
        else:
            found = [(self._read(values[:-1]), values[-1]) for values in map(reader.row, places)]
        of_row, alike = self._of_row, (key,)  # in a tuple, as NaN is only equal to itself there
        return [counted for counted in found if (of_row(counted[0]),) == alike]


class KeyedColumns:
    """Batches of one index, or of its changes at one time."""

    def __init__(self, keys: KeyColumns) -> None:
        self.keys = keys
        self._spine = Spine(keys.layout)
        self._readers = RowReaders(self._spine, tuple(keys.layout.types))
        self._found: dict[Any, list[Counted]] = {}
        """Rows of keys that were asked for since the batches changed: joins ask repeatedly."""

    @property
    def batches(self) -> tuple[SortedBatch, ...]:
        """Immutable batches of rows."""
        return self._spine.batches

    def __len__(self) -> int:
        return len(self._spine)

    def add(self, frame: pl.DataFrame) -> None:
        """Add rows, and do a proportional share of merging. Raises `NotColumnar` for too large counts."""
        try:
            self._spine.add(frame)
        except SumOverflow as error:
            raise NotColumnar from error
        self._found = {}

    def take(self, rows: int) -> pl.DataFrame:
        """Remove some rows of one batch, and return them."""
        batch = self._spine.batches[-1]
        rows = min(rows, len(batch))
        self._spine.replace([*self._spine.batches[:-1], batch.slice(rows, len(batch))])
        self._found = {}
        return batch.frame[:rows]

    def rows_of(self, key: Any) -> Sequence[Counted]:
        """Return the rows with a key and their counts. A row may occur in several batches."""
        known = self._found.get(key)
        if known is not None:
            return known
        found: list[Counted] = []
        code = self.keys.code(key)
        if code is not None:
            for reader in self._readers.current():
                found += self.keys.rows_of(key, code, reader)
        if len(found) <= _FEW:
            if len(self._found) == _KNOWN:
                self._found = {}
            self._found[key] = found
        return found

    def estimated_bytes(self) -> int:
        """Estimate the memory of all batches."""
        return sum(int(batch.frame.estimated_size()) + batch.codes.nbytes for batch in self.batches)
