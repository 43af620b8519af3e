"""A process that appends to a collection against others, until it has won so often; then it says which times.

python appending.py URI NAME WINS
"""

from __future__ import annotations

import sys

from headrace.compute.collections.opening import open_collections
from headrace.compute.collections.store import CollectionAppend
from headrace.compute.errors import UpperMismatch
from headrace.compute.frontier import Frontier


def main(uri: str, name: str, wins: int) -> None:
    store = open_collections(uri)
    won: list[int] = []
    while len(won) < wins:
        upper = store.bounds(["s1"])[0].upper
        assert upper.time is not None
        both = [
            CollectionAppend(id, upper, Frontier(upper.time + 1), [((name,), upper.time, 1)])
            for id in ("s1", "s2")
        ]
        try:
            store.append(both)
        except UpperMismatch:
            continue
        won.append(upper.time)
    print(*won, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
