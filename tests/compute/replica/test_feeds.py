"""Collections as dataflows read them: once, whoever is behind, and never with a gap."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.compute.collections.memory import MemoryCollections
from headrace.compute.collections.store import CollectionAppend
from headrace.compute.errors import SinceViolation, StoreUnavailable
from headrace.compute.frontier import Frontier
from headrace.compute.protocol.responses import Update
from headrace.compute.replica import feeds
from headrace.compute.replica.feeds import Cursor, Feeds, StoreWatcher
from tests.properties.effort import examples


class Counting(MemoryCollections):
    """Counts how many updates were read, and fails when it is told to."""

    read = 0
    failures = 0

    def changes(self, *args: Any, **more: Any) -> Any:
        for part in super().changes(args[0], args[1], args[2], 2):
            if self.failures:
                self.failures -= 1
                raise StoreUnavailable("gone for lunch")
            self.read += len(part)
            yield part


@examples(1)
@given(st.data())
def test_every_reader_is_given_every_change_once(data: st.DataObject) -> None:
    store = Counting()
    store.create("s1", b"")
    feed = Feeds(store).feed("s1")
    written: list[Update] = []
    readers: list[tuple[int, Cursor, list[Update]]] = []
    upper = 0
    feeds_buffered, feeds.BUFFERED = feeds.BUFFERED, data.draw(st.integers(1, 6), "buffered")
    try:
        for _ in range(data.draw(st.integers(1, 15))):
            match data.draw(st.sampled_from(["write", "write", "begin", "read", "read", "fail"])):
                case "write":
                    times = data.draw(st.lists(st.integers(upper, upper + 3), max_size=5))
                    updates = [((f"row {len(written) + at}",), time, 1) for at, time in enumerate(times)]
                    store.append([CollectionAppend("s1", Frontier(upper), Frontier(upper + 4), updates)])
                    upper, written = upper + 4, written + updates
                    feed.refresh()
                case "begin":
                    lower = data.draw(st.integers(0, upper))
                    readers.append((lower, feed.cursor(Frontier(lower)), []))
                case "fail":
                    store.failures += 1
                case _ if readers:
                    lower, cursor, seen = data.draw(st.sampled_from(readers))
                    take(cursor, feed.upper, seen)
                case _:
                    pass
        store.failures = 0
        for lower, cursor, seen in readers:
            while cursor.known < feed.upper:
                take(cursor, feed.upper, seen)
            expected = sorted(u for u in written if u[1] >= lower)
            assert sorted(seen) == expected
            assert [time for _, time, _ in seen] == sorted(time for _, time, _ in seen)
    finally:
        feeds.BUFFERED = feeds_buffered


def take(cursor: Cursor, upper: Frontier, seen: list[Update]) -> None:
    if cursor.known >= upper:
        return
    before = cursor.known
    try:
        versions = cursor.read()
    except StoreUnavailable:
        versions = []
    for time, changes in versions:
        assert not before.has_passed(time)
        assert cursor.known.has_passed(time)
        seen += [(row, time, weight) for row, weight in changes]


def test_what_two_dataflows_read_is_read_once() -> None:
    store = Counting()
    store.create("s1", b"")
    feed = Feeds(store).feed("s1")
    one, other = feed.cursor(Frontier(0)), feed.cursor(Frontier(0))
    store.append([CollectionAppend("s1", Frontier(0), Frontier(9), [((n,), n, 1) for n in range(9)])])
    feed.refresh()
    for cursor in (one, other):
        seen: list[Update] = []
        while cursor.known < feed.upper:
            take(cursor, feed.upper, seen)
        assert len(seen) == 9
    assert store.read == 9


def test_a_reader_that_a_compaction_has_passed_is_told_and_others_go_on() -> None:
    store = Counting()
    store.create("s1", b"")
    feed = Feeds(store).feed("s1")
    behind, ahead = feed.cursor(Frontier(0)), feed.cursor(Frontier(8))
    store.append([CollectionAppend("s1", Frontier(0), Frontier(9), [((n,), n, 1) for n in range(9)])])
    store.compact("s1", Frontier(7))
    feed.refresh()
    seen: list[Update] = []
    while ahead.known < feed.upper:
        take(ahead, feed.upper, seen)
    assert seen == [((8,), 8, 1)]
    try:
        while behind.known < feed.upper:
            assert behind.read() == []
    except SinceViolation:
        return
    raise AssertionError("nobody was told")


def test_that_one_is_lost_does_not_hide_how_far_the_others_are() -> None:
    store = MemoryCollections()
    feeds = Feeds(store)
    for id in ("s1", "s2", "s3"):
        store.create(id, b"")
        feeds.feed(id)
    store.drop("s1")
    store.append([CollectionAppend("s2", Frontier(0), Frontier(5))])
    assert sorted(feeds.update_uppers()) == ["s1", "s2"]
    assert feeds.update_uppers() == []


def test_what_changed_before_the_watcher_was_connected_is_looked_for_too(tmp_path: Path) -> None:
    noticed = Event()
    watcher = StoreWatcher(f"sqlite:{tmp_path}/collections.db", noticed.set)
    try:
        assert noticed.wait(30), "a change between the first look and the connection is never seen"
    finally:
        watcher.stop()
