"""Operators that emit streams one after another within each tick."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE, Operator, identity_lineage
from headrace.graph.operator_declarations import ANYWHERE, WHOLE, Facts, Need, Placement, Port, meet
from headrace.lowering.forms import lower_operator
from headrace.lowering.reference import Bag, Bags, Examples, answer_of_bags, copies
from headrace.lowering.step import Step, register_step
from headrace.operators.lifetime import CutDependent
from headrace.operators.unservable import IN_ORDER

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame

    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage, Unservable
    from headrace.lowering.forms import BatchSite
    from headrace.lowering.step_writer import StepWriter


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
    unites: ClassVar[bool] = True

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

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        both = meet(inputs)
        return both.but(ordered=both.ordered and inputs[0].bounded)


# --- chain-first-n operator: the first rows of several streams, taken in turn ---------------------


@dataclass(frozen=True, slots=True)
class ChainFirstN(CutDependent):
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

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        both = meet(inputs)
        return both.but(append=True, ordered=True, det=both.det and self.nondet is None)

    def needs(self) -> tuple[Need, ...]:
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
class ChainStep(Step):
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
class ChainFirstNStep(Step):
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
def _chain_on_spark(operator: Chain, site: BatchSite) -> DataFrame:
    first, second = site.inputs
    return first.unionAll(second)


@answer_of_bags.register(Chain)
def _chain_answer(operator: Chain, node: Node, inputs: Bags) -> Bag:
    return Counter(row for _, bag in inputs for row in copies(bag))
