"""Sinks that hand changes to somebody: functions, memory, standard output."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.engine.change import Change, SinkChanges
from headrace.expr.row_classes import schema_of, to_user
from headrace.io import Call, Memory, Print, SinkRequest, Writer, open_sink
from headrace.io.outbox import Spool
from tests.io.feeds import Point

ONE = [(1, "a", 1), (2, None, 2)]


class Heard:
    """What a function was told, and how often it fails first."""

    def __init__(self, failures: int = 0) -> None:
        self.told: list[tuple[int, list[Change[Any]]]] = []
        self._failures = failures

    def __call__(self, tick: int, changes: Any) -> None:
        if self._failures:
            self._failures -= 1
            raise OSError("the other end is gone")
        self.told.append((tick, list(changes)))


def writer(sink: Any, *, spool: Path | None = None, tick: int = 0, rows: Any = Point) -> Writer:
    schema = schema_of(rows)
    drain = SinkRequest("points", schema, spool, lambda raw: SinkChanges(raw, False, to_user(schema)))
    opened = open_sink(sink, drain)
    opened.recover(tick)
    return opened


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_a_function_is_told_each_tick_that_has_changes_once(tmp_path: Path, with_checkpoint: bool) -> None:
    heard = Heard()
    sink = writer(Call(heard), spool=tmp_path / "spool" if with_checkpoint else None)
    for tick, rows in enumerate([ONE, [], [(1, "a", -1)]], 1):
        sink.prepare(tick, rows)
        assert len(heard.told) < tick, "nothing is told before it is published"
        sink.publish(tick)
        sink.publish(tick)
    assert heard.told == [
        (1, [Change(Point(1, "a"), 1), Change(Point(2, None), 2)]),
        (3, [Change(Point(1, "a"), -1)]),
    ]
    assert type(heard.told[0][1][0].row) is Point


@pytest.mark.parametrize("committed", [0, 1])
def test_after_a_crash_a_committed_tick_is_told_and_another_is_not(tmp_path: Path, committed: int) -> None:
    sink = writer(Call(Heard()), spool=tmp_path)
    sink.prepare(1, ONE)
    heard = Heard()
    writer(Call(heard), spool=tmp_path, tick=committed)
    assert [tick for tick, _ in heard.told] == ([1] if committed else [])
    assert list(tmp_path.iterdir()) == []


def test_a_function_that_fails_is_told_again_after_a_restart(tmp_path: Path) -> None:
    heard = Heard(failures=1)
    sink = writer(Call(heard), spool=tmp_path)
    sink.prepare(1, ONE)
    with pytest.raises(OSError, match="gone"):
        sink.publish(1)
    writer(Call(heard), spool=tmp_path, tick=1)
    assert [tick for tick, _ in heard.told] == [1]


def test_a_committed_tick_comes_back_with_values_of_all_types(tmp_path: Path) -> None:
    class Everything(NamedTuple):
        flag: bool
        big: int
        number: float
        exact: Decimal
        text: str | None
        raw: bytes
        day: date
        at: datetime
        many: list[float]
        pairs: dict[str, int]

    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
    rows: list[Any] = [
        (
            True,
            2**63 - 1,
            float("inf"),
            Decimal("1.500000"),
            "ä\ud800",
            b"\xff",
            date.min,
            first,
            (0.5,),
            (),
            1,
        ),
        (False, -(2**63), -0.0, Decimal("-1E-6"), None, b"", date.max, last, (), (("a", 1),), -(2**40)),
    ]
    writer(Call(Heard()), spool=tmp_path, rows=Everything).prepare(1, rows)
    spooled = Spool(SinkRequest("points", schema_of(Everything)), tmp_path).rows_of_tick(1)
    assert repr(spooled) == repr(rows)


def test_memory_adds_up(tmp_path: Path) -> None:
    memory = Memory()
    sink = writer(memory)
    for tick, rows in enumerate([ONE, [(1, "a", -1), (2, None, -1)], [(1, "a", 1)]], 1):
        sink.prepare(tick, rows)
        sink.publish(tick)
    assert memory.rows() == [Point(2, None), Point(1, "a")]
    assert list(memory.changes()) == [Change(Point(2, None), 1), Change(Point(1, "a"), 1)]
    assert Memory().rows() == []


def test_print_shows_what_goes_before_what_comes(capsys: pytest.CaptureFixture[str]) -> None:
    class Mixed(NamedTuple):
        at: datetime
        text: str | None
        nested: list[int]

    sink = writer(Print(), rows=Mixed)
    moment = datetime(2001, 1, 1, tzinfo=UTC)
    sink.prepare(
        12, [(moment, "a b", (1,), 3), (moment, None, (), -1), (moment, "", (), 1), (moment, "ä", (), -2)]
    )
    sink.publish(12)
    assert capsys.readouterr().out == (
        "12 points - at=2001-01-01T00:00:00+00:00 text=None nested=()\n"
        "12 points -2 at=2001-01-01T00:00:00+00:00 text=ä nested=()\n"
        "12 points +3 at=2001-01-01T00:00:00+00:00 text='a b' nested=(1,)\n"
        "12 points + at=2001-01-01T00:00:00+00:00 text='' nested=()\n"
    )
