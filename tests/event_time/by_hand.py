"""What event time means, by hand: plain loops over whole lists, without ticks and without state to drop.

Whoever doubts an answer must be able to check it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

EVENTS_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
"""The timestamp that stands for 0, where times are timestamps."""


class Event(NamedTuple):
    key: int | None
    at: int
    value: int | None


def part(
    events: Iterable[Event], lateness: int, every: int = 1
) -> tuple[list[Event], list[Event], int | None]:
    """Events on time, late events, and the watermark in the end."""
    on_time: list[Event] = []
    late: list[Event] = []
    mark: int | None = None
    for event in events:
        if mark is not None and event.at < mark:
            late.append(event)
        else:
            on_time.append(event)
        passed = (event.at - lateness) // every * every
        mark = passed if mark is None else max(mark, passed)
    return on_time, late, mark


def grid(size: int, every: int, offset: int) -> Callable[[int], list[tuple[int, int]]]:
    """The windows of a time, the latest first: all that there are are tried."""

    def windows(at: int) -> list[tuple[int, int]]:
        starts = range(at - size - every, at + every + 1)
        return [(s, s + size) for s in reversed(starts) if (s - offset) % every == 0 and s <= at < s + size]

    return windows


Answer = tuple[Any, int, int, int, int | None, int | None, tuple[int, ...]]
"""Key, start, end, count of rows, sum, max, and the values in order."""


def answer(key: Any, start: int, end: int, members: Sequence[Event]) -> Answer:
    values = sorted(e.value for e in members if e.value is not None)
    total = sum(values) if values else None
    return key, start, end, len(members), total, max(values, default=None), tuple(values)


def on_grid(events: Sequence[Event], windows: Callable[[int], list[tuple[int, int]]]) -> list[Answer]:
    """Answers of all windows, in the order of their ends, then of their first rows."""
    members: dict[tuple[Any, int, int], list[Event]] = {}
    for event in events:
        for start, end in windows(event.at):
            members.setdefault((event.key, start, end), []).append(event)
    answers = [answer(*location, rows) for location, rows in members.items()]
    return sorted(answers, key=lambda a: a[2])


def in_sessions(events: Sequence[Event], gap: int) -> list[Answer]:
    """Answers of all sessions, in the order of their ends, then of their first rows."""
    found: list[tuple[int, Answer]] = []
    for key in dict.fromkeys(e.key for e in events):
        mine = sorted(((e.at, n, e) for n, e in enumerate(events) if e.key == key), key=lambda m: m[:2])
        session = [mine[0]]
        for one in mine[1:]:
            if one[0] - session[-1][0] >= gap:
                found.append(_session(key, session, gap))
                session = []
            session.append(one)
        found.append(_session(key, session, gap))
    return [a for _, a in sorted(found, key=lambda f: (f[1][2], f[0]))]


def _session(key: Any, members: list[tuple[int, int, Event]], gap: int) -> tuple[int, Answer]:
    rows = [event for _, _, event in members]
    return min(n for _, n, _ in members), answer(key, members[0][0], members[-1][0] + gap, rows)
