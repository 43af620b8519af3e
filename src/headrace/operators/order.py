"""Operators that establish or use the order of rows: assume_ordered, sort, zip."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import EvaluationError
from headrace.expr.check import check
from headrace.expr.tree import Ordering
from headrace.graph.node import ALTERABLE, identity_lineage
from headrace.graph.operator_declarations import ANYWHERE, IN_ORDER, WHOLE, Facts, Need, Placement, Port, meet
from headrace.lowering.forms import lower_operator
from headrace.lowering.generated_source import register_runtime
from headrace.lowering.reference import Bag, Bags, Examples, OperatorInput, answer_of_bags, output_of_tick
from headrace.lowering.row_code import RowCode, comparable, tuple_source, user_form
from headrace.lowering.slot import Slot
from headrace.lowering.step import RowStep, register_step
from headrace.operators.lifetime import (
    DEPENDS_ON_CUT,
    Lifetime,
    TickDependent,
    WithLifetime,
    describe_lifetime,
    with_lifetimes,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage, Unservable
    from headrace.lowering.forms import BatchContext
    from headrace.lowering.step_writer import StepWriter


@dataclass(frozen=True, slots=True)
class Sort(WithLifetime):
    """The rows of a bounded stream in order, or with lifetime TICK the rows of each tick.

    by: expressions in Spark's order (nulls first ascending and last descending, NaN greatest), and functions
        of a row whose results are compared by Python; without any, the columns from first to last.

    Rows that are equal by `by` keep their order of arrival if the input is ordered, and are otherwise sorted
    by all their columns. An empty tick emits nothing.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda n: n.sort(col.value.desc(), lifetime="tick", nondet="a page at a time"), n=[1, 3, 2])
    + 3
    + 2
    + 1
    """

    kind: ClassVar[str] = "sort"
    examples: ClassVar[Examples] = {"sort": lambda x, y: x.sort(lifetime="tick")}
    makes_order: ClassVar[bool] = True
    by: tuple[Ordering | Callable[..., object], ...] = ()
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could come before those that left"),)

    def output(self, context: CheckContext) -> Columns:
        context.check_order_by(self.by)
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def required_facts(self) -> tuple[Need, ...]:
        per_tick = self.lifetime is Lifetime.TICK
        append = Need(
            0,
            "append",
            "what left in order cannot be taken back in order",
            "sort what only grows; of what changes, the first rows are kept up to date by .top_k(n, by=...)",
        )
        if per_tick:
            return (append,)
        bounded = Need(
            0,
            "bounded",
            "a row that comes later may belong before those that left",
            'sort each tick, .sort(lifetime="tick", nondet="why"), or declare the source bounded=True;\n'
            "the first rows of a stream that goes on are kept up to date by .top_k(n, by=...)",
        )
        return (bounded, append)

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        det = inputs[0].det and (self.lifetime is Lifetime.STATIC or self.nondet is None)
        return inputs[0].but(ordered=True, det=det)

    def placement(self) -> Placement:
        return WHOLE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        for one in self.by:
            if isinstance(one, Ordering):
                yield "desc" if one.descending else "asc", one.expr

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        for one in self.by:
            if not isinstance(one, Ordering):
                yield "by", one

    def describe(self) -> str:
        by = [
            str(b) if isinstance(b, Ordering) else getattr(b, "__name__", type(b).__name__) for b in self.by
        ]
        return ", ".join(
            [f"by {', '.join(by)}" if by else "by all columns", *describe_lifetime(self.lifetime)]
        )


@register_step(Sort)
class SortStep(RowStep):
    """Step of sort, without state: a bounded stream arrives in one tick, and each tick is sorted alone."""

    operator: Sort
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.pending = writer.node_variable("pending", node.id)
        # Where order of arrival means nothing, it must not show in rows that `by` holds equal.
        self.merges = not writer.analysis.facts[node.inputs[0]].ordered

    def begin(self) -> None:
        self.code.line(f"{self.pending} = []")

    def consume(self, port: int, row: RowCode) -> None:
        keys = list(self._keys(row))
        key = keys[0] if len(keys) == 1 else tuple_source(keys)
        self.code.line(f"{self.pending}.append(({key}, {row.source}))")

    def _keys(self, row: RowCode) -> Iterator[str]:
        """Yield the sources of a row's sort keys, most significant first."""
        writer, schema = self.writer, self.input_schema()
        for one in self.operator.by:
            if isinstance(one, Ordering):
                typed = check(one.expr, schema)
                source = writer.value(one.expr, schema, row.columns)
                yield comparable(writer, source, typed, descending=one.descending)
            else:
                user = user_form(writer, schema, row)
                yield f"{writer.constant('by', one)}({user})"
        if not self.operator.by or self.merges:
            for field, column in zip(schema.fields, row.columns, strict=True):
                yield comparable(writer, column, field)

    def finish(self) -> None:
        row = self.writer.fresh("row")
        self.code.line(f"x_sort({self.pending})")
        with self.code.block(f"for _, {row} in {self.pending}:"):
            self.emit_unpacked(row)


@lower_operator.register(Sort)
def _sort_on_spark(operator: Sort, context: BatchContext) -> DataFrame:
    # A bag has no order. Operators that read the order run in a subplan.
    return context.inputs[0]


@answer_of_bags.register(Sort)
def _sort_answer(operator: Sort, node: Node, inputs: Bags) -> Bag:
    return inputs[0][1]


@output_of_tick.register(Sort)
def _tick_output(operator: Sort, node: Node, inputs: Sequence[OperatorInput]) -> Bag:
    return inputs[0].rows(of_tick=True)[1]


@dataclass(frozen=True, slots=True)
class AssumeOrdered(TickDependent):
    """The input as an ordered stream, for operators that need an order.

    nondet: reason why results may depend on the order of arrival. That depends on the cut into ticks, so the
            reason is required unless the ticks are given.

    A tick without rows emits nothing.

    >>> from headrace.testing import show
    >>> why = "who comes first is served first"
    >>> show(lambda a, b: a.union(b).assume_ordered(nondet=why), a=["ann"], b=["bob"])
    + 'ann'
    + 'bob'
    """

    kind: ClassVar[str] = "assume_ordered"
    examples: ClassVar[Examples] = {
        "assume_ordered": lambda x, y: y.assume_ordered(nondet="as they come"),
    }
    linear: ClassVar[bool] = True
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def placement(self) -> Placement:
        return ANYWHERE

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(ordered=True, det=inputs[0].det and self.nondet is None)

    def depends_on_cut(self) -> str:
        return "The order in which rows come depends on which of them come in one tick."


@register_step(AssumeOrdered)
class AssumeOrderedStep(RowStep):
    def consume(self, port: int, row: RowCode) -> None:
        self.emit(row)


@lower_operator.register(AssumeOrdered)
def _assume_ordered_on_spark(operator: AssumeOrdered, context: BatchContext) -> DataFrame:
    return context.inputs[0]


@answer_of_bags.register(AssumeOrdered)
def _assume_ordered_answer(operator: AssumeOrdered, node: Node, inputs: Bags) -> Bag:
    return inputs[0][1]


# --- zip operator: pair the rows of two ordered streams by position -------------------------------


@dataclass(frozen=True, slots=True)
class Zip(TickDependent):
    """Pairs of the first rows, the second rows, and so on.

    A row without a partner waits for one: across ticks if its input has lifetime STATIC, until the end of its
    tick for TICK; then it is dropped, and the next row of that input takes its turn. Pairs are emitted in the
    order of their positions, each as soon as it is complete. A tick without rows emits nothing.

    kept_right: positions of the columns of `right` in the output, after those of `left`.
    nondet:     reason why results may depend on the cut into ticks, if a lifetime is TICK.

    >>> from headrace.testing import show
    >>> show(lambda names, ages: names.zip(ages, suffix="_age"), names=["ann", "bob"], ages=[30, 20, 7])
    + (value='ann', value_age=30)
    + (value='bob', value_age=20)
    """

    kind: ClassVar[str] = "zip"
    examples: ClassVar[Examples] = {"zip": lambda x, y: x.zip(x, suffix="_y")}
    kept_right: tuple[int, ...]
    lifetimes: tuple[Lifetime, Lifetime] = (Lifetime.STATIC, Lifetime.STATIC)
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("left"), Port("right"))

    def output(self, context: CheckContext) -> Columns:
        return context.all_joined_columns(self.kept_right)

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        both = meet(inputs)
        return both.but(append=True, ordered=True, det=both.det and self.nondet is None)

    def required_facts(self) -> tuple[Need, ...]:
        return position_needs(0) + position_needs(1)

    def depends_on_cut(self) -> str:
        return DEPENDS_ON_CUT if Lifetime.TICK in self.lifetimes else ""

    def placement(self) -> Placement:
        return WHOLE

    def describe(self) -> str:
        return with_lifetimes("", self.lifetimes)


def position_needs(port: int) -> tuple[Need, ...]:
    """Return the facts that an operator needs of an input that it reads by position."""
    return (
        Need(
            port,
            "append",
            "a row that is taken back would move all that stand behind it",
            "pair streams that only grow, or join() on a key",
        ),
        Need(
            port,
            "ordered",
            "rows are paired by their position",
            "declare the order in which rows come to be the one that is meant: .assume_ordered(nondet=...),\n"
            "or join() on a key",
        ),
    )


# --- zip-longest operator: pair the rows of two streams by position up to the longer one ----------


@dataclass(frozen=True, slots=True)
class ZipLongest(TickDependent):
    """Pairs of the rows of each tick by position, with nulls where one input is shorter.

    Both inputs are complete first, since only then the longer one is known. Each tick starts over. A tick
    without rows emits nothing.

    kept_right: positions of the columns of `right` in the output, after those of `left`.
    nondet:     reason why results may depend on the cut into ticks.

    >>> from headrace.testing import show
    >>> why = "a table is printed per tick"
    >>> show(lambda a, b: a.zip_longest(b, suffix="_b", nondet=why), a=[1, 2], b=["x"])
    + (value=1, value_b='x')
    + (value=2, value_b=None)
    """

    kind: ClassVar[str] = "zip_longest"
    examples: ClassVar[Examples] = {"zip_longest": lambda x, y: x.zip_longest(x, suffix="_y")}
    kept_right: tuple[int, ...]
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        why = "nulls are given for rows that do not come"
        return (Port("left", blocking=True, why=why), Port("right", blocking=True, why=why))

    def output(self, context: CheckContext) -> Columns:
        return context.all_joined_columns(self.kept_right, may_lack=True)

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def placement(self) -> Placement:
        return WHOLE

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        both = meet(inputs)
        return both.but(append=True, ordered=True, det=both.det and self.nondet is None)

    def required_facts(self) -> tuple[Need, ...]:
        return position_needs(0) + position_needs(1)

    def depends_on_cut(self) -> str:
        return "Each tick is answered for itself, so which rows stand side by side in it decides."


_SIDES = ("left", "right")


@register_step(Zip)
class ZipStep(RowStep):
    """Step of zip. Slots: left and right, position -> unpaired row; counts, side -> rows so far.

    Whoever comes second at a position takes the first away from there. The counts of a
    side of lifetime TICK begin in each tick with the pairs so far, which the other side's
    slot tells where only one is of a tick.
    """

    operator: Zip
    keeps_state = True
    heavy = True
    sites = 2

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.of_a_tick = tuple(lifetime is Lifetime.TICK for lifetime in self.operator.lifetimes)
        self.counts_pairs = any(self.of_a_tick) and not all(self.of_a_tick)

    def slots(self) -> tuple[Slot, ...]:
        node = self.node.id
        sides = zip(_SIDES, self.of_a_tick, strict=True)
        kept = [
            Slot(f"{node}.{what}", transient=of_a_tick)
            for side, of_a_tick in sides
            for what in (side, f"{side}_count")
        ]
        return (*kept, Slot(f"{node}.pairs")) if self.counts_pairs else tuple(kept)

    def consume(self, port: int, row: RowCode) -> None:
        writer, code = self.writer, self.code
        side, other = _SIDES[port], _SIDES[1 - port]
        at, partner, whole = writer.fresh("at"), writer.fresh("row"), writer.fresh("row")
        code.line(f"{whole} = {row.source}")
        code.line(f"{at} = {self.slot_getter(f'{side}_count')}(())")
        with code.block(f"if {at} is None:"):
            first = "0"
            if self.counts_pairs and self.of_a_tick[port]:
                first = f"{self.slot_getter('pairs')}(()) or 0"
            code.line(f"{at} = {first}")
        code.line(f"{self.slot(f'{side}_count')}[()] = {at} + 1")
        code.line(f"{partner} = {self.slot_getter(other)}({at})")
        with code.block(f"if {partner} is None:"):
            code.line(f"{self.slot(side)}[{at}] = {whole}")
        with code.block("else:"):
            code.line(f"del {self.slot(other)}[{at}]")
            if self.counts_pairs:
                code.line(f"{self.slot('pairs')}[()] = {at} + 1")
            pair = (whole, partner) if port == 0 else (partner, whole)
            left = writer.unpack(self.input_schema(), pair[0])
            right = writer.unpack(self.input_schema(1), pair[1])
            self.emit(RowCode((*left, *(right[i] for i in self.operator.kept_right))))


@register_step(ZipLongest)
class ZipLongestStep(RowStep):
    """Step of zip_longest over two complete inputs, side by side."""

    takes_rows = False
    operator: ZipLongest
    keeps_state = True

    def finish(self) -> None:
        writer = self.writer
        schemas = [self.input_schema(port) for port in (0, 1)]
        buffers = [writer.buffer(source) for source in self.node.inputs]
        nulls = [tuple_source(["None"] * len(schema.fields)) for schema in schemas]
        rows = (writer.fresh("row"), writer.fresh("row"))
        with self.code.block(f"for {rows[0]}, {rows[1]} in x_zip_longest({', '.join(buffers)}):"):
            left = writer.unpack(schemas[0], f"{rows[0]} or {nulls[0]}")
            right = writer.unpack(schemas[1], f"{rows[1]} or {nulls[1]}")
            self.emit(RowCode((*left, *(right[i] for i in self.operator.kept_right))))


# --- run time ------------------------------------------------------------------------------------


def sort(pending: list[tuple[Any, Any]]) -> None:
    """Sort pairs of sort key and row by key, stably."""
    try:
        pending.sort(key=itemgetter(0))
    except TypeError as error:
        raise EvaluationError(
            f"rows cannot be put in order: {error}",
            fix="sort by a function whose values are of one kind: sort_by(str), say; or by columns, sort()",
        ) from None


register_runtime({"x_sort": sort})
