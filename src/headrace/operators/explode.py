"""Explode operator: one row per list element, optionally with its position."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from headrace.errors import EvaluationError
from headrace.expr.polars_columns import NotLowered
from headrace.expr.types import INT32, AnyType, Field, ListType
from headrace.expr.value_keys import any_key
from headrace.graph.node import identity_lineage
from headrace.lowering.forms import apply_operator, lower_operator
from headrace.lowering.generated_source import register_runtime
from headrace.lowering.reference import Bag, Bags, ExamplePair, Examples, answer_of_bags, copies
from headrace.lowering.row_code import RowCode
from headrace.lowering.step import RowStep, register_step
from headrace.operators.rows import RowByRow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame

    from headrace.columns.column_stream import ColumnStream
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node, Operator
    from headrace.graph.operator_declarations import Lineage
    from headrace.lowering.forms import BatchContext


def _numbers(pair: ExamplePair) -> list[int]:
    return [pair.a] * pair.a


@dataclass(frozen=True, slots=True)
class Explode(RowByRow):
    """One copy of the row per element of the list in column `at`, which the element replaces.

    at:       position of the column. Its type is a list or any; for any, a value other than a tuple, list or
              frozenset stops the tick with `EvaluationError`.
    into:     name of the element's column.
    position: name of a column before it, with the element's position from 0; None for no such column.
    outer:    whether to keep a row whose list is null or empty, with null for element and position.

    Elements keep their order, and set members are sorted; all have the weight of their row. A tick without
    rows emits nothing. The semantics are those of `explode`, `posexplode` and their outer forms in Spark SQL.

    >>> from headrace.testing import show
    >>> def words(line: str) -> list[str]:
    ...     return line.split()
    >>> show(lambda lines: lines.map(words).explode(position="at"), lines=["a b", "", "c"])
    + (at=0, value='a')
    + (at=1, value='b')
    + (at=0, value='c')
    """

    kind: ClassVar[str] = "explode"
    examples: ClassVar[Examples] = {
        "flatten": lambda x, y: y.map(_numbers).flatten(),
        "explode": lambda x, y: y.map(_numbers).explode(into="number"),
        "posexplode": lambda x, y: y.map(_numbers).explode(position="at"),
        "explode_outer": lambda x, y: y.map(_numbers).explode(outer=True),
        "posexplode_outer": lambda x, y: y.map(_numbers).explode(position="at", outer=True),
    }
    at: int
    into: str
    position: str | None = None
    outer: bool = False

    def output(self, context: CheckContext) -> Columns:
        fields, at = context.input.fields, self.at
        context.require(0 <= at < len(fields), "there is no such column to explode")
        context.require(isinstance(fields[at].type, ListType | AnyType), "the column to explode is no list")
        made = self.output_columns(fields)
        context.require(len({field.name for field in made}) == len(made), "two columns have one name")
        return made

    def output_columns(self, fields: Sequence[Field]) -> tuple[Field, ...]:
        """Derive the output columns from the input columns."""
        found = fields[self.at].type
        element = Field(self.into, found, True)
        if isinstance(found, ListType):
            element = Field(self.into, found.element, found.nullable or self.outer)
        position = () if self.position is None else (Field(self.position, INT32, self.outer),)
        return (*fields[: self.at], *position, element, *fields[self.at + 1 :])

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        before = inputs[0].names
        return ({before[self.at], *(name for name in before if name in live)},)

    def over(
        self, inputs: Sequence[Schema], kept: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[Operator, tuple[Field, ...]]:
        operator = replace(self, at=kept[0].names.index(inputs[0].names[self.at]))
        return operator, operator.output_columns(kept[0].fields)

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        kept = identity_lineage(inputs[0])
        del kept[inputs[0].names[self.at]]
        return (kept,)

    def describe(self) -> str:
        position = "" if self.position is None else f" at {self.position}"
        return f"column {self.at}{position}{', empty lists kept' if self.outer else ''}"


@register_step(Explode)
class ExplodeStep(RowStep):
    operator: Explode

    def consume(self, port: int, row: RowCode) -> None:
        at, numbered = self.operator.at, self.operator.position is not None
        column = self.input_schema(port).fields[at]
        elements, element = row.columns[at], self.writer.fresh("element")
        made: tuple[str, ...] = (element,)
        if isinstance(column.type, AnyType):
            elements = f"x_items({elements})"
        elif column.nullable and not self.operator.outer:
            elements = f"({elements} or ())"
        if numbered:
            made = (self.writer.fresh("position"), element)
        if numbered and self.operator.outer:
            held = self.writer.fresh("elements")
            self.code.line(f"{held} = {elements}")
            elements = f"enumerate({held}) if {held} else ((None, None),)"
        elif numbered:
            elements = f"enumerate({elements})"
        elif self.operator.outer:
            elements = f"{elements} or (None,)"
        with self.code.block(f"for {', '.join(made)} in {elements}:"):
            self.emit(RowCode((*row.columns[:at], *made, *row.columns[at + 1 :]), None, row.weight))


@apply_operator.register(Explode)
def _on_columns(
    operator: Explode, schema: Schema, append: bool, inputs: Sequence[ColumnStream]
) -> ColumnStream:
    import numpy as np
    import polars as pl

    from headrace.arrangement.batch import take, values_at
    from headrace.columns.column_stream import build_stream, empty_stream
    from headrace.columns.columns import Columns

    (stream,) = inputs
    if not isinstance(stream.schema.fields[operator.at].type, ListType):
        raise NotLowered("it takes values of any kind apart")
    if not stream.most:
        return empty_stream(schema, append)
    frame = stream.collected()
    lists = frame[str(operator.at)]
    counts = lists.list.len().fill_null(0).to_numpy().astype(np.int64)
    elements = lists.filter(pl.Series(counts > 0)).explode()
    repeats = np.maximum(counts, 1) if operator.outer else counts
    of_row = np.repeat(np.arange(len(repeats)), repeats)
    numbered = pl.Series((np.arange(len(of_row)) - (np.cumsum(repeats) - repeats)[of_row]).astype(np.int32))
    if operator.outer:
        empty = np.flatnonzero(counts[of_row] == 0)
        places = np.cumsum(counts[of_row] != 0) - 1
        elements = values_at(elements, places, counts[of_row] != 0)
        numbered = numbered.scatter(empty, None)
    others = frame.drop(str(operator.at))
    columns = take(others, of_row).get_columns() if others.width else []
    columns[operator.at : operator.at] = [elements] if operator.position is None else [numbered, elements]
    named = [column.alias(str(at)) for at, column in enumerate(columns[: len(schema.fields)])]
    return build_stream(Columns(schema, append, pl.DataFrame([*named, *columns[len(schema.fields) :]])))


@lower_operator.register(Explode)
def _on_spark(operator: Explode, context: BatchContext) -> DataFrame:
    from pyspark.sql import functions as f

    names = context.schemas[0].names
    before, after = map(context.named, names[: operator.at]), map(context.named, names[operator.at + 1 :])
    elements = context.named(names[operator.at])
    if operator.position is None:
        made = (f.explode_outer if operator.outer else f.explode)(elements).alias(operator.into)
    else:
        numbered = f.posexplode_outer if operator.outer else f.posexplode
        made = numbered(elements).alias(operator.position, operator.into)
    return context.inputs[0].select(*before, made, *after)


@answer_of_bags.register(Explode)
def _answer(operator: Explode, node: Node, inputs: Bags) -> Bag:
    [(_, bag)] = inputs
    at = operator.at
    found: Bag = Counter()
    for row in copies(bag):
        made: list[tuple[Any, ...]] = list(enumerate(row[at] or ()))
        if operator.outer and not made:
            made = [(None, None)]
        for pair in made:
            found[*row[:at], *pair[operator.position is None :], *row[at + 1 :]] += 1
    return found


# --- run time ------------------------------------------------------------------------------------


def checked_items(value: Any) -> Any:
    """Return the items of a value of any type. Raises `EvaluationError` if it is not a collection."""
    if isinstance(value, tuple | list):
        return cast("Any", value)
    if isinstance(value, frozenset):
        return _in_order(cast("frozenset[Any]", value))
    if value is None:
        return ()
    raise EvaluationError(
        f"{value!r:.100} is no list: {type(value).__name__}", fix="flatten takes tuples, lists and frozensets"
    )


def _in_order(members: frozenset[Any]) -> Any:
    """Return a set's members in value order, since set order differs between processes."""
    try:
        return sorted(members, key=any_key)
    except EvaluationError:  # of a class without an order
        return members


register_runtime({"x_items": checked_items})
