"""Top-k operator: the first k rows of each group in a given order."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.arrangement.batch import Layout, batch_of, concat_frames, distinct_keys, negated, select
from headrace.arrangement.reading import change_of_first_rows
from headrace.arrangement.spine import FoundRows
from headrace.columns.column_stream import ColumnStream, build_stream, each_copy
from headrace.columns.columns import WEIGHT, Columns
from headrace.columns.slot_forms import RowsForm, RowsInOrder, rows_in_order
from headrace.expr.check import check
from headrace.expr.constructors import col
from headrace.expr.polars_columns import NotLowered
from headrace.expr.spark_columns import with_representatives
from headrace.graph.node import ALTERABLE, Node, identity_lineage
from headrace.graph.operator_declarations import Facts, KeyedSlot, Need, Placement, Port, place_by_key
from headrace.lowering.forms import (
    ArrangedPlan,
    ArrangedState,
    ColumnarContext,
    lower_operator,
    register_arranged,
)
from headrace.lowering.generated_source import register_runtime
from headrace.lowering.reference import (
    Bag,
    Bags,
    Examples,
    answer_of_bags,
    copies,
    function_of,
    functions_of,
    rank,
)
from headrace.lowering.row_code import MappingCode, RowCode, comparable, item_sources, tuple_source
from headrace.lowering.slot import Slot, thaw_list
from headrace.lowering.step import RowStep, register_step
from headrace.operators.aggregate import extremes as extremes
from headrace.operators.lifetime import Lifetime, WithLifetime, tick_needs, with_lifetimes
from headrace.requirements import F, np, pl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from headrace.columns.slot_forms import SlotForm
    from headrace.expr.tree import Expr, Ordering
    from headrace.expr.types import Field, Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lowering.forms import ArrangedOperator, BatchContext
    from headrace.lowering.slot import SlotMapping
    from headrace.lowering.step_writer import StepWriter


@dataclass(frozen=True, slots=True)
class TopK(WithLifetime):
    """The first `count` rows of each group in the order `by`; copies of a row count.

    Ties are broken by the whole row, ascending, so that the result depends only on the rows, not on their
    order of arrival. A tick without changes emits nothing. With lifetime TICK, each tick uses only its own
    rows.

    nondet: reason why results may depend on the cut into ticks, if the lifetime is TICK.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.top_k(2, by=col.value.desc()), numbers=[1, 3, 2])
    + 3
    + 2
    """

    kind: ClassVar[str] = "top_k"
    reads_net_changes: ClassVar[bool] = True
    picks_representative: ClassVar[bool] = True
    examples: ClassVar[Examples] = {
        "top_k": lambda x, y: y.top_k(2, by=col.b.desc(), per="a"),
        "of all": lambda x, y: y.top_k(2, by=col.a),
    }
    count: int
    by: tuple[Ordering, ...]
    per: tuple[Expr, ...]
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could push an answer out"),)

    def output(self, context: CheckContext) -> tuple[Field, ...]:
        context.require(self.count >= 1, "a count is below one")
        context.check_order_by(self.by)
        context.check_keys(self.per)
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return None

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"groups": KeyedSlot()}

    def placement(self) -> Placement:
        return place_by_key(self.per)

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return True

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        if self.lifetime is Lifetime.TICK:
            return rows.but(append=True, ordered=False, det=rows.det and self.nondet is None)
        return rows.but(append=rows.append and rows.bounded, ordered=False)

    def required_facts(self) -> tuple[Need, ...]:
        return tick_needs((self.lifetime,))

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        for ordering in self.by:
            yield "desc" if ordering.descending else "asc", ordering.expr
        for expr in self.per:
            yield "per", expr

    def describe(self) -> str:
        by = ", ".join(str(o) for o in self.by)
        per = f" per {', '.join(str(e) for e in self.per)}" if self.per else ""
        which = f"{self.count} by {by}" if by else f"the {self.count} least"
        return with_lifetimes(f"{which}{per}", (self.lifetime,))


def _thaw_group(group: Any) -> list[Any]:
    """Thaw function for a group's list."""
    rows, counts, moved, top = group
    return [list(rows), dict(counts), dict(moved), dict(top)]


@register_step(TopK)
class TopKStep(RowStep):
    """Step of top-k.

    Slot where rows are never retracted: group -> its first rows in order, a copy each. Otherwise:
    group -> [first rows in order, {row: copies}, rows of this tick, {row: copies} last emitted].
    """

    operator: TopK
    keeps_state = True
    consolidates = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.touched = writer.node_variable("touched", node.id)
        self.appends = writer.is_append(node.inputs[0])

    def slots(self) -> tuple[Slot, ...]:
        of_a_tick = self.operator.lifetime is Lifetime.TICK
        name = f"{self.node.id}.groups"
        if self.appends:
            return (Slot(name, thaw_list, "value", transient=of_a_tick),)
        return (Slot(name, _thaw_group, "fields", transient=of_a_tick),)

    @cached_property
    def keeps_best(self) -> bool:
        """Whether a tick keeps only the first of each group's new rows, instead of all.

        Rows must be what they are as dict keys, so that sort keys can be taken from columns.
        """
        columns = tuple(f"c{at}" for at in range(len(self.node.schema.fields)))
        plain = self.writer.row_key(self.node.schema, columns) == tuple_source(columns)
        return self.appends and plain and self.operator.count == 1

    def begin(self) -> None:
        self.code.line(f"{self.touched} = {{}}")

    def _by(self, columns: tuple[str, ...]) -> Iterator[str]:
        """Yield the sources of a row's sort keys, without the whole row that breaks ties."""
        schema = self.node.schema
        for ordering in self.operator.by:
            typed = check(ordering.expr, schema)
            source = self.writer.value(ordering.expr, schema, columns)
            yield comparable(self.writer, source, typed, descending=ordering.descending)

    @cached_property
    def order(self) -> str:
        """Constant with the function from a row to its sort key, which ends with the whole row."""
        schema = self.node.schema
        row = self.writer.fresh("row")
        columns = item_sources(row, len(schema.fields))
        parts = list(self._by(columns))
        whole = [comparable(self.writer, c, f) for c, f in zip(columns, schema.fields, strict=True)]
        parts.extend([row] if whole == list(columns) else whole)
        function = self.writer.node_variable("order", self.node.id)
        self.writer.function(f"def {function}({row}):", f"return ({', '.join(parts)},)")
        return function

    def consume(self, port: int, row: RowCode) -> None:
        writer, code = self.writer, self.code
        key, whole = writer.fresh("key"), writer.fresh("row")
        writer.assign_key(key, self.operator.per, self.node.schema, row.columns)
        source = writer.row_key(self.node.schema, row.columns)
        if self.keeps_best:
            self._keep_best(key, row, source)
            return
        code.line(f"{whole} = {source}")
        if self.appends:
            MappingCode(writer, self.touched).append(key, whole)
            return
        group = writer.fresh("group")
        self.state("groups").get_or_add(group, key, "[[], {}, {}, {}]")
        code.line(f"{self.touched}[{key}] = {group}")
        code.line(f"x_add_ordered_value({group}, 0, {whole}, {row.copies})")

    def _keep_best(self, key: str, row: RowCode, source: str) -> None:
        """Write code that keeps a group's first row of the tick, without building tuples of most others."""
        by, best, whole = (self.writer.fresh(name) for name in ("by", "best", "row"))
        self.code.line(f"{by} = {tuple_source(tuple(self._by(row.columns)) or ('0',))}")
        self.code.line(f"{best} = {self.touched}.get({key})")
        with self.code.block(f"if {best} is None or {by} <= {best}[0]:"):
            self.code.line(f"{whole} = {source}")
            tie = f"{self.order}({whole}) < {self.order}({best}[1])"
            with self.code.block(f"if {best} is None or {by} < {best}[0] or {tie}:"):
                self.code.line(f"{self.touched}[{key}] = ({by}, {whole})")

    def finish(self) -> None:
        writer, code = self.writer, self.code
        key, group, changes = writer.fresh("key"), writer.fresh("group"), writer.fresh("changes")
        if self.appends:
            rows = writer.fresh("rows")
            with code.block(f"for {key}, {rows} in {self.touched}.items():"):
                self.state("groups").get_or_add(group, key, "[]")
                come = f"[{rows}[1]]" if self.keeps_best else rows
                code.line(f"{changes} = x_add_to_top({group}, {come}, {self.operator.count}, {self.order})")
                self._emit(changes)
            return
        with code.block(f"for {key}, {group} in {self.touched}.items():"):
            top = writer.fresh("top")
            code.line(f"x_settle_end({group}, 0, {self.order}, {self.operator.count}, 0)")
            code.line(f"{top} = x_first_copies({group}[0], {group}[1], {self.operator.count})")
            code.line(f"{changes} = x_top_changes({group}[3], {top})")
            code.line(f"{group}[3] = {top}")
            with code.block(f"if not {group}[1]:"):
                code.line(f"del {self.slot('groups')}[{key}]")
            self._emit(changes)

    def _emit(self, changes: str) -> None:
        row, n = self.writer.fresh("row"), self.writer.fresh("n")
        with self.code.block(f"for {row}, {n} in {changes}:"):
            columns = self.writer.unpack(self.node.schema, row)
            self.writer.emit_copies(self.node.id, RowCode(columns, row, n))


# --- run time ------------------------------------------------------------------------------------


def first_copies(
    rows: list[tuple[Any, ...]], counts: dict[tuple[Any, ...], int], k: int
) -> dict[tuple[Any, ...], int]:
    """Return the first `k` copies of ordered `rows`: row -> number of copies taken."""
    top: dict[tuple[Any, ...], int] = {}
    for row in islice(rows, k):
        taken = min(counts[row], k)
        top[row] = taken
        k -= taken
        if not k:
            break
    return top


def add_to_top(
    top: list[tuple[Any, ...]], rows: list[tuple[Any, ...]], k: int, order_key: Callable[[Any], Any]
) -> list[tuple[Any, int]]:
    """Add rows to the first `k` rows in order; return the changes, retractions first."""
    if len(rows) > 1:
        rows.sort(key=order_key)
    changes: dict[Any, int] = {}
    for row in rows[:k]:
        if len(top) >= k:
            if order_key(row) >= order_key(top[-1]):
                break
            gone = top.pop()
            changes[gone] = changes.get(gone, 0) - 1
        insort(top, row, key=order_key)
        changes[row] = changes.get(row, 0) + 1
    found = [change for change in changes.items() if change[1]]
    return sorted(found, key=itemgetter(1)) if len(found) > 1 else found


def top_changes(old: dict[Any, int], new: dict[Any, int]) -> list[tuple[Any, int]]:
    """Return the changes from one top-k result to another: retractions first, then insertions."""
    gone = [(row, new.get(row, 0) - n) for row, n in old.items() if n > new.get(row, 0)]
    return gone + [(row, n - old.get(row, 0)) for row, n in new.items() if n > old.get(row, 0)]


register_runtime(
    {
        "x_first_copies": first_copies,
        "x_add_to_top": add_to_top,
        "x_top_changes": top_changes,
    }
)


# --- on Spark, and the reference -----------------------------------------------------------------


@lower_operator.register(TopK)
def _on_spark(operator: TopK, context: BatchContext) -> DataFrame:
    from pyspark.sql import Window

    names = context.schemas[0].names
    frame = with_representatives(context.inputs[0], context.schemas[0])
    by = ((context.column(ordering.expr), ordering.descending) for ordering in operator.by)
    # Ties go by the whole row; what is tied even so are copies of one row, and any of them will do.
    order = [column.desc() if descending else column.asc() for column, descending in by]
    order += [context.named(name).asc() for name in names]
    if not operator.per:
        return frame.orderBy(*order).limit(operator.count)
    window = Window.partitionBy(*(context.column(expr) for expr in operator.per)).orderBy(*order)
    ranked = frame.withColumn("__rank", F.row_number().over(window))
    return ranked.filter(F.col("__rank") <= operator.count).drop("__rank")


@answer_of_bags.register(TopK)
def _answer(operator: TopK, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    per = functions_of(operator.per, schema)
    groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in copies(bag):
        groups.setdefault(per(row), []).append(row)
    out: Bag = Counter()
    for rows in groups.values():
        rows.sort(key=rank)
        # Sorts are stable, so sort by the least significant column first.
        for ordering in reversed(operator.by):
            value = function_of(ordering.expr, schema)
            rows.sort(key=lambda row: rank(value(row)), reverse=ordering.descending)
        out.update(rows[: operator.count])
    return out


@register_arranged(TopK)
@dataclass(frozen=True)
class TopPlan(ArrangedPlan):
    """Plan for a top-k over frames. append: of the input. output_append: of the output."""

    node: int
    rows: RowsInOrder
    count: int
    append: bool
    output_append: bool

    @classmethod
    def of(cls, context: ColumnarContext) -> TopPlan:
        node, operator = context.node, context.node.operator
        assert isinstance(operator, TopK)
        if operator.lifetime is Lifetime.TICK:
            raise NotLowered("it answers each tick for itself")
        rows = rows_in_order(operator.per, operator.by, node.schema, append=context.appends[0])
        return cls(node.id, rows, operator.count, context.appends[0], context.append)

    @property
    def slot(self) -> str:
        return f"{self.node}.groups"

    def write_reader(self, node: Node, writer: StepWriter, name: str) -> None:
        step, code = TopKStep(node, writer), writer.code
        with code.block(f"def {name}(copies):"):
            code.line(f"rows = sorted((row for row, n in copies.items() if n > 0), key={step.order})")
            if step.appends:
                code.line("return [row for row in rows for _ in range(copies[row])]")
            else:
                code.line(f"return [rows, copies, {{}}, x_first_copies(rows, copies, {step.operator.count})]")

    def slot_forms(
        self, read: Callable[..., Any] | None, slot: Callable[[str], SlotMapping]
    ) -> dict[str, SlotForm]:
        assert read is not None
        return {self.slot: RowsForm.of(self.rows, read, Counter if self.append else itemgetter(1))}

    def start(self, state: ArrangedState) -> ArrangedOperator:
        return ColumnarTopK(self, state)


@dataclass(slots=True)
class ColumnarTopK:
    """Top-k in large ticks. If rows are never retracted, only the result rows are kept."""

    plan: TopPlan
    slots: ArrangedState

    def answer(self, inputs: Sequence[ColumnStream]) -> ColumnStream:
        """Return the changes of the groups' first rows, group by group."""
        plan, layout, schema = self.plan, self.plan.rows.layout, self.plan.rows.schema
        spine = self.slots.spine(plan.slot)
        given = plan.rows.given(inputs[0])
        new = self.slots.prepare(plan.slot, given)
        keys = distinct_keys(layout, given)
        before, after = change_of_first_rows(layout, spine.batches, new, keys, plan.count)
        if before is after:
            changes = before.rows.clear()
        else:
            changes = _differences(layout, self._clipped(before), self._clipped(after))
        if plan.append:
            self.slots.prepare(plan.slot, changes)
        rows = select(changes, [*(str(at) for at in range(len(schema.fields))), WEIGHT])
        if plan.output_append:
            rows = each_copy(rows)
        return build_stream(Columns(schema, plan.output_append, rows))

    def _clipped(self, found: FoundRows) -> pl.DataFrame:
        """Return the groups' first rows, clipped to `count` copies per group, with the group numbers."""
        count, (asked, rows) = self.plan.count, found
        copies = rows[WEIGHT].to_numpy()
        before = np.cumsum(copies) - copies
        starts = np.flatnonzero(np.diff(asked, prepend=-1))
        before -= np.repeat(before[starts], np.diff(starts, append=len(asked)))
        clipped = pl.Series(WEIGHT, np.minimum(copies, count - before))
        columns = [clipped if name == WEIGHT else rows[name] for name in self.plan.rows.layout.types]
        return pl.DataFrame([*columns, pl.Series(_ASKED, asked)])


_ASKED = "#"


def _differences(layout: Layout, before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    """Return the retracted and the inserted rows, group by group."""
    of_groups = Layout({**layout.types, _ASKED: pl.Int64()}, (_ASKED,), (WEIGHT,), nullable=False)
    changes = batch_of(of_groups, concat_frames([negated(of_groups, before), after]))
    return select(changes.frame, layout.types)
