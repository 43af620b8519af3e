"""Runs the plan of a batch in this process, unit by unit, on shuffled rows: for tests that need no Spark.

Every unit, native nodes too, is run by the in-process engine. So this shows that the
division is right: that what is not in a subplan reads no order and no ticks, and that rows that
are spread by keys find each other.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from headrace.analysis.column_lineage import live_graph
from headrace.engine.change import Change
from headrace.expr.row_classes import from_user
from headrace.flow.flow import Flow
from headrace.operators.endpoints import SourceOperator
from headrace.spark.batch.batch_plan import Native, Subplan, plan_batch
from headrace.spark.batch.subplans import (
    ByKeys,
    Distribution,
    InOneTask,
    SubplanBorder,
    distribution_of,
    machine_for,
    program_of,
    run_until_idle,
    subplan_flow,
)
from headrace.spark.placing.row_placement import ByKey, row_divider
from tests.spark.batch_rows_of import Bag

Rows = list[tuple[Any, ...]]
_TASKS = 3


class InProcessBatch:
    """made: per node what it gave, in no order. given: per source its rows in order, tables with weights."""

    def __init__(self, flow: Flow, inputs: Mapping[str, list[Change[Any]]], seed: int) -> None:
        self.plan = plan_batch(live_graph(flow.graph()))
        self.random = random.Random(seed)
        self.made: dict[int, Rows] = {}
        self.given: dict[int, Rows] = {}
        graph = live_graph(flow.graph())
        for name, node in graph.sources.items():
            operator = graph.nodes[node].operator
            assert isinstance(operator, SourceOperator)
            changes = inputs.get(name, [])
            rows = from_user(operator.schema, what=name)([c.row for c in changes])
            weights = () if operator.append else [c.weight for c in changes]
            self.given[node] = [(*r, w) for r, w in zip(rows, weights)] if weights else rows

    def run(self) -> dict[str, Bag]:
        for unit in self.plan.units:
            nodes = (unit.node,) if isinstance(unit, Native) else unit.nodes
            if isinstance(self.plan.graph.nodes[nodes[0]].operator, SourceOperator):
                self.made[nodes[0]] = self._bag_of_source(nodes[0])
                continue
            answers = self._run(Subplan(nodes), alone=not isinstance(unit, Subplan))
            for rows in answers.values():
                self.random.shuffle(rows)
            self.made |= answers
        nodes = self.plan.graph.nodes
        return {name: Bag(self.made[nodes[sink].inputs[0]]) for name, sink in self.plan.graph.sinks.items()}

    def _bag_of_source(self, node: int) -> Rows:
        rows = list(self.given[node])
        if not self.plan.facts[node].append:
            total = Bag()
            for *row, weight in rows:
                total[tuple(row)] += weight
            rows = list(total.elements())
        self.random.shuffle(rows)
        return rows

    def _run(self, subplan: Subplan, *, alone: bool) -> dict[int, Rows]:
        how = InOneTask() if alone else distribution_of(self.plan, subplan)
        part = subplan_flow(self.plan, subplan)
        tasks: list[dict[str, Rows]] = [{} for _ in range(1 if isinstance(how, InOneTask) else _TASKS)]
        for entry in part.entries:
            rows = self._in_order(entry.node) if entry.ordered else self.made[entry.node]
            for task, some in self._spread(how, entry, rows).items():
                tasks[task][entry.name] = some
        answers: dict[int, Rows] = {border.node: [] for border in part.exits}
        for inputs in tasks:
            ended: dict[str, Rows] = {name: [(None,)] for name in part.ended}
            found = run_until_idle(machine_for(program_of(part.graph)), inputs | ended)
            for border in part.exits:
                answers[border.node] += found[border.name]
        return answers

    def _spread(self, how: Distribution, entry: SubplanBorder, rows: Rows) -> dict[int, Rows]:
        if isinstance(how, InOneTask):
            return {0: rows}
        if isinstance(how, ByKeys):
            route = ByKey(how.keys[entry.node])
            return row_divider(route, entry.schema, _TASKS, weighted=entry.weighted)(rows)
        return {task: rows[task::_TASKS] for task in range(_TASKS)}

    def _in_order(self, node: int) -> Rows:
        """The rows of a node that carries ordinals."""
        if node in self.given:
            return self.given[node]
        program = program_of(subplan_flow(self.plan, Subplan((node,))).graph)
        (name,) = program.graph.sources
        rows = self._in_order(self.plan.graph.nodes[node].inputs[0])
        (made,) = run_until_idle(machine_for(program), {name: rows}).values()
        return made
