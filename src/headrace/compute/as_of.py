"""As-of selection: the times from which dataflows start when a controller restarts.

Constraints narrow a range of times per dataflow. Hard constraints must hold, or changes would be lost or
duplicated; soft ones are preferences. A dataflow must not start later than the dataflows that read it. In the
end, each dataflow takes the latest time of its range, which needs the least history and gives replicas the
best chance to keep what they have.
Source: the compute protocol of Materialize, as-of selection (reference).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.compute.collections.store import Bounds
from headrace.compute.frontier import END, START, Frontier, join, meet
from headrace.compute.protocol.dataflow import CollectionExport, Dataflow, Id, IndexExport


@dataclass(frozen=True, slots=True)
class Lag:
    """Read policy that keeps an index readable for a number of milliseconds behind its upper.

    >>> Lag(5).since(Frontier(20)), Lag(5).since(Frontier(3)), Lag(5).since(END)
    (Frontier(time=15), Frontier(time=0), Frontier(time=None))
    """

    milliseconds: int = 1

    def since(self, upper: Frontier) -> Frontier:
        """Return the since that the policy allows at an upper."""
        return upper if upper.time is None else Frontier(max(upper.time - self.milliseconds, 0))


@dataclass(frozen=True, slots=True)
class ValidFrom:
    """Read policy that keeps an index readable from a fixed frontier on."""

    frontier: Frontier

    def since(self, upper: Frontier) -> Frontier:
        """Return the since that the policy allows at an upper."""
        return self.frontier


class ReadPolicy(Protocol):
    """Read policy, which determines the since that an upper allows."""

    def since(self, upper: Frontier) -> Frontier: ...


@dataclass(frozen=True, slots=True)
class AsOfSelection:
    """Selected as-ofs. as_of: as-of of each export, END for one that no longer needs to run.

    broken: exports whose hard constraints contradict each other; they start as early as their inputs allow,
        which leaves a gap in the collections they write.
    """

    as_of: Mapping[Id, Frontier] = field(default_factory=dict[Id, Frontier])
    broken: frozenset[Id] = frozenset()


def select_as_ofs(
    dataflows: Sequence[Dataflow],
    collections: Mapping[Id, Bounds],
    policies: Mapping[Id, ReadPolicy],
    now: int,
) -> AsOfSelection:
    """Select the as-of of each dataflow.

    dataflows:   in order of creation, so imports come first. Their own as-ofs are ignored.
    collections: bounds of all collections that they read and write.
    policies:    of index exports; others are ignored. An index without a policy need not keep its past
        readable, and starts as late as possible.
    now:         time of the timeline, for indexes that read nothing.
    """
    selection = _Selection(collections, policies, now)
    for dataflow in dataflows:
        selection.add(dataflow)
    selection.must_be_readable()
    selection.must_continue_what_is_written()
    selection.wish_inputs_to_be_settled()
    selection.wish_what_policies_allow()
    return selection.selected()


class _Range:
    """Times from which a dataflow may start, both ends included."""

    def __init__(self, dataflow: Dataflow) -> None:
        self.dataflow = dataflow
        self.lower = START
        self.upper = END
        self.broken = False

    @property
    def exports(self) -> Iterable[Id]:
        return (export.id for export in self.dataflow.exports)

    @property
    def written(self) -> Iterable[Id]:
        return (e.collection for e in self.dataflow.exports if isinstance(e, CollectionExport))

    @property
    def indexes(self) -> Iterable[Id]:
        return (e.id for e in self.dataflow.exports if isinstance(e, IndexExport))

    def raise_lower(self, bound: Frontier) -> None:
        assert self.upper == END, "hard constraints on readability come first"
        self.lower = max(self.lower, bound)

    def lower_upper(self, bound: Frontier) -> bool:
        """Lower the upper end to the bound, as far as the range allows. Returns whether it got there."""
        self.upper = max(min(self.upper, bound), self.lower)
        return self.upper <= bound


class _Selection:
    def __init__(self, collections: Mapping[Id, Bounds], policies: Mapping[Id, ReadPolicy], now: int) -> None:
        self._collections = collections
        self._policies = policies
        self._now = Frontier(now)
        self._ranges: list[_Range] = []
        self._range_of: dict[Id, _Range] = {}
        self._sealed: list[_Range] = []

    def add(self, dataflow: Dataflow) -> None:
        range = _Range(dataflow)
        written = list(range.written)
        if written and all(self._collections[id].upper == END for id in written):
            self._sealed.append(range)  # everything it writes is complete
            return
        self._ranges.append(range)
        self._range_of.update(dict.fromkeys(range.exports, range))

    def must_be_readable(self) -> None:
        """Hard constraint: start no earlier than the since of any collection read, directly or by index."""
        for range in self._ranges:
            range.raise_lower(join(self._collections[i.id].since for i in range.dataflow.collections))
            range.raise_lower(join(read.lower for read in self._reads(range)))

    def must_continue_what_is_written(self) -> None:
        """Hard constraint: start no later than the last time already written to the dataflow's collections.

        An empty collection is written from its since on. The dataflows read must not start later, either.
        """
        for range in self._ranges:
            for id in range.written:
                bounds = self._collections[id]
                last = bounds.upper.step_back() if bounds.since < bounds.upper else bounds.since
                range.broken |= not range.lower_upper(last)
        self._agree()

    def wish_inputs_to_be_settled(self) -> None:
        """Soft constraint: start at a time that is settled in all inputs, to avoid waiting for them."""
        for range in self._ranges:
            read = meet(self._collections[i.id].upper.step_back() for i in range.dataflow.collections)
            range.lower_upper(min(read, meet(r.upper for r in self._reads(range))))
        self._agree()

    def wish_what_policies_allow(self) -> None:
        """Soft constraint: start an index no later than its policy's since, and not in the future."""
        uppers: dict[Id, Frontier] = {}
        for range in self._ranges:
            upper = self._transitive_upper(range, uppers)
            for id in range.indexes:
                if id in self._policies:
                    range.lower_upper(self._policies[id].since(upper))
        self._agree()
        for range in self._ranges:
            if any(range.indexes):
                range.lower_upper(self._now)
        self._agree()

    def selected(self) -> AsOfSelection:
        as_of = {id: range.upper for range in self._ranges for id in range.exports}
        as_of |= {id: END for range in self._sealed for id in range.exports}
        return AsOfSelection(as_of, frozenset(id for r in self._ranges if r.broken for id in r.exports))

    def _transitive_upper(self, range: _Range, uppers: dict[Id, Frontier]) -> Frontier:
        """Return the earliest upper of the collections read, directly or through indexes; now if there are
        none."""
        read = [self._collections[i.id].upper for i in range.dataflow.collections]
        read += [uppers[i.id] for i in range.dataflow.indexes if i.id in uppers]
        upper = meet(read) if read else self._now
        uppers.update(dict.fromkeys(range.exports, upper))
        return upper

    def _agree(self) -> None:
        """Make each dataflow start no later than its readers."""
        for range in reversed(self._ranges):
            for read in self._reads(range):
                read.lower_upper(range.upper)

    def _reads(self, range: _Range) -> list[_Range]:
        """Return the ranges of the dataflows whose indexes a dataflow reads."""
        return [self._range_of[i.id] for i in range.dataflow.indexes if i.id in self._range_of]
