"""Random numbers that depend on a seed and a number alone: whole columns of them at once.

SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number
generators", 2014): the n-th number of a stream is a mixing function of where
the stream begins and of n, so that any number can be had without those before.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.int64]
Draws: TypeAlias = npt.NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_ALL = 0xFFFFFFFFFFFFFFFF


class Draw:
    """Random numbers of events. What they are for names a stream of its own.

    >>> Draw(7)("price", np.array([0, 1, 2])) == Draw(7)("price", np.array([0, 1, 2]))
    array([ True,  True,  True])
    >>> Draw(7)("price", np.array([1_000_000]))[0] == Draw(7)("city", np.array([1_000_000]))[0]
    np.False_
    """

    def __init__(self, seed: int) -> None:
        self._seed = _mixed(np.array([seed & _ALL], np.uint64))[0]

    def __call__(self, what: str, events: Numbers) -> Draws:
        """64 random bits for each number of an event."""
        name = int.from_bytes(what.encode()[:8].ljust(8), "little")
        begin = int(_mixed(np.array([int(self._seed) ^ name], np.uint64))[0])
        return _mixed(events.astype(np.uint64) * np.uint64(_GOLDEN) + np.uint64(begin))


def _mixed(numbers: Draws) -> Draws:
    mixed = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))


def below(draws: Draws, bound: int) -> Numbers:
    """Numbers from 0 to `bound` (not included), from the upper halves of the draws."""
    return ((draws >> np.uint64(32)) % np.uint64(bound)).astype(np.int64)


def one_in(draws: Draws, count: int) -> npt.NDArray[np.bool_]:
    """True for one draw in `count`, from the lower halves: independent of `below` of the same draws."""
    return (draws & np.uint64(0xFFFFFFFF)) % np.uint64(count) == 0
