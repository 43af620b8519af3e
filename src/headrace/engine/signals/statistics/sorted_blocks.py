"""Sorted list split into blocks: insertion, removal and rank counts stay fast as it grows.

The state is three lists: `blocks`, lists of values, sorted within and among each
other; `greatest`, the greatest value of each; and `counts`, the number of values in
the blocks as a tree of partial sums (`counts[i]` is that of the blocks `i & (i + 1)`
to `i`). An empty list has no blocks. Values must not be NaN.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Any, TypeAlias

List: TypeAlias = "list[Any]"

_LARGEST = 1024
"""Size above which a block is halved. Moving this many values takes about as long as two function calls."""


def put(blocks: list[List], greatest: List, counts: List, value: Any) -> None:
    """Insert a value."""
    if not blocks:
        blocks.append([value])
        greatest.append(value)
        counts.append(1)
        return
    at = bisect_left(greatest, value)
    if at == len(greatest):
        at -= 1
        greatest[at] = value
    block = blocks[at]
    insort(block, value)
    if len(block) > _LARGEST:
        half = len(block) // 2
        blocks.insert(at + 1, block[half:])
        del block[half:]
        greatest.insert(at, block[-1])
        _count_again(blocks, counts)
    else:
        while at < len(counts):
            counts[at] += 1
            at |= at + 1


def take(blocks: list[List], greatest: List, counts: List, value: Any) -> None:
    """Remove one value equal to `value`, which must be present."""
    at = bisect_left(greatest, value)
    block = blocks[at]
    del block[bisect_left(block, value)]
    if not block:
        del blocks[at], greatest[at]
        _count_again(blocks, counts)
        return
    greatest[at] = block[-1]
    while at < len(counts):
        counts[at] -= 1
        at |= at + 1


def at(blocks: list[List], counts: List, index: int) -> Any:
    """Return the value at a position, counted from 0."""
    if len(blocks) == 1:
        return blocks[0][index]
    where, step = 0, 1 << (len(counts).bit_length() - 1)
    while step:
        if where + step <= len(counts) and counts[where + step - 1] <= index:
            index -= counts[where + step - 1]
            where += step
        step >>= 1
    return blocks[where][index]


def places(blocks: list[List], greatest: List, counts: List, value: Any) -> tuple[int, int]:
    """Count the values less than `value`, and those not greater."""
    less, most = bisect_left(greatest, value), bisect_right(greatest, value)
    below = _before(counts, less)
    if less < len(blocks):
        below += bisect_left(blocks[less], value)
    upto = _before(counts, most)
    if most < len(blocks):
        upto += bisect_right(blocks[most], value)
    return below, upto


def _before(counts: List, block: int) -> int:
    total = 0
    while block:
        total += counts[block - 1]
        block &= block - 1
    return total


def _count_again(blocks: list[List], counts: List) -> None:
    counts[:] = [len(block) for block in blocks]
    for i in range(len(counts)):
        above = i | (i + 1)
        if above < len(counts):
            counts[above] += counts[i]
