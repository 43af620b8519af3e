"""Checks of operators that speak of ticks."""

from __future__ import annotations

from penstock.compute.plans.checks.context import Claimed, output_of
from penstock.expr.types import Field
from penstock.flow.operators.defer_signal import DeferSignal
from penstock.flow.operators.defer_tick import DeferTick
from penstock.flow.operators.defer_tick_lazy import DeferTickLazy
from penstock.flow.operators.every_tick import EveryTick
from penstock.flow.operators.multiset_delta import MultisetDelta


@output_of.register(DeferTick)
@output_of.register(DeferTickLazy)
@output_of.register(DeferSignal)
@output_of.register(EveryTick)
@output_of.register(MultisetDelta)
def _later(
    operator: DeferTick | DeferTickLazy | DeferSignal | EveryTick | MultisetDelta, claimed: Claimed
) -> tuple[Field, ...]:
    claimed.reason(operator.nondet)
    return claimed.input.fields
