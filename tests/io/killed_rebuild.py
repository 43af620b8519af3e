"""Rebuilds and adoptions that are killed before every file operation, one after the other.

`python -m tests.io.killed_rebuild rebuild swap FOLDER STEP lost` begins to kill when the new folders are
complete, `... run FOLDER STEP kept` when the rebuild begins, and with the old checkpoint. `... adopt ...`
does the same to an adoption, where "swap" is when the sinks begin to prepare what differs. Each attempt is a
process of its own.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet
import pytest

import headrace as hr
from headrace import Flow, col
from headrace.engine import rebuild as rebuilding
from headrace.errors import BadInput
from headrace.io import Changelog, TableFiles
from headrace.state.commit import CommitLog
from tests.io.killed_compaction import attempt, sums
from tests.io.killed_run import killing_at


class Sale(NamedTuple):
    shop: int
    price: int


OLD = [Sale(n % 3, n) for n in range(12)]
NEW = [*OLD[1:], Sale(7, 7)]
"""What the sources hold now: the rows of the sinks tell whether they are the old ones."""
TICKS = 3
"""Of a run over either."""


def flow() -> Flow:
    built = Flow("sales")
    totals = built.source("sales", Sale).group_by(col.shop).agg(total=hr.sum(col.price))
    built.sink("changes", totals)
    built.sink("table", totals)
    return built


def run(folder: Path, sales: list[Sale], checkpoint: str | None = None, sinks: Any = None) -> Any:
    return hr.run(
        flow(),
        {"sales": sales},
        sinks or sinks_in(folder),
        checkpoint=checkpoint or folder / "state",
        tick_rows=5,
    )


def sinks_in(folder: Path) -> Mapping[str, Any]:
    return {
        "changes": Changelog(folder / "changes"),
        "table": TableFiles(folder / "table", key="shop", buckets=2),
    }


def rebuild(folder: Path, sales: list[Sale]) -> None:
    replace("rebuild", folder, sales)


def replace(way: str, folder: Path, sales: list[Sale]) -> None:
    replaced = partial(rebuilding.adopt, flow()) if way == "adopt" else rebuilding.rebuild
    replaced(
        folder / "state",
        {"sales": sales},
        sinks_in(folder),
        lambda checkpoint, sinks: run(folder, sales, checkpoint, sinks),
    )


def totals_of(sales: list[Sale]) -> dict[int, int]:
    return {shop: sum(s.price for s in sales if s.shop == shop) for shop in {s.shop for s in sales}}


def rows(folder: Path) -> tuple[dict[int, int], dict[int, int]]:
    """The rows of the changelog and of the table, as their readers see them."""
    table = pyarrow.parquet.read_table(folder / "table" / "current").to_pylist()
    return dict(sums(folder / "changes").keys()), {row["shop"]: row["total"] for row in table}


def act(folder: Path, way: str, what: str, operation: int) -> None:
    if what == "run":
        sys.addaudithook(killing_at(operation))
    else:
        step = "_commit" if way == "rebuild" else "_prepare_differences"
        then = getattr(rebuilding, step)

        def killed(*given: Any) -> Any:
            sys.addaudithook(killing_at(operation))
            return then(*given)

        setattr(rebuilding, step, killed)
    exchange = rebuilding.exchange_folders

    def audited(*folders: Path) -> None:
        # A system call that Python does not audit: die before it or after it.
        sys.audit("os.rename", *folders)
        exchange(*folders)
        sys.audit("os.rename", *folders)

    rebuilding.exchange_folders = audited
    replace(way, folder, NEW)


def check(folder: Path, way: str, *, lost: bool) -> None:
    """The sinks hold the old or the new rows, and the next command goes on from there."""
    old, new = totals_of(OLD), totals_of(NEW)
    assert all(found in (old, new) for found in rows(folder)), rows(folder)
    complete = (folder / ".state.swaps.json").exists() or rows(folder) == (new, new)
    if way == "adopt":
        complete |= CommitLog(folder / "state").last_tick() > TICKS
    if lost and not complete:
        with pytest.raises(BadInput, match="already holds tick"):
            run(folder, NEW)
    else:
        run(folder, NEW)  # as many as the old ones: nothing new
    assert rows(folder) == ((new, new) if complete else (old, old))
    replace(way, folder, NEW)
    run(folder, [*NEW, Sale(7, 1)])
    assert rows(folder) == (totals_of([*NEW, Sale(7, 1)]),) * 2
    assert sorted(p.name for p in folder.iterdir()) == ["changes", "state", "table"]


def kill(folder: Path, way: str, what: str, step: int, *, lost: bool) -> int:
    """Kill at each step-th operation, the first one included. Returns the number of deaths."""
    # What computes on columns has threads, so only processes that fork no more run flows.
    attempt(1 << 60, lambda: (run(folder / "given", OLD), None)[1])
    if lost:
        shutil.rmtree(folder / "given" / "state")
    deaths = 0
    while True:
        out = folder / str(deaths)
        shutil.copytree(folder / "given", out, symlinks=True)
        through = attempt(1 << 60, partial(act, out, way, what, 1 + deaths * step))
        attempt(1 << 60, partial(check, out, way, lost=lost))
        shutil.rmtree(out)
        if through:
            return deaths
        deaths += 1


if __name__ == "__main__":
    how, begin, place, every, state = sys.argv[1:]
    print(kill(Path(place), how, begin, int(every), lost=state == "lost"))
