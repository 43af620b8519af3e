"""Sample-by-hash operator: a repeatable sample of rows, maintained as they change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.expr import constructors
from headrace.expr.constructors import lit
from headrace.expr.tree import Expr, columns_of
from headrace.graph.node import identity_lineage
from headrace.lowering.forms import apply_operator, lower_operator
from headrace.lowering.reference import Bag, Bags, Examples, answer_of_bags, copies, function_of
from headrace.lowering.step import RowStep, register_step
from headrace.operators.rows import Filter, RowByRow

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame

    from headrace.columns.column_stream import ColumnStream
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage
    from headrace.lowering.forms import BatchContext
    from headrace.lowering.row_code import RowCode


_LEAST = -(2**63)


@dataclass(frozen=True, slots=True)
class SampleByHash(RowByRow):
    """The rows for which the hash of `by` lies in the lowest `fraction` of all 64-bit integers.

    by:       expressions; rows with equal values are all in the sample, or none is.
    fraction: expected share of the values of `by` in the sample, from 0 to 1.
    seed:     hashed with the values: other seeds choose other values.

    The choice depends on the row alone: it is the same on every engine and in every run, and a retracted row
    leaves the sample that it was in. With equal `by` and `seed`, the sample of a smaller fraction is part of
    that of a larger one. The hash is Spark's `xxhash64`.

    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.sample_by_hash(0.5, seed=1), numbers=[1, 2, 3, 4])
    + 1
    + 2
    """

    kind: ClassVar[str] = "sample_by_hash"
    examples: ClassVar[Examples] = {
        "of rows": lambda x, y: y.sample_by_hash(0.5),
        "of keys": lambda x, y: y.sample_by_hash(0.5, by="a", seed=7),
    }
    by: tuple[Expr, ...]
    fraction: float
    seed: int = 0

    @property
    def hash(self) -> Expr:
        """Hash that decides whether a row is sampled."""
        return constructors.hash(lit(self.seed), *self.by)

    @property
    def condition(self) -> Expr:
        """Condition that selects the rows in the sample."""
        bound = _LEAST + round(self.fraction * 2**64)
        return lit(True) if bound == -_LEAST else self.hash < lit(bound)

    def output(self, context: CheckContext) -> Columns:
        context.require(0 <= self.fraction <= 1, "the fraction is not between 0 and 1")
        return Filter(self.condition).output(context)

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        return ({*live, *columns_of(self.condition)},)

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        for expr in self.by:
            yield "by", expr

    def describe(self) -> str:
        seed = f", seed {self.seed}" if self.seed else ""
        return f"{self.fraction:g} by {', '.join(map(str, self.by))}{seed}"


@register_step(SampleByHash)
class SampleByHashStep(RowStep):
    operator: SampleByHash

    def consume(self, port: int, row: RowCode) -> None:
        schema = self.input_schema(port)
        with self.code.block(f"if {self.writer.predicate(self.operator.condition, schema, row.columns)}:"):
            self.emit(row)


@apply_operator.register(SampleByHash)
def _on_columns(
    operator: SampleByHash, schema: Schema, append: bool, inputs: Sequence[ColumnStream]
) -> ColumnStream:
    return apply_operator(Filter(operator.condition), schema, append, inputs)


@lower_operator.register(SampleByHash)
def _on_spark(operator: SampleByHash, context: BatchContext) -> DataFrame:
    return context.inputs[0].filter(context.column(operator.condition))


@answer_of_bags.register(SampleByHash)
def _answer(operator: SampleByHash, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    hash_of = function_of(operator.hash, schema)
    return Counter(row for row in copies(bag) if (hash_of(row) - _LEAST) / 2**64 < operator.fraction)
