"""Call: a Python function that is given the changes of each tick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.io.guarantee import TOLD, Guarantee
from penstock.io.sink import Drain, SinkTarget, Writer, open_sink
from penstock.io.sink_spool import spooled


@dataclass(frozen=True)
class Call(SinkTarget):
    """`function(tick, changes)` for each tick that has changes, a sequence of `Change(row, weight)`.

    At least once: after a crash the last committed tick may be given again,
    with the same number and the same changes. What the function raises ends the run.
    """

    guarantee: ClassVar[Guarantee] = TOLD
    function: Callable[[int, Sequence[Any]], object]


@open_sink.register
def _(sink: Call, drain: Drain) -> Writer:
    return spooled(drain, lambda tick, rows: sink.function(tick, drain.present(rows)))
