"""Imports of the package against `import asyncio`, each in a fresh process, in turns.

    python benches/imports.py [PROCESSES]

Medians of the time within the process, and ratios to asyncio. Bytecode is read from a cache of its own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

from benches.measure import Table

STATEMENTS = ("import asyncio", "import headrace", "from headrace import Flow, col, count, sum")
CODE = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"


def main(processes: int = 20) -> None:
    with tempfile.TemporaryDirectory() as cache:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        compare({**environment, "PYTHONPYCACHEPREFIX": cache}, processes)


def compare(environment: dict[str, str], processes: int) -> None:
    seconds: dict[str, list[float]] = {statement: [] for statement in STATEMENTS}
    for turn in range(processes + 1):
        for statement, taken in seconds.items():
            command = [sys.executable, "-c", CODE.format(statement)]
            done = subprocess.run(command, env=environment, capture_output=True, check=True)
            if turn:  # the first fills the caches
                taken.append(float(done.stdout))
    table = Table("In a fresh process, compiled before", "statement", "ms", "times asyncio")
    floor = statistics.median(seconds[STATEMENTS[0]])
    for statement, taken in seconds.items():
        median = statistics.median(taken)
        table.add(statement, median * 1000, median / floor)
    table.show()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
