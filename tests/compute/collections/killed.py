"""A process that appends for ever, and says after each append that it is durable; to be killed.

python killed.py URI
"""

from __future__ import annotations

import sys

from headrace.compute.collections.opening import open_collections
from headrace.compute.collections.store import CollectionAppend
from headrace.compute.frontier import Frontier

ROWS = 20


def appends(time: int) -> list[CollectionAppend]:
    """Those of a time: rows come, and those of the time before go."""
    rows = [((time, i), time, 1) for i in range(ROWS)]
    gone = [((time - 1, i), time, -1) for i in range(ROWS)] if time else []
    return [CollectionAppend(id, Frontier(time), Frontier(time + 1), rows + gone) for id in ("s1", "s2")]


def main(uri: str) -> None:
    store = open_collections(uri)
    time = store.bounds(["s1"])[0].upper.time
    assert time is not None
    while True:
        store.append(appends(time))
        print(time, flush=True)
        if time % 7 == 3:
            store.compact("s1", Frontier(time - 2))
        time += 1


if __name__ == "__main__":
    main(sys.argv[1])
