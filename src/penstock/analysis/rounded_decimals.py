"""Decimal columns and conditions of a flow that are rounded, with their operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import UnknownColumn, WrongType
from penstock.expr.check import check
from penstock.expr.decimal_rounding import DecimalRounding, roundings_of
from penstock.expr.types import DecimalType
from penstock.flow.aggregates import Mean
from penstock.flow.operators.aggregate import Aggregate
from penstock.flow.operators.over import ComputeOver
from penstock.flow.operators.window import Window

if TYPE_CHECKING:
    from penstock.expr.types import Schema
    from penstock.flow.window_functions import WindowFunction
    from penstock.graph.node import FlowGraph, Node, Operator


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
                for rounding in roundings_of(expr, schema):
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
