"""What operators say of themselves that call a function on each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

from penstock.graph.facts import Port
from penstock.graph.node import Operator


class RowFunction(Operator):
    """Base of operators that call an opaque function on each row, by itself.

    function: a field of each of them.
    """

    __slots__ = ()
    linear: ClassVar[bool] = True
    function: Callable[..., object]

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield "function", self.function

    def describe(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))
