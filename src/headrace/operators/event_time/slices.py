"""Where windows of a grid lie, and the slices from which overlapping ones are merged.

A slice is a span in which no window begins or ends, so all its times are in the same windows. (Krishnamurthy,
Wu, Franklin, "On-the-fly sharing for streamed aggregation", SIGMOD 2006: paired windows; Traub et al.,
"Scotty", TODS 2021.) Open windows and slices have a calendar, as in `due_calendar`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from datetime import timedelta
from heapq import heapify, heappop, heappush
from math import floor, ulp
from typing import TYPE_CHECKING, Any

from headrace.expr.code_runtime import EPOCH, raise_overflow
from headrace.expr.types import FLOAT64, TIMESTAMP
from headrace.operators.event_time.due_calendar import CHUNK, DueCalendar

if TYPE_CHECKING:
    from headrace.expr.types import DataType
    from headrace.lowering.slot import SlotMapping
    from headrace.operators.event_time.window_shapes import Grid


WindowBounds = tuple[Any, Any]
"""Start and end of a window."""

# --- where windows and slices lie -----------------------------------------------------------------


def window_assigner(grid: Grid, type: DataType) -> Callable[[Any], list[WindowBounds]]:
    """Return the function from a time to its windows, the latest first."""
    if type == FLOAT64:
        return _float_windows(grid)
    size: Any = grid.size
    every: Any = grid.every
    origin = window_origin(grid, type)

    def windows(time: Any) -> list[WindowBounds]:
        try:
            since = (time - origin) % every
            windows_found: list[WindowBounds] = []
            while since < size:
                start = time - since
                windows_found.append((start, start + size))
                since += every
        except OverflowError:
            raise_overflow(f"a window of {time}", "timestamp")
            raise
        return windows_found

    return windows


def window_origin(grid: Grid, type: DataType) -> Any:
    """Return the time from which the windows of a grid are counted."""
    offset: Any = grid.offset or (timedelta() if type == TIMESTAMP else 0)
    return (EPOCH if type == TIMESTAMP else 0) + offset


def _float_windows(grid: Grid) -> Callable[[float], list[WindowBounds]]:
    """Windows over floats, with bounds computed from the window's number so that all rows agree."""
    start_of, end_of = float_borders(grid)
    numbers = window_numbers(grid)

    def windows(time: float) -> list[WindowBounds]:
        first, last = numbers(time)
        return [(start_of(number), end_of(number)) for number in range(last, first - 1, -1)]

    return windows


def float_borders(grid: Grid) -> tuple[Callable[[int], float], Callable[[int], float]]:
    """Return the functions from a window's number to its start and to its end."""
    size, every, offset = (float(span or 0.0) for span in (grid.size, grid.every, grid.offset))  # type: ignore[arg-type]

    def start(number: int) -> float:
        return number * every + offset

    def end(number: int) -> float:
        # Rounding must not leave a time between two windows.
        following = start(number + 1)
        return following if size == every else max(start(number) + size, following)

    return start, end


def window_numbers(grid: Grid) -> Callable[[float], tuple[int, int]]:
    """Return the function from a float to the numbers of the earliest and the latest window with it."""
    size, every, offset = (float(span or 0.0) for span in (grid.size, grid.every, grid.offset))  # type: ignore[arg-type]
    start_of, end_of = float_borders(grid)
    others = floor(size / every)

    def numbers(time: float) -> tuple[int, int]:
        if ulp(max(abs(time), abs(time - offset))) > every:  # the borders next to it are the same float
            raise_overflow(f"a window of {time}", "float64")
        last = floor((time - offset) / every)
        while start_of(last) > time:
            last -= 1
        while start_of(last + 1) <= time:
            last += 1
        first = last - others
        while end_of(first) <= time:
            first += 1
        while end_of(first - 1) > time:
            first -= 1
        return first, last

    return numbers


def slice_assigner(grid: Grid, type: DataType) -> Callable[[Any], WindowBounds]:
    """Return the function from a time to the start and the end of its slice."""
    if type == FLOAT64:
        return _float_slices(grid)
    size: Any = grid.size
    every: Any = grid.every
    # Windows begin at 0 and end at `border` of each step.
    border = size % every
    origin = window_origin(grid, type)

    def slice_of(time: Any) -> WindowBounds:
        try:
            since = (time - origin) % every
            begin = time - since
            return (begin, begin + border) if since < border else (begin + border, begin + every)
        except OverflowError:
            raise_overflow(f"a window of {time}", "timestamp")
            raise

    return slice_of


def _float_slices(grid: Grid) -> Callable[[float], WindowBounds]:
    start_of, end_of = float_borders(grid)
    numbers = window_numbers(grid)

    def slice_of(time: float) -> WindowBounds:
        first, last = numbers(time)
        return max(start_of(last), end_of(first - 1)), min(start_of(last + 1), end_of(first))

    return slice_of


# --- the calendar of slices -----------------------------------------------------------------------


def schedule_slice(
    calendar: SlotMapping,
    counts: SlotMapping,
    due: SlotMapping,
    start: Any,
    entry: Any,
    windows_of: Callable[[Any], list[WindowBounds]],
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


def _open_slice(calendar: SlotMapping, counts: SlotMapping, start: Any, windows: list[WindowBounds]) -> None:
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


class SliceCalendar(DueCalendar):
    """Writer of code for a calendar of windows, or of slices from which they are merged."""

    def schedule_slice(self, start: str, entry: str, windows_of: str, time: str) -> str:
        """Return the source of a call that schedules an entry of a slice, and returns its number."""
        schedule = self._writer.constant("schedule", schedule_slice)
        return f"{schedule}({self._state}, {start}, {entry}, {windows_of}, {time})"

    def closing_windows(self, mark: str) -> str:
        """Return the source of the iterator over the windows of slices that end by `mark`."""
        return f"{self._writer.constant('closing', closing_windows)}({self._state}, {mark})"
