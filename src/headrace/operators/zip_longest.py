"""Zip-longest operator: pair the rows of two streams by position up to the longer one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE, Operator
from headrace.graph.operator_declarations import WHOLE, Facts, Need, Placement, Port, meet
from headrace.operators.unservable import IN_ORDER
from headrace.operators.zip import position_needs

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable


@dataclass(frozen=True, slots=True)
class ZipLongest(Operator):
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

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        both = meet(inputs)
        return both.but(append=True, ordered=True, det=both.det and self.nondet is None)

    def needs(self) -> tuple[Need, ...]:
        return position_needs(0) + position_needs(1)

    def guard(self) -> str | None:
        return self.nondet

    def depends_on_cut(self) -> str:
        return "Each tick is answered for itself, so which rows stand side by side in it decides."

    def describe(self) -> str:
        return f"nondet: {self.nondet}" if self.nondet else ""
