"""Cross-singleton operator: combine each row with the single row of another stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE, Operator
from headrace.graph.operator_declarations import WHOLE, Facts, Need, Placement, Port
from headrace.operators.lifetime import DEPENDS_ON_CUT, Lifetime, tick_needs
from headrace.operators.unservable import IN_ORDER

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable


@dataclass(frozen=True, slots=True)
class CrossSingleton(Operator):
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

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        rows, single = inputs
        return rows.but(
            append=True, once=rows.once and single.once, det=rows.det and single.det and self.nondet is None
        )

    def needs(self) -> tuple[Need, ...]:
        return tick_needs((Lifetime.TICK, Lifetime.TICK))

    def guard(self) -> str | None:
        return self.nondet

    def depends_on_cut(self) -> str:
        return DEPENDS_ON_CUT

    def describe(self) -> str:
        return f"nondet: {self.nondet}" if self.nondet else ""
