"""Ten thousand random schedules of a controller, replicas, cut links and kills, each compared with what is
right.

    PYTHONPATH=. python benches/schedules.py [--schedules 10000] [--steps 300] [--first 0]

Prints how many were right, the seeds that were not, and what has happened in all of them together. A seed
that fails
can be run again: `python -m tests.compute.simulation SEED --trace`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from benches.measure import Table
from headrace.testing.compute import Simulation
from tests.compute.simulation.default_views import default_workload

TOGETHER = 50


def run(first: int, *, count: int, steps: int) -> tuple[Counter[str], list[int]]:
    """What has happened in schedules first, first + 1, ... and the seeds of those that went wrong."""
    happened: Counter[str] = Counter()
    wrong: list[int] = []
    for seed in range(first, first + count):
        simulation = Simulation(seed, recipes=default_workload(), steps=steps)
        try:
            simulation.run()
        except Exception:
            wrong.append(seed)
        happened += simulation.happened
    return happened, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    firsts = range(given.first, given.first + given.schedules, TOGETHER)
    happened: Counter[str] = Counter()
    wrong: list[int] = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for some, failed in pool.map(partial(run, count=TOGETHER, steps=given.steps), firsts):
            happened += some
            wrong += failed
    table = Table("In all schedules together", "what happened", "times")
    for what, times in sorted(happened.items(), key=lambda item: -item[1]):
        table.add(what, f"{times:,}")
    table.show()
    done = len(firsts) * TOGETHER
    print(f"{done - len(wrong):,} of {done:,} schedules are right; wrong: {wrong or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
