"""Complete analysis of a flow, for engines, explanations and pictures.

*Facts* are propagated to the greatest solution: every stream starts with all facts and loses those that an
operator upstream does not give. So a loop has the facts of its entries, and loses none just because it feeds
itself.

*Signed zeros* are normalized where equal rows are merged. Rows of a table are counted by equality, and the
output must not depend on which of two equal rows arrived first. So tables hold 0.0 in place of -0.0, from the
source on, as do the outputs of operators that merge equal values (a group, a distinct row, a maximum). Rows
of append streams keep their zeros.

*Decimals* are rounded where a result needs more than 38 digits: those after the point are cut to six at
least, as in Spark. Quotients and means are rounded anyway, as they may have infinitely many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.analysis.checks import Judgement, Verdict, check_cycles, judge_sinks, refusals
from headrace.analysis.strata import Region, find_activation, find_execution_order, find_regions
from headrace.errors import UnknownColumn, WrongType
from headrace.expr.check import check, checked_tree
from headrace.expr.types import DecimalType
from headrace.expr.typing_rules import CallTerm, Term
from headrace.expr.value_keys import has_representatives
from headrace.graph.operator_declarations import Facts, meet
from headrace.operators.aggregate.aggregate import Aggregate
from headrace.operators.aggregate.sums import Mean
from headrace.operators.event_time.window import Window
from headrace.operators.over.over import OverAggregate
from headrace.shown import Shown

if TYPE_CHECKING:
    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.node import FlowGraph, Node, Operator
    from headrace.operators.over.window_function import WindowFunction


def find_facts(graph: FlowGraph) -> tuple[Facts, ...]:
    """Compute the facts of each node's output, by node id."""
    facts = [meet(()) for _ in graph.nodes]
    consumers = graph.consumers()
    waiting = deque(range(len(graph.nodes)))
    queued = [True] * len(graph.nodes)
    while waiting:
        node = graph.nodes[waiting.popleft()]
        queued[node.id] = False
        # The meet only removes facts, so this ends even if an operator's `output_facts` is not monotone.
        found = meet((facts[node.id], node.operator.output_facts([facts[i] for i in node.inputs])))
        if found == facts[node.id]:
            continue
        facts[node.id] = found
        for edge in consumers[node.id]:
            if not queued[edge.target]:
                queued[edge.target] = True
                waiting.append(edge.target)
    return tuple(facts)


@dataclass(frozen=True, slots=True)
class ZeroNormalization:
    """Nodes with rows free of -0.0, and nodes where the engine must normalize rows.

    one: per node id, whether its rows are free of -0.0 when read.
    made: nodes whose rows the engine must normalize for that.
    """

    one: tuple[bool, ...]
    made: frozenset[int]


def find_zero_normalization(graph: FlowGraph, facts: Sequence[Facts]) -> ZeroNormalization:
    """Find where to normalize -0.0. In a cycle, append streams inherit the property from all inputs."""
    one = [not any(has_representatives(field.type) for field in node.schema.fields) for node in graph.nodes]
    made: set[int] = set()
    for node in graph.nodes:
        read = [one[i] or not facts[i].append for i in node.inputs]
        if one[node.id] or node.operator.free_of_negative_zero(read):
            one[node.id] = True
        elif not facts[node.id].append:
            one[node.id] = True
            made.add(node.id)
    return ZeroNormalization(tuple(one), frozenset(made))


@dataclass(frozen=True, slots=True)
class Analysis(Shown):
    """Results of the static analysis of a flow. Tuples are indexed by node id unless stated otherwise.

    facts:      of each node's output.
    loops:      sets of nodes that feed each other within a tick, in execution order.
    strata:     number of blocking inputs on the longest path from a source.
    ranks:      position in the execution order of the whole flow: 0, 1, 2, ... without gaps.
    activation: head of the node's region.
    regions:    parts that are active together, in an order in which they may run one by one.
    zeros:      nodes where an engine replaces -0.0 by 0.0.
    judgements: verdict on each sink with its grounds, by sink name.
    """

    facts: tuple[Facts, ...]
    loops: tuple[tuple[int, ...], ...]
    strata: tuple[int, ...]
    ranks: tuple[int, ...]
    activation: tuple[int, ...]
    regions: tuple[Region, ...]
    zeros: ZeroNormalization
    judgements: dict[str, Judgement]

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Verdict per sink name."""
        return {name: judgement.verdict for name, judgement in self.judgements.items()}

    def is_changing(self, loop: tuple[int, ...]) -> bool:
        """Return whether rows of a loop may be retracted."""
        return not all(self.facts[node].append for node in loop)

    def execution_order(self) -> list[int]:
        """Return the node ids ordered by rank, and so also by (stratum, rank)."""
        return sorted(range(len(self.ranks)), key=self.ranks.__getitem__)


def analyse(graph: FlowGraph) -> Analysis:
    """Analyse a flow.

    Raises `CycleThroughBlockingInput`, `GuardMissing` and `NeedNotMet`, in this order.
    """
    for error in check_cycles(graph):
        raise error
    facts = find_facts(graph)
    for error in refusals(graph, facts):
        raise error
    order = find_execution_order(graph)
    activation = find_activation(graph, order)
    return Analysis(
        facts=facts,
        loops=order.loops,
        strata=order.strata,
        ranks=order.ranks,
        activation=activation,
        regions=find_regions(graph, order, activation),
        zeros=find_zero_normalization(graph, facts),
        judgements=judge_sinks(graph, facts),
    )


def _larger_scale(a: DecimalType, b: DecimalType) -> int:
    return max(a.scale, b.scale)


_FULL_SCALES: dict[str, Callable[[DecimalType, DecimalType], int]] = {
    "add": _larger_scale,
    "subtract": _larger_scale,
    "multiply": lambda a, b: a.scale + b.scale,
    "divide": _larger_scale,
    "modulo": _larger_scale,
}
_ROUNDED_ANYWAY = "divide"


@dataclass(frozen=True, slots=True)
class DecimalRounding:
    """A decimal result that is rounded.

    full_scale: decimal places of the exact value or, for a quotient or a mean, of what goes into it.
    """

    type: DecimalType
    full_scale: int

    @property
    def is_cut(self) -> bool:
        """Whether the limit of 38 digits leaves the result fewer decimal places than `full_scale`."""
        return self.type.scale < self.full_scale

    def __str__(self) -> str:
        if self.is_cut:
            return f"keeps {self.type.scale} of {self.full_scale} decimal places"
        return f"is rounded to {self.type.scale} decimal places"


def _roundings_of(expr: Expr, schema: Schema) -> Iterator[DecimalRounding]:
    """Yield the roundings within an expression. Raises like `check`."""
    yield from _within(checked_tree(expr, schema))


def _within(term: Term) -> Iterator[DecimalRounding]:
    if not isinstance(term, CallTerm):
        return
    for argument in term.arguments:
        yield from _within(argument)
    name, types = term.function.name, [a.type for a in term.arguments if isinstance(a.type, DecimalType)]
    if isinstance(term.type, DecimalType) and name in _FULL_SCALES and len(types) == 2:
        found = DecimalRounding(term.type, _FULL_SCALES[name](*types))
        if found.is_cut or name == _ROUNDED_ANYWAY:
            yield found


@dataclass(frozen=True, slots=True)
class RoundedDecimal:
    """A rounding within an operator. text: the column and its expression, as in `total = price * amount`."""

    node: Node
    text: str
    rounding: DecimalRounding


def rounded_decimals(graph: FlowGraph) -> Iterator[RoundedDecimal]:
    """Yield the roundings in a flow's decimal arithmetic and means, in order of its operators."""
    for node in graph.nodes:
        if len(node.inputs) != 1:
            continue
        schema = graph.nodes[node.inputs[0]].schema
        for name, expr in node.operator.expressions():
            # Some operators have expressions over other columns than those of their input.
            with suppress(UnknownColumn, WrongType):
                for rounding in _roundings_of(expr, schema):
                    yield RoundedDecimal(node, f"{name} = {expr}", rounding)
        for name, mean in _means(node.operator):
            if (rounding := _rounding_of(mean, schema)) is not None:
                yield RoundedDecimal(node, f"{name} = {mean}", rounding)


def _means(operator: Operator) -> Iterator[tuple[str, Mean]]:
    functions: Sequence[tuple[str, WindowFunction]] = ()
    if isinstance(operator, Aggregate | Window):
        functions = operator.aggregations
    elif isinstance(operator, OverAggregate):
        functions = [(name, over.function) for name, over in operator.functions]
    yield from ((name, function) for name, function in functions if isinstance(function, Mean))


def _rounding_of(mean: Mean, schema: Schema) -> DecimalRounding | None:
    type, rounded = check(mean.expr, schema).type, mean.field("", schema).type
    if isinstance(type, DecimalType) and isinstance(rounded, DecimalType):
        return DecimalRounding(rounded, type.scale)
    return None
