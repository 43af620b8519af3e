"""Memory: the rows of now, in this process; for tests and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from penstock.io.guarantee import Guarantee
from penstock.io.sink import Drain, SinkTarget, Writer, open_sink
from penstock.io.spool import spooled

Present = Callable[[list[tuple[Any, ...]]], Sequence[Any]]


@dataclass(eq=False)
class _Sum:
    weights: dict[tuple[Any, ...], int] = field(default_factory=dict[tuple[Any, ...], int])
    present: Present = lambda rows: rows


@dataclass(frozen=True, eq=False)
class Memory(SinkTarget):
    """Adds up the changes it is given. Not kept by a checkpoint: after a restart it begins with nothing.

    A row that is taken back before it comes is held back: it shows only in `held_back`.
    """

    guarantee: ClassVar[Guarantee] = Guarantee("this run only", "it lives in this process")
    _sum: _Sum = field(default_factory=_Sum, init=False, repr=False)

    def changes(self) -> Sequence[Any]:
        """Each row with its weight, as one `Change` of that weight; in the order of their first coming."""
        return self._sum.present(self._weighted(lambda weight: weight > 0))

    def held_back(self) -> Sequence[Any]:
        """The rows that were taken back and are not there, as changes with a weight below 0."""
        return self._sum.present(self.held_rows())

    def _weighted(self, which: Callable[[int], bool]) -> list[tuple[Any, ...]]:
        return [(*row, weight) for row, weight in self._sum.weights.items() if which(weight)]

    def rows(self) -> list[Any]:
        """The rows as users see them, each as often as its weight."""
        return [row for row, weight in self.changes() for _ in range(weight)]

    def held_rows(self) -> list[tuple[Any, ...]]:
        """What is held back, as internal rows with the weight last; for engines."""
        return self._weighted(lambda weight: weight < 0)

    def add(self, rows: list[tuple[Any, ...]], present: Present) -> None:
        """Count internal changes in; for engines."""
        self._sum.present = present
        weights = self._sum.weights
        for *values, weight in rows:
            row = tuple(values)
            total = weights.pop(row, 0) + weight
            if total:
                weights[row] = total


@open_sink.register
def _(sink: Memory, drain: Drain) -> Writer:
    return spooled(
        drain,
        lambda _tick, rows: sink.add(rows, drain.present),
        sink.held_rows,
    )
