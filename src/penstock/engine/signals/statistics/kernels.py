"""The kernel of each statistic."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.engine.signals.statistics.inputs import Inputs
    from penstock.engine.signals.statistics.kernel import Kernel
    from penstock.flow.statistics.statistic import Statistic


@singledispatch
def kernel_of(statistic: Statistic, inputs: Inputs) -> Kernel:
    """How `statistic` is computed; every class of statistics registers one."""
    raise NotImplementedError(f"no kernel for {type(statistic).__name__}")
