"""Windows of event time against the loop that a person would write, in one run; and a soak.

    python benches/event_time.py [tumbling|shapes|soak ...]

tumbling: counts of 10 s windows and 10 keys over 200,000 events with a disorder of 2 s, of
which 1 % come 5 to 30 s too late. A row is late if its window has closed (`every=` is the size
of the windows). Results leave in the order of windows, when they close; the hand-written
loop does the same, for this flow alone. "one tick" has all events in one, "ticks of 1,000" as
many ticks as that makes; "tick_rows" takes rows that were checked before.

soak: two million events, each of a key of its own, and the most that the state ever holds.
"""

from __future__ import annotations

import random
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import headrace as hr
from benches.measure import race
from headrace import col

EVENTS = 200_000
SIZE, DISORDER = 10_000, 2_000


class Event(NamedTuple):
    key: int
    at: int


class Timestamped(NamedTuple):
    key: int
    at: datetime


def events(count: int = EVENTS) -> list[Event]:
    """Events a millisecond apart, as they come: out of order by 2 s, 1 % of them late by 5 to 30 s."""
    rng = random.Random(7)
    made: list[Event] = []
    for at in range(count):
        behind = rng.randrange(5_000, 30_000) if rng.random() < 0.01 else rng.randrange(DISORDER)
        made.append(Event(rng.randrange(10), max(0, at + 30_000 - behind)))
    return made


def by_hand(rows: Sequence[Event]) -> tuple[list[tuple[int, int, int, int]], int]:
    counts: dict[int, dict[int, int]] = {}
    out: list[tuple[int, int, int, int]] = []
    late = mark = 0
    top = -1
    closes = SIZE
    for key, at in rows:
        if at > top:
            top = at
            mark = at - DISORDER
            if mark >= closes:
                for start in sorted(s for s in counts if s + SIZE <= mark):
                    out.extend((k, start, start + SIZE, n) for k, n in counts.pop(start).items())
                closes = mark - mark % SIZE + SIZE
        start = at - at % SIZE
        if start + SIZE <= mark:
            late += 1
            continue
        window = counts.get(start)
        if window is None:
            window = counts[start] = {}
        window[key] = window.get(key, 0) + 1
    for start in sorted(counts):
        out.extend((k, start, start + SIZE, n) for k, n in counts[start].items())
    return out, late


def flow_of(row: type[Any] = Event, windows: Any = None, emit: Any = "close", **watermark: Any) -> hr.Flow:
    flow = hr.Flow("tumbling counts")
    spans: dict[str, Any] = {"lateness": "2s", "every": "10s", **({"unit": "ms"} if row is Event else {})}
    timed = flow.source("events", row).watermark(col.at, **{**spans, **watermark})
    unit: Any = "ms" if row is Event else None
    shape = windows or hr.tumbling(col.at, "10s", unit=unit)
    flow.sink("counts", timed.group_by("key", window=shape, emit=emit).agg(n=hr.count()))
    return flow


def run(flow: hr.Flow, ticks: Sequence[Any], *, checked: bool) -> tuple[list[tuple[Any, ...]], int]:
    """The answers, and how many rows were late."""
    engine = hr.Engine(flow)
    out: list[tuple[Any, ...]] = []
    for tick in ticks:
        if checked:
            out.extend(engine.tick_rows({"events": tick}).get("counts", ()))
        else:
            out.extend(row[:-1] for row in engine.tick(events=tick)["counts"].raw)
    out.extend(row[:-1] for row in engine.end()["counts"].raw)
    return out, sum(engine.late_rows.values())


def cut(rows: Sequence[Any], size: int) -> list[Any]:
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def tumbling() -> None:
    rows = events()
    flow = flow_of()
    inside = hr.Engine(flow).internal_rows("events", rows)
    with_late = flow_of(late="late")
    race(
        "tumbling counts; 200k events, 10 keys, late rows",
        {
            "by hand": lambda: by_hand(rows),
            "one tick": lambda: run(flow, [rows], checked=False),
            "one tick, tick_rows": lambda: run(flow, [inside], checked=True),
            "ticks of 1,000": lambda: run(flow, cut(rows, 1000), checked=False),
            "ticks of 1,000, tick_rows": lambda: run(flow, cut(inside, 1000), checked=True),
            "and late rows to a sink": lambda: run(with_late, cut(inside, 1000), checked=True),
        },
    )


def shapes() -> None:
    """Other windows over the same events, against tumbling ones of numbers."""
    rows = events()
    epoch = datetime(2026, 1, 1, tzinfo=UTC)
    stamped = [Timestamped(key, epoch + timedelta(milliseconds=at)) for key, at in rows]
    contestants: dict[str, tuple[hr.Flow, list[Any]]] = {
        "tumbling": (flow_of(), rows),
        "tumbling, timestamps": (flow_of(Timestamped), stamped),
        "tumbling, updates": (flow_of(emit="updates"), rows),
        "sliding, in 2 windows each": (flow_of(windows=hr.sliding(col.at, 10_000, 5_000)), rows),
        "session": (flow_of(windows=hr.session(col.at, 50)), rows),
    }
    ways: dict[str, Callable[[], Any]] = {}
    for name, (flow, given) in contestants.items():
        inside = cut(hr.Engine(flow).internal_rows("events", given), 1000)
        # What they answer differs; tests hold them to loops of their own.
        ways[name] = lambda flow=flow, inside=inside: bool(run(flow, inside, checked=True))
    race("windows; 200k events in ticks of 1,000, tick_rows", ways)


def soak() -> None:
    """The most that slots and memory ever hold while two million keys go by."""
    flow = flow_of()
    state: dict[str, Any] = {slot.name: {} for slot in hr.Engine(flow).program.slots}
    engine = hr.Engine(flow, state=state)
    rng = random.Random(7)
    tracemalloc.start()
    print(f"{'events':>10} {'entries':>10} {'MB':>8}")
    for at, tick in enumerate(_keys_of_their_own(rng, 2_000_000)):
        engine.tick(events=tick)
        if at % 200 == 199:
            entries = sum(len(slot) for slot in state.values())
            used = tracemalloc.get_traced_memory()[0] / 1e6
            print(f"{(at + 1) * 1000:>10,} {entries:>10,} {used:>8.1f}")
    tracemalloc.stop()


def _keys_of_their_own(rng: random.Random, count: int) -> Iterator[list[Event]]:
    for begin in range(0, count, 1000):
        yield [Event(n, max(0, n - rng.randrange(DISORDER))) for n in range(begin, begin + 1000)]


WORKLOADS = {w.__name__: w for w in (tumbling, shapes, soak)}

if __name__ == "__main__":
    for name in sys.argv[1:] or WORKLOADS:
        WORKLOADS[name]()
