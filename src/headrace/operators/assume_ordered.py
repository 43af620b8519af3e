"""Assume-ordered operator: declare the order of arrival meaningful."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE, identity_lineage
from headrace.graph.operator_declarations import ANYWHERE, Facts, Placement, Port
from headrace.lowering.forms import lower_operator
from headrace.lowering.reference import Bag, Bags, Examples, answer_of_bags
from headrace.lowering.row_code import RowCode
from headrace.lowering.step import Step, register_step
from headrace.operators.lifetime import CutDependent
from headrace.operators.unservable import IN_ORDER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage, Unservable
    from headrace.lowering.forms import BatchSite


@dataclass(frozen=True, slots=True)
class AssumeOrdered(CutDependent):
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

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(ordered=True, det=inputs[0].det and self.nondet is None)

    def depends_on_cut(self) -> str:
        return "The order in which rows come depends on which of them come in one tick."


@register_step(AssumeOrdered)
class AssumeOrderedStep(Step):
    def consume(self, port: int, row: RowCode) -> None:
        self.emit(row)


@lower_operator.register(AssumeOrdered)
def _on_spark(operator: AssumeOrdered, site: BatchSite) -> DataFrame:
    return site.inputs[0]


@answer_of_bags.register(AssumeOrdered)
def _answer(operator: AssumeOrdered, node: Node, inputs: Bags) -> Bag:
    return inputs[0][1]
