"""Aggregate operator: group rows and maintain one result row per group."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.expr.check import check
from headrace.expr.constructors import col
from headrace.expr.spark_columns import nullable_type, representative, spark_type
from headrace.expr.tree import columns_of
from headrace.expr.types import Field, Schema
from headrace.graph.node import ALTERABLE, Node
from headrace.graph.operator_declarations import (
    Facts,
    KeyedSlot,
    MonotoneColumns,
    Need,
    Placement,
    Port,
    place_by_key,
)
from headrace.lattice import Max
from headrace.lowering.forms import lower_operator
from headrace.lowering.reference import Bag, Bags, Examples, answer_of_bags, copies, functions_of
from headrace.lowering.row_code import RowCode, key_columns, tuple_source
from headrace.lowering.slot import Slot
from headrace.lowering.step import RowStep, step_for
from headrace.operators.aggregate import (
    collected_values,
    counts,
    extremes,
    histograms,
    moments,
    percentiles,
    sketches,
    sums,
)
from headrace.operators.aggregate.aggregation import (
    ANSWER,
    ROWS,
    AggregateArguments,
    Group,
    answer_of,
    group_columns,
    measure,
)
from headrace.operators.lifetime import Lifetime, WithLifetime, tick_needs, with_lifetimes
from headrace.requirements import F

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from pyspark.sql import Column, DataFrame

    from headrace.expr.tree import Expr
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Operator
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lowering.forms import BatchContext
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.aggregate.aggregation import Aggregation


@dataclass(frozen=True, slots=True)
class Aggregate(WithLifetime):
    """One row per group: the keys, then the aggregates.

    A group exists while it has rows, even the group of all rows (no keys). Per tick, a changed group retracts
    its old result row and emits the new one, once. Null is a key like any other, as is NaN. A tick without
    changes emits nothing. With lifetime TICK, each tick aggregates only its own rows, and emits groups in the
    order of their first rows.

    nondet: reason why results may depend on the cut into ticks, if the lifetime is TICK.

    >>> import headrace as hr
    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda n: n.group_by(even=col.value % 2 == 0).agg(sum=hr.sum(col.value)), n=[1, 2, 3])
    + (even=False, sum=4)
    + (even=True, sum=2)
    """

    kind: ClassVar[str] = "aggregate"
    reads_net_changes: ClassVar[bool] = True
    picks_representative: ClassVar[bool] = True
    examples: ClassVar[Examples] = {
        "count": lambda x, y: y.group_by("a").agg(x=counts.count()),
        "count of values": lambda x, y: y.group_by("a").agg(x=counts.count(col.b)),
        "sum": lambda x, y: y.group_by("a").agg(x=sums.sum(col.b)),
        "min": lambda x, y: y.group_by("a").agg(x=extremes.min(col.b)),
        "max": lambda x, y: y.group_by("a").agg(x=extremes.max(col.b)),
        "mean": lambda x, y: y.group_by("a").agg(x=sums.mean(col.b)),
        "count_distinct": lambda x, y: y.group_by("a").agg(x=counts.count_distinct(col.b)),
        "first": lambda x, y: y.group_by("a").agg(x=extremes.first(col.b, by=col.a)),
        "last": lambda x, y: y.group_by("a").agg(x=extremes.last(col.b, by=col.a)),
        "collect": lambda x, y: y.group_by("a").agg(x=collected_values.collect(col.b)),
        "of distinct": lambda x, y: y.group_by("a").agg(x=sums.sum(col.b, distinct=True)),
        "percentile": lambda x, y: y.group_by("a").agg(x=percentiles.percentile(col.b, [0.2, 0.5])),
        "histogram": lambda x, y: y.group_by("a").agg(x=histograms.histogram_numeric(col.b, 2)),
        "mode": lambda x, y: y.group_by("a").agg(x=percentiles.mode(col.b)),
        "string_agg": lambda x, y: y.group_by("a").agg(
            x=collected_values.string_agg(col.b.cast(str), order_by=col.a)
        ),
        "bits": lambda x, y: y.group_by("a").agg(x=collected_values.bit_or(col.b)),
        "approx_count_distinct": lambda x, y: y.group_by("a").agg(x=sketches.approx_count_distinct(col.b)),
        "hll_sketch_agg": lambda x, y: y.group_by("a").agg(x=sketches.hll_sketch_agg(col.b)),
        "hll_union_agg": lambda x, y: (
            y.group_by("a", "b")
            .agg(x=sketches.hll_sketch_agg(col.b))
            .group_by("a")
            .agg(x=sketches.hll_union_agg(col.x))
        ),
        "moments": lambda x, y: y.group_by("a").agg(x=moments.covariance(col.a, col.b)),
        "several, of everything": lambda x, y: y.group_by().agg(n=counts.count(), top=extremes.max(col.b)),
    }
    keys: tuple[tuple[str, Expr], ...]
    aggregations: tuple[tuple[str, Aggregation], ...]
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could change a group's answer"),)

    def output(self, context: CheckContext) -> Columns:
        return group_columns(context, self.keys, (), self.aggregations)

    def unservable(self) -> Unservable | None:
        return None

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        exprs = (expr for _, expr in self.expressions())
        return ({name for expr in exprs for name in columns_of(expr)},)

    def over(
        self, inputs: Sequence[Schema], kept: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[Operator, tuple[Field, ...]]:
        return self, output.fields

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (dict(self.keys),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"groups": KeyedSlot()}

    def placement(self) -> Placement:
        return place_by_key(tuple(expr for _, expr in self.keys))

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return True

    def at_most_one_row(self) -> bool:
        return not self.keys

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        if self.lifetime is Lifetime.TICK:
            return rows.but(append=True, ordered=False, once=True, det=rows.det and self.nondet is None)
        return rows.but(append=rows.append and rows.bounded, ordered=False, once=True)

    def required_facts(self) -> tuple[Need, ...]:
        return tick_needs((self.lifetime,))

    def monotone_columns(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        if self.lifetime is Lifetime.TICK:
            return None
        growing = (name for name, aggregation in self.aggregations if aggregation.only_grows)
        return MonotoneColumns(tuple(name for name, _ in self.keys), dict.fromkeys(growing, Max()))

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.keys
        for name, aggregation in self.aggregations:
            for expr in aggregation.arguments():
                yield name, expr

    def describe(self) -> str:
        keys = ", ".join(name for name, _ in self.keys)
        aggregates = ", ".join(f"{name}={agg}" for name, agg in self.aggregations)
        return with_lifetimes(f"by ({keys}): {aggregates}", (self.lifetime,))


class AggregateStep(RowStep):
    """Step of aggregate. Slot: key -> [rows, last answer, fields of the accumulators].

    `touched` holds the groups of this tick, so that each emits once, in the order of first touch.
    """

    keeps_state = True
    consolidates = True

    def __init__(
        self, node: Node, writer: StepWriter, keys: tuple[Expr, ...], lifetime: Lifetime, group: Group
    ) -> None:
        super().__init__(node, writer)
        self.keys = keys
        self.lifetime = lifetime
        self.group = group
        self.schema = self.input_schema()
        self.touched = writer.node_variable("touched", node.id)
        self.sites = 1 if writer.is_append(node.id) else 4

    def slots(self) -> tuple[Slot, ...]:
        of_a_tick = self.lifetime is Lifetime.TICK
        return (Slot(f"{self.node.id}.groups", self.group.thaw, "fields", transient=of_a_tick),)

    def begin(self) -> None:
        self.code.line(f"{self.touched} = {{}}")
        if not self.keys:
            self.code.line(f"{self.writer.node_variable('group', self.node.id)} = None")

    def consume(self, port: int, row: RowCode) -> None:
        if not self.keys:
            self._consume_ungrouped(row)
            return
        writer, code = self.writer, self.code
        key, group = writer.fresh("key"), writer.fresh("group")
        writer.assign_key(key, self.keys, self.schema, row.columns)
        self.state("groups").get_or_add(group, key, self.group.empty)
        code.line(f"{self.touched}[{key}] = {group}")
        self.fold(group, row)

    def _consume_ungrouped(self, row: RowCode) -> None:
        """Write the code for an aggregate without keys, whose group is looked up once per tick."""
        writer, code = self.writer, self.code
        group = writer.node_variable("group", self.node.id)
        with code.block(f"if {group} is None:"):
            self.state("groups").get_or_add(group, "()", self.group.empty)
            code.line(f"{self.touched}[()] = {group}")
        self.fold(group, row)

    def fold(self, group: str, row: RowCode) -> None:
        """Write code that adds a row to its group's list."""
        self.group.add(group, row)

    def finish(self) -> None:
        writer, code = self.writer, self.code
        key, group = writer.fresh("key"), writer.fresh("group")
        old, new = writer.fresh("old"), writer.fresh("new")
        with code.block(f"for {key}, {group} in {self.touched}.items():"):
            code.line(f"{old} = {group}[{ANSWER}]")
            self.group.settle(group)
            if self.group.appends:
                self._answer(key, group, old, new)
                return
            with code.block(f"if {group}[{ROWS}] > 0:"):
                self._answer(key, group, old, new)
            with code.block("else:"):
                with code.block(f"if {old} is not None:"):
                    code.line(f"{group}[{ANSWER}] = None")
                    self.emit_tuple(old, "-1")
                with code.block(f"if not {group}[{ROWS}] and {group} == {self.group.empty}:"):
                    code.line(f"del {self.slot('groups')}[{key}]")

    def _answer(self, key: str, group: str, old: str, new: str) -> None:
        writer, code = self.writer, self.code
        columns = (*key_columns(key, len(self.keys)), *self.group.aggregate_sources(group))
        code.line(f"{new} = {tuple_source(columns)}")
        if writer.is_append(self.node.id):
            code.line(f"{group}[{ANSWER}] = {new}")
            self.emit_tuple(new, "1")
            return
        with code.block(f"if {old} is None:"):
            code.line(f"{group}[{ANSWER}] = {new}")
            self.emit_tuple(new, "1")
        with code.block(f"elif {old} != {new}:"):
            code.line(f"{group}[{ANSWER}] = {new}")
            self.emit_tuple(old, "-1")
            self.emit_tuple(new, "1")


def group_keys(operator: Aggregate) -> tuple[Expr, ...]:
    """Return the key expressions of an aggregate, without their names."""
    return tuple(expr for _, expr in operator.keys)


def group_writer(operator: Aggregate, node: Node, writer: StepWriter) -> Group:
    """Create the group writer of an aggregate over its node's input rows."""
    aggregations = [aggregation for _, aggregation in operator.aggregations]
    appends = writer.is_append(node.inputs[0])
    return Group(writer, writer.input_schema(node, 0), aggregations, appends=appends)


@step_for.register(Aggregate)
def _step(operator: Aggregate, node: Node, writer: StepWriter) -> RowStep:
    group = group_writer(operator, node, writer)
    return AggregateStep(node, writer, group_keys(operator), operator.lifetime, group)


@lower_operator.register(Aggregate)
def _on_spark(operator: Aggregate, context: BatchContext) -> DataFrame:
    (schema,) = context.schemas
    typed = [check(expr, schema) for _, expr in operator.keys]
    keys = tuple(Field(f"key {at}", key.type, key.nullable) for at, key in enumerate(typed))
    columns = [context.column(expr).alias(f"key {at}") for at, (_, expr) in enumerate(operator.keys)]
    measures: list[Column] = []
    answers = [context.named(f"key {at}").alias(name) for at, (name, _) in enumerate(operator.keys)]
    for number, (name, aggregation) in enumerate(operator.aggregations):
        types = tuple(check(expr, schema).type for expr in aggregation.arguments())
        labels = tuple(f"argument {number} {at}" for at in range(len(types)))
        given = map(representative, types, map(context.column, aggregation.arguments()))
        columns += [column.alias(label) for column, label in zip(given, labels, strict=True)]
        out = context.node.schema.fields[len(keys) + number]
        measured = measure(aggregation, AggregateArguments(labels, types, out))
        made = [f"measure {number} {at}" for at in range(len(measured.measures))]
        measures += [m.alias(label) for m, label in zip(measured.measures, made, strict=True)]
        answer = measured.answer(*map(context.named, made))
        answers.append(answer.cast(nullable_type(spark_type(out.type))).alias(name))
    # Arguments become columns of their own first, so that no name of the input can be taken for one
    # of the output. A group is there while it has rows: the group of everything is no exception.
    rows = context.inputs[0].select(*columns, F.lit(1).alias("row"))
    grouped = context.group_rows(rows, Schema(keys), F.count(F.col("row")).alias("rows"), *measures)
    return (grouped if keys else grouped.filter(F.col("rows") > 0)).select(*answers)


@answer_of_bags.register(Aggregate)
def _answer(operator: Aggregate, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    key = functions_of([expr for _, expr in operator.keys], schema)
    groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in copies(bag):
        groups.setdefault(key(row), []).append(row)
    out: Bag = Counter()
    for group, rows in groups.items():
        values: list[Any] = []
        for name, aggregation in operator.aggregations:
            arguments = functions_of(aggregation.arguments(), schema)
            field = aggregation.field(name, schema)
            values.append(answer_of(aggregation, field.type, [arguments(row) for row in rows]))
        out[(*group, *values)] += 1
    return out
