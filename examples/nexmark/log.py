"""A sink that writes rows to files in a folder for each minute: the log of query 10."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import headrace as hr

_MINUTE = attrgetter("dt", "hm")


class Log:
    """Rows with columns `dt` and `hm` as Parquet, in folders such as `dt=2015-07-15/hm=00%3A00`.

    A function of (tick, changes), to be given as a sink of rows that are only added. Files are named by
    their tick: a tick that is told again writes the same files again, so that each row is there once.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, tick: int, changes: Iterable[hr.Change[Any]]) -> None:
        rows = [row for row, weight in changes for _ in range(weight)]
        for (day, minute), group in groupby(sorted(rows, key=_MINUTE), key=_MINUTE):
            folder = self._folder / f"dt={day}" / f"hm={quote(minute, safe='')}"
            folder.mkdir(parents=True, exist_ok=True)
            self._write(folder / f"{tick:06d}.parquet", list(group))

    def _write(self, path: Path, rows: list[Any]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {name: [getattr(row, name) for row in rows] for name in rows[0]._fields}
        del columns["dt"], columns["hm"]
        unfinished = path.with_name(f".{path.name}")
        pq.write_table(pa.table(columns), unfinished)
        unfinished.rename(path)
