"""Base classes of operators that map each row by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import Operator
from headrace.graph.operator_declarations import ANYWHERE, Placement, Port

if TYPE_CHECKING:
    from headrace.graph.operator_declarations import Unservable


class RowByRow(Operator):
    """Base of stateless operators with one input that map each row by itself."""

    __slots__ = ()
    linear: ClassVar[bool] = True
    row_by_row: ClassVar[bool] = True

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def placement(self) -> Placement:
        return ANYWHERE

    def unservable(self) -> Unservable | None:
        return None


class RowFunction(RowByRow):
    """Base of operators that call an opaque function on each row.

    function: field defined by each subclass.
    """

    __slots__ = ()
    function: Callable[..., object]

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield "function", self.function

    def describe(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)
