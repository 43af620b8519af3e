"""Following a collection, also one whose store fails now and then."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.compute.collections.memory import MemoryCollections
from headrace.compute.collections.store import ChangeBatch, CollectionAppend, Collections, Listen
from headrace.compute.errors import SinceViolation, StoreUnavailable
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.protocol.responses import Update


def at(time: int) -> Frontier:
    return Frontier(time)


def store_of(*updates: tuple[Any, int, int], upper: Frontier) -> MemoryCollections:
    store = MemoryCollections()
    store.create("s1", b"")
    store.append([CollectionAppend("s1", START, upper, [((value,), time, n) for value, time, n in updates])])
    return store


def parts_of(listen: Listen) -> list[ChangeBatch]:
    return list(iter(lambda: listen.next(), None))


class Failing(MemoryCollections):
    """A store that cannot be reached now and then."""

    draw = random.Random(3)

    def changes(
        self, id: str, lower: Frontier, upper: Frontier, chunk: int = 10_000
    ) -> Iterator[list[Update]]:
        for part in super().changes(id, lower, upper, chunk):
            if self.draw.random() < 0.3:
                raise StoreUnavailable("gone")
            yield part


def test_a_time_with_too_many_changes_comes_in_parts_and_ends_with_the_last() -> None:
    store = store_of(("a", 2, 1), *((i, 4, 1) for i in range(5)), ("b", 6, 1), upper=at(9))
    listen = Listen(store, "s1", START, chunk=2)
    parts = parts_of(listen)
    assert [(p.lower.time, p.upper.time, len(p.updates)) for p in parts] == [
        (0, 4, 2), (4, 4, 2), (4, 4, 2), (4, 9, 1),
    ]  # fmt: skip
    assert listen.reached == at(9)


def test_nothing_new_is_no_part_and_times_without_changes_are_an_empty_one() -> None:
    store = store_of(upper=at(3))
    listen = Listen(store, "s1", at(3))
    assert listen.next() is None
    store.append([CollectionAppend("s1", at(3), at(7))])
    assert listen.next() == ChangeBatch(at(3), at(7), [])
    assert listen.next() is None


def test_whoever_knows_the_upper_can_say_it() -> None:
    store = store_of(("a", 2, 1), ("b", 6, 1), upper=at(9))
    listen = Listen(store, "s1", START)
    assert listen.next(at(4)) == ChangeBatch(START, at(4), [(("a",), 2, 1)])
    assert listen.next(at(4)) is None
    assert listen.next(at(9)) == ChangeBatch(at(4), at(9), [(("b",), 6, 1)])


def test_the_end_is_the_last_part() -> None:
    listen = Listen(store_of(("a", 2, 1), upper=END), "s1", START)
    assert listen.next() == ChangeBatch(START, END, [(("a",), 2, 1)])
    assert listen.reached.ended
    assert listen.next() is None


def test_after_a_failure_it_goes_on_where_it_was() -> None:
    shared = store_of(*((i, i // 7, 1) for i in range(40)), upper=at(9))
    store: Collections = Failing(shared._shared)
    listen = Listen(store, "s1", START, chunk=3)
    told: list[Update] = []
    failures = 0
    while listen.reached < at(9):
        try:
            part = listen.next()
        except StoreUnavailable:
            failures += 1
            continue
        assert part is not None
        told += part.updates
    assert told == [((i,), i // 7, 1) for i in range(40)]
    assert failures > 3


def test_a_since_that_has_overtaken_it_is_an_error() -> None:
    store = store_of(("a", 2, 1), upper=at(9))
    listen = Listen(store, "s1", at(2))
    store.compact("s1", at(5))
    with pytest.raises(SinceViolation):
        listen.next()
