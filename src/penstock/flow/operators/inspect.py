"""Inspect: look at the rows that pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from penstock.flow.row_function import RowFunction


@dataclass(frozen=True, slots=True)
class Inspect(RowFunction):
    """The same rows; `function(row)` is called for each, and its result is not looked at.

    It is called once per change, also for one that takes a row back, in the order in
    which the changes come. A stream that leads to no sink does not run, and what is
    not run is not seen: `null()` behind it makes it run.

    >>> from penstock.testing import show
    >>> show(lambda numbers: numbers.inspect(lambda n: print("saw", n)), numbers=[1, 2])
    saw 1
    saw 2
    + 1
    + 2
    """

    kind: ClassVar[str] = "inspect"
    function: Callable[..., object]

    def claimed(self) -> Iterator[str]:
        # Whatever it gives, the rows are the same.
        yield from ()
