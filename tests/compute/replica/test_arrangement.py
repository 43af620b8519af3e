"""An index and its parts, against ones that keep everything."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.compute.frontier import Frontier
from headrace.compute.protocol.row_batch import NotColumnar, RowBatch
from headrace.compute.replica.exports import merge_changes
from headrace.compute.replica.in_process import arrangement
from headrace.compute.replica.in_process.arrangement import ArrangementHold, TimedArrangement
from headrace.expr.code_runtime import NAN
from headrace.expr.types import (
    ANY,
    BOOL,
    BYTES,
    DATE,
    FLOAT64,
    INTERVAL,
    STR,
    TIMESTAMP,
    DataType,
    DecimalType,
    Field,
    ListType,
    Schema,
)
from tests.compute.replica.flows import BID
from tests.compute.replica.rig import Bag, bag
from tests.properties.effort import examples

PLAIN = (BID, [(item, price) for item in "abc" for price in range(3)], [("item",), ("price", "item"), ()])
"""Rows as they mostly are: a schema, rows that are all different, keys."""


def _schema(**types: DataType) -> Schema:
    return Schema(tuple(Field(name, type, nullable=True) for name, type in types.items()))


def _moment(second: int) -> datetime:
    return datetime(2024, 2, 29, 1, 2, second, 7, tzinfo=UTC)


ODD = [
    PLAIN,
    (
        _schema(number=FLOAT64, flag=BOOL),
        [(number, flag) for number in (0.0, 1.0, -2.5, math.inf, NAN, None) for flag in (True, None)],
        [("number",), ("flag",), ()],
    ),
    (
        # Half a surrogate is no text to columns.
        _schema(text=STR, day=DATE),
        [
            (text, day)
            for text in ("", "a", "\udc80", "\udc81", None)
            for day in (date(2024, 2, 29), date.min)
        ],
        [("text",), ("day",), ()],
    ),
    (
        _schema(price=DecimalType(10, 2), at=TIMESTAMP, span=INTERVAL),
        [
            (Decimal(price), _moment(second), timedelta(days))
            for price in ("0.00", "-1.50", "99999999.99")
            for second in (0, 9)
            for days in (1, 999_999_999)
        ],
        [("price",), ("at", "price"), ("span",), ()],
    ),
    (
        _schema(list=ListType(FLOAT64, nullable=True), data=BYTES),
        [(values, data) for values in ((), (0.0,), (NAN, None), (1.5, 2.0), None) for data in (b"", b"\xff")],
        [("list",), ("list", "data"), ()],
    ),
    (_schema(any=ANY), [("1",), (1,), (2.5,), ((1, "x"),), (Decimal("1.50"),), (None,)], [("any",), ()]),
]

HAPPENS = ["add", "add", "add", "add", "advance", "advance", "compact", "allow", "hold", "scan", "go on"]


@pytest.fixture
def in_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let so few rows be many that they move into columns, in several batches."""
    for name, value in (("LARGE", 4), ("MOVED", 1), ("SCANNED", 2)):
        monkeypatch.setattr(arrangement, name, value)


@pytest.mark.parametrize("rows", ODD, ids=lambda rows: ",".join(rows[0].names))
@pytest.mark.usefixtures("in_columns")
@settings(
    max_examples=max(20, settings().max_examples // 4),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_an_index_is_right_at_every_time_that_somebody_may_read(rows: Any, data: st.DataObject) -> None:
    schema, all_rows, keys = rows
    check_random_history(schema, all_rows, keys, data)


@examples(1)
@given(st.data())
def test_an_index_of_few_rows_is_right_without_columns(data: st.DataObject) -> None:
    check_random_history(*PLAIN, data)


def check_random_history(
    schema: Schema, all_rows: list[tuple[Any, ...]], keys: list[tuple[str, ...]], data: st.DataObject
) -> None:
    """Compare an index with a list of all changes, at all readable times, while anything happens to it."""
    index = TimedArrangement(schema, data.draw(st.sampled_from(keys)), 5)
    all_: list[tuple[Any, int, int]] = []
    time, since = 5, 5
    holds: list[ArrangementHold] = []
    scans: list[tuple[Any, int, Bag, ArrangementHold]] = []
    changes_ = st.dictionaries(st.sampled_from(all_rows), st.sampled_from([-1, 1, 1, 2]), max_size=6)

    def there(at: int) -> Bag:
        found: Bag = Counter()
        for row, when, weight in all_:
            if when <= at:
                found[row] += weight
        return Counter({row: n for row, n in found.items() if n})

    for _ in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(HAPPENS)):
            case "add":
                changes: Any = list(data.draw(changes_).items())
                all_ += [(row, time, weight) for row, weight in changes]
                if data.draw(st.booleans()):
                    with suppress(NotColumnar):
                        changes = RowBatch.of_rows(schema, changes)
                index.add(changes, time)
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
                parts, _, seen, _ = data.draw(st.sampled_from(scans))
                _see(seen, next(parts, []))
            case _:
                pass
        least = min([since, *(hold.time for hold in holds), *(hold.time for *_, hold in scans)])
        for at in range(least, time):
            expected = there(at)
            for row in all_rows:
                assert bag(index.rows_at(index.keying.of_row(row), at))[row] == expected[row]
            # What is told of later times leads from here to there.
            later: Bag = Counter(expected)
            for version in index.changes_after(at):
                assert version.time > at
                for row, weight in version.changes:
                    later[row] += weight
            assert Counter({r: n for r, n in later.items() if n}) == there(time - 1)
    for parts, at, seen, hold in scans:
        for part in parts:
            _see(seen, part)
        assert seen == there(at)
        hold.release()
    for hold in holds:
        hold.release()
    index.allow_compaction(Frontier(time))
    index.advance(Frontier(time + 1))
    while index.compact(1):
        pass
    assert index.distinguished_times == 0
    assert sum(there(time).values()) == index.weight
    last: Bag = Counter()
    for part in index.scan(time):
        _see(last, part)
    assert last == there(time)
    while index.free_memory():
        pass


def _see(seen: Bag, part: Any) -> None:
    """Take a part of a scan, which has each row once."""
    for row, count in part:
        assert row not in seen
        seen[row] = count


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(-2, 2).filter(bool)), min_size=1))
def test_what_cancels_out_is_no_change(parts: list[dict[str, int]]) -> None:
    total = Counter[Any]()
    for part in parts:
        for row, weight in part.items():
            total[(row,)] += weight
    changes = merge_changes([[((row,), weight) for row, weight in part.items()] for part in parts])
    assert dict(changes) == {row: weight for row, weight in total.items() if weight}


def test_a_since_that_passes_a_time_of_which_more_is_to_come_leaves_it_whole() -> None:
    index = TimedArrangement(BID, ("item",), 0)
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
