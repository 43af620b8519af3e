"""A tick, seen from the driver: one Spark job, then a commit, then the output appears."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from penstock.spark import task
from penstock.spark.batch_errors import told_errors
from penstock.spark.messages import SCHEMA, results_of
from penstock.spark.outcome import Outcome, gathered
from penstock.spark.plan import Compiled, ShippedPlan
from penstock.spark.task import TickOrder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.io.dead_letter import DeadLetters
    from penstock.spark.outlet import Outlet
    from penstock.state.checkpoint import Checkpoint

Way: TypeAlias = Literal["one task", "stages"]

# Above so many rows a tick has work for several cores, which pays for the shuffles between stages.
_ROWS_OF_ONE_TASK = 20_000


@dataclass(frozen=True, slots=True)
class Progress:
    """What a tick did.

    tick:        its number, from 1, counting on after a restart.
    rows_in:     rows taken from all sources. set_aside: rows that went to dead letters.
    changes_out: changes given to all sinks.
    seconds:     from the start of its job to the last sink told, commit included.
    way:         whether it ran in one task or stage by stage.
    """

    tick: int
    rows_in: int
    set_aside: int
    changes_out: int
    seconds: float
    way: Way


@dataclass(slots=True)
class Ticker:
    """Runs ticks one after the other, each atomic: after an error nothing of the tick counts.

    ways: "auto", or the one to take always.
    local: whether all tasks share this machine and its working copies.
    """

    plan: Compiled
    checkpoint: Checkpoint
    outlets: Mapping[str, Outlet]
    dead_letters: Mapping[str, DeadLetters]
    ways: Way | Literal["auto"]
    local: bool
    on_tick: Callable[[Progress], object] | None
    shipped: ShippedPlan = field(init=False)
    lock: threading.Lock = field(default_factory=threading.Lock)
    totals: list[int] = field(default_factory=lambda: [0, 0, 0, 0])

    def __post_init__(self) -> None:
        self.shipped = ShippedPlan.of(self.plan.plan)

    @property
    def pending(self) -> frozenset[int]:
        """The cells that have deferred rows."""
        last = self.checkpoint.last
        return frozenset(last.counters.get("pending", ())) if last else frozenset()

    def run(self, rows: DataFrame, positions: Any) -> Progress:
        """Run the next tick on the rows of the tagged union. Raises what fails in it."""
        start = time.perf_counter()
        tick = self.checkpoint.tick + 1
        way = self._way()
        outcome = self._job(rows, tick, way)
        for name, outlet in self.outlets.items():
            outlet.prepare(tick, outcome.files.get(name, []), outcome.rows.get(name, []))
        for name, letters in self.dead_letters.items():
            letters.prepare(tick, outcome.bad.get(name, ()))
        rows_in = sum(outcome.taken.values())
        changes_out = sum(outcome.changes.values())
        self.checkpoint.commit(
            outcome.chains,
            positions=positions,
            outputs=outcome.files,
            counters={
                "rows_in": rows_in,
                "changes_out": changes_out,
                "pending": sorted(outcome.pending),
                "sinks": sorted(self.outlets),
            },
        )
        for outlet in self.outlets.values():
            outlet.publish(tick)
        for letters in self.dead_letters.values():
            letters.publish(tick)
        set_aside = sum(map(len, outcome.bad.values()))
        progress = Progress(tick, rows_in, set_aside, changes_out, time.perf_counter() - start, way)
        for at, count in enumerate((1, rows_in, set_aside, changes_out)):
            self.totals[at] += count
        if self.on_tick is not None:
            self.on_tick(progress)
        return progress

    def _way(self) -> Way:
        if self.ways != "auto":
            return self.ways
        # How many rows there are shows only when they have been read; the tick before is a fair guess.
        last = self.checkpoint.last
        before = last.counters.get("rows_in", 0) if last else 0
        return "one task" if self.local and before <= _ROWS_OF_ONE_TASK else "stages"

    def _job(self, rows: DataFrame, tick: int, way: Way) -> Outcome:
        last = self.checkpoint.last
        order = TickOrder(self.shipped, tick, dict(last.chains) if last else {}, self.pending)
        if way == "one task":
            messages = rows.coalesce(1).mapInArrow(task.whole_tick(order), SCHEMA)
        else:
            messages = rows.mapInArrow(task.scatter(order), SCHEMA)
            stages = self.plan.plan.stages
            for number in range(1, len(stages.stages)):
                placed = messages.repartitionById(stages.shards, messages.shard)
                messages = placed.mapInArrow(task.stage(order, number), SCHEMA)
        with told_errors():
            table = messages.toArrow()
        return gathered(results_of(table))
