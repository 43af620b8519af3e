"""Null operator: an empty stream, and a consumer for unused rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import Operator
from headrace.graph.operator_declarations import ANYWHERE, Facts, Placement, Port, meet

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable


@dataclass(frozen=True, slots=True)
class Null(Operator):
    """Stream without rows.

    swallows: whether it reads a stream. Then the operators upstream run as if for a sink, and their rows are
              dropped.

    >>> import headrace as hr
    >>> flow = hr.Flow("watched")
    >>> _ = flow.source("numbers", int).inspect(print).null()
    >>> _ = hr.Engine(flow).tick(numbers=[1, 2])
    1
    2
    """

    kind: ClassVar[str] = "null"
    ends_streams: ClassVar[bool] = True
    swallows: bool

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),) if self.swallows else ()

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields if self.swallows else None

    def unservable(self) -> Unservable | None:
        return None

    def placement(self) -> Placement:
        return ANYWHERE

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return meet(())
