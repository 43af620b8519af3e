"""What a run that was killed has left in its sinks, against what it must hold."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars
import pyarrow.parquet as pq

from tests.spark.killing import shop

Rows = Counter[tuple[Any, ...]]


def check(folder: Path) -> None:
    """The sinks hold exactly the rows of a recomputation over all the input."""
    assert held(folder) == shop.recomputed(folder)


def held(folder: Path) -> dict[str, Rows]:
    """What the sinks hold; of the changelog and of what the function was told, the sum over all ticks."""
    return {
        "best": delta(folder / "best"),
        "regions": table(folder / "regions"),
        "large": summed(changelog(folder / "large")),
        "reached": summed(told(folder / "told")),
    }


def check_so_far(folder: Path) -> None:
    """No tick so far takes back a row that is not there: nothing was lost, nothing was left out."""
    for ticks in (changelog(folder / "large"), told(folder / "told")):
        held: Rows = Counter()
        for tick in sorted(ticks):
            held.update(ticks[tick])
            assert min(held.values(), default=0) >= 0, f"tick {tick} takes back what is not there"


def summed(ticks: dict[int, Rows]) -> Rows:
    whole: Rows = Counter()
    for changes in ticks.values():
        whole.update(changes)
    return Counter({row: count for row, count in whole.items() if count})


def table(folder: Path) -> Rows:
    return _rows((folder / "current").glob("*.parquet"))


def delta(folder: Path) -> Rows:
    return Counter(polars.read_delta(str(folder)).rows())


def changelog(folder: Path) -> dict[int, Rows]:
    return {
        int(tick.name.removeprefix("tick=")): _rows(tick.glob("*.parquet")) for tick in folder.glob("tick=*")
    }


def told(folder: Path) -> dict[int, Rows]:
    ticks: dict[int, Rows] = {}
    for file in folder.glob("*.json"):
        ticks[int(file.stem)] = Counter()
        for row, weight in json.loads(file.read_text()):
            ticks[int(file.stem)][tuple(row)] += weight
    return ticks


def _rows(files: Iterable[Path]) -> Rows:
    rows: Rows = Counter()
    for file in files:
        for record in pq.ParquetFile(file).read().to_pylist():
            weight = record.pop("weight", 1)
            rows[tuple(record.values())] += weight
    return rows
