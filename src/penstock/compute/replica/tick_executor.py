"""What a dataflow runs on: something that takes the rows of a tick, as an engine does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from penstock.compute.protocol.dataflow import Dataflow
from penstock.engine.engine import Engine
from penstock.flow.flow import Flow

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
