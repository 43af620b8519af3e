"""Distinct operator with state expiry: rows behind the watermark are forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.constructors import col
from headrace.expr.tree import Column
from headrace.graph.node import Operator, identity_lineage
from headrace.graph.operator_declarations import (
    Facts,
    KeyedSlot,
    Need,
    Placement,
    Port,
    calendar_slots,
    place_by_key,
)
from headrace.lowering.examples import Examples
from headrace.lowering.forms import lower_operator
from headrace.operators.distinct import Distinct
from headrace.operators.unservable import EVENT_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lowering.forms import BatchSite
    from headrace.operators.time_spans import Span


@dataclass(frozen=True, slots=True)
class DistinctOnTime(Operator):
    """Each row once, emitted with its first copy and forgotten when the watermark passes its time.

    columns: every column of the input, as expressions. time: the column with the watermark.
    width:   length of the time intervals that are forgotten together.

    The output equals that of `distinct`, since a row whose time has passed cannot arrive again.
    A tick without rows emits nothing.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda at: at.watermark(col.value, lateness=5).distinct(), at=[1, 2, 1])
    + 1
    + 2
    """

    kind: ClassVar[str] = "distinct"
    plan_name: ClassVar[str | None] = "distinct_on_time"
    examples: ClassVar[Examples] = {"of a time": lambda x, y: x.watermark(col.a, lateness=1).distinct()}
    merges_equal: ClassVar[bool] = True
    columns: tuple[Expr, ...]
    time: str
    width: Span

    def ports(self) -> tuple[Port, ...]:
        return (Port("rows"), Port("watermark", completeness=True))

    def output(self, context: CheckContext) -> Columns:
        context.all_columns(self.columns)
        made = context.with_state_expiry(Distinct(self.columns))
        context.require_as_built_by_flow(made, self, "it forgets what could still come")
        context.require_watermark(1, Column(self.time), 0)
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return EVENT_TIME

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]), {})

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        copies = KeyedSlot(bare=False)
        return {"copies": copies, **calendar_slots("", copies)}

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return True

    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                "a row that was forgotten could not be taken back",
                "put the watermark behind what takes rows back",
            ),
        )

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(ordered=False, once=True)

    def placement(self) -> Placement:
        return place_by_key(self.columns, None)

    def describe(self) -> str:
        return f"forgets what {self.time} has passed"


@lower_operator.register(DistinctOnTime)
def _on_spark(operator: DistinctOnTime, site: BatchSite) -> DataFrame:
    return site.inputs[0].distinct()
