"""merge: several streams as one, their values as they come."""

from __future__ import annotations

from penstock.pull.fan_in.joined import Joined
from penstock.pull.piece_checks import only
from penstock.pull.pieces import Source


def merge(*sources: Source) -> Source:
    """The values of all sources in the order in which they come; each source's own order is kept.

    From the first request on, each source is asked ahead for one value (for as many as its window, where it
    works on several at once; for as many as one request of downstream wants). So sources that answer at
    once take turns, and a slow one holds up no other. `sorted_merge` merges by a key, `many` takes
    sources while it runs.

    It ends when all have ended. One that fails fails the others with its error; when they have confirmed,
    it is answered, and what was read ahead is lost. An abort is confirmed when all have confirmed.

    >>> from penstock.pull import collect, pull, values
    >>> pull(merge(values("ace"), values("bd")), collect()).run()
    ['a', 'b', 'c', 'd', 'e']
    """
    only(Source, "merge", sources)
    return Source.of("merge", lambda module: Joined(module, sources).read, batches=True)
