"""Operators on single rows: filter, select, partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from headrace.errors import UnknownPort
from headrace.expr.check import check
from headrace.expr.constructors import col
from headrace.expr.polars_columns import NotLowered
from headrace.expr.row_classes import to_user
from headrace.expr.tree import Column, Expr, Literal, columns_of
from headrace.expr.types import BOOL, INT64, BoolType, Field
from headrace.graph.node import Operator, identity_lineage
from headrace.graph.operator_declarations import ANYWHERE, MonotoneColumns, Placement, Port
from headrace.lowering.forms import apply_operator, lower_operator
from headrace.lowering.generated_source import register_runtime
from headrace.lowering.reference import (
    Bag,
    Bags,
    ExamplePair,
    Examples,
    answer_of_bags,
    copies,
    function_of,
    functions_of,
)
from headrace.lowering.row_code import RowCode, user_form
from headrace.lowering.step import RowStep, register_step

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame

    from headrace.columns.column_stream import ColumnStream
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage, Unservable
    from headrace.lowering.forms import BatchContext
    from headrace.lowering.step_writer import StepWriter


class RowByRow(Operator):
    """Base of stateless operators with one input that map each row by itself."""

    __slots__ = ()
    linear: ClassVar[bool] = True
    row_by_row: ClassVar[bool] = True

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def placement(self) -> Placement:
        return ANYWHERE

    def unservable(self) -> Unservable | None:
        return None


class RowFunction(RowByRow):
    """Base of operators that call an opaque function on each row.

    function: field defined by each subclass.
    """

    __slots__ = ()
    function: Callable[..., object]

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield "function", self.function

    def describe(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)


@dataclass(frozen=True, slots=True)
class Filter(RowByRow):
    """Rows whose predicate is true; rows with false or null are dropped.

    An expression is inlined; a callable is opaque and receives the row.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.filter(col.value > 1), numbers=[1, 2])
    + 2
    """

    kind: ClassVar[str] = "filter"
    examples: ClassVar[Examples] = {
        "expression": lambda x, y: y.filter(col.a > 1),
        "callable": lambda x, y: y.filter(lambda pair: pair.a > 1),
    }
    predicate: Expr | Callable[..., bool]

    def output(self, context: CheckContext) -> Columns:
        if isinstance(self.predicate, Expr):
            context.require(context.type_of(self.predicate) == BOOL, "a filter is not true or false")
        return context.input.fields

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        return ({*live, *columns_of(self.predicate)},) if isinstance(self.predicate, Expr) else None

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def monotone_columns(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        (before,) = inputs
        if before is None or not isinstance(self.predicate, Expr):
            return None
        # A predicate over the keys alone passes all values of a key, or none.
        read = {part.name for part in self.predicate.walk() if isinstance(part, Column)}
        return before if read <= set(before.keys) else None

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        if isinstance(self.predicate, Expr):
            yield "predicate", self.predicate

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        if not isinstance(self.predicate, Expr):
            yield "predicate", self.predicate

    def describe(self) -> str:
        if isinstance(self.predicate, Expr):
            return str(self.predicate)
        return getattr(self.predicate, "__name__", repr(self.predicate))


@register_step(Filter)
class FilterStep(RowStep):
    operator: Filter

    def consume(self, port: int, row: RowCode) -> None:
        schema, predicate = self.writer.input_schema(self.node, port), self.operator.predicate
        if isinstance(predicate, Expr):
            condition = self.writer.predicate(predicate, schema, row.columns)
        else:
            function = self.writer.constant("f", predicate)
            condition = f"{function}({user_form(self.writer, schema, row)})"
        with self.code.block(f"if {condition}:"):
            self.emit(row)


@apply_operator.register(Filter)
def _filter_on_columns(
    operator: Filter, schema: Schema, append: bool, inputs: Sequence[ColumnStream]
) -> ColumnStream:
    import polars as pl

    from headrace.columns.columns import FAILS

    (stream,) = inputs
    if not isinstance(operator.predicate, Expr):
        raise NotLowered("it calls a function on each row")
    lowered = stream.lower(operator.predicate)
    noted = stream.noting(lowered.fails)
    passes = lowered.value
    if noted.checked:
        passes = passes.fill_null(False) | pl.col(FAILS)
    return replace(noted, schema=schema, frame=noted.frame.filter(passes))


@lower_operator.register(Filter)
def _filter_on_spark(operator: Filter, context: BatchContext) -> DataFrame:
    assert isinstance(operator.predicate, Expr)
    return context.inputs[0].filter(context.column(operator.predicate))


@answer_of_bags.register(Filter)
def _filter_answer(operator: Filter, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    if isinstance(operator.predicate, Expr):
        holds = function_of(operator.predicate, schema)
        return Counter(row for row in copies(bag) if holds(row) is True)
    seen, predicate = to_user(schema), operator.predicate
    return Counter(row for row in copies(bag) if predicate(seen(row)))


@dataclass(frozen=True, slots=True)
class Select(RowByRow):
    """One expression per output column. `with_columns` is a select that keeps the other columns.

    Rows that become equal are kept as duplicates.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.select(half=col.value / 2), numbers=[1, 2])
    + (half=0.5)
    + (half=1.0)
    """

    kind: ClassVar[str] = "select"
    examples: ClassVar[Examples] = {
        "select": lambda x, y: y.select("b", c=col.a + 1),
    }
    columns: tuple[tuple[str, Expr], ...]

    def output(self, context: CheckContext) -> Columns:
        return context.computed_columns(self.columns)

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        return ({name for column, expr in self.columns if column in live for name in columns_of(expr)},)

    def over(
        self, inputs: Sequence[Schema], kept: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[Operator, tuple[Field, ...]]:
        columns = tuple((name, expr) for name, expr in self.columns if name in live)
        return replace(self, columns=columns), tuple(f for f in output.fields if f.name in live)

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (dict(self.columns),)

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs) and all(isinstance(expr, Column) for _, expr in self.columns)

    def monotone_columns(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        (before,) = inputs
        names = {expr.name: name for name, expr in self.columns if isinstance(expr, Column)}
        if before is None or any(key not in names for key in before.keys):
            return None
        grown = {names[name]: order for name, order in before.columns.items() if name in names}
        return MonotoneColumns(tuple(names[key] for key in before.keys), grown)

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.columns

    def describe(self) -> str:
        return ", ".join(f"{name}={expr}" for name, expr in self.columns)


def with_columns(schema: Schema, columns: Mapping[str, Expr]) -> Select:
    """Replace existing columns and append new ones.

    All expressions refer to the original row.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.with_columns(half=col.value / 2), numbers=[1])
    + (value=1, half=0.5)
    """
    kept = [(name, columns.get(name, Column(name))) for name in schema.names]
    added = [(name, expr) for name, expr in columns.items() if name not in schema.names]
    return Select(tuple(kept + added))


@register_step(Select)
class SelectStep(RowStep):
    operator: Select

    def consume(self, port: int, row: RowCode) -> None:
        schema = self.writer.input_schema(self.node, port)
        columns: list[str] = []
        for name, expr in self.operator.columns:
            source = self.writer.value(expr, schema, row.columns)
            if not isinstance(expr, Column):
                variable = self.writer.fresh(name)
                self.code.line(f"{variable} = {source}")
                source = variable
            columns.append(source)
        self.emit(RowCode(tuple(columns), None, row.weight))


@apply_operator.register(Select)
def _select_on_columns(
    operator: Select, schema: Schema, append: bool, inputs: Sequence[ColumnStream]
) -> ColumnStream:
    import polars as pl

    from headrace.columns.column_stream import ColumnStream
    from headrace.columns.columns import FAILS, WEIGHT
    from headrace.columns.expressions import reads_columns
    from headrace.expr.polars_columns import LoweredExpression

    (stream,) = inputs
    if all(isinstance(expr, Column) for _, expr in operator.columns):
        names = [cast("Column", expr).name for _, expr in operator.columns]
        taken = stream.taking(schema, append, [stream.schema.names.index(name) for name in names])
        if taken is not None:
            return taken
    lowered = [stream.lower(expr) for _, expr in operator.columns]
    if not any(reads_columns(expr) for _, expr in operator.columns):
        raise NotLowered("constants alone stay in rows")
    noted = stream.noting(*(one.fails for one in lowered))
    beside = [*([] if append else [WEIGHT]), *([FAILS] if noted.checked else [])]
    values = [one.value.alias(str(at)) for at, one in enumerate(lowered)]
    columns = tuple(LoweredExpression(pl.col(str(at)), one.bounds) for at, one in enumerate(lowered))
    frame = noted.frame.select(*values, *beside)
    return ColumnStream(schema, append, frame, columns, stream.most, stream.copies, noted.checked)


@lower_operator.register(Select)
def _select_on_spark(operator: Select, context: BatchContext) -> DataFrame:
    return context.inputs[0].select(*(context.column(expr).alias(name) for name, expr in operator.columns))


@answer_of_bags.register(Select)
def _select_answer(operator: Select, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    compute = functions_of([expr for _, expr in operator.columns], schema)
    return Counter(compute(row) for row in copies(bag))


def _parity(pair: ExamplePair) -> str:
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

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
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
class PartitionStep(RowStep):
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
def _partition_answer(operator: Partition, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    by, seen = operator.by, to_user(schema)
    tag = function_of(by, schema) if isinstance(by, Expr) else lambda row: by(seen(row))
    return Counter((*row, operator.tags.index(tag(row))) for row in copies(bag))


# --- run time ------------------------------------------------------------------------------------


def unknown_port(tag: object, ports: dict[Any, int]) -> None:
    """Raise the error for a partitioned row whose tag is not among the ports."""
    raise UnknownPort(
        f"{tag!r:.100} is not a port of this partition",
        fix=f"return one of its ports: {', '.join(map(repr, ports))}",
        port=tag,
    )


register_runtime({"x_unknown_port": unknown_port})
