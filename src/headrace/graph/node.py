"""Flow as frozen data: nodes with the ids of the nodes they read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from headrace.errors import SourceLocation, WrongType
from headrace.expr.tree import Column
from headrace.graph.graph_algorithms import adjacency_lists, is_cyclic, strongly_connected_components
from headrace.graph.operator_declarations import Delay, Facts, Need, Port, meet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from headrace.expr.tree import Expr
    from headrace.expr.types import Field, Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.operator_declarations import (
        Lineage,
        MonotoneColumns,
        Placement,
        SlotLayout,
        Unservable,
    )


ALTERABLE: Mapping[str, bool] = MappingProxyType({"alterable": True})
"""Metadata for operator fields whose value may change without invalidating a flow's state."""

ADDED_LATER: Mapping[str, bool] = MappingProxyType({"added_later": True})
"""Metadata for fields that older checkpoints do not know: descriptions leave them out with their default."""


Columns: TypeAlias = "tuple[Field, ...] | None"
"""Columns of an output; None if they depend on a function."""


def identity_lineage(schema: Schema) -> dict[str, Expr]:
    """Return the lineage of an operator that keeps all columns of an input."""
    return {name: Column(name) for name in schema.names}


def described_name(cls: type) -> str:
    """Return the name of a class in descriptions of flows and in plans: its own `described_as`, if any."""
    return str(vars(cls).get("described_as", cls.__name__))


def function_name(function: object) -> str:
    """Return the display name of a user's function."""
    return str(getattr(function, "__qualname__", type(function).__qualname__))


class Operator(ABC):
    """Base class of operators: frozen dataclasses that declare their properties to the analyses.

    `kind` is the name shown to users. Only the operator's own file may depend on it; engines dispatch on the
    class.
    """

    kind: ClassVar[str]
    plan_name: ClassVar[str | None] = None
    """Name in plans; None if it is `kind`, and empty for an operator that no user writes."""
    examples: ClassVar[Mapping[str, Callable[..., Any]]] = MappingProxyType({})
    """Flows that show the operator (`headrace.lowering.reference`)."""
    runs_each_tick: ClassVar[bool] = False
    """Whether the operator may emit in a tick without input. The operator itself starts no tick."""
    runs_first_tick: ClassVar[bool] = False
    """Whether the operator may emit in the first tick without input. The operator itself starts no tick."""
    begins_ticks: ClassVar[bool] = False
    """Whether each of the operator's values is a tick of its own, so that its ticks are part of the input."""
    ends_streams: ClassVar[bool] = False
    """Whether the operator's inputs are computed even if no sink reads them."""
    linear: ClassVar[bool] = False
    """Whether the operator maps each row by itself and without state: a retracted row retracts its result."""
    row_by_row: ClassVar[bool] = False
    """Whether the operator maps rows one at a time and in order, and so can be inlined into its consumer."""
    is_union: ClassVar[bool] = False
    """Whether the operator's output is exactly the rows of its inputs."""
    picks_representative: ClassVar[bool] = False
    """Whether the operator replaces equal values by one representative, even in append streams."""
    reads_net_changes: ClassVar[bool] = False
    """Whether the operator's output depends only on the consolidated changes of a tick."""
    makes_order: ClassVar[bool] = False
    """Whether the operator defines the order of its rows. Equal rows keep their order of arrival."""
    gives_watermark: ClassVar[bool] = False
    """Whether the operator's rows are watermarks, which only operators beside it can use."""
    runs_in_rounds: ClassVar[bool] = False
    """Whether a loop with the operator can be partitioned by key, so that shards run its rounds in parallel.
    """
    __slots__ = ()

    @abstractmethod
    def ports(self) -> tuple[Port, ...]:
        """Return the inputs, in order."""

    @abstractmethod
    def output(self, context: CheckContext) -> Columns:
        """Return the columns of the output, or None if they depend on a function.

        For inputs that it cannot read and parameters that no method would give, raises the error of
        `context.refused` or those of checking expressions.
        """

    @abstractmethod
    def placement(self) -> Placement:
        """Return which input rows must meet on one shard. `ANYWHERE`: each row is processed by itself."""

    @abstractmethod
    def unservable(self) -> Unservable | None:
        """Return the reason why replicas cannot serve the operator, or None if they can."""

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        """Return, per port, the output columns that equal an expression over the columns of the port.

        The equality must hold for every row made from a row of that port. Default: none are known.
        """
        nothing: Lineage = {}
        return (nothing,) * len(inputs)

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        """Return the columns read from each input if only the output columns `live` are needed.

        None means whole rows of every input; `over` is then never called. Default: None.
        """
        return None

    def over(
        self, inputs: Sequence[Schema], kept: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[Operator, tuple[Field, ...]]:
        """Rewrite the operator for narrowed inputs, and return it with the fields of its output.

        inputs: original schemas. kept: the narrowed ones, which have at least the columns returned by
        `reads`. Default: the operator itself, which passes on the remaining columns.
        """
        there = set(kept[0].names)
        return self, tuple(field for field in output.fields if field.name in there)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        """Return the layout of each slot that can be divided among shards. Default: none.

        appends: per port, whether it reads an append stream.
        """
        return {}

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        """Return whether the output is free of -0.0, given the same for each input. Default: unknown."""
        return False

    def at_most_one_row(self) -> bool:
        """Return whether the output has at most one row, so that order does not matter."""
        return False

    def reads_order(self, port: int) -> bool:
        """Return whether row order at a port affects the output. Default: whether the operator needs an
        order.
        """
        return any(need.fact == "ordered" and need.port == port for need in self.required_facts())

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        """Derive the facts of the output from those of the inputs. Default: their meet."""
        return meet(inputs)

    def required_facts(self) -> tuple[Need, ...]:
        """Return the facts required of the inputs."""
        return ()

    def guard(self) -> str | None:
        """Return the user's `nondet=` reason why the output may depend on the cut into ticks, or None."""
        return None

    def depends_on_cut(self) -> str:
        """Explain, in a sentence, why the output depends on the cut into ticks; empty if it does not.

        Such an operator must have a `guard`, unless the ticks of the flow are given.
        """
        return ""

    def may_be_silent(self) -> bool:
        """Return whether an active operator may emit nothing in a tick, so that its consumers do not run."""
        return False

    def monotone_columns(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        """Return the columns that only grow while the input is append-only, given those of the inputs."""
        return None

    def required_monotone_column(self) -> str | None:
        """Return the input column that is required to only grow, or None."""
        return None

    def inside_loop(self) -> Operator:
        """Return the operator that replaces this one in a cycle within a tick. Default: this one."""
        return self

    def refused_in_changing_loop(self, goes_round: Sequence[bool]) -> str:
        """Return a clause on why the operator cannot run in a loop with retractions; empty if it can.

        Such a loop separates the rounds of a tick, so operators must keep their state by round. goes_round:
        per port, whether its input is part of the loop.
        """
        return "" if self.linear else "what it remembers is not kept by rounds"

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        """Yield the operator's expressions, each with its label, for `explain` and fingerprints."""
        yield from ()

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        """Yield the operator's opaque functions, each with its label."""
        yield from ()

    def assumptions(self) -> Iterator[str]:
        """Yield unproved assumptions about the user's functions, one clause each; verdicts rely on them."""
        for _, function in self.callables():
            yield f"{function_name(function)} is a function of its arguments"

    def describe(self) -> str:
        """Return a short rendering of the parameters for `explain` and pictures; empty if there are none."""
        return ""


@dataclass(frozen=True, slots=True)
class Node:
    """Operator of a flow with its inputs and schema.

    id:     its position in `FlowGraph.nodes`, in order of construction.
    name:   unique in the flow; given by the user, or the kind with a number.
    inputs: ids of the nodes read, in port order.
    schema: of the output.
    location:  the user's line that added it.
    """

    id: int
    name: str
    operator: Operator
    inputs: tuple[int, ...]
    schema: Schema
    location: SourceLocation

    @property
    def is_delay(self) -> bool:
        """Whether the node emits in a tick the rows that reached it in the previous one."""
        return any(port.delay is not Delay.NONE for port in self.operator.ports())


@dataclass(frozen=True, slots=True)
class Edge:
    """Edge from node `source` to input number `port` of node `target`."""

    source: int
    target: int
    port: int


Consumers: TypeAlias = "tuple[tuple[Edge, ...], ...]"
"""Outgoing edges per node."""


@dataclass(frozen=True, slots=True)
class FlowGraph:
    """Complete flow. `nodes[i].id == i`; back edges are inputs with a larger or equal id.

    sources, sinks: node ids by the users' names. given_ticks: whether the flow was declared with
    `ticks="given"`, so that its ticks are part of the input. renumbered: ids by those that the flow's streams
    know; empty where they are the same.
    """

    name: str
    nodes: tuple[Node, ...]
    sources: dict[str, int]
    sinks: dict[str, int]
    given_ticks: bool = False
    renumbered: Mapping[int, int] = field(default_factory=dict[int, int], compare=False, repr=False)

    def edges(self) -> Iterator[Edge]:
        for node in self.nodes:
            for port, source in enumerate(node.inputs):
                yield Edge(source, node.id, port)

    def port(self, edge: Edge) -> Port:
        return self.nodes[edge.target].operator.ports()[edge.port]

    def consumers(self) -> tuple[tuple[Edge, ...], ...]:
        """Return the outgoing edges per node, in order of construction."""
        out: list[list[Edge]] = [[] for _ in self.nodes]
        for edge in self.edges():
            out[edge.source].append(edge)
        return tuple(tuple(edges) for edges in out)

    def same_tick_edges(self) -> Iterator[Edge]:
        """Yield the edges without a delay, whose rows arrive in the tick in which they are sent."""
        for node in self.nodes:
            if not node.inputs:
                continue
            ports = node.operator.ports()
            for port, source in enumerate(node.inputs):
                if ports[port].delay is Delay.NONE:
                    yield Edge(source, node.id, port)


class HasGraph(Protocol):
    """Flow under construction (`headrace.flow.flow.Flow`)."""

    def graph(self) -> FlowGraph: ...


def graph_of(flow: HasGraph | FlowGraph, what: str) -> FlowGraph:
    """Return the graph of a flow. what: the function that takes it, for errors.

    Raises `WrongType` for anything but a flow, and `BadFlow` for an incomplete one.
    """
    if isinstance(flow, FlowGraph):
        return flow
    kind = type(flow)
    if hasattr(kind, "graph"):
        return flow.graph()
    got, fix = f"{flow!r:.80}", 'make one: flow = hr.Flow("name")'
    if hasattr(kind, "flow"):
        fix = "give the flow of the stream: stream.flow"
    elif callable(flow):
        got = f"the {'class' if isinstance(flow, type) else 'function'} {function_name(flow)}"
        fix = f"call it, and give the flow that it makes: {function_name(flow)}(...)"
    raise WrongType(
        f"{what}() takes a flow, got {got}",
        where=[SourceLocation.of_caller()],
        fix=fix,
    )


def inside_loops(graph: FlowGraph) -> FlowGraph:
    """Replace each operator in a cycle within a tick with its loop form (`Operator.inside_loop`)."""
    following = adjacency_lists(len(graph.nodes), ((e.source, e.target) for e in graph.same_tick_edges()))
    looping = {
        node
        for part in strongly_connected_components(following)
        if is_cyclic(part, following)
        for node in part
    }
    changed = {n: graph.nodes[n].operator.inside_loop() for n in looping}
    if all(operator is graph.nodes[n].operator for n, operator in changed.items()):
        return graph
    nodes = tuple(replace(n, operator=changed[n.id]) if n.id in changed else n for n in graph.nodes)
    return replace(graph, nodes=nodes)


def is_named(node: Node) -> bool:
    """Return whether the user gave the name."""
    return node.name != f"{node.operator.kind}_{node.id}"


def user_name(graph: FlowGraph, node: Node) -> str | None:
    """Return the name given by the user to an operator or a sink."""
    sink = next((name for name, node_id in graph.sinks.items() if node_id == node.id), None)
    return sink if sink is not None else node.name if is_named(node) else None


def label(graph: FlowGraph, node: Node) -> str:
    """Return a label such as `filter 'cheap'`, `source 'bids'` or `sink 'averages'`; the kind if unnamed."""
    name = user_name(graph, node)
    return node.operator.kind if name is None else f"{node.operator.kind} {name!r}"


def label_in_sentence(graph: FlowGraph, node: Node) -> str:
    """Return the label for use within a sentence, with an article if unnamed: `the filter`."""
    text = label(graph, node)
    return f"the {text}" if text == node.operator.kind else text
