"""Compactions that are killed before every file operation, one after the other.

`python -m tests.io.killed_compaction command FOLDER` compacts copies of a changelog; `... run FOLDER` runs a
flow whose sink compacts, until it comes through. Each attempt is a process of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.dataset
import pyarrow.parquet

import headrace as hr
from headrace import Flow, col, file_system
from headrace.expr.row_classes import schema_of
from headrace.io import Changelog, SinkRequest, open_sink
from headrace.io.files import compaction
from tests.io.feeds import Point
from tests.io.killed_run import killing_at

TICKS = 9
RUN_TICKS = 24


class Sale(NamedTuple):
    shop: int
    price: int


def fast() -> None:
    """Let a compaction follow the other without waiting for readers."""
    compaction.SETTLED_SECONDS = compaction.LISTING_SECONDS = 0.0
    compaction.MIN_BATCH = 4


def changes(tick: int) -> list[tuple[Any, ...]]:
    """The row of the last tick, and a row as often as there were ticks."""
    gone = [(tick - 1, "last", -1)] if tick > 1 else []
    return [*gone, (tick, "last", 1), (0, "count", 1)]


def write_changelog(path: Path, ticks: int, first: int = 1, compact_after: int | None = None) -> None:
    request = SinkRequest("points", schema_of(Point), path.parent / "spool")
    writer = open_sink(Changelog(path, compact_after), request)
    with closing(writer):
        writer.recover(first - 1)
        for tick in range(first, first + ticks):
            writer.prepare(tick, changes(tick))
            writer.publish(tick)


def sums(path: Path) -> Counter[Any]:
    """The sum of all ticks, as pyarrow reads them."""
    rows: Counter[Any] = Counter()
    table = pyarrow.dataset.dataset(path, partitioning="hive").to_table()
    for row in table.drop_columns(["tick"]).to_pylist():
        rows[tuple(row.values())[:-1]] += row["weight"]
    return Counter({row: weight for row, weight in rows.items() if weight})


def after(tick: int) -> Counter[Any]:
    return Counter({(tick, "last"): 1, (0, "count"): tick})


def attempt(operation: int, act: Callable[[], None]) -> bool:
    """Whether `act` came through before it was killed at its n-th file operation."""
    child = os.fork()
    if child == 0:
        exchange = file_system.exchange_folders

        def audited(*folders: Path) -> None:
            # A system call that Python does not audit: die before it or after it.
            sys.audit("os.rename", *folders)
            exchange(*folders)
            sys.audit("os.rename", *folders)

        file_system.exchange_folders = audited
        try:
            sys.addaudithook(killing_at(operation))
            act()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.waitstatus_to_exitcode(status) == 0
    return True


def kill_command(folder: Path) -> int:
    """Kill `compact` at each of its operations; the sum stays, and the next run removes what is left."""
    write_changelog(folder / "given", TICKS)
    deaths = 0
    while True:
        out = folder / str(deaths) / "out"
        shutil.copytree(folder / "given", out)
        through = attempt(deaths + 1, lambda out=out: (compaction.compact(out, 3), None)[1])
        assert sums(out) == after(TICKS), deaths
        write_changelog(out, 2, TICKS + 1, compact_after=3)
        assert sums(out) == after(TICKS + 2), deaths
        assert [p.name for p in out.parent.iterdir()] == ["out"], deaths
        shutil.rmtree(out.parent)
        if through:
            return deaths
        deaths += 1


def kill_run(folder: Path) -> int:
    """Kill a run again and again, each attempt later than the one before."""
    flow = Flow("sales")
    flow.sink("totals", flow.source("sales", Sale).group_by(col.shop).agg(total=hr.sum(col.price)))
    sales = [Sale(n % 3, n) for n in range(2 * RUN_TICKS)]

    def act() -> None:
        sinks = {"totals": Changelog(folder / "out", compact_after=1)}
        hr.run(flow, {"sales": sales}, sinks, checkpoint=folder / "c", tick_rows=2)

    deaths = 0
    while not attempt(31 * (deaths + 1), act):
        deaths += 1
    return deaths


if __name__ == "__main__":
    fast()
    print({"command": kill_command, "run": kill_run}[sys.argv[1]](Path(sys.argv[2])))
