"""Operators that gather the rows of several streams: union, and chain, one after another in each tick."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE, Operator, identity_lineage
from headrace.graph.operator_declarations import ANYWHERE, IN_ORDER, WHOLE, Facts, Need, Placement, Port, meet
from headrace.lowering.forms import apply_operator, lower_operator
from headrace.lowering.reference import Bag, Bags, Examples, answer_of_bags, copies
from headrace.lowering.row_code import RowCode
from headrace.lowering.slot import Slot
from headrace.lowering.step import LoopStep, RowStep, register_loop_step, register_step
from headrace.operators.distinct import Distinct
from headrace.operators.feedback import Feedback
from headrace.operators.join.join import Join
from headrace.operators.lifetime import TickDependent

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame

    from headrace.columns.column_stream import ColumnStream
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage, Unservable
    from headrace.lowering.forms import BatchContext
    from headrace.lowering.step_writer import StepWriter


@dataclass(frozen=True, slots=True)
class Union(Operator):
    """All rows of all inputs, duplicates included (`UNION ALL`; follow with `distinct` for a set).

    In a flow with given ticks, the rows of a tick are emitted port by port; otherwise their order is
    meaningless. A tick without rows emits nothing.

    >>> from headrace.testing import show
    >>> show(lambda a, b: a.union(b), a=[1, 2], b=[2])
    + 1
    + 2
    + 2
    """

    kind: ClassVar[str] = "union"
    examples: ClassVar[Examples] = {
        "union": lambda x, y: x.union(y),
    }
    runs_in_rounds: ClassVar[bool] = True
    is_union: ClassVar[bool] = True
    linear: ClassVar[bool] = True
    count: int

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),) * self.count

    def output(self, context: CheckContext) -> Columns:
        return context.common_columns()

    def unservable(self) -> Unservable | None:
        return None

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        return (live,) * len(inputs)

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return tuple(map(identity_lineage, inputs))

    def placement(self) -> Placement:
        return ANYWHERE

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return meet(inputs).but(ordered=False)


@register_step(Union)
class UnionStep(RowStep):
    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.sites = len(node.inputs)

    def takes_where_made(self, port: int) -> bool:
        # Where the ticks are given, their order means something: that of the ports.
        return port == 0 or not self.writer.graph.given_ticks

    def consume(self, port: int, row: RowCode) -> None:
        self.emit(row)


# --- in loops with retractions --------------------------------------------------------------------

# A row that comes from outside less than 0 times (retracted before it came) does no harm where it is added
# up. Where two loop-variant sides are multiplied, it could take away what a later round has, and the rounds
# would never come to rest. There, and only there, a union remembers what enters it, and passes on the
# positive count.


@register_loop_step(Union)
class NestedUnionStep(LoopStep):
    """Step of union. Slots: entry, per loop-invariant port that needs one: row -> weight."""

    keeps_state = False

    def __init__(self, node: Node, writer: StepWriter, varies: Sequence[bool]) -> None:
        super().__init__(node, writer, varies)
        self.sites = len(node.inputs)
        self._counted: list[int] = []
        if _is_multiplied(writer, node.id):
            entering = [port for port in range(len(node.inputs)) if not varies[port]]
            self._counted = [port for port in entering if not writer.is_append(node.inputs[port])]

    def slots(self) -> tuple[Slot, ...]:
        return tuple(Slot(f"{self.node.id}.entry{port}") for port in self._counted)

    def consume(self, port: int, row: RowCode) -> None:
        if port not in self._counted:
            self.emit(row)
            return
        code, writer = self.code, self.writer
        entry = writer.fresh("row")
        code.line(f"{entry} = {writer.row_key(self.node.schema, row.columns)}")
        old, new = self.state(f"entry{port}").add_count(entry, row.copies)
        change = writer.fresh("change")
        code.line(f"{change} = ({new} if {new} > 0 else 0) - ({old} if {old} > 0 else 0)")
        with code.block(f"if {change}:"):
            self.emit(RowCode(row.columns, entry, change))


def _is_multiplied(writer: StepWriter, node: int) -> bool:
    """Return whether a node's rows reach a join of two loop-variant inputs before becoming a set."""
    seen = {node}
    waiting = [node]
    while waiting:
        for edge in writer.readers(waiting.pop(), writer.loop(node)):
            target = writer.graph.nodes[edge.target]
            if isinstance(target.operator, Join) and all(
                not writer.loops_apart(source, node) for source in target.inputs
            ):
                return True
            if edge.target not in seen and not isinstance(target.operator, Feedback | Distinct):
                seen.add(edge.target)
                waiting.append(edge.target)
    return False


@apply_operator.register(Union)
def _on_columns(
    operator: Union, schema: Schema, append: bool, inputs: Sequence[ColumnStream]
) -> ColumnStream:
    import polars as pl

    from headrace.columns.column_stream import ColumnStream
    from headrace.columns.columns import FAILS, WEIGHT
    from headrace.expr.polars_columns import LoweredExpression, bounds_hull

    there = [stream for stream in inputs if stream.most]
    if len(there) == 1 and there[0].append == append:
        return replace(there[0], schema=schema)
    checked = any(stream.checked for stream in inputs)
    frames: list[pl.LazyFrame] = []
    for stream in inputs:
        frame = stream.frame
        if not append and stream.append:
            frame = frame.with_columns(pl.lit(1, dtype=pl.Int64).alias(WEIGHT))
        if checked and not stream.checked:
            frame = frame.with_columns(pl.lit(False).alias(FAILS))
        names = replace(stream, append=append, checked=checked).names
        frames.append(frame.select(names))
    alike = zip(*(stream.columns for stream in inputs), strict=True)
    columns = tuple(LoweredExpression(pl.col(str(at)), bounds_hull(each)) for at, each in enumerate(alike))
    most, copies = sum(stream.most for stream in inputs), sum(stream.copies for stream in inputs)
    return ColumnStream(schema, append, pl.concat(frames), columns, most, copies, checked)


@lower_operator.register(Union)
def _on_spark(operator: Union, context: BatchContext) -> DataFrame:
    return reduce(lambda one, other: one.unionAll(other), context.inputs)


@answer_of_bags.register(Union)
def _answer(operator: Union, node: Node, inputs: Bags) -> Bag:
    return Counter(row for _, bag in inputs for row in copies(bag))


# --- chain operator: one stream followed by another within each tick ------------------------------


@dataclass(frozen=True, slots=True)
class Chain(Operator):
    """All rows of both inputs, duplicates included; in each tick `first` comes before `second`.

    So `first` is complete before `second` is read. Over the whole run, one input follows the other only if
    all of `first` arrives in the first tick: the output is `ordered` if `first` is bounded. Otherwise the
    order depends on the cut into ticks, and operators that use it need `assume_ordered` with a reason. A tick
    without rows emits nothing.

    >>> from headrace.testing import show
    >>> show(lambda a, b: b.chain(a), a=[1, 2], b=[3])
    + 3
    + 1
    + 2
    """

    kind: ClassVar[str] = "chain"
    examples: ClassVar[Examples] = {"chain": lambda x, y: x.chain(y)}
    is_union: ClassVar[bool] = True

    def ports(self) -> tuple[Port, ...]:
        why = "its rows come before those of 'second'"
        return (Port("first", blocking=True, why=why), Port("second"))

    def output(self, context: CheckContext) -> Columns:
        return context.common_columns()

    def unservable(self) -> Unservable | None:
        return None

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        return (live,) * len(inputs)

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return tuple(map(identity_lineage, inputs))

    def placement(self) -> Placement:
        return ANYWHERE

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        both = meet(inputs)
        return both.but(ordered=both.ordered and inputs[0].bounded)


# --- chain-first-n operator: the first rows of several streams, taken in turn ---------------------


@dataclass(frozen=True, slots=True)
class ChainFirstN(TickDependent):
    """The first `count` rows of each tick, from the inputs in port order.

    Every input is complete before the next one is read. Rows beyond `count` are dropped. A tick without rows
    emits nothing.

    nondet: reason why results may depend on the cut into ticks.

    >>> from headrace.testing import show
    >>> why = "three offers a day are shown"
    >>> show(lambda a, b: a.chain_first_n(3, b, nondet=why), a=[1, 2], b=[3, 4])
    + 1
    + 2
    + 3
    """

    kind: ClassVar[str] = "chain_first_n"
    examples: ClassVar[Examples] = {"chain_first_n": lambda x, y: x.chain_first_n(1, x)}
    count: int
    inputs: int
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        why = "its rows come before those of the next input"
        first = (Port(f"input {at}", blocking=True, why=why) for at in range(self.inputs - 1))
        return (*first, Port(f"input {self.inputs - 1}"))

    def output(self, context: CheckContext) -> Columns:
        context.require(self.count >= 0, "a count is below zero")
        return context.common_columns()

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def placement(self) -> Placement:
        return WHOLE

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        both = meet(inputs)
        return both.but(append=True, ordered=True, det=both.det and self.nondet is None)

    def required_facts(self) -> tuple[Need, ...]:
        return tuple(need for port in range(self.inputs) for need in _needs(port))

    def depends_on_cut(self) -> str:
        return "Each tick is answered for itself, so which rows are first in it decides."

    def describe(self) -> str:
        return f"{self.count} in each tick"


def _needs(port: int) -> tuple[Need, ...]:
    return (
        Need(
            port,
            "append",
            "what a tick answered is not taken back",
            "take the first rows of a stream that only grows; top_k() keeps the first rows of a table",
        ),
        Need(
            port,
            "ordered",
            "it takes the first rows",
            "declare the order in which rows come to be the one that is meant: .assume_ordered(nondet=...)",
        ),
    )


@register_step(Chain)
class ChainStep(RowStep):
    """Step of chain over whole buffers, port by port."""

    takes_rows = False

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.sites = len(node.inputs)

    def finish(self) -> None:
        for port in range(len(self.node.inputs)):
            with self.writer.each_row(self.node, port) as row:
                self.emit(row)


@register_step(ChainFirstN)
class ChainFirstNStep(RowStep):
    """Step of chain_first_n. `left` counts the rows a tick may still emit, over all rounds of a loop."""

    takes_rows = False
    operator: ChainFirstN
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.left = writer.node_variable("left", node.id)
        self.sites = len(node.inputs)

    def begin(self) -> None:
        with self.writer.in_first_round(self.node.id):
            self.code.line(f"{self.left} = {self.operator.count}")

    def finish(self) -> None:
        for port in range(len(self.node.inputs)):
            with self.writer.each_row(self.node, port) as row:
                with self.code.block(f"if not {self.left}:"):
                    self.code.line("break")
                self.code.line(f"{self.left} -= 1")
                self.emit(row)


@lower_operator.register(Chain)
def _chain_on_spark(operator: Chain, context: BatchContext) -> DataFrame:
    first, second = context.inputs
    return first.unionAll(second)


@answer_of_bags.register(Chain)
def _chain_answer(operator: Chain, node: Node, inputs: Bags) -> Bag:
    return Counter(row for _, bag in inputs for row in copies(bag))
