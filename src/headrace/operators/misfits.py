"""Misfits operator: the records that an upsert leaves out, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.types import STR, Field
from headrace.operators.upsert import KeyedRecords, OnMisfit, UpsertRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Facts

REASON = "misfit"
"""Column with the reason why a record does not fit."""


@dataclass(frozen=True, slots=True)
class Misfits(KeyedRecords):
    """The records that contradict the row held for their key, which `upsert` leaves out, with the reason.

    It holds the rows of all keys a second time.

    >>> from dataclasses import dataclass
    >>> import headrace as hr
    >>> from headrace.testing import show
    >>> @dataclass(frozen=True)
    ... class Price:
    ...     id: int
    ...     price: int
    ...     at: int
    >>> def misfits(prices):
    ...     latest = prices.upsert("id", sequence="at", on_misfit="dead_letter")
    ...     return latest.misfits().select("misfit")
    >>> show(misfits, prices=[Price(1, 3, 1), Price(1, 4, 1)])
    + (misfit='of sequence 1, it sets (id=1, price=4, at=1), but another record set (id=1, price=3, at=1)')
    """

    kind: ClassVar[str] = "misfits"
    rule: UpsertRule

    def output(self, context: CheckContext) -> Columns:
        self.rule.check(context)
        context.require(self.rule.on_misfit is OnMisfit.DEAD_LETTER, "nothing is left out by its policy")
        context.require(context.input.position(REASON) is None, f"there is a column {REASON!r} already")
        return (*context.input.fields, Field(REASON, STR))

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return self.rule.gives(inputs[0])
