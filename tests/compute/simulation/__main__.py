"""Command line of the simulation: `python -m tests.compute.simulation [--trace] SEED [END]`."""

from __future__ import annotations

import argparse
import sys
import traceback

from headrace.testing.compute import Simulation
from tests.compute.simulation.default_views import default_workload


def main() -> int:
    """Run the schedules of the given seeds. Returns 1 if any of them failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.compute.simulation", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("end", type=int, nargs="?")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--trace", action="store_true", help="print all that happens in each schedule")
    given = parser.parse_args()
    failed: list[int] = []
    for seed in range(given.seed, given.end or given.seed + 1):
        simulation = Simulation(seed, recipes=default_workload(), steps=given.steps)
        error = ""
        try:
            simulation.run()
        except Exception:
            failed.append(seed)
            error = f"{traceback.format_exc()}\n"
        if given.trace:
            sys.stdout.write("".join(f"{line}\n" for line in simulation.trace))
        if given.trace or error:
            sys.stdout.write(f"seed {seed}\n{error}")
    count = (given.end or given.seed + 1) - given.seed
    sys.stdout.write(f"{count - len(failed)} of {count} schedules are right; wrong: {failed[:20]}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
