"""A run into PostgreSQL and Delta that is killed again and again. `python -m ... FOLDER SEED URL SCHEMA`."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

import pyarrow.parquet  # noqa: F401  the attempts shall not each spend their time on it

import headrace as hr
from headrace import Flow, col
from headrace.io import DeltaChangelog, DeltaTable, JsonFiles, PostgresChangelog, PostgresTable
from tests.io.killed_run import Sale, write_input


def flow() -> Flow:
    built = Flow("sales")
    totals = built.source("sales", Sale).group_by(col.shop).agg(total=hr.sum(col.price), n=hr.count())
    for name in ("pg_log", "now", "log", "pg_now"):
        built.sink(name, totals)
    return built


def attempt(folder: Path, url: str, schema: str) -> None:
    hr.run(
        flow(),
        {"sales": JsonFiles(folder / "in", dead_letter=folder / "dead")},
        {
            "pg_log": PostgresChangelog(url, "log", schema),
            "now": DeltaTable(folder / "now", "shop"),
            "log": DeltaChangelog(folder / "log"),
            "pg_now": PostgresTable(url, "now", "shop", schema),
        },
        checkpoint=folder / "checkpoint",
        tick_rows=11,
    )


def main() -> None:
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    write_input(folder, seed)
    numbers = random.Random(seed)
    deaths = 0
    while True:
        drawn = numbers.uniform(0.3, 1.5 + 0.5 * deaths)
        child = os.fork()
        if child == 0:
            # Nobody handles it: the process dies without a word, wherever it is.
            signal.setitimer(signal.ITIMER_REAL, drawn)
            try:
                attempt(folder, *sys.argv[3:])
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            print(deaths)
            sys.exit(os.waitstatus_to_exitcode(status))
        deaths += 1


if __name__ == "__main__":
    main()
