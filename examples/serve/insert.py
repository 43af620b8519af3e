"""Events of an auction site, written as they happen; at the end the view's answer is checked.

python -m examples.serve.insert --events 20000 --per-second 1000
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import headrace as hr
from examples.nexmark.generator import Generator, Tick
from examples.nexmark.queries import q4
from headrace.compute import Client

SIZE = 100
"""Events that are written at one time."""


def expected(ticks: list[Tick]) -> dict[int, float]:
    """What the in-process engine answers to all the events in one tick."""
    events: Any = {kind: [row for tick in ticks for row in tick[kind]] for kind in ("auctions", "bids")}
    return {row.category: row.average for row, _ in hr.Engine(q4()).tick(**events)["q4"]}


def main() -> None:
    parser = argparse.ArgumentParser(description="Write events of an auction site into collections.")
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--per-second", type=int, default=1_000)
    given = parser.parse_args()
    ticks = list(Generator().ticks(given.events, SIZE))
    begun, slowest = time.perf_counter(), 0.0
    with Client() as client:
        last = 0
        for number, tick in enumerate(ticks):
            time.sleep(max(0.0, begun + number * SIZE / given.per_second - time.perf_counter()))
            asked = time.perf_counter()
            last = client.write({"auctions": tick["auctions"], "bids": tick["bids"]})
            slowest = max(slowest, time.perf_counter() - asked)
        print(
            f"{given.events:,} events written, the last ones at {last}; slowest write {slowest * 1000:.0f} ms"
        )
        # A read sees every write that was acknowledged before it.
        answer = {row.category: row.average for row in client.peek("q4")}
    right = expected(ticks)
    if answer != right:
        raise SystemExit(f"the view says {answer}, right is {right}")
    print(f"Checked: {len(answer)} averages, the same as the in-process engine's, to the last bit.")


if __name__ == "__main__":
    main()
