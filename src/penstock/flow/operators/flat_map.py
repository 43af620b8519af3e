"""Flat map: any number of rows out for each row in, by an opaque function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from penstock.graph.facts import Port
from penstock.graph.node import Operator


@dataclass(frozen=True, slots=True)
class FlatMap(Operator):
    """Every item of `function(row)`, in its order; each with the weight of `row`.

    >>> from penstock.testing import show
    >>> def words(line: str) -> list[str]:
    ...     return line.split()
    >>> show(lambda lines: lines.flat_map(words), lines=["a b", "c"])
    + 'a'
    + 'b'
    + 'c'
    """

    kind: ClassVar[str] = "flat_map"
    linear: ClassVar[bool] = True
    function: Callable[..., Iterable[object]]

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield "function", self.function

    def describe(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))
