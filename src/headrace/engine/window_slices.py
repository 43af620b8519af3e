"""Runtime library for slices, from which overlapping windows are merged.

A slice is a span in which no window begins or ends, so all its times are in the same windows. (Krishnamurthy,
Wu, Franklin, "On-the-fly sharing for streamed aggregation", SIGMOD 2006: paired windows; Traub et al.,
"Scotty", TODS 2021.) Open windows and slices have a calendar, as in `headrace.engine.window_runtime`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from headrace.engine.window_runtime import (
    CHUNK,
    Window,
    float_borders,
    window_numbers,
    window_origin,
)
from headrace.expr.code_runtime import raise_overflow
from headrace.expr.types import FLOAT64

if TYPE_CHECKING:
    from headrace.expr.types import DataType
    from headrace.lowering.slot import SlotMapping
    from headrace.operators.event_time_windows import Grid


def slice_assigner(grid: Grid, type: DataType) -> Callable[[Any], Window]:
    """Return the function from a time to the start and the end of its slice."""
    if type == FLOAT64:
        return _float_slices(grid)
    size: Any = grid.size
    every: Any = grid.every
    # Windows begin at 0 and end at `border` of each step.
    border = size % every
    origin = window_origin(grid, type)

    def slice_of(time: Any) -> Window:
        try:
            since = (time - origin) % every
            begin = time - since
            return (begin, begin + border) if since < border else (begin + border, begin + every)
        except OverflowError:
            raise_overflow(f"a window of {time}", "timestamp")
            raise

    return slice_of


def _float_slices(grid: Grid) -> Callable[[float], Window]:
    start_of, end_of = float_borders(grid)
    numbers = window_numbers(grid)

    def slice_of(time: float) -> Window:
        first, last = numbers(time)
        return max(start_of(last), end_of(first - 1)), min(start_of(last + 1), end_of(first))

    return slice_of


# -- the calendar ------------------------------------------------------------------------------------


def schedule_slice(
    calendar: SlotMapping,
    counts: SlotMapping,
    due: SlotMapping,
    start: Any,
    entry: Any,
    windows_of: Callable[[Any], list[Window]],
    time: Any,
) -> int:
    """Schedule `entry` of the slice that begins at `start` for the closing of its windows; return its number.

    The windows, which may be a thousand, are those of any `time` in the slice, and made when it is new.

    calendar: () -> heap of (end, start) of open windows, "slices" -> starts of slices, "next" -> number of
    the next entry. counts: slice -> how many entries, and (end, start) of each open window. due: (slice,
    chunk) -> entries.
    """
    count = counts.get(start)
    if count is None:
        count = 0
        _open_slice(calendar, counts, start, windows_of(time))
    chunk = (start, count // CHUNK)
    if count % CHUNK:
        due.get(chunk).append(entry)
    else:
        due[chunk] = [entry]
    counts[start] = count + 1
    number = calendar.get("next")
    calendar["next"] = number + 1
    return number


def _open_slice(calendar: SlotMapping, counts: SlotMapping, start: Any, windows: list[Window]) -> None:
    opened = [(end, begin) for begin, end in windows if counts.get((end, begin)) is None]
    for window in opened:
        counts[window] = 0
    pending = calendar.get(())
    if pending is None:
        heapify(opened)
        calendar[()], calendar["slices"], calendar["next"] = opened, [start], 0
        return
    calendar.get("slices").append(start)
    for window in opened:
        heappush(pending, window)


def closing_windows(
    calendar: SlotMapping, counts: SlotMapping, due: SlotMapping, mark: Any
) -> Iterator[tuple[Any, Any, list[Any], list[Any]]]:
    """Remove and yield all windows that end by `mark`, ordered by end: start, end, entries, entries to drop.

    Entries are ordered by slice, then by insertion; to drop are those that no later window needs.
    mark: None for the end of time.
    """
    pending = calendar.get(())
    if pending is None or (mark is not None and pending[0][0] > mark):
        return
    slices = calendar.get("slices")
    slices.sort()
    done = 0
    while pending and (mark is None or pending[0][0] <= mark):
        window = end, start = heappop(pending)
        del counts[window]
        first = bisect_left(slices, start, done)
        last = bisect_left(slices, end, first)
        # Windows that end later begin later.
        over = bisect_left(slices, pending[0][1], done) if pending else len(slices)
        entries = [entry for at in slices[first:last] for entry in _entries(counts, due, at)]
        dropped = entries
        if (first, last) != (done, over):
            dropped = [entry for at in slices[done:over] for entry in _entries(counts, due, at)]
        for at in slices[done:over]:
            for number in range(-(-counts.get(at) // CHUNK)):
                del due[at, number]
            del counts[at]
        done = over
        yield start, end, entries, dropped
    if pending:
        del slices[:done]
    else:
        del calendar[()], calendar["slices"], calendar["next"]


def _entries(counts: SlotMapping, due: SlotMapping, start: Any) -> Iterator[Any]:
    """Yield the entries of a slice in the order of insertion."""
    for number in range(-(-counts.get(start) // CHUNK)):
        yield from due.get((start, number))
