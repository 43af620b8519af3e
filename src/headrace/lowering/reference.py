"""Examples of operators, and reference answers: from whole bags, without increments or an engine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple, TypeAlias

from headrace.expr.compile_python import RUNTIME, CodeScope, value_source
from headrace.expr.tree import Expr
from headrace.expr.types import Row, Schema
from headrace.graph.node import Node, Operator

Bag: TypeAlias = Counter[Row]
Bags: TypeAlias = Sequence[tuple[Schema, Bag]]
"""Schemas and bags of an operator's inputs."""


def bag_of(rows: Mapping[Row, int]) -> Bag:
    """Return the rows as a bag. Raises `NotOfBags` for negative multiplicities, which may be temporary."""
    if any(count < 0 for count in rows.values()):
        raise NotOfBags("a row has been taken back before it came")
    return Counter({row: count for row, count in rows.items() if count})


def function_of(expr: Expr, schema: Schema) -> Callable[[Row], Any]:
    """Convert an expression to a function of one row."""
    variables = tuple(f"c{at}" for at in range(len(schema.fields)))
    scope = CodeScope(schema, variables, {})
    source = f"lambda {', '.join(variables)}: {value_source(expr, scope)}"
    function = eval(source, {**RUNTIME, **scope.constants})
    return lambda row: function(*row)


def functions_of(exprs: Sequence[Expr], schema: Schema) -> Callable[[Row], Row]:
    """Convert expressions to a function from a row to the tuple of their values."""
    functions = [function_of(expr, schema) for expr in exprs]
    return lambda row: tuple(function(row) for function in functions)


def rank(value: Any) -> Any:
    """Return the sort key of a value: nulls first, NaN greatest, rows and lists compared item by item."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (2,) if math.isnan(value) else (1, value)
    if isinstance(value, tuple):
        return (1, tuple(rank(part) for part in value))
    return (1, value)


def copies(bag: Bag) -> Iterator[Row]:
    """Yield as many copies of each row as are present."""
    for row, count in bag.items():
        for _ in range(count):
            yield row


class NotOfBags(Exception):
    """Raised if bags do not determine the result.

    Either a row is retracted before it is inserted, or an operator depends on ticks or on the order of rows.
    """


def sum_bags(bags: Sequence[Bag]) -> Bag:
    """Add up the counts of rows, and drop rows with count 0."""
    total: Bag = Counter()
    for bag in bags:
        total.update(bag)
    return Counter({row: count for row, count in total.items() if count})


def bag_difference(after: Bag, before: Bag) -> Bag:
    """Return the changes from one bag to another."""
    rows = {*after, *before}  # Counter's | would drop negative counts.
    return Counter({row: after[row] - before[row] for row in rows if after[row] != before[row]})


@dataclass(frozen=True, slots=True)
class OperatorInput:
    """Input that an operator reads.

    changes: rows with counts, negative for retractions, of each tick so far, this one last.
    """

    schema: Schema
    changes: Sequence[Bag]

    @property
    def now(self) -> Bag:
        """Return the rows present at the end of this tick."""
        return bag_of(sum_bags(self.changes))

    @property
    def tick_changes(self) -> Bag:
        """Return the changes of this tick."""
        return self.changes[-1]

    def rows(self, *, of_tick: bool) -> tuple[Schema, Bag]:
        """Return the schema and the rows present, or only those of this tick."""
        return self.schema, bag_of(self.tick_changes) if of_tick else self.now


@singledispatch
def answer_of_bags(operator: Operator, node: Node, inputs: Bags) -> Bag:
    """Compute the output bag of an operator from the schemas and bags of its inputs. Raises `NotOfBags`."""
    raise NotOfBags(f"{operator.kind} is no function of bags")


@singledispatch
def output_of_tick(operator: Operator, node: Node, inputs: Sequence[OperatorInput]) -> Bag:
    """Compute the output of one tick of an operator without state across ticks. Raises `NotOfBags`."""
    raise NotOfBags(f"{operator.kind} is no function of the bags of ticks")


class ExamplePair(NamedTuple):
    """Row of the examples' streams."""

    a: int
    b: int | None


Examples: TypeAlias = Mapping[str, Callable[[Any, Any], Any]]
"""Flows that show an operator, by a label: functions of an append stream and a table of `ExamplePair`s.

Tick tables, random flows, plans and the pages of the documentation are made from them.
"""
