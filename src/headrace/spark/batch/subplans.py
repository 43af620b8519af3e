"""Subplans of a batch: parts that run on the in-process engine inside tasks.

A subplan is a flow of its own, with a source for each node that it reads, and a sink for each of its nodes
that is read outside. Its rows are distributed by keys if each operator either works row by row, or needs
only rows together that are equal in certain columns, and these columns can be computed from the rows that
enter. Then every task runs the subplan for its keys; otherwise all rows go to one task.

Rows arrive in the order of their ordinals if anything reads that order. When distributed by keys, a task's
rows are sorted by a hash of their keys; the task processes them in chunks of whole keys, each with a
machine of its own, so that only one chunk is in memory at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from headrace.expr.check import check
from headrace.expr.spark_columns import hashable
from headrace.expr.tree import Column, Expr, FunctionCall
from headrace.expr.types import Rows
from headrace.graph.node import FlowGraph, Node
from headrace.graph.operator_declarations import Facts
from headrace.operators.endpoints import SinkOperator, SourceOperator
from headrace.spark.batch.frames import (
    BATCH,
    ORDINAL,
    TaggedUnion,
    exact_column,
    select_stream,
    with_ordinals,
)
from headrace.spark.native_expressions import to_column
from headrace.spark.ticks.failures import with_encoded_errors
from headrace.spark.ticks.plan import pickled

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from headrace.engine.machine import Machine
    from headrace.engine.program import Program
    from headrace.expr.types import Schema
    from headrace.graph.node import Operator
    from headrace.spark.batch.batch_plan import BatchPlan, Subplan
    from headrace.spark.ticks.failures import Task


@dataclass(frozen=True, slots=True)
class Anywhere:
    """No distribution: each row is processed on its own."""

    def __str__(self) -> str:
        return "row by row, wherever rows are"


@dataclass(frozen=True)
class ByKeys:
    """Distribution by keys.

    keys: key expressions of each node that enters the subplan, the same number for each.
    """

    keys: Mapping[int, tuple[Expr, ...]]

    def __str__(self) -> str:
        return " and ".join(f"by {', '.join(map(str, k))}" for k in dict.fromkeys(self.keys.values()))


@dataclass(frozen=True, slots=True)
class InOneTask:
    def __str__(self) -> str:
        return "in one task"


Distribution: TypeAlias = Anywhere | ByKeys | InOneTask


def distribution_of(plan: BatchPlan, subplan: Subplan) -> Distribution:
    """Choose the distribution of a subplan's rows."""
    inside = set(subplan.nodes)
    nodes = [plan.graph.nodes[n] for n in subplan.nodes]
    entries = [i for node in nodes for i in plan.reads[node.id] if i is not None and i not in inside]
    if not entries or any(n in plan.order.arriving for n in entries) or _goes_round(plan, inside):
        return InOneTask()
    wanted: list[list[dict[int, Expr]]] = []
    for node in nodes:
        keys = _keys(node.operator)
        if keys is None:
            return InOneTask()
        if node.operator.linear or node.operator.is_union:
            continue
        found = [
            _in_entry_terms(plan, inside, i, key)
            for i in plan.reads[node.id]
            if i is not None
            for key in keys
        ]
        wanted.append([terms for terms in found if terms is not None and terms.keys() == set(entries)])
    if not wanted:
        return Anywhere()
    first, *others = wanted
    shared = [terms for terms in first if all(any(_same(terms, o) for o in other) for other in others)]
    if not shared:
        return InOneTask()
    return ByKeys({i: tuple(terms[i] for terms in shared) for i in dict.fromkeys(entries)})


def _goes_round(plan: BatchPlan, inside: set[int]) -> bool:
    return any(i is not None and i in inside and i >= n for n in inside for i in plan.reads[n])


def _same(one: Mapping[int, Expr], other: Mapping[int, Expr]) -> bool:
    return all(expr.same(other[i]) for i, expr in one.items())


def _keys(operator: Operator) -> tuple[Expr, ...] | None:
    """Return the keys that co-locate an operator's input: empty for none, None if all rows must meet."""
    placement = operator.placement()
    if operator.linear or (operator.is_union and not placement.whole):
        return ()
    if placement.keys is None:
        return None
    ports = zip(operator.ports(), placement.keys, strict=True)
    keys = [key for port, key in ports if not port.completeness]
    return keys[0] if len(keys) == 1 and isinstance(keys[0], tuple) else None


# --- keys in terms of the rows that enter ---------------------------------------------------


def _in_entry_terms(plan: BatchPlan, inside: set[int], n: int, expr: Expr) -> dict[int, Expr] | None:
    """Rewrite an expression over a node's rows in terms of the rows that enter the subplan."""
    if n not in inside:
        return {n: expr}
    node = plan.graph.nodes[n]
    schemas = [plan.graph.nodes[source].schema for source in node.inputs]
    lineage = node.operator.lineage(schemas, node.schema)
    before = _in_terms_of(expr, lineage[0].get) if lineage else None
    if before is None:
        return None
    terms: dict[int, Expr] = {}
    for i in plan.reads[n]:
        entry_terms = None if i is None else _in_entry_terms(plan, inside, i, before)
        if entry_terms is None or any(e in terms and not terms[e].same(x) for e, x in entry_terms.items()):
            return None
        terms |= entry_terms
    return terms


def _in_terms_of(expr: Expr, column: Callable[[str], Expr | None]) -> Expr | None:
    if isinstance(expr, Column):
        return column(expr.name)
    if not isinstance(expr, FunctionCall):
        return expr
    arguments = [_in_terms_of(a, column) for a in expr.arguments]
    if any(a is None for a in arguments):
        return None
    return replace(expr, arguments=tuple(a for a in arguments if a is not None))


_NONE = Facts()


@dataclass(frozen=True, slots=True)
class SubplanSource(SourceOperator):
    """Source of a subplan, with the facts known about its rows in the whole flow."""

    facts: Facts = _NONE

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return self.facts


@dataclass(frozen=True, slots=True)
class SubplanBorder:
    """A node of the flow whose rows enter or leave a subplan.

    ordered:  rows arrive in the order of their ordinals. weighted: rows have their weight last.
    """

    node: int
    name: str
    schema: Schema
    ordered: bool = False
    weighted: bool = False


@dataclass(frozen=True, slots=True)
class SubplanFlow:
    """A subplan as a flow of its own. ended: sources that receive a single null, the end of time."""

    graph: FlowGraph
    entries: tuple[SubplanBorder, ...]
    ended: tuple[str, ...]
    exits: tuple[SubplanBorder, ...]

    @property
    def ordered(self) -> bool:
        """Return whether any input arrives in the order of its ordinals."""
        return any(border.ordered for border in self.entries)


def subplan_flow(plan: BatchPlan, subplan: Subplan) -> SubplanFlow:
    """Cut a subplan out of a batch, keeping the facts about its inputs in the whole flow."""
    reads = {n: plan.reads[n] for n in subplan.nodes}
    outside = dict.fromkeys(i for r in reads.values() for i in r if i is not None and i not in reads)
    entries = tuple(_entry(plan, subplan, n, f"in{at}") for at, n in enumerate(outside))
    sources = [_source(e.name, e.schema, _entry_facts(plan, e)) for e in entries]
    return _cut_out(plan.graph, reads, entries, sources, plan.exits(subplan.nodes))


def loop_flow(graph: FlowGraph, loop: Sequence[int]) -> SubplanFlow:
    """Extract the nodes of a loop into a flow of their own."""
    reads = {n: graph.nodes[n].inputs for n in loop}
    outside = dict.fromkeys(i for r in reads.values() for i in r if i not in reads)
    entries = tuple(SubplanBorder(n, f"in{at}", graph.nodes[n].schema) for at, n in enumerate(outside))
    exits = [n for n in loop if any(n in m.inputs for m in graph.nodes if m.id not in reads)]
    return _cut_out(graph, reads, entries, [SourceOperator(e.name, e.schema) for e in entries], exits)


def _source(name: str, schema: Schema, facts: Facts) -> SubplanSource:
    return SubplanSource(name, schema, facts.bounded, facts.append, facts)


def _entry(plan: BatchPlan, subplan: Subplan, n: int, name: str) -> SubplanBorder:
    order = plan.order
    ordered = n in order.carried and any((n, m) in order.edges for m in subplan.nodes)
    return SubplanBorder(n, name, plan.graph.nodes[n].schema, ordered, ordered and not plan.facts[n].append)


def _entry_facts(plan: BatchPlan, entry: SubplanBorder) -> Facts:
    facts = plan.facts[entry.node]
    # A bag without weights: nothing of it is retracted, and its order is lost.
    return facts if entry.weighted else facts.but(append=True, ordered=facts.ordered and entry.ordered)


def _cut_out(
    graph: FlowGraph,
    reads: Mapping[int, Sequence[int | None]],
    entries: tuple[SubplanBorder, ...],
    sources: Sequence[SourceOperator],
    exits: Iterable[int],
) -> SubplanFlow:
    """Build a flow of the nodes in `reads`; an input of None becomes a source that ends at once."""
    nodes: list[Node] = []

    def add(like: int, operator: SourceOperator | SinkOperator, inputs: tuple[int, ...] = ()) -> int:
        at, original = len(nodes), graph.nodes[like]
        nodes.append(Node(at, operator.name, operator, inputs, original.schema, original.location))
        return at

    at = {entry.node: add(entry.node, source) for entry, source in zip(entries, sources, strict=True)}
    ended: dict[tuple[int, int], int] = {}
    for n, read in reads.items():
        for port, i in enumerate(read):
            if i is None:
                time = graph.nodes[n].inputs[port]
                source = _source(f"end{len(nodes)}", graph.nodes[time].schema, Facts(ordered=True))
                ended[n, port] = add(time, source)
    at |= {n: len(nodes) + number for number, n in enumerate(reads)}
    given = {node.name: node.id for node in nodes}
    for n, read in reads.items():
        inputs = tuple(ended[n, port] if i is None else at[i] for port, i in enumerate(read))
        nodes.append(replace(graph.nodes[n], id=at[n], inputs=inputs))
    leaving = tuple(SubplanBorder(n, f"out{number}", graph.nodes[n].schema) for number, n in enumerate(exits))
    sinks = {
        border.name: add(border.node, SinkOperator(border.name), (at[border.node],)) for border in leaving
    }
    whole = FlowGraph(graph.name, tuple(nodes), given, sinks, given_ticks=True)
    return SubplanFlow(whole, entries, tuple(sorted(nodes[n].name for n in ended.values())), leaving)


def program_of(graph: FlowGraph) -> Program:
    """Compile part of a flow to an in-process program."""
    from headrace.engine.program import compile_program

    return compile_program(graph)


def machine_for(program: Program) -> Machine:
    """Create a machine without state."""
    from headrace.engine.machine import Machine

    return Machine(program, {slot.name: {} for slot in program.slots})


def run_until_idle(machine: Machine, inputs: Mapping[str, Rows]) -> dict[str, Rows]:
    """Process `inputs`, deferred rows and the end of input; return the contents of the sinks."""
    from headrace.engine.event_time import end_receivers

    append = machine.program.sink_append
    held: dict[str, Rows] = {name: [] for name, is_append in append.items() if is_append}
    totals = {name: Counter[tuple[Any, ...]]() for name, is_append in append.items() if not is_append}
    ends: dict[str, Rows] = {name: [(True,)] for name in end_receivers(machine.program.graph)}
    given = inputs
    while True:
        for name, rows in machine.tick(given).items():
            if append[name]:
                held[name] += rows
            else:
                for *row, weight in rows:
                    totals[name][tuple(row)] += weight
        given = {}
        if not machine.pending:
            if not ends:
                return held | {name: list(total.elements()) for name, total in totals.items()}
            given, ends = ends, {}


_HASH = "headrace hash"


def run_subplan(
    plan: BatchPlan,
    subplan: Subplan,
    made: Mapping[int, DataFrame],
    frames: Mapping[str, DataFrame],
    share: Callable[[DataFrame], DataFrame],
) -> dict[int, DataFrame]:
    """Run a subplan and return the bags of its nodes that are read outside it.

    made:  the bags of nodes that the subplan reads. frames: of the sources, as they were given.
    share: applied to what the subplan answers where more than one of its nodes is read.
    """
    part, how = subplan_flow(plan, subplan), distribution_of(plan, subplan)
    entering, leaving = frame_layout(part.entries), frame_layout(part.exits)
    streams: list[DataFrame] = []
    for port, entry in enumerate(part.entries):
        rows = with_ordinals(plan.graph, entry.node, frames) if entry.ordered else made[entry.node]
        streams.append(entering.tag_rows(rows, port, _further(part, entry, how)))
    answer = _brought_together(streams, entering, part, how).mapInArrow(
        subplan_task(part, how), leaving.type()
    )
    if len(part.exits) > 1:
        answer = share(answer)
    return {border.node: select_stream(answer, port, border.schema) for port, border in enumerate(part.exits)}


def _further(part: SubplanFlow, entry: SubplanBorder, how: Distribution) -> dict[str, SparkColumn]:
    """Extra columns of a stream's rows: the hash of their keys, and their ordinals."""
    columns: dict[str, SparkColumn] = {}
    if isinstance(how, ByKeys):
        keys = ((check(key, entry.schema).type, key) for key in how.keys[entry.node])
        columns[_HASH] = f.xxhash64(*(hashable(type, to_column(key, entry.schema)) for type, key in keys))
    if part.ordered:
        columns |= {name: exact_column(name) if entry.ordered else _no_number() for name in ORDINAL}
    return columns


def _no_number() -> SparkColumn:
    return f.lit(None).cast("long")


def _brought_together(
    streams: list[DataFrame], entering: TaggedUnion, part: SubplanFlow, how: Distribution
) -> DataFrame:
    sorting = ORDINAL if part.ordered else ()
    if isinstance(how, InOneTask):
        # The task must run where no row comes, too: for what speaks in the first tick.
        session = streams[0].sparkSession if streams else SparkSession.active()
        one = session.range(1)
        streams = [*streams, entering.tag_rows(one, -1, dict.fromkeys(sorting, _no_number()))]
    whole, *others = streams
    for other in others:
        whole = whole.unionAll(other)
    if isinstance(how, Anywhere):
        return whole
    if isinstance(how, ByKeys):
        return whole.repartition(exact_column(_HASH)).sortWithinPartitions(
            *map(exact_column, (_HASH, *sorting))
        )
    whole = whole.repartition(1)
    return whole.sortWithinPartitions(*map(exact_column, sorting)) if sorting else whole


# --- tasks ----------------------------------------------------------------------------------


def frame_layout(borders: tuple[SubplanBorder, ...]) -> TaggedUnion:
    """Frame layout of the streams that enter or leave a subplan."""
    return TaggedUnion(tuple((border.schema, border.weighted) for border in borders))


def subplan_task(part: SubplanFlow, how: Distribution) -> Task:
    """Create the `mapInArrow` function that runs a subplan over a task's rows."""
    shipped = pickled((part, _CHUNKS[type(how)]))

    @with_encoded_errors
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import cloudpickle

        part, chunks = cloudpickle.loads(shipped)
        program = program_of(part.graph)
        leaving = frame_layout(part.exits)
        for inputs in chunks(batches, part.entries):
            answers = run_until_idle(machine_for(program), inputs | {name: [(None,)] for name in part.ended})
            for port, border in enumerate(part.exits):
                yield from leaving.to_batches(answers[border.name], port)

    return task


Chunks = Callable[[Iterable["pa.RecordBatch"], tuple[SubplanBorder, ...]], Iterator[dict[str, Rows]]]


def _each_batch(
    batches: Iterable[pa.RecordBatch], entries: tuple[SubplanBorder, ...]
) -> Iterator[dict[str, Rows]]:
    for batch in batches:
        yield _rows_of(batch, entries)


def _all_at_once(
    batches: Iterable[pa.RecordBatch], entries: tuple[SubplanBorder, ...]
) -> Iterator[dict[str, Rows]]:
    inputs: dict[str, Rows] = {border.name: [] for border in entries}
    for batch in batches:
        for name, rows in _rows_of(batch, entries).items():
            inputs[name] += rows
    yield inputs


def split_between_keys(
    batches: Iterable[pa.RecordBatch], entries: tuple[SubplanBorder, ...]
) -> Iterator[dict[str, Rows]]:
    """Split rows into chunks of at least `BATCH` that end where the key hash changes."""
    waiting: list[pa.RecordBatch] = []
    last: int | None = None
    for batch in batches:
        hashes = batch.column(_HASH).to_pylist()
        end = next((at for at in range(len(hashes) - 1, 0, -1) if hashes[at] != hashes[at - 1]), 0)
        if hashes and (end or hashes[0] != last) and sum(map(len, waiting)) + end >= BATCH:
            yield from _all_at_once([*waiting, batch.slice(0, end)], entries)
            waiting, batch = [], batch.slice(end)
        waiting.append(batch)
        last = hashes[-1] if hashes else last
    if waiting:
        yield from _all_at_once(waiting, entries)


_CHUNKS: dict[type[Distribution], Chunks] = {
    Anywhere: _each_batch,
    ByKeys: split_between_keys,
    InOneTask: _all_at_once,
}


def _rows_of(batch: pa.RecordBatch, entries: tuple[SubplanBorder, ...]) -> dict[str, Rows]:
    ports = frame_layout(entries)
    return {border.name: ports.rows(batch, port) for port, border in enumerate(entries)}
