"""Sort operator: order all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.check import check
from headrace.expr.tree import Ordering
from headrace.graph.node import ALTERABLE
from headrace.graph.operator_declarations import WHOLE, Facts, Need, Placement, Port
from headrace.lowering.forms import lower_operator
from headrace.lowering.reference import Bag, Bags, Examples, OperatorInput, answer_of_bags, output_of_tick
from headrace.lowering.row_code import RowCode, comparable, tuple_source, user_form
from headrace.lowering.step import Step, register_step
from headrace.operators.lifetime import Lifetime, WithLifetime, describe_lifetime
from headrace.operators.unservable import IN_ORDER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.expr.tree import Expr
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Unservable
    from headrace.lowering.forms import BatchSite
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

    def needs(self) -> tuple[Need, ...]:
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

    def gives(self, inputs: Sequence[Facts]) -> Facts:
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
class SortStep(Step):
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
def _on_spark(operator: Sort, site: BatchSite) -> DataFrame:
    # A bag has no order. Operators that read the order run in a subplan.
    return site.inputs[0]


@answer_of_bags.register(Sort)
def _answer(operator: Sort, node: Node, inputs: Bags) -> Bag:
    return inputs[0][1]


@output_of_tick.register(Sort)
def _tick_output(operator: Sort, node: Node, inputs: Sequence[OperatorInput]) -> Bag:
    return inputs[0].rows(of_tick=True)[1]
