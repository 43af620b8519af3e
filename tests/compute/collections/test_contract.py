"""Every store of collections keeps what `Collections` promises."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pytest

from headrace.compute.collections.store import CollectionAppend, CollectionBounds, Collections
from headrace.compute.errors import (
    AlreadyThere,
    NegativeMultiplicity,
    SinceViolation,
    TimestampNotReady,
    UnknownName,
    UpperMismatch,
)
from headrace.compute.frontier import END, LAST_TIME, START, Frontier
from headrace.compute.protocol.responses import Counted, Update

from .conftest import Place


def at(time: int) -> Frontier:
    return Frontier(time)


def add(store: Collections, id: str, lower: int, upper: int, *updates: tuple[Any, int, int]) -> None:
    store.append(
        [CollectionAppend(id, at(lower), at(upper), [((value,), time, n) for value, time, n in updates])]
    )


def bag(store: Collections, id: str, time: int, chunk: int = 10_000) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for rows in store.snapshot(id, time, chunk):
        assert 0 < len(rows) <= chunk
        for (value,), count in rows:
            assert value not in found
            assert count > 0
            found[value] = count
    return found


def told(parts: Iterable[list[Update]]) -> list[tuple[Any, int, int]]:
    return [(value, time, weight) for part in parts for (value,), time, weight in part]


@pytest.fixture
def s1(store: Collections) -> Collections:
    store.create("s1", b"words")
    return store


# -- create, drop, all --------------------------------------------------------------------------


def test_a_new_collection_is_empty_and_begins_at_its_upper(store: Collections) -> None:
    store.create("s1", b"words")
    store.create("s2", b"numbers", at(5))
    assert store.bounds(["s2", "s1", "s2"]) == [
        CollectionBounds(START, at(5)),
        CollectionBounds(START, START),
        CollectionBounds(START, at(5)),
    ]
    assert bag(store, "s2", 4) == {}
    assert store.all() == {"s1": b"words", "s2": b"numbers"}


def test_creating_an_equal_collection_again_does_nothing(s1: Collections) -> None:
    add(s1, "s1", 0, 3, ("a", 1, 1))
    s1.create("s1", b"words", at(9))
    assert s1.bounds(["s1"]) == [CollectionBounds(START, at(3))]
    assert bag(s1, "s1", 2) == {"a": 1}


def test_another_collection_of_the_same_id_is_refused(s1: Collections) -> None:
    with pytest.raises(AlreadyThere) as refused:
        s1.create("s1", b"numbers")
    assert refused.value.facts == {"name": "s1"}
    assert s1.all() == {"s1": b"words"}


def test_a_dropped_collection_is_forgotten_with_its_rows(s1: Collections) -> None:
    s1.create("s2", b"")
    add(s1, "s1", 0, 3, ("a", 1, 1))
    add(s1, "s2", 0, 3, ("b", 1, 1))
    s1.drop("s1")
    s1.drop("s1")
    assert s1.all() == {"s2": b""}
    assert bag(s1, "s2", 1) == {"b": 1}
    s1.create("s1", b"numbers")
    assert s1.bounds(["s1"]) == [CollectionBounds(START, START)]
    add(s1, "s1", 0, 3, ("c", 1, 1))
    assert bag(s1, "s1", 2) == {"c": 1}


@pytest.mark.parametrize("name", ["", "a\0b", "a\nb", "\ud800", "x" * 201])
def test_what_cannot_be_an_id_is_refused(store: Collections, name: str) -> None:
    with pytest.raises(ValueError, match="no id"):
        store.create(name, b"")


@pytest.mark.parametrize("name", ["../../x", "s1'; DROP TABLE collections; --", '"', "a/b", "%", "é", "id=1"])
def test_an_id_is_never_a_path_or_a_statement(s1: Collections, name: str) -> None:
    description = b"'; DROP TABLE updates; --\0\xff"
    s1.create(name, description)
    add(s1, name, 0, 3, ("a", 1, 1))
    add(s1, "s1", 0, 3, ("b", 1, 1))
    assert s1.all() == {"s1": b"words", name: description}
    assert (bag(s1, name, 2), bag(s1, "s1", 2)) == ({"a": 1}, {"b": 1})
    s1.drop(name)
    assert s1.all() == {"s1": b"words"}


def test_a_collection_that_is_not_there_is_named(store: Collections) -> None:
    calls = [
        lambda: store.bounds(["s9"]),
        lambda: store.append([CollectionAppend("s9", START, at(1))]),
        lambda: list(store.snapshot("s9", 0)),
        lambda: list(store.changes("s9", START, START)),
        lambda: store.compact("s9", at(1)),
        lambda: store.bounds(["\0"]),
    ]
    for call in calls:
        with pytest.raises(UnknownName) as refused:
            call()
        assert set(refused.value.facts) == {"name"}


# -- append -------------------------------------------------------------------------------------


def test_an_append_moves_the_upper_and_adds_its_rows(s1: Collections) -> None:
    add(s1, "s1", 0, 4, ("b", 3, 1), ("a", 1, 2))
    assert s1.bounds(["s1"]) == [CollectionBounds(START, at(4))]
    assert [bag(s1, "s1", t) for t in range(4)] == [{}, {"a": 2}, {"a": 2}, {"a": 2, "b": 1}]


def test_an_append_without_rows_moves_the_upper(s1: Collections) -> None:
    add(s1, "s1", 0, 4)
    add(s1, "s1", 4, 4)
    assert s1.bounds(["s1"]) == [CollectionBounds(START, at(4))]
    assert bag(s1, "s1", 3) == {}


def test_an_append_that_expects_another_upper_changes_nothing(s1: Collections) -> None:
    s1.create("s2", b"")
    add(s1, "s1", 0, 4, ("a", 1, 1))
    for expected in (at(3), at(5), END):
        with pytest.raises(UpperMismatch) as refused:
            s1.append(
                [
                    CollectionAppend("s2", START, at(9), [(("x",), 5, 1)]),
                    CollectionAppend("s1", expected, END, [(("b",), 7, 1)] if not expected.ended else []),
                ]
            )
        assert refused.value.facts == {"id": "s1", "expected": expected, "upper": at(4)}
    assert s1.bounds(["s1", "s2"]) == [CollectionBounds(START, at(4)), CollectionBounds(START, START)]
    assert bag(s1, "s1", 3) == {"a": 1}


def test_several_collections_are_appended_to_together_or_not_at_all(s1: Collections) -> None:
    s1.create("s2", b"")
    good = CollectionAppend("s1", START, at(2), [(("a",), 1, 1)])
    with pytest.raises(NegativeMultiplicity):
        s1.append([good, CollectionAppend("s2", START, at(2), [(("b",), 1, -1)])])
    assert s1.bounds(["s1", "s2"]) == [CollectionBounds(START, START)] * 2
    s1.append([good, CollectionAppend("s2", START, at(3), [(("b",), 1, 1)])])
    assert s1.bounds(["s1", "s2"]) == [CollectionBounds(START, at(2)), CollectionBounds(START, at(3))]
    assert (bag(s1, "s1", 1), bag(s1, "s2", 1)) == ({"a": 1}, {"b": 1})


def test_a_collection_named_twice_in_an_append_goes_on_where_the_first_part_ended(s1: Collections) -> None:
    first = CollectionAppend("s1", START, at(2), [(("a",), 1, 2)])
    s1.append([first, CollectionAppend("s1", at(2), at(4), [(("a",), 3, -2)])])
    assert (bag(s1, "s1", 1), bag(s1, "s1", 3)) == ({"a": 2}, {})
    with pytest.raises(NegativeMultiplicity):
        s1.append(
            [
                CollectionAppend("s1", at(4), at(5), [(("a",), 4, 1)]),
                CollectionAppend("s1", at(5), at(6), [(("a",), 5, -2)]),
            ]
        )
    assert s1.bounds(["s1"])[0].upper == at(4)


def test_a_row_may_not_be_there_less_than_zero_times_at_any_time(s1: Collections) -> None:
    add(s1, "s1", 0, 3, ("a", 1, 1), ("a", 2, 1))
    for updates in (
        [("a", 3, -3)],
        [("a", 3, -1), ("a", 4, -1), ("a", 5, -1)],
        [("a", 3, -3), ("a", 4, 3)],
        [("b", 3, -1)],
        [("b", 4, -1), ("b", 5, 1)],
    ):
        with pytest.raises(NegativeMultiplicity) as refused:
            add(s1, "s1", 3, 9, *updates)
        assert refused.value.facts == {"id": "s1", "row": (updates[0][0],)}
    add(s1, "s1", 3, 9, ("a", 4, 1), ("a", 3, -2), ("a", 5, -1), ("b", 3, -1), ("b", 3, 1))
    assert [bag(s1, "s1", t) for t in (2, 3, 4, 5)] == [{"a": 2}, {}, {"a": 1}, {}]


def test_rows_are_taken_back_also_after_compaction(s1: Collections) -> None:
    add(s1, "s1", 0, 3, ("a", 1, 1), ("a", 2, 1))
    s1.compact("s1", at(2))
    s1.compact("s1", at(2))
    add(s1, "s1", 3, 4, ("a", 3, -2))
    assert (bag(s1, "s1", 2), bag(s1, "s1", 3)) == ({"a": 2}, {})
    s1.compact("s1", at(3))
    with pytest.raises(NegativeMultiplicity):
        add(s1, "s1", 4, 5, ("a", 4, -1))


def test_times_outside_of_an_append_and_frontiers_that_go_back_are_refused(s1: Collections) -> None:
    add(s1, "s1", 0, 3)
    for lower, upper, time in ((3, 5, 2), (3, 5, 5), (3, 3, 3), (3, 2, 3)):
        with pytest.raises(ValueError, match="s1"):
            add(s1, "s1", lower, upper, ("a", time, 1))
    with pytest.raises(ValueError, match="63 bits"):
        add(s1, "s1", 3, 5, ("a", 3, 2**63))
    assert s1.bounds(["s1"]) == [CollectionBounds(START, at(3))]


def test_a_sealed_collection_is_readable_at_all_times_and_takes_no_more(s1: Collections) -> None:
    s1.append([CollectionAppend("s1", START, END, [(("a",), LAST_TIME, 1), (("b",), 0, 1)])])
    assert s1.bounds(["s1"]) == [CollectionBounds(START, END)]
    assert (bag(s1, "s1", LAST_TIME - 1), bag(s1, "s1", LAST_TIME)) == ({"b": 1}, {"a": 1, "b": 1})
    assert told(s1.changes("s1", at(1), END)) == [("a", LAST_TIME, 1)]
    with pytest.raises(UpperMismatch):
        add(s1, "s1", 5, 6)
    s1.append([CollectionAppend("s1", END, END)])


def test_what_was_appended_is_there_for_another_handle_and_after_closing(place: Place) -> None:
    one, other = place.open(), place.open()
    one.create("s1", b"words")
    add(one, "s1", 0, 4, ("a", 1, 2), ("b", 2, 1))
    assert bag(other, "s1", 3) == {"a": 2, "b": 1}
    add(other, "s1", 4, 5, ("a", 4, -1))
    assert bag(one, "s1", 4) == {"a": 1, "b": 1}
    with pytest.raises(UpperMismatch):
        add(one, "s1", 4, 5)
    one.compact("s1", at(2))
    assert other.bounds(["s1"]) == [CollectionBounds(at(2), at(5))]
    one.close()
    other.close()
    again = place.open()
    assert again.all() == {"s1": b"words"}
    assert (again.bounds(["s1"]), bag(again, "s1", 4)) == ([CollectionBounds(at(2), at(5))], {"a": 1, "b": 1})


# -- rows ---------------------------------------------------------------------------------------

ROWS: list[Any] = [
    None, True, 0, 1, -1, 2**62, 2**80, 0.5, float("inf"), "", "text", "nul\0", "\ud800", b"", b"\xff\0",
    Decimal("1.50"), datetime.date(2026, 2, 3), datetime.datetime(2026, 2, 3, 4, 5, 6, 7, datetime.UTC),
    (), (1, ("a", None)), "x" * 100_000,
]  # fmt: skip


def test_every_plain_value_comes_back_as_it_was(s1: Collections) -> None:
    add(s1, "s1", 0, 2, *((value, 1, 1) for value in ROWS))
    found = [row for rows in s1.snapshot("s1", 1) for row, _ in rows]
    assert sorted(map(repr, found)) == sorted(repr((value,)) for value in ROWS)
    assert sorted(repr(value) for value, _, _ in told(s1.changes("s1", START, at(2)))) == sorted(
        map(repr, ROWS)
    )
    add(s1, "s1", 2, 3, *((value, 2, -1) for value in ROWS))
    assert list(s1.snapshot("s1", 2)) == []


def test_rows_have_any_number_of_columns(s1: Collections) -> None:
    rows: list[tuple[Any, ...]] = [(), (1,), (1, 2), (1, 2, 3)]
    s1.append([CollectionAppend("s1", START, at(1), [(row, 0, 1) for row in rows])])
    assert sorted(row for part in s1.snapshot("s1", 0) for row, _ in part) == rows


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        (0.0, -0.0), (Decimal("1.50"), Decimal("1.5")), (float("nan"), -float("nan")),
        ((1, (0.0, Decimal("2.0"))), (1, (-0.0, Decimal(2)))),
    ],
)  # fmt: skip
def test_equal_rows_are_one_however_they_are_written(s1: Collections, there: Any, taken: Any) -> None:
    add(s1, "s1", 0, 2, (there, 0, 1), (taken, 1, 1))
    assert [count for part in s1.snapshot("s1", 1) for _, count in part] == [2]
    s1.compact("s1", at(1))
    assert [count for part in s1.snapshot("s1", 1) for _, count in part] == [2]
    add(s1, "s1", 2, 3, (taken, 2, -2))
    assert list(s1.snapshot("s1", 2)) == []


@pytest.mark.parametrize("zeros", [(0.0, -0.0), (-0.0, 0.0)])
def test_equal_rows_show_one_zero_whichever_came_first(s1: Collections, zeros: tuple[float, float]) -> None:
    first, second = zeros
    add(s1, "s1", 0, 2, ((first, ("a", first)), 0, 1), ((second, ("a", second)), 1, 1))
    expected = repr([(((0.0, ("a", 0.0)),), 2)])
    assert repr([counted for part in s1.snapshot("s1", 1) for counted in part]) == expected
    s1.compact("s1", at(1))
    assert repr([counted for part in s1.snapshot("s1", 1) for counted in part]) == expected


def test_values_of_different_types_are_different_rows(s1: Collections) -> None:
    add(s1, "s1", 0, 1, (1, 0, 1), (1.0, 0, 1), (True, 0, 1), ("1", 0, 1))
    assert sum(len(part) for part in s1.snapshot("s1", 0)) == 4
    with pytest.raises(NegativeMultiplicity):
        add(s1, "s1", 1, 2, (Decimal(1), 1, -1))


# -- snapshot -----------------------------------------------------------------------------------


def test_a_snapshot_outside_of_what_is_readable_is_refused_at_once(s1: Collections) -> None:
    add(s1, "s1", 0, 9, ("a", 1, 1))
    s1.compact("s1", at(5))
    with pytest.raises(SinceViolation) as gone:
        s1.snapshot("s1", 4)
    assert gone.value.facts == {"id": "s1", "time": 4, "since": at(5)}
    with pytest.raises(TimestampNotReady) as early:
        s1.snapshot("s1", 9)
    assert early.value.facts == {"id": "s1", "time": 9, "upper": at(9)}
    assert bag(s1, "s1", 5) == bag(s1, "s1", 8) == {"a": 1}


def test_a_snapshot_shows_each_row_once_with_its_count_in_chunks(s1: Collections) -> None:
    for time in range(10):
        add(s1, "s1", time, time + 1, *((i % 50, time, 1) for i in range(100)), (f"only {time}", time, 3))
    expected: dict[Any, int] = dict.fromkeys(range(50), 20) | {f"only {t}": 3 for t in range(10)}
    assert bag(s1, "s1", 9, chunk=7) == bag(s1, "s1", 9) == expected
    s1.compact("s1", at(5))
    assert bag(s1, "s1", 9, chunk=7) == expected
    with pytest.raises(ValueError, match="0 rows"):
        s1.snapshot("s1", 9, 0)


def test_a_snapshot_is_of_one_moment_however_slowly_it_is_read(place: Place) -> None:
    store, other = place.open(), place.open()
    store.create("s1", b"")
    add(store, "s1", 0, 1, *((i, 0, 1) for i in range(500)))
    reading = store.snapshot("s1", 0, chunk=10)
    first = next(reading)
    add(other, "s1", 1, 2, *((i, 1, -1) for i in range(250)), *((i, 1, 1) for i in range(1000, 1500)))
    store.append([CollectionAppend("s1", at(2), at(3), [((3,), 2, 1)])])
    rest = [row for rows in reading for row in rows]
    assert sorted(first + rest) == [((i,), 1) for i in range(500)]


def test_a_snapshot_during_compaction_beyond_it_is_right_or_ends_with_an_error(place: Place) -> None:
    store, other = place.open(), place.open()
    store.create("s1", b"")
    add(store, "s1", 0, 1, *((f"once {i}", 0, 1) for i in range(300)), *((i, 0, 1) for i in range(300)))
    for time in range(1, 5):
        add(store, "s1", time, time + 1, *((i, time, 1) for i in range(300)))
    add(
        store, "s1", 5, 6, *((i, 5, -5) for i in range(150)), *((f"once {i}", 5, -1) for i in range(150, 300))
    )
    reading = store.snapshot("s1", 4, chunk=10)
    found: list[Counted] = list(next(reading))
    other.compact("s1", at(5))
    other.compact("s1", at(5))
    try:
        for rows in reading:
            found += rows
    except SinceViolation:
        return
    expected = {(i,): 5 for i in range(300)} | {(f"once {i}",): 1 for i in range(300)}
    assert dict(found) == expected
    assert len(found) == len(expected)


def test_a_snapshot_that_nobody_reads_to_its_end_holds_up_nobody(s1: Collections) -> None:
    add(s1, "s1", 0, 1, *((i, 0, 1) for i in range(500)))
    readings = [s1.snapshot("s1", 0, chunk=5) for _ in range(3)]
    for reading in readings[1:]:
        next(reading)
    add(s1, "s1", 1, 2, (0, 1, -1))
    s1.compact("s1", at(1))
    for reading in readings:
        close = getattr(reading, "close", None)
        if close is not None:
            close()
    assert len(bag(s1, "s1", 1)) == 499


# -- changes ------------------------------------------------------------------------------------


def test_changes_come_by_time_in_chunks(s1: Collections) -> None:
    for time in range(0, 20, 2):
        add(s1, "s1", time, time + 2, *((i, time + i % 2, 1) for i in range(30)))
    parts = list(s1.changes("s1", at(5), at(15), chunk=7))
    assert all(0 < len(part) <= 7 for part in parts)
    found = told(parts)
    assert [time for _, time, _ in found] == sorted(time for _, time, _ in found)
    assert sorted(found, key=repr) == sorted(
        ((i, t, 1) for t in range(5, 15) for i in range(30) if t % 2 == i % 2), key=repr
    )


def test_changes_are_those_from_lower_to_before_upper(s1: Collections) -> None:
    add(s1, "s1", 0, 10, ("a", 1, 1), ("a", 4, 2), ("b", 4, 1), ("a", 7, -3))
    assert sorted(told(s1.changes("s1", at(4), at(7)))) == [("a", 4, 2), ("b", 4, 1)]
    assert told(s1.changes("s1", at(5), at(7))) == told(s1.changes("s1", at(7), at(7))) == []
    assert told(s1.changes("s1", at(5), at(8))) == [("a", 7, -3)]
    assert len(told(s1.changes("s1", START, at(10)))) == 4
    with pytest.raises(TimestampNotReady) as early:
        s1.changes("s1", at(5), at(11))
    assert early.value.facts == {"id": "s1", "time": 11, "upper": at(10)}
    with pytest.raises(TimestampNotReady):
        s1.changes("s1", at(5), END)


def test_changes_that_have_been_merged_are_not_told(s1: Collections) -> None:
    add(s1, "s1", 0, 10, ("a", 1, 1), ("a", 4, 2), ("b", 5, 1))
    assert len(told(s1.changes("s1", START, at(10)))) == 3
    s1.compact("s1", at(4))
    for lower in (START, at(3), at(4)):
        with pytest.raises(SinceViolation) as gone:
            s1.changes("s1", lower, at(10))
        assert gone.value.facts == {"id": "s1", "time": lower.time, "since": at(4)}
    assert told(s1.changes("s1", at(5), at(10))) == [("b", 5, 1)]


def test_changes_can_be_read_on_while_what_has_been_read_is_merged(s1: Collections) -> None:
    for time in range(1, 40):
        add(s1, "s1", time - 1, time, *((i, time - 1, 1) for i in range(3)))
    reading = s1.changes("s1", at(1), at(39), chunk=2)
    found: list[tuple[Any, int, int]] = []
    for part in reading:
        found += told([part])
        s1.compact("s1", at(found[-1][1] - 1))
    assert [time for _, time, _ in found] == [time for time in range(1, 39) for _ in range(3)]


def test_changes_that_are_merged_before_they_are_read_are_right_or_end_with_an_error(s1: Collections) -> None:
    for time in range(40):
        add(s1, "s1", time, time + 1, (time % 3, time, 1))
    reading = s1.changes("s1", at(1), at(40), chunk=2)
    found = told([next(reading)])
    for since in (20, 30):
        s1.compact("s1", at(since))
    try:
        found += told(reading)
    except SinceViolation:
        return
    assert [time for _, time, _ in found] == list(range(1, 40))


@pytest.mark.seeds(1)
def test_a_snapshot_and_the_changes_after_it_make_the_next_snapshot(s1: Collections, seed: int) -> None:
    draw = random.Random(seed)
    there: dict[Any, int] = {}
    for time in range(40):
        value = draw.randrange(6)
        weight = draw.randint(-there.get(value, 0), 2)
        there[value] = there.get(value, 0) + weight
        add(s1, "s1", time, time + 1, (value, time, weight))
    s1.compact("s1", at(20))
    sums = bag(s1, "s1", 25)
    for value, _, weight in told(s1.changes("s1", at(26), at(40))):
        sums[value] = sums.get(value, 0) + weight
    assert {value: n for value, n in sums.items() if n} == bag(s1, "s1", 39)


# -- compact ------------------------------------------------------------------------------------


def test_the_since_only_rises(s1: Collections) -> None:
    add(s1, "s1", 0, 10, ("a", 1, 1))
    s1.compact("s1", at(5))
    s1.compact("s1", at(3))
    assert s1.bounds(["s1"]) == [CollectionBounds(at(5), at(10))]
    s1.compact("s1", at(5))
    assert s1.bounds(["s1"]) == [CollectionBounds(at(5), at(10))]


def test_a_since_beyond_the_upper_leaves_nothing_readable_until_the_upper_is_there(s1: Collections) -> None:
    add(s1, "s1", 0, 2, ("a", 1, 1))
    s1.compact("s1", at(5))
    with pytest.raises(SinceViolation):
        s1.snapshot("s1", 1)
    with pytest.raises(TimestampNotReady):
        s1.snapshot("s1", 5)
    add(s1, "s1", 2, 7, ("a", 3, 1), ("b", 6, 1))
    s1.compact("s1", at(5))
    assert (bag(s1, "s1", 5), bag(s1, "s1", 6)) == ({"a": 2}, {"a": 2, "b": 1})


def test_after_the_last_compaction_nothing_can_be_read(s1: Collections) -> None:
    add(s1, "s1", 0, 2, ("a", 1, 1))
    s1.compact("s1", END)
    assert s1.bounds(["s1"]) == [CollectionBounds(END, at(2))]
    for call in (lambda: s1.snapshot("s1", 1), lambda: s1.changes("s1", at(1), at(2))):
        with pytest.raises(SinceViolation):
            call()
    add(s1, "s1", 2, 3, ("never there", 2, -1))
    assert s1.bounds(["s1"]) == [CollectionBounds(END, at(3))]
    s1.compact("s1", END)


@pytest.mark.seeds(1)
def test_compaction_many_times_keeps_what_is_readable(s1: Collections, seed: int) -> None:
    draw = random.Random(seed)
    there: dict[Any, int] = {}
    past: dict[int, dict[Any, int]] = {}
    for time in range(45):
        updates: list[tuple[Any, int, int]] = []
        for value in draw.sample(range(200), 40):
            weight = draw.randint(-there.get(value, 0), 2)
            there[value] = there.get(value, 0) + weight
            updates.append((value, time, weight))
        add(s1, "s1", time, time + 1, *updates)
        past[time] = {value: n for value, n in there.items() if n}
        if time % 3 == 2:
            s1.compact("s1", at(time - 2))
            for t in (time - 2, time - 1, time):
                assert bag(s1, "s1", t, chunk=50) == past[t]


# -- wait ---------------------------------------------------------------------------------------


def test_waiting_ends_when_another_handle_has_appended(place: Place) -> None:
    store, other = place.open(), place.open()
    store.create("s1", b"")
    while store.wait(0):
        pass
    assert store.wait(0.001) is False
    add(other, "s1", 0, 1)
    assert store.wait(20) is True
    assert store.bounds(["s1"])[0].upper == at(1)
    add(store, "s1", 1, 2)
    assert store.wait(20) is True


def test_waiting_misses_nothing_that_happened_since_it_last_said_so(place: Place) -> None:
    store, other = place.open(), place.open()
    store.create("s1", b"")
    while store.wait(0):
        pass
    for time in range(3):
        add(other, "s1", time, time + 1)
        store.bounds(["s1"])
        list(store.snapshot("s1", time))
        assert store.wait(20) is True
