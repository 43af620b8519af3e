"""Batches as files: one uncompressed Arrow file each, which readers map instead of reading it."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import polars as pl
import pyarrow as pa
from pyarrow.ipc import open_file

from penstock.arrangement.batch import Batch, Layout, select

_CODES = "#"
"""Name of the column of codes."""


def write_batch(path: Path, layout: Layout, batch: Batch) -> int:
    """Write a batch to a new file and return the file's size."""
    # A column in several pieces would be copied by each reader.
    frame = batch.frame.rechunk()
    if not _codes_are_keys(layout):
        frame = frame.hstack([pl.Series(_CODES, batch.codes)])
    frame.write_ipc(path, compression="uncompressed")
    return path.stat().st_size


def map_batch(path: Path, layout: Layout, bounds: tuple[float, ...]) -> Batch:
    """Open a file that `write_batch` made; its columns are read when they are looked at.

    bounds: of the batch that was written.
    """
    with pa.memory_map(str(path)) as file:
        frame = cast("pl.DataFrame", pl.from_arrow(open_file(file).read_all(), rechunk=False))
    codes = frame[layout.keys[0] if _codes_are_keys(layout) else _CODES]
    return Batch(np.asarray(codes.to_numpy(), np.int64), select(frame, layout.types), bounds)


def _codes_are_keys(layout: Layout) -> bool:
    return layout.exact and layout.types[layout.keys[0]] == pl.Int64
