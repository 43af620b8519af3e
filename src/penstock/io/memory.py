"""Memory: the rows of now, in this process; for tests and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from penstock.expr.keys import with_one_zero
from penstock.io.guarantee import Guarantee
from penstock.io.sink import Drain, SinkTarget, Writer, open_sink
from penstock.io.sink_spool import spooled

Present = Callable[[list[tuple[Any, ...]]], Sequence[Any]]


@dataclass(eq=False)
class _Sum:
    weights: dict[tuple[Any, ...], int] = field(default_factory=dict[tuple[Any, ...], int])
    present: Present = lambda rows: rows
    begins_at: int | None = None


@dataclass(frozen=True, eq=False)
class Memory(SinkTarget):
    """Adds up the changes it is given. Not kept by a checkpoint: after a restart it begins with nothing.

    `changes` is what they add up to; `rows` is the table, which holds back rows of negative weight.
    """

    guarantee: ClassVar[Guarantee] = Guarantee("this run only", "it lives in this process")
    _sum: _Sum = field(default_factory=_Sum, init=False, repr=False)

    def changes(self) -> Sequence[Any]:
        """Each row with its weight, as one `Change` of that weight; in the order of their first coming."""
        return self._sum.present([(*row, weight) for row, weight in self._sum.weights.items()])

    def rows(self) -> list[Any]:
        """The rows as users see them, each as often as its weight."""
        return [row for row, weight in self.changes() for _ in range(weight)]

    def begins(self, tick: int) -> None:
        """Note the committed tick from which a run goes on; for engines."""
        if self._sum.begins_at is None:
            self._sum.begins_at = tick

    def held_rows(self) -> list[tuple[Any, ...]]:
        """What is held back, as internal rows with the weight last; for engines.

        Nothing where ticks went by before it was there: what is taken back may have come in them.
        """
        if self._sum.begins_at:
            return []
        return [(*row, weight) for row, weight in self._sum.weights.items() if weight < 0]

    def add(self, rows: Sequence[tuple[Any, ...]], present: Present) -> None:
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
        lambda _tick, rows: sink.add(with_one_zero(rows, drain.schema), drain.present),
        sink.held_rows,
        sink.begins,
    )
