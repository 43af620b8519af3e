"""A reader of a changelog, again and again. `python -m tests.io.read_changelog NAME FOLDER`.

Reads until FOLDER/../done exists. Prints the number of reads, of those that failed loudly, and "ok" or the
first sum that no tick had.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow.dataset

from tests.io.killed_compaction import after, sums


def by_duckdb(path: Path) -> list[tuple[Any, ...]]:
    return duckdb.sql(
        f"select x, label, sum(weight)::int from read_parquet('{path}/tick=*/*.parquet') "
        "group by all having sum(weight) <> 0"
    ).fetchall()


def by_polars(path: Path) -> list[tuple[Any, ...]]:
    frame = polars.scan_parquet(path / "tick=*/*.parquet")
    summed = frame.group_by("x", "label").agg(polars.col("weight").sum())
    return summed.filter(polars.col("weight") != 0).collect().rows()


def by_pyarrow(path: Path) -> list[tuple[Any, ...]]:
    return [(*row, weight) for row, weight in sums(path).items()]


READERS: dict[str, Callable[[Path], list[tuple[Any, ...]]]] = {
    "duckdb": by_duckdb,
    "polars": by_polars,
    "pyarrow": by_pyarrow,
}
_LOUD = (duckdb.Error, polars.exceptions.PolarsError, OSError, pyarrow.ArrowException)


def main() -> None:
    read, path = READERS[sys.argv[1]], Path(sys.argv[2])
    reads = errors = 0
    print("ready", flush=True)
    while not (path.parent / "done").exists():
        reads += 1
        try:
            found = read(path)
        except _LOUD:
            errors += 1
            continue
        ticks = [row[0] for row in found if row[1] == "last"]
        if len(ticks) != 1 or {row[:2]: row[2] for row in found} != dict(after(ticks[0])):
            print(f"{reads} {errors} {found}")
            return
    print(f"{reads} {errors} ok")


if __name__ == "__main__":
    main()
