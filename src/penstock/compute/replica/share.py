"""One worker's share of a flow: the rows that belong to it, so that the shares of all workers are the whole.

A flow is cut as for Spark: what keeps nothing runs wherever rows come in, what keeps state runs where
the rows of a key are together. Here every worker takes all rows through the first part and keeps those of
its keys. So nothing travels between workers, as long as one such cut is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.compute.replica.ticking import EngineRows
from penstock.engine.machine import Machine
from penstock.engine.program import compile_program
from penstock.errors import PenstockError
from penstock.expr.tree import Column
from penstock.expr.types import Schema
from penstock.flow.flow import Flow
from penstock.spark.placing.placement import ByKey
from penstock.spark.placing.routing import Divide, divider
from penstock.spark.placing.stages import Stage, StagePlan, cut


def stages_of(flow: Flow, workers: int) -> StagePlan | None:
    """How a flow is cut for some workers; None where it cannot be."""
    try:
        return cut(flow.graph(), workers)
    except PenstockError:
        return None


@dataclass(frozen=True, slots=True)
class _Borders:
    source_append: Mapping[str, bool]
    sink_append: Mapping[str, bool]


class Share:
    """Runs the share of worker `number` of `plan.shards` workers. The plan has one or two stages.

    given: the sources whose rows are this worker's already; of the others it is given all rows. With two
        stages there are none.
    """

    def __init__(self, plan: StagePlan, number: int, given: frozenset[str] = frozenset()) -> None:
        assert plan.depth <= 2
        self._number = number
        self._first, *rest = (_Part(stage, at_home=number == 0) for stage in plan.stages)
        self._second = rest[0] if rest else None
        parts = (self._first, *rest)
        self.program = _Borders(
            {name: append for part in parts for name, append in part.program.source_append.items()},
            {name: append for part in parts for name, append in part.program.sink_append.items()},
        )
        graph = plan.stages[0].graph
        # What one stage takes is divided as it comes; of two, what the first gives away for good is.
        whole = (
            graph.sources
            if self._second is None
            else {name: graph.sinks[name] for name in plan.stages[0].sinks}
        )
        append = self.program.source_append if self._second is None else self.program.sink_append
        self._own = {
            name: _by_row(graph.nodes[node].schema, plan.shards, append[name])
            for name, node in whole.items()
            if name not in given
        }
        self._crossing = {
            e.name: divider(e.route, e.schema, plan.shards, weighted=not e.append) for e in plan.exchanges
        }

    def tick_rows(self, inputs: Mapping[str, EngineRows]) -> Mapping[str, EngineRows]:
        """Run a tick; the rows of each sink that gets some."""
        if self._second is None:
            return self._first.tick({name: self._mine(name, rows) for name, rows in inputs.items()})
        made = self._first.tick(inputs)
        arrived = {name: self._arriving(name, rows) for name, rows in made.items() if name in self._crossing}
        direct = {name: self._mine(name, rows) for name, rows in made.items() if name not in self._crossing}
        return {**direct, **self._second.tick(arrived)}

    def _mine(self, name: str, rows: EngineRows) -> EngineRows:
        divide = self._own.get(name)
        return rows if divide is None else divide(rows).get(self._number, [])

    def _arriving(self, exchange: str, rows: EngineRows) -> EngineRows:
        return self._crossing[exchange](rows).get(self._number, [])


class _Part:
    """A stage with its state."""

    def __init__(self, stage: Stage, *, at_home: bool) -> None:
        self.program = compile_program(stage.graph)
        self._machine = Machine(self.program, {slot.name: {} for slot in self.program.slots}, at_home=at_home)

    def tick(self, inputs: Mapping[str, EngineRows]) -> dict[str, EngineRows]:
        made = self._machine.tick(inputs)
        self._machine.moment.tick += 1
        return made


def _by_row(schema: Schema, workers: int, append: bool) -> Divide:
    keys = tuple(Column(field.name) for field in schema.fields)
    return divider(ByKey(keys), schema, workers, weighted=not append)
