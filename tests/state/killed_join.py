"""A run over arrangements that is killed again and again.

`python -m tests.state.killed_join FOLDER SEED KILLS`. Each attempt is a process of its own, which dies just
before some operation on a file. After so many deaths one is left to come through.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from typing import Any, NamedTuple

# The attempts shall not each spend their time on it. No column is computed before they are forked.
import headrace as hr
import headrace.engine.columnar.arranged_slot
import headrace.engine.columnar.columnar_flow
from headrace import Flow, col
from headrace.io import Changelog, Rows
from tests.io.killed_run import killing_at


class Bid(NamedTuple):
    item: str
    price: int


class Item(NamedTuple):
    item: str
    owner: str


def flow() -> Flow:
    flow = Flow("owned")
    bids, items = flow.table("bids", Bid), flow.table("items", Item)
    owned = bids.join(items, on="item")
    flow.sink("sums", owned.group_by(col.owner).agg(sum=hr.sum(col.price), n=hr.count()))
    flow.sink("left", bids.join(items, on="item", how="left").distinct())
    flow.sink("top", owned.top_k(2, by=col.price.desc(), per=col.owner))
    return flow


def ticks(seed: int) -> dict[str, list[list[Any]]]:
    """Twelve ticks that add rows and take some of them back."""
    choice = random.Random(seed)
    there: dict[str, list[Any]] = {"bids": [], "items": []}
    made: dict[str, list[list[Any]]] = {"bids": [], "items": []}
    for _ in range(12):
        for name, held in there.items():
            gone = [row for row in held if choice.random() < 0.1]
            new: list[Any] = [
                Bid(f"i{choice.randrange(40)}", choice.randrange(1000))
                if name == "bids"
                else Item(f"i{choice.randrange(40)}", f"o{choice.randrange(5)}")
                for _ in range(choice.choice((3, 200)) if name == "bids" else 4)
            ]
            for row in gone:
                held.remove(row)
            held += new
            made[name].append([*map(hr.delete, gone), *map(hr.insert, new)])
    return made


def attempt(folder: Path, seed: int) -> None:
    sinks = {name: Changelog(folder / name) for name in flow().graph().sinks}
    given = {name: Rows(rows) for name, rows in ticks(seed).items()}
    hr.run(flow(), given, sinks, checkpoint=folder / "checkpoint")


def main() -> None:
    folder, seed, kills = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    numbers = random.Random(seed)
    deaths = 0
    while True:
        operation = numbers.randrange(1, 120) if deaths < kills else 1 << 30
        child = os.fork()
        if child == 0:
            try:
                sys.addaudithook(killing_at(operation))
                attempt(folder, seed)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            print(deaths)
            sys.exit(os.waitstatus_to_exitcode(status))
        assert os.WTERMSIG(status) == signal.SIGKILL
        deaths += 1


if __name__ == "__main__":
    main()
