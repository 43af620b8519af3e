"""Expected contents of every view at every time, recomputed from all writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from headrace.compute.protocol.responses import Row, Update
from headrace.errors import NoFixpoint
from headrace.expr.types import Schema
from headrace.lowering.reference import Bag, NotOfBags
from headrace.testing.compute.workload import Workload
from headrace.testing.tick_oracle import TickOracle


class GroundTruth:
    """Ground truth: all durable writes, and the view contents that follow from them."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.updates: dict[str, list[Update]] = {name: [] for name in workload.collections}
        self.times: list[int] = [0]
        self._known: dict[tuple[str, int], Bag | None] = {}

    def record_write(self, time: int, writes: Mapping[str, list[tuple[Row, int]]]) -> None:
        """Record a durable write."""
        self.times.append(time)
        for name, rows in writes.items():
            self.updates[name] += [(row, time, weight) for row, weight in rows]

    def last_before(self, time: int) -> int:
        """Return the time of the last write at or before a time."""
        return max(at for at in self.times if at <= max(time, 0))

    def schema(self, name: str) -> Schema:
        """Return the schema of a view or collection."""
        known = self._workload
        return (known.views[name] if name in known.views else known.collections[name]).schema

    def collection(self, name: str, time: int) -> Bag:
        """Return the rows of a collection at a time."""
        bag: Bag = Counter()
        for row, at, weight in self.updates[name]:
            if at <= time:
                bag[row] += weight
        return Counter({row: count for row, count in bag.items() if count})

    def fails_by(self, name: str, time: int) -> bool:
        """Whether a view has failed at or before a time; a failed view does not recover."""
        return any(self.view(name, at) is None for at in self.times if at <= time)

    def view(self, name: str, time: int) -> Bag | None:
        """Return the rows of a view at a time, or None if it fails on a row."""
        # Contents only change with writes, so they are those of the last write before the time.
        time = self.last_before(time)
        if (name, time) not in self._known:
            self._known[name, time] = self._computed(name, time)
        return self._known[name, time]

    def _computed(self, name: str, time: int) -> Bag | None:
        graph = self._workload.views[name].graph
        inputs: dict[str, Bag] = {}
        for source in graph.sources:
            bag = self.collection(source, time) if source in self.updates else self.view(source, time)
            if bag is None:
                return None
            inputs[source] = bag
        try:
            # All rows in one tick, since the division into ticks does not affect the result.
            (bag,) = TickOracle(graph).tick(inputs).values()
        except (AssertionError, NoFixpoint, NotOfBags):
            raise
        except Exception:  # a failing expression, or an exception of a user's function
            return None
        return Counter({row: count for row, count in bag.items() if count})
