"""A run that is killed again and again until it comes through. `python -m tests.io.killed_run FOLDER SEED`.

Each attempt is a process of its own. It dies without a word (SIGKILL) just
before the n-th thing it does to a file, or after some milliseconds (SIGALRM,
which nobody handles); n and the milliseconds come from the seed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet  # noqa: F401  the attempts shall not each spend their time on it

import headrace as hr
from headrace import Flow, col
from headrace.io import Call, Changelog, JsonFiles, TableFiles
from headrace.pull import for_each

_OPERATIONS = {
    "open",
    "os.rename",
    "os.remove",
    "os.link",
    "os.symlink",
    "os.mkdir",
    "os.rmdir",
    "os.truncate",
}


class Sale(NamedTuple):
    shop: int
    price: int


def flow() -> Flow:
    built = Flow("sales")
    sales = built.source("sales", Sale)
    totals = sales.group_by(col.shop).agg(total=hr.sum(col.price), n=hr.count())
    built.sink("changes", totals)
    built.sink("table", totals)
    built.sink("told", totals)
    built.sink("pulled", totals)
    return built


def write_input(folder: Path, seed: int) -> None:
    numbers = random.Random(seed)
    (folder / "in").mkdir(parents=True)
    for name in "abcd":
        lines = [
            json.dumps({"shop": numbers.randrange(6), "price": numbers.randrange(100)})
            if numbers.random() < 0.9
            else "not a sale"
            for _ in range(numbers.randrange(30))
        ]
        (folder / "in" / name).write_text("\n".join(lines))


def attempt(folder: Path) -> None:
    def tell(tick: int, changes: Any) -> None:
        with (folder / "told.jsonl").open("a") as out:
            out.write(json.dumps([tick, [[*c.row, c.weight] for c in changes]]) + "\n")

    def tell_each(change: Any) -> None:
        with (folder / "pulled.jsonl").open("a") as out:
            out.write(json.dumps([*change.row, change.weight]) + "\n")

    hr.run(
        flow(),
        {"sales": JsonFiles(folder / "in", dead_letter=folder / "dead")},
        {
            "changes": Changelog(folder / "changes"),
            "table": TableFiles(folder / "table", key="shop", buckets=3),
            "told": Call(tell),
            "pulled": for_each(tell_each),
        },
        checkpoint=folder / "checkpoint",
        tick_rows=11,
    )


def killing_at(operation: int) -> Callable[[str, Any], None]:
    left = operation

    def hook(event: str, _arguments: Any) -> None:
        nonlocal left
        if event in _OPERATIONS:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def run_child(folder: Path, numbers: random.Random, deaths: int) -> None:
    # Each lives longer than those before it could, so that one comes through.
    if numbers.random() < 0.7:
        sys.addaudithook(killing_at(numbers.randrange(1, 150 * (deaths + 1))))
    else:
        signal.setitimer(signal.ITIMER_REAL, numbers.uniform(0.005, 0.2 * (deaths + 1)))
    attempt(folder)


def main() -> None:
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    write_input(folder, seed)
    numbers = random.Random(seed)
    deaths = 0
    while True:
        drawn = numbers.randrange(1 << 30)
        child = os.fork()
        if child == 0:
            try:
                run_child(folder, random.Random(drawn), deaths)
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
