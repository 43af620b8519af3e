"""sliding, recent: lists of values that stand together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock.pull.fused import Kernel
from penstock.pull.options import whole
from penstock.pull.pieces import Transformer
from penstock.pull.synchronous import refuse_async
from penstock.pull.transformers.batch import batches


def sliding(size: int, reduce: Callable[[list[Any]], Any] | None = None) -> Transformer:
    """For each value from the `size`-th on: `reduce` of the list of the last `size` values, oldest first.

    Without `reduce` the list itself. Fewer values than `size` give nothing. The first ask asks
    upstream `size` times, every later one once. Done, errors and aborts pass; what `reduce`
    raises fails the stream on both sides.

    >>> from penstock.pull import collect, pull, values
    >>> pull(values([1, 2, 3, 4]), sliding(3), collect()).run()
    [[1, 2, 3], [2, 3, 4]]
    >>> pull(values([1, 2, 3, 4]), sliding(3, sum), collect()).run()
    [6, 9]
    """
    whole("sliding", "size", size, least=1)
    refuse_async("sliding", reduce, fix="sliding(size), async_map(function)", passes_on=True)

    def make() -> Kernel:
        held: deque[Any] = deque(maxlen=size)

        def windows(items: Iterable[Any]) -> Iterator[Any]:
            for item in items:
                held.append(item)
                if len(held) == size:
                    yield list(held) if reduce is None else reduce(list(held))

        return windows

    return Transformer.of_kernel("sliding", make)


def recent(size: int, seconds: float | None = None) -> Transformer:
    """Lists of up to `size` values, each value in one list; the last list may be shorter.

    seconds: a list also ends so long after its first value came, however few values it has.

    Reads as `batch` does, and nothing while nobody asks. A list that ended in time before somebody
    asked waits; values that were asked for and come later begin the next one.

    >>> from penstock.pull import collect, pull, values
    >>> pull(values([1, 2, 3, 4, 5]), recent(2), collect()).run()
    [[1, 2], [3, 4], [5]]
    """
    whole("recent", "size", size, least=1)
    return batches("recent", size, seconds)
