"""Window functions operator: columns computed over the other rows of each row's partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.expr.check import check
from headrace.expr.constructors import col
from headrace.expr.tree import Column
from headrace.graph.node import Operator, identity_lineage
from headrace.graph.operator_declarations import Facts, KeyedSlot, Need, Placement, Port, place_by_key
from headrace.lowering.reference import Bag, Bags, Examples, answer_of_bags, copies, functions_of
from headrace.lowering.row_code import RowCode, comparable, item_sources, tuple_source
from headrace.lowering.slot import Slot
from headrace.lowering.step import RowStep, register_step
from headrace.operators.aggregate import counts, extremes, sums
from headrace.operators.over import frames as frames
from headrace.operators.over import row_functions as functions
from headrace.operators.over.partitions import (
    NEGATIVE,
    ROWS,
    PartitionRule,
    Peers,
    SortedPartition,
    answer_of_row,
    function_source,
    thaw_partition,
)
from headrace.operators.over.window_function import Over, RecomputeScope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.tree import Expr, Ordering
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lowering.step_writer import StepWriter


@dataclass(frozen=True, slots=True)
class OverAggregate(Operator):
    """All columns, and one per window function over a row's partition.

    Copies of a row are rows of their own. Where the order holds rows equal, they are in the order of the
    whole row, ascending. A tick emits the rows whose answers have changed, and no others.

    functions: the added columns; they share their partition and order.

    >>> import headrace as hr
    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda n: n.with_columns(sum=hr.sum(col.value).over(order_by="value")), n=[3, 1])
    + (value=1, sum=1)
    + (value=3, sum=4)
    """

    described_as: ClassVar[str] = "ComputeOver"
    kind: ClassVar[str] = "over"
    reads_net_changes: ClassVar[bool] = True
    picks_representative: ClassVar[bool] = True
    examples: ClassVar[Examples] = {
        "row_number": lambda x, y: y.with_columns(
            x=functions.row_number().over(partition_by="a", order_by="b")
        ),
        "rank": lambda x, y: y.with_columns(x=functions.rank().over(order_by=col.b.desc())),
        "dense_rank": lambda x, y: y.with_columns(x=functions.dense_rank().over(order_by="b")),
        "percent_rank": lambda x, y: y.with_columns(x=functions.percent_rank().over(order_by="b")),
        "cume_dist": lambda x, y: y.with_columns(x=functions.cume_dist().over(order_by="b")),
        "ntile": lambda x, y: y.with_columns(x=functions.ntile(2).over(order_by="b")),
        "lag": lambda x, y: y.with_columns(x=functions.lagged(col.b).over(partition_by="a", order_by="b")),
        "lead": lambda x, y: y.with_columns(x=functions.lead(col.b, 1, 0).over(order_by="b")),
        "nth_value": lambda x, y: y.with_columns(
            x=functions.nth_value(col.b, 2).over(order_by="b", rows=(-1, 1))
        ),
        "running sum": lambda x, y: y.with_columns(x=sums.sum(col.b).over(partition_by="a", order_by="b")),
        "of a range": lambda x, y: y.with_columns(x=extremes.max(col.a).over(order_by="b", range=(-1, 0))),
        "of rows": lambda x, y: y.with_columns(x=sums.mean(col.b).over(order_by="a", rows=(0, 1))),
        "of everything": lambda x, y: y.with_columns(x=counts.count().over()),
    }
    functions: tuple[tuple[str, Over], ...]

    @property
    def per(self) -> tuple[Expr, ...]:
        return self.functions[0][1].per

    @property
    def by(self) -> tuple[Ordering, ...]:
        return self.functions[0][1].by

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could change the answers of others"),)

    def output(self, context: CheckContext) -> Columns:
        context.require(bool(self.functions), "there is no window function")
        context.check_order_by(self.by)
        context.check_keys(self.per)
        for _, over in self.functions:
            same = over.shares_partitions(self.functions[0][1])
            context.require(same, "window functions have different partitions or orders")
            context.require(over.function.is_possible(), f"{over} is of no part, or of no row")
        added = (over.field(name, context.input) for name, over in self.functions)
        return (*context.input.fields, *added)

    def unservable(self) -> Unservable | None:
        return None

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"partitions": KeyedSlot()}

    def placement(self) -> Placement:
        return place_by_key(self.per)

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        # Functions such as lag hand on what they compute.
        given = (expr for _, over in self.functions for expr in over.function.arguments())
        return all(inputs) and all(isinstance(expr, Column) for expr in given)

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        return rows.but(append=rows.append and rows.bounded, ordered=False)

    def required_facts(self) -> tuple[Need, ...]:
        return ()

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        for expr in self.per:
            yield "partition_by", expr
        for ordering in self.by:
            yield "order_by", ordering.expr
        for name, over in self.functions:
            for expr in over.function.arguments():
                yield name, expr

    def describe(self) -> str:
        per = f" per {', '.join(map(str, self.per))}" if self.per else ""
        by = f" by {', '.join(map(str, self.by))}" if self.by else ""
        reaches = {over.function.reach(over.frame) for _, over in self.functions}
        (farthest,) = [reach for reach in RecomputeScope if reach in reaches][-1:]
        named = ", ".join(f"{name}={over}" for name, over in self.functions)
        return f"{named}{per}{by}; a change costs {farthest.value}"


@register_step(OverAggregate)
class OverStep(RowStep):
    """Step of window functions. Slot: partition key -> state of the partition."""

    operator: OverAggregate
    keeps_state = True
    consolidates = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.schema = self.input_schema()
        self.touched = writer.node_variable("touched", node.id)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.partitions", thaw_partition),)

    def begin(self) -> None:
        self.code.line(f"{self.touched} = {{}}")

    def consume(self, port: int, row: RowCode) -> None:
        writer, code = self.writer, self.code
        key, changes, whole = writer.fresh("key"), writer.fresh("changes"), writer.fresh("row")
        writer.assign_key(key, self.operator.per, self.schema, row.columns)
        code.line(f"{whole} = {writer.row_key(self.schema, row.columns)}")
        code.line(f"{changes} = {self.touched}.get({key})")
        with code.block(f"if {changes} is None:"):
            code.line(f"{self.touched}[{key}] = {{{whole}: {row.copies}}}")
        with code.block("else:"):
            code.line(f"{changes}[{whole}] = {changes}.get({whole}, 0) + {row.copies}")

    def finish(self) -> None:
        writer, code = self.writer, self.code
        key, changes, partition = writer.fresh("key"), writer.fresh("changes"), writer.fresh("partition")
        row, n = writer.fresh("row"), writer.fresh("n")
        rows, negative = (f"{partition}[{field}]" for field in (ROWS, NEGATIVE))
        rule = self.partition_rule()
        with code.block(f"for {key}, {changes} in {self.touched}.items():"):
            self.state("partitions").get_or_add(partition, key, "[[], [], {}]")
            code.line(f"{changes} = {rule}.update({partition}, {changes})")
            with code.block(f"if not {rows} and not {negative}:"):
                code.line(f"del {self.slot('partitions')}[{key}]")
            with code.block(f"for {row}, {n} in {changes}:"):
                columns = writer.unpack(self.node.schema, row)
                writer.emit_copies(self.node.id, RowCode(columns, row, n))

    # -- functions of rows -------------------------------------------------------------------------

    @property
    def by(self) -> tuple[Ordering, ...]:
        """Order of the partitions."""
        return self.operator.by

    def partition_rule(self) -> str:
        """Write the module-level variable with the operator's `PartitionRule`, and return its name."""
        made = [
            function_source(over.function, over.frame, self, f"{at}_of_{self.node.id}")
            for at, (_, over) in enumerate(self.operator.functions)
        ]
        name = self.writer.node_variable("partition_rule", self.node.id)
        order = self.row_function("order", self._order_keys(whole=True))
        self.writer.functions.line(f"{name} = {self.constant(PartitionRule)}({tuple_source(made)}, {order})")
        return name

    def constant(self, made: Any) -> str:
        """Return the name of a class or function in generated code."""
        return self.writer.constant(made.__name__, made)

    def row_function(self, name: str, sources: list[str]) -> str:
        """Write a function that maps `row` to the values of `sources`; return its name."""
        function = self.writer.node_variable(name, self.node.id)
        made = sources[0] if len(sources) == 1 else tuple_source(sources)
        with self.writer.function_body(self.node.id, f"def {function}(row):"):
            self.writer.code.line(f"return {made}")
        return function

    @property
    def columns(self) -> tuple[str, ...]:
        """Sources of the columns of the variable `row`."""
        return item_sources("row", len(self.schema.fields))

    def value_function(self, name: str, expr: Expr) -> str:
        """Write a function from a row to the value of an expression; return its name."""
        return self.row_function(name, [self.writer.value(expr, self.schema, self.columns)])

    def _order_keys(self, *, whole: bool) -> list[str]:
        """Return the sources of a row's sort keys. whole: add all columns, to break ties."""
        keys: list[str] = []
        for ordering in self.operator.by:
            source = self.writer.value(ordering.expr, self.schema, self.columns)
            typed = check(ordering.expr, self.schema)
            keys.append(comparable(self.writer, source, typed, descending=ordering.descending))
        if whole:
            pairs = zip(self.columns, self.schema.fields, strict=True)
            rest = [comparable(self.writer, column, field) for column, field in pairs]
            keys.extend(["row"] if rest == list(self.columns) else rest)
        return keys or ["()"]

    def peers(self) -> str:
        """Write the module-level variable with the operator's `Peers`, and return its name."""
        name = self.writer.node_variable("peers", self.node.id)
        by = self.row_function("by", self._order_keys(whole=False))
        self.writer.functions.line(f"{name} = {self.constant(Peers)}({by})")
        return name


@answer_of_bags.register(OverAggregate)
def _answer(operator: OverAggregate, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    per = functions_of(operator.per, schema)
    groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in copies(bag):
        groups.setdefault(per(row), []).append(row)
    out: Bag = Counter()
    for rows in groups.values():
        partition = SortedPartition(rows, operator.functions[0][1], schema)
        for at, row in enumerate(partition.rows):
            answers = (answer_of_row(over.function, over, partition, at) for _, over in operator.functions)
            out[(*row, *answers)] += 1
    return out
