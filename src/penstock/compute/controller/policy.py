"""How much of the past stays readable."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.compute.frontier import Frontier


@dataclass(frozen=True, slots=True)
class KeepPast:
    """The last settled time, and `milliseconds` before it; nothing before `valid_from`, which never was.

    reader: also all from that time on, for one who reads on from there.

    >>> KeepPast(5, valid_from=3).since(Frontier(20)), KeepPast(5, valid_from=3).since(Frontier(6))
    (Frontier(time=14), Frontier(time=3))
    >>> KeepPast(5, reader=9).since(Frontier(20))
    Frontier(time=9)
    """

    milliseconds: int
    valid_from: int = 0
    reader: int | None = None

    def since(self, upper: Frontier) -> Frontier:
        """What may be given up where all before `upper` is settled. Of what is sealed, nothing more."""
        if upper.time is None:
            return Frontier(self.valid_from)
        last = upper.time - 1 - self.milliseconds
        wanted = last if self.reader is None else min(last, self.reader)
        return Frontier(max(wanted, self.valid_from))
