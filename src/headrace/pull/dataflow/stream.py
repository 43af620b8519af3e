"""Streams and ports: lists that are extended at one end while being read."""

from __future__ import annotations

from typing import Generic, TypeVar

from headrace.pull.dataflow.messages import Cell
from headrace.pull.dataflow.variable import Variable

T = TypeVar("T")


class Stream(Generic[T]):
    """Reader of a list, element by element: `async for element in stream`, or `await stream.next()`.

    It waits at the tail for further elements.
    rest: the current position, from which another reader may start.
    """

    __slots__ = ("rest",)

    def __init__(self, rest: Variable[Cell[T]]) -> None:
        self.rest = rest

    def __aiter__(self) -> Stream[T]:
        return self

    async def next(self) -> T:
        cell = await self.rest
        self.rest = cell.tail
        return cell.head

    __anext__ = next


class Port(Generic[T]):
    """Writer of a list: `send` binds its tail. Any holder of the port may send, in any order.

    >>> port = Port()
    >>> port.tail.when_bound(lambda cell: print(cell.head))
    >>> port.send("a")
    a
    """

    __slots__ = ("tail",)

    def __init__(self) -> None:
        self.tail: Variable[Cell[T]] = Variable()

    def send(self, element: T) -> None:
        bound, self.tail = self.tail, Variable()
        bound.bind(Cell(element, self.tail))
