"""Checks of what a controller asks for, alike for all runtimes: plans, imports, exports, keys, times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from penstock.compute.errors import BadMessage, BadPlan, SinceViolation
from penstock.compute.frontier import Frontier
from penstock.compute.plans import decode, predicate_of, servable, sinks_of, sources_of
from penstock.compute.protocol.commands import Peek
from penstock.compute.protocol.dataflow import Dataflow, Id, IndexExport, Plan
from penstock.compute.replica.exports import Failed
from penstock.expr.types import Schema
from penstock.flow.flow import Flow

Predicate = Callable[[tuple[Any, ...]], bool | None]


class Plans:
    """Decoder of plans. allow_callables: whether this replica runs Python functions of others."""

    def __init__(self, allow_callables: bool = False) -> None:
        self._allow_callables = allow_callables

    def flow(self, plan: Plan) -> Flow:
        """The flow of a plan. Raises `BadPlan`, `CallableRefused`, `NotServable`, `MessageTooLarge`."""
        flow = decode(plan, allow_callables=self._allow_callables)
        servable(flow)
        return flow

    def predicate(self, data: bytes, schema: Schema) -> Predicate:
        """The condition that was encoded. Raises `BadPlan`, `MessageTooLarge`."""
        return _predicate(data, schema)


@lru_cache(maxsize=256)
def _predicate(data: bytes, schema: Schema) -> Predicate:
    # Many peeks ask the same; to read and compile a condition takes longer than to answer a peek.
    return predicate_of(data, schema)


class Import(Protocol):
    """What a source of a dataflow reads: a collection or an index. failed: where that has failed."""

    source: str

    @property
    def schema(self) -> Schema: ...
    @property
    def failed(self) -> Failed | None: ...
    def close(self) -> None:
        """Release its read hold."""
        ...


def check_imports(flow: Flow, imports: Sequence[Import]) -> None:
    """Raise `BadPlan` unless there is one import of the right columns for each source of the flow."""
    schemas = {source.name: source.schema for source in sources_of(flow)}
    given = sorted(each.source for each in imports)
    if given != sorted(schemas):
        raise BadPlan(
            f"the flow reads {sorted(schemas)}, and the dataflow gives it {given}",
            fix="import something for each source of the flow",
            part="imports",
        )
    for each in imports:
        # A failed index may have no columns; whoever reads it fails with its error.
        if each.failed is None and each.schema != schemas[each.source]:
            raise BadPlan(
                f"the source {each.source!r} has {schemas[each.source]}, and what it is to read has "
                f"{each.schema}",
                part="imports",
            )


def export_schemas(flow: Flow, dataflow: Dataflow) -> dict[str, Schema]:
    """The schemas of the flow's sinks. Raises `BadPlan` for exports that do not fit them."""
    schemas = {sink.name: sink.schema for sink in sinks_of(flow)}
    for export in dataflow.exports:
        if export.sink not in schemas:
            raise BadPlan(
                f"{export.id} is to export the sink {export.sink!r}, and the flow has {sorted(schemas)}",
                part="exports",
            )
        if isinstance(export, IndexExport) and not set(export.key) <= set(schemas[export.sink].names):
            raise BadPlan(
                f"{export.id} is to be arranged by {', '.join(export.key)}, and its rows have "
                f"{', '.join(schemas[export.sink].names)}",
                part="exports",
            )
    return schemas


def check_keys(peek: Peek, width: int) -> None:
    """Raise `BadMessage` for keys that are not of `width` columns."""
    for key in peek.keys or ():
        if len(key) != width:
            raise BadMessage(
                f"a key of {len(key)} values, and {peek.target.id} is read by {width}",
                fix="give a value for each key column",
                field="keys",
            )


def check_since(id: Id, time: int, since: Frontier) -> None:
    """Raise `SinceViolation` for a time that has been compacted."""
    if since > Frontier(time):
        raise SinceViolation(
            f"{id} cannot be read at time {time}: it has been compacted to {since}",
            why="changes before that time have been merged",
            fix="ask for a later time",
            id=id,
            time=time,
            since=since.time,
        )
