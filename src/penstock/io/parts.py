"""Part files: rows in one Parquet file, written whole before anybody is told its name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from penstock.expr.types import Schema
from penstock.io.arrow import rows_to_table, table_to_rows
from penstock.io.publish import sync_file


def write_part(
    path: str | os.PathLike[str],
    rows: Sequence[tuple[Any, ...]],
    schema: Schema,
    *,
    weighted: bool = True,
    durable: bool = False,
) -> None:
    """Write internal rows to a Parquet file of its own, `path`; its folder exists.

    weighted: rows carry their weight last, and the file gets a column `weight`.
    durable:  the bytes are on disk when this returns.
    """
    pq.write_table(rows_to_table(rows, schema, weighted=weighted), path, compression="snappy")
    if durable:
        sync_file(Path(path))


def read_part(
    path: str | os.PathLike[str], schema: Schema, *, weighted: bool = True
) -> list[tuple[Any, ...]]:
    """The internal rows of a file that `write_part` wrote with the same schema."""
    # ParquetFile, not read_table: a folder called tick=12 must not become a column.
    with pq.ParquetFile(path) as file:
        return table_to_rows(file.read(), schema, weighted=weighted)
