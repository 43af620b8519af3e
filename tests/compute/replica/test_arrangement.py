"""An index and its parts, against ones that keep everything."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.compute.frontier import Frontier
from penstock.compute.replica.exports import PendingChanges
from penstock.compute.replica.in_process.arrangement import Arrangement, Hold
from penstock.compute.replica.in_process.incremental_dict import IncrementalDict
from tests.compute.replica.flows import BID
from tests.compute.replica.rig import Bag, bag
from tests.properties.effort import examples

ROWS = [(item, price) for item in "abc" for price in range(3)]

HAPPENS = ["add", "add", "add", "advance", "compact", "allow", "hold", "scan", "go on"]
CHANGES = st.dictionaries(st.sampled_from(ROWS), st.sampled_from([-1, 1, 1, 2]), max_size=4)


@examples(1)
@given(st.data())
def test_an_index_is_right_at_every_time_that_somebody_may_read(data: st.DataObject) -> None:
    index = Arrangement(BID, data.draw(st.sampled_from([("item",), ("price", "item"), ()])), 5)
    index._rows.most = index._undo.most = 2  # pyright: ignore[reportPrivateUsage]
    all_: list[tuple[Any, int, int]] = []
    time, since = 5, 5
    holds: list[Hold] = []
    scans: list[tuple[Any, int, Bag, Hold]] = []

    def there(at: int) -> Bag:
        found: Bag = Counter()
        for row, when, weight in all_:
            if when <= at:
                found[row] += weight
        return Counter({row: n for row, n in found.items() if n})

    for _ in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(HAPPENS)):
            case "add":
                changes = data.draw(CHANGES)
                index.add(list(changes.items()), time)
                all_ += [(row, time, weight) for row, weight in changes.items()]
            case "advance":
                time += data.draw(st.integers(1, 3))
                index.advance(Frontier(time))
            case "compact":
                index.compact(data.draw(st.integers(1, 5)))
            case "allow":
                since = max(since, data.draw(st.integers(since, time + 2)))
                index.allow_compaction(Frontier(since))
            case "hold":
                holds.append(index.hold(data.draw(st.integers(since, max(since, time)))))
                if len(holds) > 2:
                    holds.pop(0).release()
            case "scan" if since < time:
                at = data.draw(st.integers(since, time - 1))
                scans.append((index.scan(at), at, Counter(), index.hold(at)))
            case "go on" if scans:
                rows, _, seen, _ = data.draw(st.sampled_from(scans))
                seen.update(dict(next(rows, [])))
            case _:
                pass
        least = min([since, *(hold.time for hold in holds)])
        for at in range(least, time):
            expected = there(at)
            for row in ROWS:
                assert bag(index.rows_at(index.keying.of_row(row), at))[row] == expected[row]
            # What is told of later times leads from here to there.
            later: Bag = Counter(expected)
            for version in index.changes_after(at):
                assert version.time > at
                for row, weight in version.changes:
                    later[row] += weight
            assert Counter({r: n for r, n in later.items() if n}) == there(time - 1)
    for rows, at, seen, hold in scans:
        for part in rows:
            seen.update(dict(part))
        assert seen == there(at)
        hold.release()
    for hold in holds:
        hold.release()
    index.allow_compaction(Frontier(time))
    index.advance(Frontier(time + 1))
    while index.compact(1):
        pass
    assert index.distinguished_times == 0
    assert not len(index._undo)  # pyright: ignore[reportPrivateUsage]
    assert sum(there(time).values()) == index.weight
    assert len(index._rows) == len({index.keying.of_row(row) for row in there(time)})  # pyright: ignore[reportPrivateUsage]


@given(st.lists(st.tuples(st.integers(-5, 200), st.booleans())))
def test_a_dict_in_pieces_is_a_dict(changes: list[tuple[int, bool]]) -> None:
    pieces, plain = IncrementalDict[int, int](most=3), dict[int, int]()
    for key, added in changes:
        if added:
            pieces.bucket(key)[key] = plain[key] = key
        else:
            pieces.bucket(key).pop(key, None)
            plain.pop(key, None)
        pieces.divide()
    assert len(pieces) == len(plain)
    assert all(pieces.get(key) == plain.get(key) for key in range(-5, 201))
    assert sorted(key for keys in pieces.keys_by_bucket() for key in keys) == sorted(plain)


def test_no_piece_grows_large_whatever_the_keys_have_in_common() -> None:
    for step in (1, 1000, 1 << 20, 1 << 40):
        pieces = IncrementalDict[int, int](most=100)
        for n in range(10_000):
            pieces.bucket(n * step)[n * step] = n
            pieces.divide()
        assert max(map(len, pieces.buckets)) <= 250


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(-2, 2).filter(bool))))
def test_what_cancels_out_is_no_change(parts: list[dict[str, int]]) -> None:
    together, total = PendingChanges(), Counter[Any]()
    for part in parts:
        together.add([((row,), weight) for row, weight in part.items()])
        for row, weight in part.items():
            total[(row,)] += weight
    changes, cancelled = together.take()
    assert dict(changes) == {row: weight for row, weight in total.items() if weight}
    assert set(cancelled) == {row for row, weight in total.items() if not weight}
    assert not together


def test_a_since_that_passes_a_time_of_which_more_is_to_come_leaves_it_whole() -> None:
    index = Arrangement(BID, ("item",), 0)
    index.add([(("a", 1), 1)], 5)
    index.advance(Frontier(6))
    index.add([(("a", 2), 1)], 10)
    index.add([(("a", 2), -1), (("a", 3), 1)], 10)
    index.allow_compaction(Frontier(20))
    while index.compact():
        pass
    index.advance(Frontier(11))
    index.advance(Frontier(21))
    assert sorted(index.rows_at("a", 20)) == [(("a", 1), 1), (("a", 3), 1)]
