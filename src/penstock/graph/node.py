"""A flow as frozen data: nodes that name the nodes they read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from penstock.expr.tree import Column
from penstock.graph.facts import Delay, Facts, Need, Port, meet
from penstock.graph.order import components, is_cyclic, successors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from penstock.errors import SourceLocation
    from penstock.expr.tree import Expr
    from penstock.expr.types import Field, Schema
    from penstock.graph.check_context import CheckContext
    from penstock.graph.facts import Lineage, Placement, SlotLayout, Unservable
    from penstock.graph.monotone_columns import Growth


ALTERABLE: Mapping[str, bool] = MappingProxyType({"alterable": True})
"""Metadata of an operator's field whose value may change while the state of a flow stays good."""


Columns: TypeAlias = "tuple[Field, ...] | None"
"""The columns of an output; None where a function decides."""


def unchanged(schema: Schema) -> dict[str, Expr]:
    """The lineage of rows that keep all columns of an input."""
    return {name: Column(name) for name in schema.names}


def function_name(function: object) -> str:
    """A function as users called it."""
    return str(getattr(function, "__qualname__", type(function).__qualname__))


class Operator(ABC):
    """Base of the operators: frozen dataclasses that say what analyses must know.

    `kind` is the name shown to users. Nothing outside the operator's own file
    decides by it; engines dispatch on the class.
    """

    kind: ClassVar[str]
    runs_each_tick: ClassVar[bool] = False
    """Whether it has something to say in a tick in which nothing reaches it. It starts no tick."""
    runs_first_tick: ClassVar[bool] = False
    """Whether it has something to say in the first tick, whatever reaches it. It starts no tick."""
    begins_ticks: ClassVar[bool] = False
    """Whether each of its values is a tick of its own: then its ticks are part of the input."""
    ends_streams: ClassVar[bool] = False
    """Whether what leads to it runs, although nothing of it leaves the flow."""
    linear: ClassVar[bool] = False
    """Whether it answers each row by itself and remembers nothing: a row that goes takes its answer along."""
    row_by_row: ClassVar[bool] = False
    """Whether it answers each row when it comes, in order, so that it can run inside of its reader."""
    unites: ClassVar[bool] = False
    """Whether each of its rows is a row of one of its inputs, and each row of them is one of its rows."""
    merges_equal: ClassVar[bool] = False
    """Whether equal values become one, also where no row is taken back: one of them stands for all."""
    nets: ClassVar[bool] = False
    """Whether what it sends depends on the sum of a tick's changes, and not on each of them."""
    makes_order: ClassVar[bool] = False
    """Whether the order of its rows is its own; only equal ones keep that in which they came."""
    gives_watermark: ClassVar[bool] = False
    """Whether its rows are watermarks, which only operators beside it can use."""
    runs_in_rounds: ClassVar[bool] = False
    """Whether a loop with it can be cut by key, so that shards run its rounds side by side."""
    __slots__ = ()

    @abstractmethod
    def ports(self) -> tuple[Port, ...]:
        """The inputs, in order."""

    @abstractmethod
    def output(self, context: CheckContext) -> Columns:
        """The columns of the output over the inputs of `context`; None where a function decides.

        Raises what `context.refused` makes, and what the checks of expressions raise, for inputs that it
        cannot read and for parameters that no method gives.
        """

    @abstractmethod
    def placement(self) -> Placement:
        """Which input rows must meet. `ANYWHERE` only where each row is answered by itself."""

    @abstractmethod
    def unservable(self) -> Unservable | None:
        """Why its answers are no function of the rows at a time, so that no replica can serve them."""

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        """Per port, which columns of the output have the value of what expression over the port's columns.

        Only what holds of every row that is made of a row of that port. Default: nothing is known.
        """
        nothing: Lineage = {}
        return (nothing,) * len(inputs)

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        """The columns read of each input when only the columns `live` of the output matter.

        None means whole rows of every input; `over` is then never called. Default: None.
        """
        return None

    def over(
        self, inputs: Sequence[Schema], kept: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[Operator, tuple[Field, ...]]:
        """The operator rewritten for narrowed inputs, and the fields of its output then.

        inputs: schemas as the operator was written for. kept: the narrowed ones, which have the columns that
        `reads` named and perhaps more. Default: the operator itself, passing on the columns that are left.
        """
        there = set(kept[0].names)
        return self, tuple(field for field in output.fields if field.name in there)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        """The layout of each slot that can be divided among shards. Default: there is none.

        appends: per port, whether its rows are never taken back.
        """
        return {}

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        """Whether no float of its rows is -0.0, given of which inputs that holds. Default: not known."""
        return False

    def at_most_one_row(self) -> bool:
        """Whether it holds one row at most, whose order is no question then."""
        return False

    def reads_order(self, port: int) -> bool:
        """Whether answers depend on the order of a port's rows. Default: where it needs one."""
        return any(need.fact == "ordered" and need.port == port for need in self.needs())

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        """Facts of the output, from those of the inputs. Default: their meet."""
        return meet(inputs)

    def needs(self) -> tuple[Need, ...]:
        """Facts that must hold of inputs."""
        return ()

    def guard(self) -> str | None:
        """The user's reason why answers may depend on the cut into ticks here, if one was given."""
        return None

    def depends_on_cut(self) -> str:
        """Why its answers depend on how the input is cut into ticks, a sentence; empty where they do not.

        Such an operator must have a `guard`, unless the ticks of the flow are given.
        """
        return ""

    def may_be_silent(self) -> bool:
        """Whether it may have nothing to say in a tick in which it acts; those behind it do not run then."""
        return False

    def growth(self, inputs: Sequence[Growth | None]) -> Growth | None:
        """Which columns only grow while rows of its input are only added, given those of the inputs."""
        return None

    def grows_from(self) -> str | None:
        """The column of its input that must only grow, where it needs one."""
        return None

    def inside_loop(self) -> Operator:
        """What stands in its place where its rows come back to it within a tick. Default: itself."""
        return self

    def refused_in_changing_loop(self, goes_round: Sequence[bool]) -> str:
        """Why it cannot stand in a loop whose rows may be taken back, a clause; empty where it can.

        Such a loop tells the rounds of a tick apart, and what an operator remembers
        must be kept by rounds. goes_round: per port, whether what it reads is of the loop.
        """
        return "" if self.linear else "what it remembers is not kept by rounds"

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        """The operator's expressions with a label each, for `explain` and fingerprints."""
        yield from ()

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        """The operator's opaque functions with a label each."""
        yield from ()

    def claimed(self) -> Iterator[str]:
        """What users say of its functions and nothing proves, a clause each; verdicts rest on it."""
        for _, function in self.callables():
            yield f"{function_name(function)} is a function of its arguments"

    def describe(self) -> str:
        """The parameters in short, for `explain` and pictures; empty where there are none."""
        return ""


@dataclass(frozen=True, slots=True)
class Node:
    """An operator in its place.

    id:     its position in `FlowGraph.nodes`, given in the order of writing.
    name:   unique in the flow; the user's, or the kind with a number.
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


@dataclass(frozen=True, slots=True)
class Edge:
    """`source` feeds port number `port` of `target`."""

    source: int
    target: int
    port: int


@dataclass(frozen=True, slots=True)
class FlowGraph:
    """A whole flow. `nodes[i].id == i`; back edges are inputs with a larger or equal id.

    sources and sinks map the names users gave to node ids. `given_ticks`: the
    flow was declared with `ticks="given"`, its ticks are part of its input.
    """

    name: str
    nodes: tuple[Node, ...]
    sources: dict[str, int]
    sinks: dict[str, int]
    given_ticks: bool = False

    def edges(self) -> Iterator[Edge]:
        for node in self.nodes:
            for port, source in enumerate(node.inputs):
                yield Edge(source, node.id, port)

    def port(self, edge: Edge) -> Port:
        return self.nodes[edge.target].operator.ports()[edge.port]

    def consumers(self) -> tuple[tuple[Edge, ...], ...]:
        """Per node, the edges that leave it, in the order of writing."""
        out: list[list[Edge]] = [[] for _ in self.nodes]
        for edge in self.edges():
            out[edge.source].append(edge)
        return tuple(tuple(edges) for edges in out)

    def same_tick_edges(self) -> Iterator[Edge]:
        """Edges whose rows are seen in the tick in which they are sent."""
        for node in self.nodes:
            if not node.inputs:
                continue
            ports = node.operator.ports()
            for port, source in enumerate(node.inputs):
                if ports[port].delay is Delay.NONE:
                    yield Edge(source, node.id, port)


def inside_loops(graph: FlowGraph) -> FlowGraph:
    """Replace each operator in a cycle within a tick by its form for loops (`Operator.inside_loop`)."""
    following = successors(len(graph.nodes), ((e.source, e.target) for e in graph.same_tick_edges()))
    looping = {node for part in components(following) if is_cyclic(part, following) for node in part}
    changed = {n: graph.nodes[n].operator.inside_loop() for n in looping}
    if all(operator is graph.nodes[n].operator for n, operator in changed.items()):
        return graph
    nodes = tuple(replace(n, operator=changed[n.id]) if n.id in changed else n for n in graph.nodes)
    return replace(graph, nodes=nodes)
