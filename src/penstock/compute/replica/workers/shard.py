"""One worker's share of a flow: the rows that belong to it, so that the shares of all workers are the whole.

A flow that keeps nothing runs on any rows: a worker takes those that it has, or those that hash to it. One
that keeps state is cut as for Spark: what keeps nothing runs wherever rows come in, what keeps state runs
where the rows of a key are together. Here every worker takes all rows through the first part and keeps
those of its keys. So nothing travels between workers, as long as one such cut is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.compute.replica.dataflows import EngineRows
from penstock.engine.machine import Machine
from penstock.engine.program import compile_program
from penstock.errors import PenstockError
from penstock.expr.tree import Column
from penstock.expr.types import Schema
from penstock.flow.flow import Flow
from penstock.graph.node import FlowGraph
from penstock.spark.placing.placement import ByKey
from penstock.spark.placing.routing import Divide, divider
from penstock.spark.placing.stages import Exchange, cut


@dataclass(frozen=True, slots=True)
class Division:
    """How a flow is divided.

    graphs:    what each worker runs: all of a flow that keeps nothing; or what comes before the exchanges
        and what comes after them.
    exchanges: by which rows get from the first to the second.
    """

    workers: int
    graphs: tuple[FlowGraph, ...]
    exchanges: tuple[Exchange, ...] = ()

    @property
    def keeps_nothing(self) -> bool:
        """Whether it runs on any part of the rows, however they are divided."""
        return len(self.graphs) == 1


def division_of(flow: Flow, workers: int) -> Division | None:
    """How a flow can be divided among workers; None where it cannot be."""
    try:
        graph = flow.graph()
        program = compile_program(graph)
        if not program.slots and not program.transient:
            return Division(workers, (graph,))
        plan = cut(graph, workers)
    except PenstockError:
        return None
    if plan.depth != 2:
        return None
    return Division(workers, tuple(stage.graph for stage in plan.stages), plan.exchanges)


@dataclass(frozen=True, slots=True)
class _Borders:
    source_append: Mapping[str, bool]
    sink_append: Mapping[str, bool]


class WorkerShard:
    """Runs the share of worker `number`.

    given: the sources whose rows are this worker's already; of the others it is given all rows. There are
        none where the division needs all rows.
    """

    def __init__(self, division: Division, number: int, given: frozenset[str] = frozenset()) -> None:
        self._number = number
        first, *rest = (_Part(graph, at_home=number == 0) for graph in division.graphs)
        self._first, self._second = first, (rest[0] if rest else None)
        self.program = _Borders(
            {name: first.source_append[name] for name in division.graphs[0].sources},
            {name: append for part in (first, *rest) for name, append in part.sink_append.items()},
        )
        self._crossing = {
            e.name: divider(e.route, e.schema, division.workers, weighted=not e.append)
            for e in division.exchanges
        }
        # One graph takes its own rows only; of two, the first sees all rows, and gives away its own only.
        graph = division.graphs[0]
        borders, append = (
            (graph.sources, first.source_append) if not rest else (graph.sinks, first.sink_append)
        )
        self._own = {
            name: _by_row(graph.nodes[node].schema, division.workers, append[name])
            for name, node in borders.items()
            if name not in given and name not in self._crossing
        }

    def tick_rows(self, inputs: Mapping[str, EngineRows]) -> Mapping[str, EngineRows]:
        """Run a tick; the rows of each sink that gets some."""
        if self._second is None:
            return self._first.tick({name: self._mine(name, rows) for name, rows in inputs.items()})
        made = self._first.tick(inputs)
        arrived = {name: self._arriving(name, rows) for name, rows in made.items() if name in self._crossing}
        direct = {name: self._mine(name, rows) for name, rows in made.items() if name in self._own}
        return {**direct, **self._second.tick(arrived)}

    def _mine(self, name: str, rows: EngineRows) -> EngineRows:
        divide = self._own.get(name)
        return rows if divide is None else divide(rows).get(self._number, [])

    def _arriving(self, exchange: str, rows: EngineRows) -> EngineRows:
        return self._crossing[exchange](rows).get(self._number, [])


class _Part:
    """A graph with its state."""

    def __init__(self, graph: FlowGraph, *, at_home: bool) -> None:
        program = compile_program(graph)
        self.source_append = program.source_append
        self.sink_append = program.sink_append
        self._machine = Machine(program, {slot.name: {} for slot in program.slots}, at_home=at_home)
        self._at_home = at_home

    def tick(self, inputs: Mapping[str, EngineRows]) -> dict[str, EngineRows]:
        # What speaks without being asked, as a fold of no rows does, speaks on the first worker only.
        if not self._at_home and not any(inputs.values()):
            return {}
        made = self._machine.tick(inputs)
        self._machine.context.tick += 1
        return made


def _by_row(schema: Schema, workers: int, append: bool) -> Divide:
    keys = tuple(Column(field.name) for field in schema.fields)
    return divider(ByKey(keys), schema, workers, weighted=not append)
