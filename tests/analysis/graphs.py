"""Random flow graphs of real operators, made without the builder: only their shape matters here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis import strategies as st

from headrace.errors import SourceLocation
from headrace.expr.types import INT64, Field, Schema
from headrace.graph.check_context import CheckContext
from headrace.graph.node import Columns, Edge, FlowGraph, Node, Operator
from headrace.graph.operator_declarations import WHOLE, Delay, Facts, Placement, Port, Unservable
from headrace.operators.across_ticks import DeferTick
from headrace.operators.aggregate.aggregate import Aggregate
from headrace.operators.distinct import Distinct
from headrace.operators.endpoints import SinkOperator, SourceOperator
from headrace.operators.feedback import Feedback
from headrace.operators.join.join import Difference
from headrace.operators.union import Union

ROW = Schema((Field("value", INT64),), scalar=True)


@dataclass(frozen=True, slots=True)
class Remembering(Operator):
    """An operator that says nothing of loops."""

    kind: ClassVar[str] = "remembering"

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def placement(self) -> Placement:
        return WHOLE

    def unservable(self) -> Unservable | None:
        return None


class Draft:
    """A graph under construction; `add` gives the new node's id."""

    def __init__(self) -> None:
        self.operators: list[Operator] = []
        self.inputs: list[list[int]] = []
        self.names: list[str | None] = []

    def add(self, operator: Operator, *inputs: int, name: str | None = None) -> int:
        self.operators.append(operator)
        self.inputs.append(list(inputs))
        self.names.append(name)
        return len(self.operators) - 1

    def source(self, **facts: Any) -> int:
        return self.add(SourceOperator(f"in{len(self.operators)}", ROW, **facts))

    def distinct(self, read: int) -> int:
        return self.add(Distinct(()), read)

    def aggregate(self, read: int) -> int:
        return self.add(Aggregate((), ()), read)

    def union(self, *read: int) -> int:
        return self.add(Union(len(read)), *read)

    def difference(self, pos: int, neg: int) -> int:
        return self.add(Difference((), ()), pos, neg)

    def defer(self, read: int, nondet: str | None = None) -> int:
        return self.add(DeferTick(nondet), read)

    def feedback(self) -> int:
        return self.add(Feedback(()))

    def remembering(self, read: int) -> int:
        return self.add(Remembering(), read)

    def close(self, feedback: int, closing: int) -> None:
        self.inputs[feedback] = [closing]

    def sink(self, read: int) -> int:
        return self.add(SinkOperator(f"out{len(self.operators)}"), read)

    def graph(self, *, given_ticks: bool = False) -> FlowGraph:
        nodes = tuple(
            Node(
                id=i,
                name=self.names[i] or f"{op.kind}_{i}",
                operator=op,
                inputs=tuple(self.inputs[i]),
                schema=op.schema if isinstance(op, SourceOperator) else ROW,
                location=SourceLocation("flow.py", i + 1),
            )
            for i, op in enumerate(self.operators)
        )
        sources = {n.operator.name: n.id for n in nodes if isinstance(n.operator, SourceOperator)}
        sinks = {n.operator.name: n.id for n in nodes if isinstance(n.operator, SinkOperator)}
        return FlowGraph("random", nodes, sources, sinks, given_ticks)


KINDS = (
    "source",
    "distinct",
    "aggregate",
    "union",
    "union",
    "difference",
    "defer",
    "defer",
    "feedback",
    "feedback",
)


@st.composite
def drafts(draw: st.DrawFn, *, legal: bool) -> Draft:
    """A draft of up to 25 operators; a legal one has no cycle within a tick through a blocking input.

    Operators read what was written shortly before, and feedbacks are closed by
    what follows from them, so that loops are frequent.
    """
    draft = Draft()
    draft.source(bounded=draw(st.booleans()), append=draw(st.booleans()))
    feedbacks: list[int] = []
    for kind in draw(st.lists(st.sampled_from(KINDS), min_size=draw(st.integers(1, 12)), max_size=25)):
        count = len(draft.operators)
        ids = st.integers(max(0, count - 4), count - 1)
        if kind == "source":
            draft.source(bounded=draw(st.booleans()), append=draw(st.sampled_from([True, True, False])))
        elif kind == "distinct":
            draft.distinct(draw(ids))
        elif kind == "aggregate":
            draft.aggregate(draw(ids))
        elif kind == "union":
            draft.union(*draw(st.lists(ids, min_size=1, max_size=3)))
        elif kind == "difference":
            draft.difference(draw(ids), draw(ids))
        elif kind == "defer":
            draft.defer(draw(ids), draw(st.sampled_from([None, "why not"])))
        else:
            feedbacks.append(draft.feedback())
    for _ in range(draw(st.integers(1, 3))):
        draft.sink(draw(st.integers(0, len(draft.operators) - 1)))
    for feedback in feedbacks:
        following = sorted(reach(len(draft.operators), draft.graph().edges())[feedback])
        anything = range(len(draft.operators))
        draft.close(feedback, draw(st.sampled_from(following or anything) | st.sampled_from(anything)))
        if legal and blocked_cycles(draft.graph()):
            draft.close(feedback, 0)
    return draft


def graphs(*, legal: bool = False) -> st.SearchStrategy[FlowGraph]:
    return st.builds(
        lambda draft, given_ticks: draft.graph(given_ticks=given_ticks), drafts(legal=legal), st.booleans()
    )


# -- the same questions answered the slow way ---------------------------------------------


def reach(count: int, edges: Iterable[Edge]) -> list[set[int]]:
    """Per node, the nodes at the end of a path of one edge or more."""
    reached: list[set[int]] = [set() for _ in range(count)]
    pairs = [(e.source, e.target) for e in edges]
    changed = True
    while changed:
        changed = False
        for source, target in pairs:
            more = {target} | reached[target]
            if not more <= reached[source]:
                reached[source] |= more
                changed = True
    return reached


def blocked_cycles(graph: FlowGraph) -> list[Edge]:
    """Blocking edges that are part of a cycle within a tick."""
    edges = list(graph.same_tick_edges())
    reached = reach(len(graph.nodes), edges)
    return [e for e in edges if graph.port(e).blocking and e.source in reached[e.target] | {e.target}]


def unguarded_cycles(graph: FlowGraph, facts: Sequence[Facts]) -> list[Edge]:
    """Edges that block, or may take back what a feedback gave, in a cycle without a delay that says why.

    Cycles within a tick are other errors and left out.
    """
    edges = [
        e
        for e in graph.edges()
        if graph.port(e).delay is Delay.NONE or graph.nodes[e.target].operator.guard() is None
    ]
    reached = reach(len(graph.nodes), edges)
    at_once = reach(len(graph.nodes), graph.same_tick_edges())

    def in_cycle(e: Edge) -> bool:
        return e.source in reached[e.target] | {e.target}

    def in_cycle_within_a_tick(e: Edge) -> bool:
        return e.source in at_once[e.target] | {e.target}

    def meets_a_delay(e: Edge) -> bool:
        """Whether some way round through it passes a delay."""
        late = [d for d in edges if graph.port(d).delay is not Delay.NONE]
        return any(
            d.source in reached[e.target] | {e.target} and e.source in reached[d.target] | {d.target}
            for d in late
        )

    return [
        e
        for e in edges
        if in_cycle(e)
        and (
            (graph.port(e).blocking and not in_cycle_within_a_tick(e))
            or (is_feedback(graph, e.target) and not facts[e.source].append and meets_a_delay(e))
        )
    ]


def is_feedback(graph: FlowGraph, node: int) -> bool:
    return isinstance(graph.nodes[node].operator, Feedback)
