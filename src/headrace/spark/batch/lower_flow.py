"""Lowering of a whole flow to DataFrames: bounded input, one tick, no state.

**Bags.** A stream is the bag of its rows: each row as often as it is there,
and no column of weights. Append sources are that already. A table source is
made one at its border (`sources`): the weights of equal rows are summed,
and each row comes as often as its sum says. So every operator after it is
plain relational algebra, and Catalyst sees the whole plan.

Expressions are native columns. What has no native form runs on the in-process engine,
inside tasks: loops (`loops`, `rounds`) and subplans (`plan`, `subplans`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.expr.spark_columns import with_representatives
from headrace.graph.graph_algorithms import adjacency_lists, is_cyclic, strongly_connected_components
from headrace.lowering.forms import lower_operator
from headrace.operators.deferral import DeferTick
from headrace.operators.filter import Filter
from headrace.operators.select import Select
from headrace.operators.sink import Sink
from headrace.operators.source import Source
from headrace.operators.union import Union
from headrace.spark.batch.batch_plan import BatchPlan, Loop, Native, Subplan, plan_batch
from headrace.spark.batch.in_process_subplans import run_subplan
from headrace.spark.batch.loops import run_loop
from headrace.spark.batch.operators import Site

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.graph.node import FlowGraph
    from headrace.spark.batch.loops import LoopBound


@dataclass(frozen=True, slots=True)
class LoweredFlow:
    """Bags computed by a flow. sinks: rows of each sink, by name. swallowed: results that no sink reads."""

    sinks: dict[str, DataFrame]
    swallowed: tuple[DataFrame, ...]


Share = Callable[["DataFrame"], "DataFrame"]


def lower_flow(
    graph: FlowGraph, frames: Mapping[str, DataFrame], share: Share = lambda frame: frame
) -> LoweredFlow:
    """Lower a flow to lazily computed DataFrames.

    frames: per source its rows, columns by name and of the types declared; further columns
            are left out. For a table source a column `weight`, a long, says how often a row
            comes (or is retracted); without it each row comes once.
    share:  applied to what several sinks are made of, where computing it twice would cost;
            `DataFrame.persist`, for one.

    The rows are those that an engine's output adds up to when all input comes in one tick and
    what is deferred is waited for. Raises the errors of the flow's analysis, `BadInput` and
    `WrongType` where a frame is missing or does not fit, `NotOnSpark`. What rows raise, reading
    raises; under `headrace.spark.ticks.errors.told_errors()` as errors of ours.
    """
    return lower_plan(plan_batch(graph), frames, share)


def lower_plan(
    plan: BatchPlan, frames: Mapping[str, DataFrame], share: Share, bound: LoopBound | None = None
) -> LoweredFlow:
    """Lower a flow that has already been divided.

    bound:  when a loop leaves its one task; without it never. One that does runs at once.
    frames: those of the sources whose order the plan reads may have the columns of
            `headrace.spark.batch.sources`; else Spark's order is taken.
    """
    graph = plan.graph
    after = adjacency_lists(
        len(graph.nodes), ((i, n) for n, r in plan.reads.items() for i in r if i is not None)
    )
    forks = costly_forks(graph, after)
    made: dict[int, DataFrame] = {}

    def with_zeros(n: int, frame: DataFrame) -> DataFrame:
        return with_representatives(frame, graph.nodes[n].schema) if n in plan.zeros else frame

    for unit in plan.units:
        match unit:
            case Native(n):
                node, read = graph.nodes[n], [i for i in plan.reads[n] if i is not None]
                inputs, schemas = tuple(made[i] for i in read), tuple(graph.nodes[i].schema for i in read)
                frame = with_zeros(n, lower_operator(node.operator, Site(node, inputs, schemas, frames)))
                made[n] = share(frame) if n in forks else frame
            case Loop(nodes):
                answers = run_loop(graph, nodes, made, share, bound)
                made |= {n: with_zeros(n, a) for n, a in answers.items()}
            case Subplan():
                answers = run_subplan(plan, unit, made, frames, share)
                answers = {n: with_zeros(n, a) for n, a in answers.items()}
                alone = len(answers) == 1
                made |= {n: share(a) if alone and n in forks else a for n, a in answers.items()}
    ends = (n for n in plan.reads if graph.nodes[n].operator.ends_streams)
    # What ends in a subplan runs with it.
    swallowed = tuple(made[i] for n in ends for i in graph.nodes[n].inputs if i in made)
    return LoweredFlow({name: made[n] for name, n in graph.sinks.items()}, swallowed)


_CHEAP = (DeferTick, Filter, Select, Sink, Source, Union)


def costly_forks(graph: FlowGraph, after: Sequence[Sequence[int]]) -> frozenset[int]:
    """Return the nodes computed by more than filters and selections whose readers lead to different sinks.

    after: readers of each node. Loops are excluded: they share their results themselves.
    """
    reached: list[set[int]] = [set() for _ in graph.nodes]
    costly = [False] * len(graph.nodes)
    groups = strongly_connected_components(after)
    for group in groups:
        sinks = {n for n in group if isinstance(graph.nodes[n].operator, Sink)}
        sinks.update(s for n in group for m in after[n] for s in reached[m])
        for n in group:
            reached[n] = sinks
    for group in reversed(groups):
        hard = any(not isinstance(graph.nodes[n].operator, _CHEAP) for n in group) or any(
            costly[i] for n in group for i in graph.nodes[n].inputs
        )
        for n in group:
            costly[n] = hard
    alone = {group[0] for group in groups if not is_cyclic(group, after)}
    return frozenset(
        n
        for n in alone
        if costly[n] and len(set(after[n])) > 1 and len({frozenset(reached[m]) for m in after[n]}) > 1
    )
