"""Plain-text explanation of how a flow runs on Spark: stages, exchanges, native parts, state.

`physical_plan` adds the plan that Catalyst makes of a tick's job.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import textwrap
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from headrace.analysis import analyse
from headrace.analysis.column_lineage import live_graph
from headrace.engine.engine import Engine
from headrace.engine.partial_aggregation import PartialAggregate, PartialWindow
from headrace.engine.program import compile_program
from headrace.errors import NotOnSpark
from headrace.expr.spark_columns import spark_schema
from headrace.graph.graph_algorithms import adjacency_lists, is_cyclic, strongly_connected_components
from headrace.graph.node import label
from headrace.io.source import guarantee_of
from headrace.operators.endpoints import SinkOperator, SourceOperator
from headrace.operators.event_time.watermark import EndOfInput
from headrace.spark.placing.earliest_stages import unpartitionable_reason, whose_order_is_read
from headrace.spark.placing.pushdown import (
    combined_nodes,
    insert_partial_operators,
    native_parts,
    without_native,
)
from headrace.spark.placing.row_placement import Broadcast, ByBucket, ByKey, Gather
from headrace.spark.placing.stages import LOOP_ROWS, Exchange, Stage, StagePlan, cut_stages
from headrace.spark.refusals import check_runs_on_spark
from headrace.spark.sources.opening import Frame, Opening, open_on_spark, union_columns, union_of
from headrace.spark.ticks import task
from headrace.spark.ticks.columnar_stage import ColumnarStage
from headrace.spark.ticks.messages import run_tasks
from headrace.spark.ticks.output import bucket_route
from headrace.spark.ticks.plan import ShippedPlan, TickPlan, rows_of_one_task
from headrace.spark.ticks.round_jobs import run_stages
from headrace.spark.ticks.task import TickSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.flow.flow import Flow
    from headrace.graph.node import FlowGraph, Node


_WIDTH, _INDENT = 100, "    "

SHARDS = 2
"""Number of shards in the explanation; any number above one gives the same stages."""


def explain_on_spark(
    graph: FlowGraph, *, shards: int = SHARDS, sinks: Mapping[str, object] | None = None
) -> str:
    """Explain how `graph` runs on Spark, in ticks and then as a batch.

    shards: number of state shards; with one, there are no exchanges.
    sinks:  where the sinks go, for what they promise. A table in files has a say in the exchanges.

    Raises the errors of the flow's analysis, and `NotOnSpark` for a flow that cannot run in ticks.
    """
    targets = dict(sinks or {})
    graph = live_graph(graph)
    whole = insert_partial_operators(graph)
    shown = _Explanation(graph, whole, cut_stages(whole, shards, bucketed_tables(targets)))
    parts = [shown.title(), *shown.stages(), _promises(graph, targets), _batch(graph)]
    return "\n\n".join(parts) + "\n"


def bucketed_tables(sinks: Mapping[str, object]) -> dict[str, ByBucket]:
    """Return the sinks that store a table in buckets, with the route of the table's rows."""
    return {name: route for name, target in sinks.items() if (route := bucket_route(target)) is not None}


def sender_label(graph: FlowGraph, whole: FlowGraph, node: int) -> str:
    """Return the label of a node of `whole`, which is `graph` with partial operators before exchanges.

    A partial operator is named after the operator it belongs to.
    """
    if node < len(graph.nodes):
        return label(graph, graph.nodes[node])
    reader = node
    while reader >= len(graph.nodes):
        (reader,) = (edge.target for edge in whole.consumers()[reader])
    return f"{whole.nodes[node].operator.kind} of {label(graph, graph.nodes[reader])}"


@dataclass(slots=True)
class _Explanation:
    """Writer of the explanation. graph: the user's. whole: with partial operators before exchanges."""

    graph: FlowGraph
    whole: FlowGraph
    plan: StagePlan
    native: set[int] = field(init=False)
    summed: set[int] = field(init=False)
    ordered: frozenset[int] = field(init=False)
    loops: dict[int, Sequence[int]] = field(init=False)

    def __post_init__(self) -> None:
        chains = native_parts(self.whole, self.graph.sources)
        self.native = {node.id for chain in chains.values() for node in chain[1:]}
        self.summed = set(combined_nodes(self.graph))
        self.ordered = whose_order_is_read(self.whole, analyse(self.whole).facts)
        after = adjacency_lists(len(self.whole.nodes), ((e.source, e.target) for e in self.whole.edges()))
        self.loops = {
            n: group
            for group in strongly_connected_components(after)
            if is_cyclic(group, after)
            for n in group
        }

    def title(self) -> str:
        counts = (
            (len(self.plan.stages), "stage"),
            (len(self.plan.exchanges), "exchange"),
            (self.plan.shards, "shard"),
        )
        cut = ", ".join(f"{n} {word}{'s' * (n != 1)}" for n, word in counts)
        programs = [compile_program(stage.graph) for stage in self.plan.stages]
        few = f"{rows_of_one_task(self.plan, programs):,}"
        way = f"a tick of up to {few} rows in one task, if tasks share a machine; else stage by stage"
        return f"On Spark, tick by tick: {cut}\n  {way}"

    def stages(self) -> Iterator[str]:
        for stage in self.plan.stages:
            lines = [f"Stage {stage.number}: {self._where(stage)}"]
            lines += [f"  {line}" for exchange in stage.arriving for line in self._arriving(exchange)]
            lines += [f"  {line}" for line in self._operators(stage)]
            yield "\n".join(lines)

    def _where(self, stage: Stage) -> str:
        if stage.number == 0:
            return "wherever rows come in, without state"
        return f"on {self.plan.shards} shard{'s' * (self.plan.shards != 1)}"

    def _arriving(self, exchange: Exchange) -> Iterator[str]:
        sent = sender_label(self.graph, self.whole, exchange.node)
        kind = "rows" if exchange.append else "changes"
        order = ", in their order" if exchange.ordered and exchange.node in self.ordered else ""
        broadcast = " (broadcast)" if isinstance(exchange.route, Broadcast) else ""
        yield f"<- {kind} of {sent}, {self._route(exchange)}{broadcast}{order}"

    def _route(self, exchange: Exchange) -> str:
        sender = self.whole.nodes[exchange.node].operator
        if isinstance(sender, PartialAggregate | PartialWindow) and isinstance(exchange.route, ByKey):
            # It has the keys in columns that no user has named.
            return f"by {', '.join(name for name, _ in sender.of.keys)}"
        return str(exchange.route)

    def _operators(self, stage: Stage) -> Iterator[str]:
        # What stage 0 is told, the driver remembers.
        state = _state_of(stage) if stage.number else {}
        looped = {
            node.id
            for node, origin in zip(stage.graph.nodes, stage.origins, strict=True)
            if origin in self.loops
        }
        alone = _on_one_shard(stage, looped)
        columnar: Container[int] = ()
        if not stage.number:
            program = compile_program(stage.graph)
            inputs = dict.fromkeys(program.graph.sources, frozenset[str]())
            columnar = ColumnarStage(program, inputs, set()).nodes
        rows: list[tuple[str, str]] = []
        for node, origin in zip(stage.graph.nodes, stage.origins, strict=True):
            if origin is None:
                continue
            said = [*self._how(node, origin, stage, state.get(node.id, []), columnar)]
            if node.id in alone and self.plan.shards > 1:
                said.append(f"on one shard: {self._why_one(origin)}")
            rows.append((sender_label(self.graph, self.whole, origin), "; ".join(said)))
        width = max((len(name) for name, _ in rows), default=0)
        for name, text in rows:
            yield f"{name:<{width}}  {text}".rstrip()

    def _how(
        self, node: Node, origin: int, stage: Stage, state: list[str], columnar: Container[int]
    ) -> Iterator[str]:
        operator = node.operator
        if isinstance(operator, SourceOperator | SinkOperator):
            return
        if isinstance(operator, EndOfInput):
            yield "told by the driver when its sources end"
            return
        functions = [_shown(function) for _, function in operator.callables()]
        if origin in self.native:
            otherwise = "Polars if rows come in columns" if node.id in columnar else "Python"
            yield f"native columns where the source is a DataFrame, else {otherwise}"
        elif node.id in columnar:
            yield "Polars where rows come in columns, else Python"
        elif functions:
            yield f"Python: calls {', '.join(functions)}"
        elif state:
            yield "Python, for its state"
        elif stage.number == 0:
            yield "Python: its rows are read by several, or made by Python"
        else:
            yield "Python: behind an exchange"
        if state:
            yield f"keeps {', '.join(state)}"
        if origin in self.summed:
            yield "its rows are combined before they travel"

    def _why_one(self, origin: int) -> str:
        node = self.whole.nodes[origin]
        if origin in self.loops:
            why = unpartitionable_reason(self.whole, self.loops[origin], analyse(self.whole).facts)
            return (
                f"a loop that cannot run in rounds: {why}" if why else 'a loop; loops="rounds" cuts it by key'
            )
        if any(need.fact == "ordered" for need in node.operator.required_facts()):
            return "it reads the order of rows"
        if node.operator.placement().whole:
            return "all its rows meet"
        if origin in self.ordered:
            return "its order is read behind it"
        return "its rows are there already"


def _state_of(stage: Stage) -> dict[int, list[str]]:
    """Return the names of each node's state in a stage."""
    found: dict[int, list[str]] = {}
    for slot in compile_program(stage.graph).slots:
        node, _, what = slot.name.partition(".")
        found.setdefault(int(node), []).append(what)
    return {node: sorted(names) for node, names in found.items()}


def _on_one_shard(stage: Stage, looped: set[int]) -> set[int]:
    """Return the nodes of a stage whose rows are all on one shard; includes the nodes of loops."""
    routes = {stage.graph.sources[e.name]: e.route for e in stage.arriving}
    alone = looped | {node for node, route in routes.items() if isinstance(route, Gather)}
    # Operators are in the order of writing, but for what closes a loop: until nothing is added.
    while True:
        found = {
            node.id
            for node in stage.graph.nodes
            if node.id not in routes
            and (inputs := [i for i in node.inputs if not isinstance(routes.get(i), Broadcast)])
            and all(i in alone or i >= node.id for i in inputs)
            and any(i in alone for i in inputs)
        }
        if found <= alone:
            return alone
        alone |= found


def _shown(function: Callable[..., object]) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    return name if code is None else f"{name} ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})"


def _promises(graph: FlowGraph, targets: Mapping[str, object]) -> str:
    """Return the delivery guarantee of each sink for the last tick before a crash."""
    width = max(len(name) for name in graph.sinks)
    lines = ["Sinks"]
    for name in graph.sinks:
        target = targets.get(name)
        said = (
            "as its target promises (name one with --sink)" if target is None else str(guarantee_of(target))
        )
        lines.append(f"  {name:<{width}}  {said}")
    return "\n".join(lines)


def _batch(graph: FlowGraph) -> str:
    """Return the form of each operator in a batch."""
    try:
        check_runs_on_spark(graph, "batch")
    except NotOnSpark as error:
        return f"As a batch: refused\n  {error.what}\n  {error.why}"
    lines = ["As a batch, in this order"]
    for names, how in _forms(graph):
        lines.append(f"  {how}")
        lines += textwrap.wrap(names, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
    return "\n".join(lines)


def _loop_form(graph: FlowGraph, nodes: Sequence[int]) -> str:
    from headrace.spark.batch.loops import why_in_one_task
    from headrace.spark.batch.subplans import loop_flow

    why = why_in_one_task(loop_flow(graph, nodes).graph)
    beyond = f"beyond {LOOP_ROWS:,} rows (loop_rows) in rounds over parts"
    return f"a loop, on the in-process engine in one task; {f'always: {why}' if why else beyond}"


def _forms(graph: FlowGraph) -> Iterator[tuple[str, str]]:
    """Group successive operators of the same form."""
    from headrace.spark.batch.batch_plan import Loop, Native, Subplan, form, plan_batch
    from headrace.spark.batch.subplans import distribution_of

    plan = plan_batch(graph)
    before: list[str] = []
    how_before = ""
    for unit in plan.units:
        match unit:
            case Native(node):
                names = [label(graph, graph.nodes[node])]
                found = form(graph.nodes[node], graph)
                how = "native columns" if found.value == "native" else f"Python, {found.value}"
            case Loop(nodes):
                names = [label(graph, graph.nodes[n]) for n in nodes]
                how = _loop_form(graph, nodes)
            case Subplan(nodes):
                names = [label(graph, graph.nodes[n]) for n in nodes]
                how = f"on the in-process engine, {distribution_of(plan, unit)}"
        if before and (how != how_before or not isinstance(unit, Native)):
            yield ", ".join(before), how_before
            before = []
        before, how_before = [*before, *names], how
    if before:
        yield ", ".join(before), how_before


def physical_plan(flow: Flow, spark: SparkSession, *, shards: int, sinks: Mapping[str, object]) -> str:
    """Return the physical plan of a tick of `flow` that runs stage by stage, without running anything.

    The flow's sources are assumed to be DataFrames, so that the native part is included.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-explain-") as folder:
        job = _job(flow, spark, shards, sinks, Path(folder))
        shown = io.StringIO()
        # The public way to the text: it is printed.
        with contextlib.redirect_stdout(shown):
            job.explain("formatted")
    return shown.getvalue().strip() + "\n"


def _job(
    flow: Flow, spark: SparkSession, shards: int, sinks: Mapping[str, object], folder: Path
) -> DataFrame:
    graph = live_graph(flow.graph())
    whole = insert_partial_operators(graph)
    native = native_parts(whole, graph.sources)
    stages = without_native(cut_stages(whole, shards, bucketed_tables(sinks)), native)
    engine = Engine(flow)
    opened = [
        open_on_spark(
            Frame(spark.createDataFrame([], spark_schema(graph.nodes[node].schema))),
            Opening(
                spark=spark,
                engine=engine,
                name=name,
                operator=cast("SourceOperator", graph.nodes[node].operator),
                tag=tag,
                spool=folder,
                follow=False,
                positions={},
                native=native[name],
            ),
        )
        for tag, (name, node) in enumerate(graph.sources.items())
    ]
    frames = (source.frame for source in opened if source.frame is not None)
    rows = union_of(frames, union_columns(opened))
    assert rows is not None, "a flow has a source"
    plan = TickPlan(stages, tuple(source.input for source in opened), {}, str(folder), False)
    order = TickSpec(ShippedPlan.of(plan), 1, {}, frozenset())
    messages = run_tasks(rows, task.scatter(order))
    return run_stages(messages, order, stages.shards, range(1, len(stages.stages)))
