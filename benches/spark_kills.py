"""Fifty kills: driver, JVM, Python workers, executors, at random moments; then the sinks against DuckDB.

The flow has a join, an aggregate of an aggregate, rows that are taken back, a
loop, and four sinks; its input arrives while it runs. After every kill the run
is started again where it did not go on. It is the test of
`tests/spark/test_kill_processes.py`, ten times as long.

    PYTHONPATH=. python benches/spark_kills.py [--kills 50] [--seed 123] [--kinds driver,JVM]

Prints per kind how often the run went on by itself, how many ticks were run
again, and at the end whether every sink holds exactly the right rows. A seed
that fails can be given again.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from benches.measure import Table
from tests.spark.killing import outcome
from tests.spark.killing.kinds import KINDS, Kill
from tests.spark.killing.story import Story

STORIES = 5
"""Checkpoints among which the kills are divided: each is compared as a whole."""


def kills_of(story: Story, kinds: list[str]) -> list[tuple[str, Kill]]:
    """Kill as `kinds` says, in this order; the story is whole when this returns."""
    made: list[tuple[str, Kill]] = []
    for kind in kinds:
        kill = KINDS[kind](story)
        made.append((kind, kill))
        print(f"  {kind}: {kill.moment}: {'went on' if kill.went_on else 'ended'}", flush=True)
        if kill.error and "SparkProcessDied" not in kill.error:
            raise AssertionError(f"{kind}, {kill.moment}: an unclear end\n{kill.error}")
        outcome.check_so_far(story.folder)
    story.supply(2)
    story.run_to_the_end()
    outcome.check(story.folder)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--kinds", default=",".join(KINDS), help="with commas between")
    given = parser.parse_args()
    print(f"seed {given.seed}")
    choice = random.Random(given.seed)
    names = given.kinds.split(",")
    kinds = [names[n % len(names)] for n in range(given.kills)]
    choice.shuffle(kinds)
    moments: dict[str, list[Kill]] = defaultdict(list)
    told_again, ticks, starts, began = 0, 0, 0, time.perf_counter()
    for number in range(min(STORIES, given.kills)):
        print(f"story {number + 1}")
        with tempfile.TemporaryDirectory(prefix="headrace-kills-") as name:
            with Story(Path(name), random.Random(choice.random())) as story:
                for kind, kill in kills_of(story, kinds[number :: min(STORIES, given.kills)]):
                    moments[kind].append(kill)
            told_again += story.told_again
            ticks += len(set(story.ticks))
            starts += story.starts
    table = Table(
        "Kills at random moments", "", "kills", "run went on", "run ended, clear error", "killed itself"
    )
    for kind, found in moments.items():
        ends = Counter("went on" if k.went_on else "error" if k.error else "silent" for k in found)
        table.add(kind, len(found), ends["went on"], ends["error"], ends["silent"])
    table.show()
    print(
        f"{given.kills} kills, {starts} starts, {ticks} ticks, of which {told_again} were told of twice; "
        f"every sink holds exactly the rows of the recomputation. {time.perf_counter() - began:.0f} s."
    )


if __name__ == "__main__":
    sys.exit(main())
