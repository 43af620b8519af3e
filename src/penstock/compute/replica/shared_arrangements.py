"""Indexes that joins of a dataflow read where they stand, instead of keeping their rows once more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from penstock.compute.frontier import Frontier
from penstock.compute.protocol.dataflow import Dataflow
from penstock.compute.protocol.responses import Counted
from penstock.compute.replica.arrangement import Arrangement
from penstock.compute.replica.inlets import FromIndex, Inlet
from penstock.compute.replica.tick_executor import TickExecutor
from penstock.engine.engine import Engine
from penstock.engine.program import compile_program
from penstock.engine.shared_sides import JoinSide, SharedSide, join_sides, only_joined
from penstock.flow.flow import Flow

_NOTHING: Collection[Counted] = ()


class _Window:
    """An index as a side of a join sees it: at one time, which moves; before it is opened it is empty."""

    def __init__(self, index: Arrangement, columns: Sequence[str]) -> None:
        self._index = index
        self._key = _in_order(columns, index.key)
        self.time: int | None = None

    def there(self, key: Hashable) -> Collection[Counted]:
        if self.time is None:
            return _NOTHING
        found: Any = self._index.at(key if self._key is None else self._key(key), self.time)
        return found


class SharedArrangements:
    """Which sides of joins a dataflow reads from indexes.

    shared: sources that joins read in place, if not everybody does.
    filled: sources whose rows need not be fed at the beginning: whoever reads them finds them in the index.
    """

    def __init__(self, flow: Flow, inlets: Iterable[Inlet]) -> None:
        self._sides: list[tuple[JoinSide, Arrangement]] = []
        self.shared: frozenset[str] = frozenset()
        self.filled: frozenset[str] = frozenset()
        indexes = {inlet.source: inlet.index for inlet in inlets if isinstance(inlet, FromIndex)}
        if indexes:
            self._find(flow, indexes)
        self._now: list[tuple[SharedSide, _Window]] = []

    def engine(self, dataflow: Dataflow, flow: Flow) -> TickExecutor:
        """A new engine, which begins with the rows at the as-of of its dataflow."""
        assert dataflow.as_of.time is not None
        return Engine(flow, columnar="never", shared=self._begin(dataflow.as_of.time))

    def _find(self, flow: Flow, indexes: dict[str, Arrangement]) -> None:
        program = compile_program(flow.graph())
        self._sides = [
            (side, indexes[side.source])
            for side in join_sides(program)
            if side.source in indexes and _arranged(indexes[side.source], side)
        ]
        shared = {(side.node, side.port): side.source for side, _ in self._sides}
        self.shared = frozenset(shared.values())
        filled: set[str] = set()
        for source in indexes:
            ports = only_joined(program, source)
            if ports is None or not ports <= shared.keys():
                continue
            # Of two sides, what is there at first must be fed of one, to be matched with the other.
            others = {shared.get((node, 1 - port)) for node, port in ports}
            if source not in others and not others & filled:
                filled.add(source)
        self.filled = frozenset(filled)

    def _begin(self, as_of: int) -> dict[str, SharedSide]:
        """New slots by name, for a new engine."""
        self._now = []
        slots: dict[str, SharedSide] = {}
        for side, index in self._sides:
            window = _Window(index, side.columns)
            if side.source in self.filled:
                window.time = as_of
            slots[side.slot] = shared = SharedSide(side, window.there)
            self._now.append((shared, window))
        return slots

    def advance(self, upper: Frontier) -> None:
        """Times before `upper`, and no others, have been fed whole."""
        if upper.time:
            for shared, window in self._now:
                window.time = upper.time - 1
                shared.settle()


def _arranged(index: Arrangement, side: JoinSide) -> bool:
    """Whether the keys of the index are those of the side, but for their order."""
    return sorted(index.key) == sorted(side.columns)


def _in_order(columns: Sequence[str], key: Sequence[str]) -> Callable[[Any], Any] | None:
    """From a key of the join to one of the index; None where they are the same."""
    if tuple(columns) == tuple(key):
        return None
    return itemgetter(*(columns.index(column) for column in key))


NOTHING_SHARED = SharedArrangements(Flow("nothing"), ())
