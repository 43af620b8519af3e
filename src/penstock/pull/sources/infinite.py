"""infinite: what a function gives, again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

from penstock.pull.pieces import Source
from penstock.pull.sources.drawn import drawn
from penstock.pull.synchronous import refuse_async


def infinite(make: Callable[[], Any]) -> Source:
    """`make()`, called once for each value asked for. It ends when it is stopped, or with what `make` raises.

    >>> import itertools
    >>> from penstock.pull import collect, pull, take
    >>> pull(infinite(itertools.count(5).__next__), take(3), collect()).run()
    [5, 6, 7]
    """

    refuse_async("infinite", make, fix="iterate() of an asynchronous generator", passes_on=True)

    # Not map(make, repeat(None)): a StopIteration out of `make` would end the stream as if it were done.
    def made() -> Iterator[Any]:
        return (make() for _ in repeat(None))

    return drawn("infinite", made)
