"""Batches as files: one uncompressed Arrow file each, which readers map instead of reading it."""

from __future__ import annotations

from io import BytesIO
from typing import cast

import numpy as np
import polars as pl
import pyarrow as pa
from pyarrow.ipc import new_file, open_file

from headrace.arrangement.batch import Batch, Layout, own_copy, select

_CODES = "#codes"
"""Name of the column beside those of the layout."""


_OLDEST = pl.CompatLevel.oldest()
_MANY = 1_000
"""Rows from which a column of weights costs more than making it anew, and copies more than a plan."""


def content_of(layout: Layout, batch: Batch) -> pa.Buffer:
    """Return the content of a file with a batch."""
    beside = [] if _codes_are_keys(layout) else [pl.Series(_CODES, batch.codes)]
    if len(batch) < _MANY:
        # Polars would plan a query. Readers copy the texts of so few rows.
        named = {column.name: column.to_arrow(compat_level=_OLDEST) for column in (*batch.frame, *beside)}
        rows, sink = pa.RecordBatch.from_arrays([*named.values()], [*named]), pa.BufferOutputStream()
        with new_file(sink, rows.schema) as writer:
            writer.write_batch(rows)
        return sink.getvalue()
    # A column in several pieces would be copied by each reader; Polars writes large frames in several.
    frame = batch.frame.rechunk()
    if len(layout.sums) == 1 and bool((frame[layout.sums[0]] == 1).all()):
        # Rows that were never taken back: their weights need no column.
        frame = frame.drop(layout.sums)
    frame = pl.DataFrame([*map(_alone, frame), *beside])
    out = BytesIO()
    frame.write_ipc(out, compression="uncompressed", record_batch_size=len(batch))
    return pa.py_buffer(out.getbuffer())


def _alone(column: pl.Series) -> pl.Series:
    """Return a column without the texts that lie in its buffers still, of rows that are gone."""
    if column.dtype not in (pl.String, pl.Binary):
        return column
    return pl.Series(column.name, column.to_arrow(compat_level=_OLDEST))


def alone(batch: Batch) -> Batch:
    """Return a copy of a small batch, which keeps nothing in memory of larger ones that it was taken from."""
    frame = pl.DataFrame([_alone(column) for column in own_copy(batch.frame)])
    return Batch(batch.codes.copy(), frame, batch.bounds)


def batch_in(layout: Layout, content: pa.Buffer, bounds: tuple[float, ...]) -> Batch:
    """Return the batch in a file's content, whose columns are read when they are looked at.

    bounds: of the batch that was written.

    Raises `ValueError` or an error of Arrow for a file with other columns.
    """
    frame = cast("pl.DataFrame", pl.from_arrow(open_file(content).read_all(), rechunk=False))
    if len(layout.sums) == 1 and layout.sums[0] not in frame.columns:
        # A constant takes no memory until it is looked at, as `DataFrame.__getitem__` does.
        frame = frame.with_columns(pl.lit(1, pl.Int64).alias(layout.sums[0]))
    if any(frame.schema.get(name) != type for name, type in layout.types.items()):
        raise ValueError("it has other columns")
    codes = frame[layout.keys[0] if _codes_are_keys(layout) else _CODES]
    return Batch(np.asarray(codes.to_numpy(), np.int64), select(frame, layout.types), bounds)


def _codes_are_keys(layout: Layout) -> bool:
    return layout.exact and layout.types[layout.keys[0]] == pl.Int64
