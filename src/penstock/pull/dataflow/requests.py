"""Requests: a request stream read one by one."""

from __future__ import annotations

from penstock.pull.dataflow.edge import UpperRequest
from penstock.pull.dataflow.messages import Cell
from penstock.pull.dataflow.variable import Variable


class Requests:
    """`async for request in Requests(stream)`: waits at the unbound tail. It never ends by itself."""

    __slots__ = ("rest",)

    def __init__(self, stream: Variable[Cell[UpperRequest]]) -> None:
        self.rest = stream

    def __aiter__(self) -> Requests:
        return self

    async def __anext__(self) -> UpperRequest:
        cell = await self.rest
        self.rest = cell.tail
        return cell.head
