"""values: the items of a collection, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from penstock.pull.pieces import Source
from penstock.pull.sources.drawn import begin_of, drawn
from penstock.pull.synchronous import IN_A_TASK, synchronous


def values(
    items: Iterable[Any] | None = None, *, on_stop: Callable[[Exception | None], object] | None = None
) -> Source:
    """The items of a collection, in order; of a mapping its values (`keys` for its keys); of None nothing.

    on_stop: called once when the stream is aborted (with None) or failed (with the error), right
             after the stop was confirmed; not where the stream came to its end.

    Ends: done after the last; a stop is confirmed at once. The collection is not copied, and
    iterated anew in every run. An iterator is drawn as `iterate` does it.

    >>> from penstock.pull import collect, pull
    >>> pull(values([1, 2, 3]), collect()).run()
    [1, 2, 3]
    >>> pull(values({"a": 1, "b": 2}), collect()).run()
    [1, 2]
    """
    if on_stop is not None:
        on_stop = synchronous("values", on_stop, fix=IN_A_TASK).calling(on_stop)
    found: Iterable[Any] = () if items is None else items
    if isinstance(items, Mapping):
        found = cast("Mapping[Any, Any]", items).values()
    return drawn("values", begin_of(found, "values"), on_stop=on_stop)
