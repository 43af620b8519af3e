"""values: the items of a collection, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from penstock.pull.module import Module
from penstock.pull.pieces import Source
from penstock.pull.protocol import AnswerTo, BatchRead, End


def values(
    items: Iterable[Any] = (), *, on_stop: Callable[[Exception | None], object] | None = None
) -> Source:
    """The items of a collection (list, tuple, dict's keys, ...), in order; the collection is not changed.

    on_stop: called once when the stream is aborted (with None) or failed (with the error), after
             the confirmation was given.

    >>> from penstock.pull import collect, pull
    >>> pull(values([1, 2, 3]), collect()).run()
    [1, 2, 3]
    """

    def open(_module: Module) -> BatchRead:
        left = iter(items)

        def read(abort: End | None, answer: AnswerTo, most: int) -> None:
            if abort is not None:
                answer(abort)
                if on_stop is not None:
                    on_stop(None if abort is True else abort)
                return
            batch = list(islice(left, most))
            if batch:
                answer(None, batch)
            else:
                answer(True)

        return read

    return Source.of("values", open, batches=True)
