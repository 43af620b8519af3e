"""A race: the same work done in several ways, taking turns, each answer checked against the first."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from benches.measure.table import Table


def race(
    title: str,
    contestants: Mapping[str, Callable[[], Any]],
    *,
    others: Mapping[str, Callable[[], Any]] | None = None,
    repeats: int = 5,
    limits: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Print the median CPU milliseconds of each contestant and its ratio to the first.

    contestants: what is done once per repeat, from scratch; its result is the answer.
    others:      contestants whose answer may be wrong; it is then shown as such.
    limits:      per contestant the ratio that it should keep, shown beside what it does.

    CPU time, because other work on the machine disturbs it less. Raises
    `AssertionError` where an answer differs from the first contestant's.
    """
    runs = {**contestants, **(others or {})}
    took: dict[str, list[float]] = {name: [] for name in runs}
    wrong: set[str] = set()
    names = list(runs)
    expected = runs[names[0]]()
    for turn in range(repeats):
        # Who runs first finds the data in no cache.
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            gc.collect()
            start = time.process_time_ns()
            answer = runs[name]()
            took[name].append((time.process_time_ns() - start) / 1e6)
            if answer != expected:
                assert name not in contestants, (
                    f"{title}: {name} answers {answer!r:.60}, not {expected!r:.60}"
                )
                wrong.add(name)
            del answer
    medians = {name: statistics.median(times) for name, times in took.items()}
    table = Table(title, "", "ms", "ratio", "at most")
    for name, milliseconds in medians.items():
        limit = (limits or {}).get(name)
        ratio = milliseconds / medians[names[0]]
        said = "wrong" if name in wrong else "" if limit is None else f"{limit:g}"
        table.add(name, f"{milliseconds:,.1f}", ratio, said)
    table.show()
    return medians
