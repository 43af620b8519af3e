"""Tick of a flow that keeps nothing, in this process: rows in, changes out, and no checkpoint.

The stages, and the forms of their operators, are those of every other tick.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pyarrow as pa

from headrace.expr.types import Rows
from headrace.io.arrow import rows_to_table
from headrace.io.in_process import ArrowTable
from headrace.operators.endpoints import SourceOperator
from headrace.spark.prepared_flow import PreparedFlow
from headrace.spark.sources.opening import Opening, open_on_spark
from headrace.spark.ticks.messages import ARROW, TaskResult, collect_outcome, results_of
from headrace.spark.ticks.output import takes_columns, write_changes
from headrace.spark.ticks.plan import ShippedPlan, SinkOutput, TickPlan
from headrace.spark.ticks.task import TickSpec, whole_tick


@dataclass(frozen=True, slots=True)
class StatelessTick:
    """Outcome of a tick. rows_in: number of rows read. changes: of each sink, with the column `weight`."""

    rows_in: int
    changes: Mapping[str, pa.Table]


@dataclass(frozen=True, slots=True)
class _Gathered:
    """Target of changes that stay in memory."""

    changes: dict[str, pa.Table] = field(default_factory=dict[str, "pa.Table"])


@takes_columns.register
def _(target: _Gathered) -> bool:
    return True


@write_changes.register
def _(
    target: _Gathered, output: SinkOutput, tick: int, attempt: str, rows: Rows | pa.Table, durable: bool
) -> Iterator[TaskResult]:
    table = rows_to_table(rows, output.schema, weighted=True) if isinstance(rows, list) else rows
    target.changes[output.name] = table
    yield from ()


def run_stateless_tick(flow: PreparedFlow, sources: Mapping[str, ArrowTable]) -> StatelessTick:
    """Run a flow on rows. It must have no operator that keeps state.

    Raises `WrongType` for columns that are not those of a source, and the errors of the tick.
    """
    stages, gathered = flow.stages(1, {}, "one shard"), _Gathered()
    opened = [
        open_on_spark(
            sources[name],
            Opening(
                spark=None,
                engine=flow.engine,
                name=name,
                operator=cast("SourceOperator", flow.graph.nodes[node].operator),
                tag=tag,
                spool=Path(),
                follow=False,
                positions={},
            ),
        )
        for tag, (name, node) in enumerate(flow.graph.sources.items())
    ]
    outputs = {
        name: SinkOutput(name, flow.graph.nodes[node].schema, gathered)
        for name, node in flow.graph.sinks.items()
    }
    plan = flow.compiled(TickPlan(stages, tuple(each.input for each in opened), outputs, "", False))
    assert not any(stage.slots for stage in plan.stages[1:]), "a flow with state has a checkpoint"
    spec = TickSpec(ShippedPlan("", b"", plan), 1, {}, plan.due(first=True))
    batches = [each.batch for each in opened if each.batch is not None]
    outcome = collect_outcome(results_of(pa.Table.from_batches(whole_tick(spec)(batches), ARROW)))
    return StatelessTick(sum(outcome.taken.values()), gathered.changes)
