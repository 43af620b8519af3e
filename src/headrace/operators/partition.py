"""Partition operator: send each row to exactly one of several ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.check import check
from headrace.expr.constructors import col
from headrace.expr.row_classes import to_user
from headrace.expr.tree import Expr, Literal, columns_of
from headrace.expr.types import INT64, BoolType, Field
from headrace.graph.node import identity_lineage
from headrace.lowering.reference import Bag, Bags, Examples, Pair, answer_of_bags, copies, function_of
from headrace.lowering.row_code import RowCode, user_form
from headrace.lowering.step import Step, register_step
from headrace.operators.row_by_row import RowByRow

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node, Operator
    from headrace.graph.operator_declarations import Lineage
    from headrace.lowering.step_writer import StepWriter


def _parity(pair: Pair) -> str:
    return "odd" if pair.a % 2 else "even"


@dataclass(frozen=True, slots=True)
class Partition(RowByRow):
    """Each row, with its port number as the last column.

    by:    an expression or a function of the row, with one of `tags` as its value.
    tags:  names of the ports, in order. Any other value stops the tick with `UnknownPort`, an error that
           names the value, the row and the source location.

    The streams of the ports are filters of this one by its last column, so they are disjoint, together form
    the input, and keep its order. A tick without rows emits nothing.

    >>> from headrace.testing import show
    >>> def half(n: int) -> str:
    ...     return "small" if n < 5 else "large"
    >>> show(lambda numbers: numbers.partition(half, ["small", "large"])["large"], numbers=[1, 7, 5])
    + 7
    + 5
    """

    kind: ClassVar[str] = "partition"
    examples: ClassVar[Examples] = {
        "expression": lambda x, y: y.partition(col.a % 2, 2)[1],
        "callable": lambda x, y: y.partition(_parity, ["even", "odd"])["odd"],
    }
    by: Expr | Callable[..., object]
    tags: tuple[object, ...]

    def output(self, context: CheckContext) -> Columns:
        fields = context.input.fields
        different = self.tags and len(set(self.tags)) == len(self.tags)
        context.require(bool(different), "the ports are not different")
        context.require(len(context.output.fields) == len(fields) + 1, "the number of the port is missing")
        if isinstance(self.by, Expr):
            found = check(self.by, context.input).type
            if not (isinstance(found, BoolType) and self.tags == (False, True)):
                for tag in self.tags:
                    check(self.by == Literal(tag), context.input)
        port = context.output.names[-1]
        context.require(context.input.position(port) is None, f"there is a column {port!r} already")
        return (*fields, Field(port, INT64))

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        if not isinstance(self.by, Expr):
            return None
        return ({*columns_of(self.by), *live} & set(inputs[0].names),)

    def over(
        self, inputs: Sequence[Schema], kept: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[Operator, tuple[Field, ...]]:
        there = {*kept[0].names, output.names[-1]}
        return self, tuple(f for f in output.fields if f.name in there)

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        if isinstance(self.by, Expr):
            yield "by", self.by

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        if not isinstance(self.by, Expr):
            yield "by", self.by

    def describe(self) -> str:
        by = str(self.by) if isinstance(self.by, Expr) else getattr(self.by, "__name__", repr(self.by))
        return f"by {by}: {', '.join(map(str, self.tags))}"


@register_step(Partition)
class PartitionStep(Step):
    """Step of partition: rows are routed by tag, looked up among the ports' tags in order."""

    operator: Partition

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self._ports = writer.constant("ports", {tag: at for at, tag in enumerate(self.operator.tags)})

    def consume(self, port: int, row: RowCode) -> None:
        tag, at = self.writer.fresh("tag"), self.writer.fresh("port")
        self.code.line(f"{tag} = {self._tag(port, row)}")
        self.code.line(f"{at} = {self._ports}.get({tag})")
        with self.code.block(f"if {at} is None:"):
            self.code.line(f"x_unknown_port({tag}, {self._ports})")
        self.emit(RowCode((*row.columns, at), None, row.weight))

    def _tag(self, port: int, row: RowCode) -> str:
        schema, by = self.input_schema(port), self.operator.by
        if isinstance(by, Expr):
            return self.writer.value(by, schema, row.columns)
        return f"{self.writer.constant('f', by)}({user_form(self.writer, schema, row)})"


@answer_of_bags.register(Partition)
def _answer(operator: Partition, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    by, seen = operator.by, to_user(schema)
    tag = function_of(by, schema) if isinstance(by, Expr) else lambda row: by(seen(row))
    return Counter((*row, operator.tags.index(tag(row))) for row in copies(bag))
