"""Cross-singleton operator: combine each row with the single row of another stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE
from headrace.graph.operator_declarations import IN_ORDER, WHOLE, Facts, Need, Placement, Port
from headrace.lowering.forms import lower_operator
from headrace.lowering.reference import Bag, Examples, NotOfBags, OperatorInput, output_of_tick
from headrace.lowering.row_code import RowCode
from headrace.lowering.step import RowStep, register_step
from headrace.operators.aggregate.counts import count
from headrace.operators.lifetime import DEPENDS_ON_CUT, Lifetime, TickDependent, tick_needs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Unservable
    from headrace.lowering.forms import BatchContext
    from headrace.lowering.step_writer import StepWriter


@dataclass(frozen=True, slots=True)
class CrossSingleton(TickDependent):
    """Each row of `input` combined with the first row of `single` in the same tick.

    Without a row of `single`, the tick's rows are dropped; further rows of `single` are ignored. `single` is
    complete first. Rows keep the order of `input`. This is the form for lifetime "tick"; over the whole run,
    the single row is a table of one row, which `Stream.cross_singleton` joins.

    kept_right: positions of the columns of `single` in the output, after those of `input`.
    nondet:     reason why results may depend on the cut into ticks.

    >>> from headrace.testing import show
    >>> show(
    ...     lambda bids, rate: bids.cross_singleton(
    ...         rate, lifetime="tick", suffix="_rate", nondet="bids come with their rate"),
    ...     bids=[3, 5], rate=[2])
    + (value=3, value_rate=2)
    + (value=5, value_rate=2)
    """

    kind: ClassVar[str] = "cross_singleton"
    examples: ClassVar[Examples] = {
        "cross_singleton": lambda x, y: x.cross_singleton(
            x.group_by().agg(n=count(), lifetime="tick"), lifetime="tick"
        ),
        "first of several": lambda x, y: x.cross_singleton(x, lifetime="tick", suffix="_y"),
    }
    kept_right: tuple[int, ...]
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        why = "which row of it is the first is not known before"
        return (Port("input"), Port("single", blocking=True, why=why))

    def output(self, context: CheckContext) -> Columns:
        return context.all_joined_columns(self.kept_right)

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def placement(self) -> Placement:
        return WHOLE

    def reads_order(self, port: int) -> bool:
        # The order determines the first row of `single`.
        return port == 1

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        rows, single = inputs
        return rows.but(
            append=True, once=rows.once and single.once, det=rows.det and single.det and self.nondet is None
        )

    def required_facts(self) -> tuple[Need, ...]:
        return tick_needs((Lifetime.TICK, Lifetime.TICK))

    def depends_on_cut(self) -> str:
        return DEPENDS_ON_CUT


@register_step(CrossSingleton)
class CrossSingletonStep(RowStep):
    """Step of cross_singleton: appends the first row of `single`, complete by then, to each row."""

    takes_rows = False
    operator: CrossSingleton
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.single = writer.node_variable("single", node.id)

    def begin(self) -> None:
        with self.writer.in_first_round(self.node.id):
            self.code.line(f"{self.single} = None")

    def finish(self) -> None:
        writer, code = self.writer, self.code
        # In a loop the buffer of `single` is there in the first round alone.
        with code.block(f"if {writer.buffer(self.node.inputs[1])}:"):
            code.line(f"{self.single} = {writer.buffer(self.node.inputs[1])}[0]")
        with code.block(f"if {self.single} is not None:"):
            columns = writer.unpack(self.input_schema(1), self.single)
            kept = tuple(columns[at] for at in self.operator.kept_right)
            with writer.each_row(self.node, 0) as row:
                self.emit(RowCode((*row.columns, *kept)))


@lower_operator.register(CrossSingleton)
def _on_spark(operator: CrossSingleton, context: BatchContext) -> DataFrame:
    rows, single = context.inputs
    left = [f"left {at}" for at in range(len(context.schemas[0].names))]
    right = [f"right {at}" for at in range(len(context.schemas[1].names))]
    pairs = rows.toDF(*left).crossJoin(single.limit(1).toDF(*right))
    kept = [*left, *(right[at] for at in operator.kept_right)]
    return pairs.select(*map(context.named, kept)).toDF(*context.node.schema.names)


@output_of_tick.register(CrossSingleton)
def _output_of_tick(operator: CrossSingleton, node: Node, inputs: Sequence[OperatorInput]) -> Bag:
    rows, single = inputs
    if len(single.tick_changes) > 1:
        raise NotOfBags("which of several rows is the first, bags do not tell")
    out: Bag = Counter()
    for other in single.tick_changes:
        for row, weight in rows.tick_changes.items():
            out[(*row, *(other[at] for at in operator.kept_right))] += weight
    return out
