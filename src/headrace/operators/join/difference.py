"""Difference operator: rows of one stream that are absent from another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE, identity_lineage
from headrace.graph.operator_declarations import Facts, KeyedSlot, Need, Placement, Port, meet, place_by_key
from headrace.lowering.forms import lower_operator
from headrace.lowering.reference import Bag, Bags, Examples, OperatorInput, answer_of_bags, output_of_tick
from headrace.operators.lifetime import (
    DEPENDS_ON_CUT,
    CutDependent,
    Lifetime,
    rows_by_lifetime,
    tick_needs,
    with_lifetimes,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lowering.forms import BatchSite


@dataclass(frozen=True, slots=True)
class Difference(CutDependent):
    """Rows of `pos` that are not in `neg`.

    Duplicates in `pos` are kept, duplicates in `neg` are ignored. Whole rows are compared, and null equals
    null. A row of `neg` can retract output, so `neg` is complete first. A tick without changes emits nothing.

    lifetimes: of `pos` and `neg`; (STATIC, TICK) is not supported, but composed of `every_tick` and
               (TICK, TICK). With TICK, the rows keep the order of `pos`.
    nondet:    reason why results may depend on the cut into ticks, if a lifetime is TICK.

    >>> from headrace.testing import show
    >>> show(lambda due, paid: due.difference(paid), due=["ann", "bob"], paid=["bob"])
    + 'ann'
    """

    kind: ClassVar[str] = "difference"
    examples: ClassVar[Examples] = {"difference": lambda x, y: x.difference(y)}
    runs_in_rounds: ClassVar[bool] = True
    columns: tuple[Expr, ...]
    neg_columns: tuple[Expr, ...]
    lifetimes: tuple[Lifetime, Lifetime] = (Lifetime.STATIC, Lifetime.STATIC)
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        why = "a further row of 'neg' could take an answer back"
        return (Port("pos"), Port("neg", blocking=True, why=why))

    def output(self, context: CheckContext) -> Columns:
        left, right = context.inputs
        context.all_columns(self.columns, left)
        context.all_columns(self.neg_columns, right)
        context.require(
            self.lifetimes != (Lifetime.STATIC, Lifetime.TICK), "a difference cannot have these lifetimes"
        )
        context.common_columns()
        return left.fields

    def unservable(self) -> Unservable | None:
        return None

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]), {})

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"left": KeyedSlot(0, bare=False), "right": KeyedSlot(1, bare=False)}

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        pos, neg = inputs
        if Lifetime.TICK in self.lifetimes:
            return meet(inputs).but(
                append=True, ordered=pos.ordered, det=pos.det and neg.det and self.nondet is None
            )
        append = pos.append and neg.append and neg.bounded
        return meet(inputs).but(append=append, ordered=False)

    def needs(self) -> tuple[Need, ...]:
        return tick_needs(self.lifetimes)

    def depends_on_cut(self) -> str:
        return DEPENDS_ON_CUT if Lifetime.TICK in self.lifetimes else ""

    def refused_in_changing_loop(self, goes_round: Sequence[bool]) -> str:
        return ""

    def placement(self) -> Placement:
        return place_by_key(self.columns, self.neg_columns)

    def describe(self) -> str:
        return with_lifetimes("", self.lifetimes)


@lower_operator.register(Difference)
def _on_spark(operator: Difference, site: BatchSite) -> DataFrame:
    pos, neg = site.inputs
    names = site.schemas[0].names
    # Null is equal to null here, and duplicates of `pos` stay: neither EXCEPT nor EXCEPT ALL is this.
    other = neg.toDF(*(f"neg.{at}" for at in range(len(names))))
    same = (site.named(name).eqNullSafe(site.named(f"neg.{at}")) for at, name in enumerate(names))
    return pos.join(other, reduce(and_, same), "left_anti")


@answer_of_bags.register(Difference)
def _answer(operator: Difference, node: Node, inputs: Bags) -> Bag:
    (_, pos), (_, neg) = inputs
    return Counter({row: count for row, count in pos.items() if row not in neg})


@output_of_tick.register(Difference)
def _output_of_tick(operator: Difference, node: Node, inputs: Sequence[OperatorInput]) -> Bag:
    return answer_of_bags(operator, node, rows_by_lifetime(operator.lifetimes, inputs))
