"""Selection of the operators that run on frames in a large tick, with a reason for each exclusion.

The selected operators are closed upwards: their inputs come from outside the part or from other selected
operators. Their output for the rest of the part is passed as rows, or already reduced if the reader is an
aggregate or a distinct.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.columns.column_stream import ColumnStream, empty_stream
from headrace.engine.columnar.loop_rounds import LoopPlan, plan_loop
from headrace.expr.polars_columns import NotLowered
from headrace.lowering.forms import (
    ArrangedPlan,
    ColumnarContext,
    PreReduction,
    apply_operator,
    arranged_plan,
    choose_reduction,
)
from headrace.operators import all_operators
from headrace.operators.endpoints import SinkOperator
from headrace.operators.feedback import BagFeedback, Feedback, FeedbackOperator

if TYPE_CHECKING:
    from headrace.analysis import Analysis
    from headrace.engine.flow_parts import CompiledPart
    from headrace.graph.node import Consumers, FlowGraph, Node


@dataclass(frozen=True, slots=True)
class PartInput:
    """Input to a part's row-wise operators: the rows of `source`, reduced if there is a `reduction`."""

    source: int
    reduction: PreReduction | None


@dataclass(frozen=True, slots=True)
class ColumnarPlan:
    """Division of a part into columnar and row-wise operators, for large ticks.

    columnar: nodes that run on frames, in order. rest: the others, in order.
    arranged: columnar nodes with state, which lies in arrangements, but where it is a few values.
    stored:   nodes whose state a store keeps in arrangements. Unlike `columnar`, it depends on each node
        alone: a flow that changes beside a node, or is divided otherwise, finds its state in the same form.
    feeds:    outside input of the row-wise nodes.
    reasons:  per row-wise node whose input is available in columns, why it stays row-wise.
    loops:    those whose rounds run on frames, by their first node.
    """

    part: CompiledPart
    columnar: tuple[int, ...]
    rest: tuple[int, ...]
    arranged: Mapping[int, ArrangedPlan]
    stored: Mapping[int, ArrangedPlan]
    feeds: tuple[PartInput, ...]
    reasons: Mapping[int, str]
    loops: Mapping[int, LoopPlan]

    @property
    def uses_frames(self) -> bool:
        """Return whether any operator runs on frames."""
        return bool(self.columnar) or any(feed.reduction is not None for feed in self.feeds)

    def is_in_loop(self, node: int) -> bool:
        """Return whether a node is in a loop that runs on frames."""
        return any(node in loop.nodes for loop in self.loops.values())


def takes_values(graph: FlowGraph, plans: Sequence[ColumnarPlan], source: int) -> bool:
    """Return whether large ticks convert lists of an append-only source's bare values to a column.

    They do if all readers compute on it, or read it reduced: one column costs less to build than it saves.
    """
    if not graph.nodes[source].schema.scalar:
        return False
    reading = [plan for plan in plans if source in plan.part.inputs]
    reduced = [feed.reduction is not None for plan in reading for feed in plan.feeds if feed.source == source]
    columnar = [graph.nodes[n] for plan in reading for n in plan.columnar if source in graph.nodes[n].inputs]
    computed = [not isinstance(reader.operator, SinkOperator) for reader in columnar]
    return any(computed + reduced) and all(computed + reduced)


def plan_columnar(
    graph: FlowGraph, analysis: Analysis, consumers: Consumers, part: CompiledPart, *, arranged: bool = True
) -> ColumnarPlan:
    """Divide a part into columnar and row-wise nodes. arranged: whether those with state may be columnar."""
    all_operators()  # with their modules comes what they register
    in_rows = set[int]()
    if not arranged:
        found = ((node.id, arranged_plan(node.operator)) for node in graph.nodes)
        in_rows = {node for node, form in found if form is not None and not form.keeps_values}
    stored = dict(_arranged_plans(graph, analysis, part))
    while True:
        plan = _divided(graph, analysis, consumers, part, stored, in_rows)
        joins = {node for node, of in plan.arranged.items() if of.pairs_rows}
        refused = joins & _read_row_by_row(graph, plan)
        if not refused:
            return plan
        in_rows |= refused


def _read_row_by_row(graph: FlowGraph, plan: ColumnarPlan) -> set[int]:
    """Return the columnar nodes that pass some rows to a row-wise operator one by one."""
    found = {feed.source for feed in plan.feeds if feed.reduction is None}
    for node_id in reversed(plan.columnar):
        # A set that goes round has fewer rows than what is found on the way.
        if node_id in found and not isinstance(graph.nodes[node_id].operator, Feedback):
            found.update(graph.nodes[node_id].inputs)
    return found


def _divided(
    graph: FlowGraph,
    analysis: Analysis,
    consumers: Consumers,
    part: CompiledPart,
    stored: Mapping[int, ArrangedPlan | NotLowered],
    in_rows: AbstractSet[int],
) -> ColumnarPlan:
    """Divide a part.

    stored: plans of the nodes with state. in_rows: those that are row-wise although they have one.
    """
    reasons: dict[int, str] = {}
    lowered = _Lowered(graph, analysis, consumers, stored, in_rows)
    streams = lowered.streams
    loop_of = {n: loop for loop in analysis.loops for n in loop}
    for source in part.inputs if not part.signals else ():
        try:
            lowered.begin(source)
        except NotLowered as reason:
            reasons.update({e.target: str(reason) for e in consumers[source]})
    for node_id in part.nodes:
        loop = loop_of.get(node_id, ())
        group = loop or (node_id,)
        read = {source for n in group for source in graph.nodes[n].inputs if source not in loop}
        if node_id != group[0] or not read or not all(source in streams for source in read):
            continue
        try:
            if loop:
                lowered.lower_loop(loop)
            else:
                lowered.lower(node_id)
        except NotLowered as reason:
            reasons[lowered.last] = str(reason)
            lowered.forget(group)
    columnar = tuple(n for n in part.nodes if n in streams)
    rest = tuple(n for n in part.nodes if n not in streams)
    feeds = _feeds(graph, analysis, streams, rest, reasons)
    kept = {n: of for n, of in stored.items() if not isinstance(of, NotLowered) and not of.keeps_values}
    return ColumnarPlan(part, columnar, rest, lowered.arranged, kept, feeds, reasons, lowered.loops)


@dataclass
class _Lowered:
    """Nodes that run on frames, with their plans. last: the node examined last."""

    graph: FlowGraph
    analysis: Analysis
    consumers: Consumers
    stored: Mapping[int, ArrangedPlan | NotLowered]
    in_rows: AbstractSet[int]
    streams: dict[int, ColumnStream] = field(default_factory=dict["int", ColumnStream])
    arranged: dict[int, ArrangedPlan] = field(default_factory=dict["int", "ArrangedPlan"])
    loops: dict[int, LoopPlan] = field(default_factory=dict["int", LoopPlan])
    last: int = -1

    def begin(self, node_id: int) -> None:
        """Add a node whose rows are given. Raises `NotLowered`."""
        self.last = node_id
        node = self.graph.nodes[node_id]
        self.streams[node_id] = empty_stream(node.schema, self.analysis.facts[node_id].append)

    def lower(self, node_id: int) -> None:
        """Add a node whose inputs are already lowered. Raises `NotLowered`."""
        self.last = node_id
        node = self.graph.nodes[node_id]
        if node_id not in self.stored:
            inputs = [self.streams[source] for source in node.inputs]
            append = self.analysis.facts[node_id].append
            self.streams[node_id] = apply_operator(node.operator, node.schema, append, inputs)
            return
        if node_id in self.in_rows:
            form = arranged_plan(node.operator)
            raise NotLowered("what it finds is read row by row" if form and form.pairs_rows else "")
        found = self.stored[node_id]
        if isinstance(found, NotLowered):
            raise found
        self.arranged[node_id] = found
        self.begin(node_id)

    def lower_loop(self, loop: tuple[int, ...]) -> None:
        """Add the nodes of a loop, all of them or none. Raises `NotLowered`."""
        nodes = self.graph.nodes
        self.last = loop[0]
        if self.analysis.is_changing(loop):
            raise NotLowered("a loop whose rows may be retracted keeps differences by round, in rows")
        closing = [n for n in loop if isinstance(nodes[n].operator, FeedbackOperator)]
        for node_id in closing:
            self.begin(node_id)
        for node_id in loop:
            self.last = node_id
            form = arranged_plan(nodes[node_id].operator)
            if form is not None and form.runs_outside_loops and node_id not in self.stored:
                raise NotLowered("in a loop it works on rows")
            # The rows of a bag are those that closed it in the round before.
            if not isinstance(nodes[node_id].operator, BagFeedback):
                self.lower(node_id)
        leaving = {n for n in loop if any(edge.target not in loop for edge in self.consumers[n])}
        self.loops[loop[0]] = plan_loop(self.graph, loop, leaving)

    def forget(self, group: tuple[int, ...]) -> None:
        """Remove a group of nodes, because one of them must run row-wise."""
        for node_id in group:
            self.streams.pop(node_id, None)
            self.arranged.pop(node_id, None)


def _arranged_plans(
    graph: FlowGraph, analysis: Analysis, part: CompiledPart
) -> Iterator[tuple[int, ArrangedPlan | NotLowered]]:
    """Yield the plan of each stateful node, or the reason why it has none."""
    is_changing = {n: analysis.is_changing(loop) for loop in analysis.loops for n in loop}
    for node in map(graph.nodes.__getitem__, part.nodes if not part.signals else ()):
        form = arranged_plan(node.operator)
        if form is None:
            continue
        in_loop = node.id in is_changing
        if form.runs_in_loops and not is_changing[node.id] if in_loop else form.runs_outside_loops:
            schemas = tuple(graph.nodes[source].schema for source in node.inputs)
            appends = tuple(analysis.facts[source].append for source in node.inputs)
            try:
                yield (
                    node.id,
                    form.of(ColumnarContext(node, schemas, appends, analysis.facts[node.id].append)),
                )
            except NotLowered as reason:
                yield node.id, reason


def _feeds(
    graph: FlowGraph,
    analysis: Analysis,
    streams: Mapping[int, ColumnStream],
    rest: tuple[int, ...],
    reasons: dict[int, str],
) -> tuple[PartInput, ...]:
    readers: dict[int, list[Node]] = {}
    for node_id in rest:
        for source in dict.fromkeys(graph.nodes[node_id].inputs):
            if source not in rest:
                readers.setdefault(source, []).append(graph.nodes[node_id])
    feeds: list[PartInput] = []
    in_loop = {n for loop in analysis.loops for n in loop}
    for source, reading in readers.items():
        reduction = None
        # In a loop rows are read round by round. Of other inputs, such as watermarks, there is little.
        alone = len(reading) == 1 and reading[0].inputs.index(source) == 0
        if (
            source in streams
            and alone
            and reading[0].inputs.count(source) == 1
            and reading[0].id not in in_loop
        ):
            (reader,) = reading
            try:
                reduction = choose_reduction(reader.operator, streams[source].schema, streams[source].append)
                reduction.reduce_lazily(streams[source])
                reasons.pop(reader.id, None)
            except NotLowered as reason:
                reduction = None
                if str(reason) and not reasons.get(reader.id):
                    reasons[reader.id] = str(reason)
        feeds.append(PartInput(source, reduction))
    return tuple(feeds)
