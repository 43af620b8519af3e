"""Hypothesis strategies: random flows with random input, and random cuts of it into ticks.

    @given(cases().flatmap(lambda case: st.tuples(st.just(case), cuts(case))))

A case prints its flow and its input, so that a failure can be read and rebuilt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from hypothesis import strategies as st

from headrace.engine.change import Change
from headrace.expr.row_classes import from_user
from headrace.flow.flow import Flow
from headrace.flow.stream import Stream
from headrace.graph.node import FlowGraph
from headrace.operators.across_ticks import DeferTick
from headrace.operators.endpoints import SinkOperator, SourceOperator
from headrace.testing.strategies import rows
from tests.random_flows.folds import FOLDS
from tests.random_flows.grow import DEFERRED, WAYS, Grown, grow
from tests.random_flows.order import ORDER
from tests.random_flows.pairs import CHAINS, PAIRS
from tests.random_flows.row_types import row_types
from tests.random_flows.ticks import TICKS

Tick: TypeAlias = Mapping[str, list[Any]]
Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """A flow and all the input that it will get: per source, changes in an order in which they may come."""

    flow: Flow
    inputs: dict[str, list[Change[Any]]]

    @property
    def graph(self) -> FlowGraph:
        return self.flow.graph()

    @property
    def is_deferred(self) -> bool:
        """Whether answers may come a tick after their input."""
        return any(isinstance(node.operator, DeferTick) for node in self.graph.nodes)

    def source(self, name: str) -> SourceOperator:
        operator = self.graph.nodes[self.graph.sources[name]].operator
        assert isinstance(operator, SourceOperator)
        return operator

    def tick(self, changes: Mapping[str, Sequence[Change[Any]]]) -> Tick:
        """Input of a tick as engines take it: rows of append sources, changes of tables."""
        return {
            name: [change.row for change in part] if self.source(name).append else list(part)
            for name, part in changes.items()
        }

    def __repr__(self) -> str:
        return "\n".join(["", *self._lines()])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        # Hypothesis would show the fields of a dataclass, and of the flow no more than its size.
        printer.text(repr(self))

    def _lines(self) -> Iterator[str]:
        names = [node.name for node in self.graph.nodes]
        for node in self.graph.nodes:
            read = ", ".join(names[i] for i in node.inputs)
            yield f"  {node.name}({read}) {node.operator.kind} {node.operator.describe()}  {node.schema}"
        for name, changes in self.inputs.items():
            yield f"  {name}: {[tuple(change) for change in changes]}"


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    deferred: bool = False,
    settled: bool = True,
    tables: bool = True,
    folds: bool = False,
    ticks: bool = False,
    order: bool = False,
) -> Case:
    """A flow of any operators, with input.

    deferred: with `defer_tick` among the operators.
    settled:  no table row is ever taken back before it came; else only in the end
              are all rows there at least 0 times.
    tables:   with sources whose rows may be taken back.
    folds:    with folds, lattices, thresholds and chains.
    ticks:    a flow of given ticks, with operators that answer each tick for itself,
              and without loops within a tick.
    order:    a flow of given ticks, with operators that read the order of rows, or hear of time.
    """
    flow = Flow("drawn", ticks="given" if ticks or order else "any")
    sources: list[Grown] = []
    inputs: dict[str, list[Change[Any]]] = {}
    last_type: Any = None
    for at in range(draw(st.integers(1, 3))):
        name = f"s{at}"
        # Often the type of the source before, for union, difference and joins on all columns.
        row_type = last_type if at and draw(st.booleans()) else draw(row_types())
        last_type = row_type
        is_table = tables and draw(st.booleans())
        bounded = not is_table and draw(st.integers(0, 4)) == 0
        stream = flow.table(name, row_type) if is_table else flow.source(name, row_type, bounded=bounded)
        given = draw(st.lists(rows(stream.schema), max_size=7))
        inputs[name] = [Change(row, 1) for row in given]
        if is_table:
            inputs[name] = draw(_taken_back(inputs[name], settled=settled))
        sources.append(Grown(stream, max(1, len(given))))
    ways = (*(DEFERRED if deferred else WAYS), *PAIRS, *((*FOLDS * 2, *CHAINS) if folds else ()))
    if ticks:
        ways = TICKS
    if order:
        ways = (*ways, *ORDER * 3)
    streams = grow(draw, sources, draw(st.integers(1, 4 if ticks else 7)), ways)
    _add_sinks(draw, flow, streams)
    return Case(flow, inputs)


@st.composite
def _taken_back(draw: st.DrawFn, added: list[Change[Any]], *, settled: bool) -> list[Change[Any]]:
    """The rows with some of them taken back later, or at any time where that need not be settled."""
    changes = list(added)
    for change in added:
        if draw(st.booleans()):
            earliest = 0 if not settled else 1 + max(i for i, c in enumerate(changes) if c is change)
            changes.insert(draw(st.integers(earliest, len(changes))), Change(change.row, -1))
            if draw(st.integers(0, 3)) == 0:
                changes.append(Change(change.row, draw(st.integers(1, 2))))
    return changes


def _add_sinks(draw: st.DrawFn, flow: Flow, streams: list[Grown]) -> None:
    """A sink for the last stream, and for some of the others."""
    chosen = draw(st.sets(st.integers(0, len(streams) - 1), max_size=3)) | {len(streams) - 1}
    for at in sorted(chosen):
        flow.sink(f"out{at}", streams[at].stream)


def with_every_stream_watched(case: Case) -> Case:
    """The same with a sink `at<node>` on every node that is not a sink."""
    # Sinks are added to the case's own flow: a flow only grows, and each case is drawn anew.
    for node in case.graph.nodes:
        if not isinstance(node.operator, SinkOperator):
            case.flow.sink(f"at{node.id}", Stream(case.flow, node.id, node.schema))
    return case


@st.composite
def cuts(draw: st.DrawFn, case: Case, *, least: int = 1, most: int = 5) -> list[Tick]:
    """All of a case's input cut into ticks, every source in its own way.

    What comes together, and which source comes first, is arbitrary; the rows of an
    append source come in any order; those of a bounded one with the first tick.
    """
    count = draw(st.integers(least, most))
    ticks: list[dict[str, list[Change[Any]]]] = [{name: [] for name in case.inputs} for _ in range(count)]
    for name, changes in case.inputs.items():
        source = case.source(name)
        ordered = draw(st.permutations(changes)) if source.append else changes
        last = 0 if source.bounded else count - 1
        at = sorted(draw(st.lists(st.integers(0, last), min_size=len(changes), max_size=len(changes))))
        for tick, change in zip(at, ordered, strict=True):
            ticks[tick][name].append(change)
    return [case.tick({name: part for name, part in tick.items() if part}) for tick in ticks]


class Accumulated:
    """The input so far, as the oracle takes it."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._inside = {name: from_user(case.source(name).schema, what=name) for name in case.inputs}
        self.inputs: dict[str, Counter[Row]] = {name: Counter() for name in case.inputs}

    def add(self, tick: Tick) -> None:
        for name, part in tick.items():
            append = self._case.source(name).append
            changes = [Change(row, 1) for row in part] if append else part
            for row, change in zip(self._inside[name]([c.row for c in changes]), changes, strict=True):
                self.inputs[name][row] += change.weight

    @property
    def is_settled(self) -> bool:
        """Whether no row is there less than 0 times, so that there is an answer."""
        return all(count >= 0 for rows in self.inputs.values() for count in rows.values())
