"""What every view must hold at every time: computed from scratch out of all writes, and kept stupid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from penstock.compute.protocol.responses import Row, Update
from penstock.errors import NoFixpoint
from penstock.testing.compute.recipes import Workload
from penstock.testing.oracle import Bag, NotOfBags
from penstock.testing.tick_oracle import TickOracle


class Truth:
    """The writes that the store has taken, and what follows from them."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.updates: dict[str, list[Update]] = {name: [] for name in workload.collections}
        self.times: list[int] = [0]
        self._known: dict[tuple[str, int], Bag | None] = {}

    def wrote(self, time: int, writes: Mapping[str, list[tuple[Row, int]]]) -> None:
        """A write that is durable, whoever knows of it."""
        self.times.append(time)
        for name, rows in writes.items():
            self.updates[name] += [(row, time, weight) for row, weight in rows]

    def last_before(self, time: int) -> int:
        """The last write at or before a time."""
        return max(at for at in self.times if at <= max(time, 0))

    def collection(self, name: str, time: int) -> Bag:
        """The rows of a collection at a time."""
        bag: Bag = Counter()
        for row, at, weight in self.updates[name]:
            if at <= time:
                bag[row] += weight
        return Counter({row: count for row, count in bag.items() if count})

    def fails_by(self, name: str, time: int) -> bool:
        """Whether a view has no rows at some time up to that: who has met that time goes no further."""
        return any(self.view(name, at) is None for at in self.times if at <= time)

    def view(self, name: str, time: int) -> Bag | None:
        """The rows of a view at a time; None where it has none, because it fails by a row."""
        # Nothing happens between two writes, so the last one before it says it all.
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
            # All rows in one tick: how they are cut makes no difference to what is served.
            (bag,) = TickOracle(graph).tick(inputs).values()
        except (AssertionError, NoFixpoint, NotOfBags):
            raise
        except Exception:  # an expression that fails, or whatever a function of the user's raises
            return None
        return Counter({row: count for row, count in bag.items() if count})
