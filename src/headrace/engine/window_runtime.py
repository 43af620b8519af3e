"""Runtime library for windows: the windows of a time, and the closing of ended windows.

Slots cannot be iterated, so entries to drop are found through a calendar: a heap of the ends of open windows
and, for each end, its windows in chunks, so that adding a window rewrites one chunk only. All of it is plain
data.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from math import floor, inf, ulp
from typing import TYPE_CHECKING, Any

from headrace.expr.code_runtime import EPOCH, raise_overflow
from headrace.expr.types import FLOAT64, TIMESTAMP

if TYPE_CHECKING:
    from headrace.expr.types import DataType
    from headrace.lowering.slot import SlotMapping
    from headrace.operators.event_time_windows import Grid
    from headrace.operators.watermark_policy import WatermarkPolicy

Window = tuple[Any, Any]
"""Start and end of a window."""

EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)


def time_lower_bound(type: DataType) -> Any:
    """Return the lower bound of all times of the given type."""
    return EARLIEST if type == TIMESTAMP else -inf


# -- where the watermark stands --------------------------------------------------------------


def watermark_function(clock: WatermarkPolicy, type: DataType) -> Callable[[Any], Any]:
    """Return the function from the maximum time seen to the watermark."""
    lateness: Any = clock.lateness
    every: Any = clock.every
    least, origin = time_lower_bound(type), EPOCH if type == TIMESTAMP else 0

    def mark(top: Any) -> Any:
        try:
            passed = top - lateness
            return passed if every is None else passed - (passed - origin) % every
        except OverflowError:  # a timestamp before the year 1
            return least

    return mark


# -- where windows lie ---------------------------------------------------------------------------


def window_assigner(grid: Grid, type: DataType) -> Callable[[Any], list[Window]]:
    """Return the function from a time to its windows, the latest first."""
    if type == FLOAT64:
        return _float_windows(grid)
    size: Any = grid.size
    every: Any = grid.every
    origin = window_origin(grid, type)

    def windows(time: Any) -> list[Window]:
        try:
            since = (time - origin) % every
            windows_found: list[Window] = []
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
    offset: Any = grid.offset or (timedelta() if type == TIMESTAMP else 0)
    return (EPOCH if type == TIMESTAMP else 0) + offset


def _float_windows(grid: Grid) -> Callable[[float], list[Window]]:
    """Windows over floats, with bounds computed from the window's number so that all rows agree."""
    start_of, end_of = float_borders(grid)
    numbers = window_numbers(grid)

    def windows(time: float) -> list[Window]:
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


# -- buckets of time ---------------------------------------------------------------------------------


def bucket_function(width: Any, type: DataType) -> Callable[..., int]:
    """Return the function to the number of the bucket of length `width` that holds a time, or one after it.

    The calendar need not have the later time.
    """
    origin: Any = EPOCH if type == TIMESTAMP else 0
    nothing: Any = width - width

    def bucket(time: Any, after: Any = nothing) -> int:
        return int((time - origin + after) // width)

    return bucket


def bucket_assigner(
    width: Any, low: Any, high: Any, type: DataType
) -> Callable[[Any], tuple[Any, Any, int, range]]:
    """Return the function from a time to its bucket and those of all times from `low` to `high` after it.

    The function returns the span of times for which its answer is the same, the number, and the numbers.
    """
    bucket = bucket_function(width, type)
    origin: Any = EPOCH if type == TIMESTAMP else 0
    # Sums of floats are rounded, so a partner may stand one bucket beside where it should.
    beside = 1 if type == FLOAT64 else 0

    def buckets(time: Any) -> tuple[Any, Any, int, range]:
        first, last, own = bucket(time, low), bucket(time, high), bucket(time)
        numbers = range(first - beside, last + 1 + beside)
        if beside:
            return time, time, own, numbers
        shifted = ((own, low - low), (first, low), (last, high))
        try:
            start = max([origin + (number * width - shift) for number, shift in shifted])
            end = min([origin + ((number + 1) * width - shift) for number, shift in shifted])
        except OverflowError:  # at the ends of the calendar
            return time, time, own, numbers
        return start, end, own, numbers

    return buckets


# -- the calendar of windows on a grid ---------------------------------------------------------------

CHUNK = 256
"""Number of entries of a calendar in one value."""


def schedule_window(
    calendar: SlotMapping, counts: SlotMapping, due: SlotMapping, end: Any, window: Any
) -> None:
    """Schedule `window` to be closed at `end`.

    calendar: () -> heap of ends. counts: end -> how many windows. due: (end, chunk) -> windows.
    """
    count = counts.get(end)
    if count is None:
        ends = calendar.get(())
        if ends is None:
            calendar[()] = [end]
        else:
            heappush(ends, end)
        count = 0
    chunk = (end, count // CHUNK)
    if count % CHUNK:
        due.get(chunk).append(window)
    else:
        due[chunk] = [window]
    counts[end] = count + 1


def closing(
    calendar: SlotMapping, counts: SlotMapping, due: SlotMapping, mark: Any, *, before: bool = False
) -> Iterator[tuple[Any, Any]]:
    """Remove and yield (end, window) of all windows that end by `mark`, ordered by end, then by insertion.

    mark: None for the end of time. before: leave those that end exactly at `mark`.
    """
    ends = calendar.get(())
    while ends and (mark is None or ends[0] < mark or (ends[0] == mark and not before)):
        end = heappop(ends)
        count = counts.get(end)
        del counts[end]
        for number in range(-(-count // CHUNK)):
            windows = due.get((end, number))
            del due[(end, number)]
            for window in windows:
                yield end, window
    if ends is not None and not ends:
        del calendar[()]


ARRANGED_ROWS = 0
"""Entry of a calendar that stands for all rows of an arrangement, from the least of their moments on."""


def due_rows(
    calendar: SlotMapping, counts: SlotMapping, due: SlotMapping, held: Any, now: Any, *, before: bool = False
) -> Iterator[Any]:
    """Remove and yield the rows that are due at `now`. held: the slot of rows. before: as in `closing`."""
    arranged = False
    for _, row in closing(calendar, counts, due, now, before=before):
        if row == ARRANGED_ROWS:
            arranged = True
        else:
            yield row
    if arranged:
        rows, later = held.reached(now)
        yield from rows
        if later is not None:
            schedule_window(calendar, counts, due, later, ARRANGED_ROWS)


# -- rows close to each other ----------------------------------------------------------------------


def is_first(kept: list[Any], time: Any, within: Any) -> bool:
    """Return whether all times in sorted `kept` are at least `within` away; if so, insert the time."""
    at = bisect_left(kept, time)
    if at < len(kept) and kept[at] - time < within:
        return False
    if at and time - kept[at - 1] < within:
        return False
    kept.insert(at, time)
    return True


def times_still_near(kept: list[Any], mark: Any, within: Any) -> list[Any]:
    """Return the times that a future row may still be close to. mark: None for the end of time."""
    return [] if mark is None else [time for time in kept if mark - time < within]
