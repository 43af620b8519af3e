"""Lattice reduce operator: a lattice fold without a row for empty input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from headrace.operators.lattice_fold import LatticeFold


@dataclass(frozen=True, slots=True)
class LatticeReduce(LatticeFold):
    """Lattice fold that emits no row before the first item.

    >>> from headrace.lattice import Max
    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.filter(lambda n: n > 9).lattice_reduce(Max()), numbers=[1, 3, 2])
    """

    kind: ClassVar[str] = "lattice_reduce"
    runs_first_tick: ClassVar[bool] = False
