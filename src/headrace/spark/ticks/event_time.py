"""Event time as tracked by the driver: ended sources and current watermarks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isfinite
from typing import TYPE_CHECKING, Any

from headrace.engine.event_time import awaited_ends, more_after_the_end
from headrace.expr.code_runtime import EPOCH
from headrace.operators.event_time.watermark import EARLIEST

if TYPE_CHECKING:
    from headrace.graph.node import FlowGraph

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Ends:
    """Ends of sources. graph: stage 0. operators: by name, the sources whose ends an operator awaits."""

    graph: FlowGraph
    operators: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, graph: FlowGraph) -> Ends:
        operators = ((name, graph.nodes[node].operator) for name, node in awaited_ends(graph).items())
        return cls(graph, {name: frozenset(_sources(operator)) for name, operator in operators})

    @property
    def awaited(self) -> frozenset[str]:
        """Sources whose end some operator waits for."""
        return frozenset().union(*self.operators.values())

    def ended_operators(self, before: Iterable[str], now: Iterable[str]) -> list[str]:
        """Return the operators whose last source ends with `now`, if the sources in `before` have ended."""
        earlier = frozenset(before)
        after = earlier | frozenset(now)
        return [name for name, of in self.operators.items() if of <= after and not of <= earlier]

    def check(self, ended: Iterable[str], taken: Mapping[str, int]) -> None:
        """Raise `BadInput` for rows of a source that has ended."""
        for name in ended:
            if taken.get(name):
                raise more_after_the_end(self.graph, name)


def _sources(operator: Any) -> Iterable[str]:
    return operator.sources


def stand_of(watermark: Any) -> int | float | None:
    """Encode a watermark for a commit: microseconds since 1970, or a number; None before the first time."""
    if isinstance(watermark, datetime):
        return None if watermark <= EARLIEST else (watermark - EPOCH) // _MICROSECOND
    return watermark if watermark is not None and isfinite(watermark) else None
