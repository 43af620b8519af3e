"""The executor of a dataflow's ticks, as an engine is one, and how many rows its ticks take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from penstock.compute.protocol.dataflow import Dataflow
from penstock.engine.engine import Engine
from penstock.flow.flow import Flow

T = TypeVar("T")

LEAST = 16
MOST = 8192
_LONG = 0.005
_SHORT = 0.002

EngineRows: TypeAlias = list[tuple[Any, ...]]
"""Rows as an engine takes and gives them: with the weight last, or without where they are only added."""


class Borders(Protocol):
    """Of each source and sink by name, whether its rows are only added."""

    @property
    def source_append(self) -> Mapping[str, bool]: ...
    @property
    def sink_append(self) -> Mapping[str, bool]: ...


class TickExecutor(Protocol):
    @property
    def program(self) -> Borders: ...

    def tick_rows(self, inputs: Mapping[str, EngineRows]) -> Mapping[str, EngineRows]:
        """Run a tick; the rows of each sink that gets some."""
        ...


MakeTickExecutor: TypeAlias = Callable[[Dataflow, Flow], TickExecutor]
ChooseTicking: TypeAlias = Callable[[Dataflow, Flow], MakeTickExecutor | None]


def whole(dataflow: Dataflow, flow: Flow) -> TickExecutor:
    """An engine for all of the rows."""
    return Engine(flow, columnar="never")


class TickSizer:
    """The number of rows that a tick takes in a few milliseconds, learnt from earlier ticks.

    most: that number.
    """

    def __init__(self) -> None:
        self.most = 512

    def parts(self, rows: Sequence[T]) -> Iterator[Sequence[T]]:
        """Cut rows into parts of `most`, as it is when a part is asked for."""
        at = 0
        while at < len(rows):
            part = rows[at : at + self.most]
            at += len(part)
            yield part

    def took(self, rows: int, seconds: float) -> None:
        """Learn from a tick."""
        if seconds > _LONG and rows > LEAST:
            self.most = max(LEAST, min(self.most, rows) // 2)
        elif seconds < _SHORT and rows >= self.most:
            self.most = min(MOST, self.most * 2)
