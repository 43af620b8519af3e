"""Plans as a replica reads them: flows to build, conditions to ask of rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from penstock.compute.plans import decode, predicate_of, servable
from penstock.compute.protocol.dataflow import Plan
from penstock.expr.types import Schema
from penstock.flow.flow import Flow

Predicate = Callable[[tuple[Any, ...]], bool | None]


class Plans:
    """Reads plans. allow_callables: whether this replica runs Python functions of others."""

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
