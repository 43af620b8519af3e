"""Decimal columns and conditions of a flow that are rounded, with their operator.

A result has 38 digits at most. If its digits before and after the point need more, those after the point are
cut to six at least, as in Spark, and values are rounded. Quotients and means are rounded anyway, as they may
have infinitely many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import UnknownColumn, WrongType
from headrace.expr.check import check, checked_tree
from headrace.expr.types import DecimalType
from headrace.expr.typing_rules import CallTerm, Term
from headrace.operators.aggregate.operator import Aggregate
from headrace.operators.aggregate.sums import Mean
from headrace.operators.event_time.window import Window
from headrace.operators.over.operator import ComputeOver

if TYPE_CHECKING:
    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.node import FlowGraph, Node, Operator
    from headrace.operators.over.window_function import WindowFunction


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
        """Whether the limit of 38 digits costs decimal places that all values may have."""
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
    """Yield the roundings of a flow in order of its operators: of arithmetic, and of means of decimals."""
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
    elif isinstance(operator, ComputeOver):
        functions = [(name, over.function) for name, over in operator.functions]
    yield from ((name, function) for name, function in functions if isinstance(function, Mean))


def _rounding_of(mean: Mean, schema: Schema) -> DecimalRounding | None:
    type, rounded = check(mean.expr, schema).type, mean.field("", schema).type
    if isinstance(type, DecimalType) and isinstance(rounded, DecimalType):
        return DecimalRounding(rounded, type.scale)
    return None
