"""Runtime library for windows: the windows and slices of a time, and the closing of ended windows.

Slots cannot be iterated, so entries to drop are found through a calendar: a heap of the ends of open windows
and, for each end, its windows in chunks, so that adding a window rewrites one chunk only. All of it is plain
data.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from math import floor, inf, ulp
from typing import TYPE_CHECKING, Any

from penstock.expr.code_runtime import EPOCH, raise_overflow
from penstock.expr.types import FLOAT64, TIMESTAMP

if TYPE_CHECKING:
    from penstock.engine.slot import SlotMapping
    from penstock.expr.types import DataType
    from penstock.flow.event_time_windows import Grid
    from penstock.flow.watermark_policy import WatermarkPolicy

Window = tuple[Any, Any]
"""Start and end of a window."""

EARLIEST = datetime.min.replace(tzinfo=UTC)


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
    origin = _origin(grid, type)

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


def _origin(grid: Grid, type: DataType) -> Any:
    offset: Any = grid.offset or (timedelta() if type == TIMESTAMP else 0)
    return (EPOCH if type == TIMESTAMP else 0) + offset


def _float_windows(grid: Grid) -> Callable[[float], list[Window]]:
    """Windows over floats, with bounds computed from the window's number so that all rows agree."""
    start_of, end_of = _float_borders(grid)

    def windows(time: float) -> list[Window]:
        number = _last_window(grid, time)
        windows_found: list[Window] = []
        while (end := end_of(number)) > time:
            windows_found.append((start_of(number), end))
            number -= 1
        return windows_found

    return windows


def _float_borders(grid: Grid) -> tuple[Callable[[int], float], Callable[[int], float]]:
    """Return the functions from a window's number to its start and to its end."""
    size, every, offset = (float(span or 0.0) for span in (grid.size, grid.every, grid.offset))  # type: ignore[arg-type]

    def start(number: int) -> float:
        return number * every + offset

    def end(number: int) -> float:
        # Side by side, one window ends where the next begins, rounded alike.
        return start(number + 1) if size == every else start(number) + size

    return start, end


def _last_window(grid: Grid, time: float) -> int:
    """Return the number of the latest window that contains a float."""
    every, offset = (float(span or 0.0) for span in (grid.every, grid.offset))  # type: ignore[arg-type]
    if ulp(max(abs(time), abs(time - offset))) > every:  # the borders next to it are the same float
        raise_overflow(f"a window of {time}", "float64")
    number = floor((time - offset) / every)
    while number * every + offset > time:
        number -= 1
    while (number + 1) * every + offset <= time:
        number += 1
    return number


# -- slices ------------------------------------------------------------------------------------------
#
# A slice is a span in which no window begins or ends: all its times are in the same windows, which are
# merged from their slices. (Krishnamurthy, Wu, Franklin, "On-the-fly sharing for streamed aggregation",
# SIGMOD 2006: paired windows; Traub et al., "Scotty", TODS 2021.)

Slice = tuple[Any, Any, list[Window]]
"""Start and end of a slice, and the windows that contain it, the latest first."""


def slice_assigner(grid: Grid, type: DataType) -> Callable[[Any], Slice]:
    """Return the function from a time to its slice."""
    windows = window_assigner(grid, type)
    if type == FLOAT64:
        return _float_slices(grid, windows)
    size: Any = grid.size
    every: Any = grid.every
    # Windows begin at 0 and end at `border` of each step.
    border = size % every
    origin = _origin(grid, type)

    def slice_of(time: Any) -> Slice:
        found = windows(time)
        since = (time - origin) % every
        if since < border:
            start = time - since
            return start, start + border, found
        return time - since + border, found[-1][1] if not border else time - since + every, found

    return slice_of


def _float_slices(grid: Grid, windows: Callable[[float], list[Window]]) -> Callable[[float], Slice]:
    start_of, end_of = _float_borders(grid)

    def slice_of(time: float) -> Slice:
        found, last = windows(time), _last_window(grid, time)
        start = max(found[0][0], end_of(last - len(found)))
        return start, min(start_of(last + 1), found[-1][1]), found

    return slice_of


def bucket_function(width: Any, type: DataType) -> Callable[[Any], int]:
    """Return the function from a time to the number of its bucket of length `width`."""
    origin: Any = EPOCH if type == TIMESTAMP else 0

    def bucket(time: Any) -> int:
        return int((time - origin) // width)

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
        first, last, own = bucket(time + low), bucket(time + high), bucket(time)
        numbers = range(first - beside, last + 1 + beside)
        if beside:
            return time, time, own, numbers
        shifted = ((own, 0 * low), (first, low), (last, high))
        try:
            start = max([origin + (number * width - shift) for number, shift in shifted])
            end = min([origin + ((number + 1) * width - shift) for number, shift in shifted])
        except OverflowError:  # at the ends of the calendar
            return time, time, own, numbers
        return start, end, own, numbers

    return buckets


# -- the calendar of windows on a grid ---------------------------------------------------------------

_CHUNK = 256


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
    chunk = (end, count // _CHUNK)
    if count % _CHUNK:
        due.get(chunk).append(window)
    else:
        due[chunk] = [window]
    counts[end] = count + 1


def closing(
    calendar: SlotMapping, counts: SlotMapping, due: SlotMapping, mark: Any
) -> Iterator[tuple[Any, Any]]:
    """Remove and yield (end, window) of all windows that end by `mark`, ordered by end, then by insertion.

    mark: None for the end of time.
    """
    ends = calendar.get(())
    while ends and (mark is None or ends[0] <= mark):
        end = heappop(ends)
        count = counts.get(end)
        del counts[end]
        for number in range(-(-count // _CHUNK)):
            windows = due.get((end, number))
            del due[(end, number)]
            for window in windows:
                yield end, window
    if ends is not None and not ends:
        del calendar[()]


# -- the calendar of slices --------------------------------------------------------------------------


def schedule_slice(
    calendar: SlotMapping,
    counts: SlotMapping,
    due: SlotMapping,
    start: Any,
    windows: list[Window],
    entry: Any,
) -> int:
    """Schedule `entry` of the slice that begins at `start` for the closing of its windows; return its number.

    calendar: () -> sorted (end, start) of open windows, "slices" -> sorted starts of slices, "next" -> number
    of the next entry. counts: slice -> how many entries. due: (slice, chunk) -> entries.
    """
    count = counts.get(start)
    if count is None:
        count = 0
        _open_slice(calendar, start, windows)
    chunk = (start, count // _CHUNK)
    if count % _CHUNK:
        due.get(chunk).append(entry)
    else:
        due[chunk] = [entry]
    counts[start] = count + 1
    number = calendar.get("next")
    calendar["next"] = number + 1
    return number


def _open_slice(calendar: SlotMapping, start: Any, windows: list[Window]) -> None:
    pending = calendar.get(())
    if pending is None:
        calendar[()] = sorted((end, begin) for begin, end in windows)
        calendar["slices"], calendar["next"] = [start], 0
        return
    insort(calendar.get("slices"), start)
    for begin, end in windows:
        at = bisect_left(pending, (end, begin))
        if at == len(pending) or pending[at] != (end, begin):
            pending.insert(at, (end, begin))


def closing_windows(
    calendar: SlotMapping, counts: SlotMapping, due: SlotMapping, mark: Any
) -> Iterator[tuple[Any, Any, list[Any], list[Any]]]:
    """Remove and yield all windows that end by `mark`, ordered by end: start, end, entries, entries to drop.

    Entries are ordered by slice, then by insertion; to drop are those that no later window needs.
    mark: None for the end of time.
    """
    pending = calendar.get(())
    if pending is None:
        return
    slices = calendar.get("slices")
    while pending and (mark is None or pending[0][0] <= mark):
        end, start = pending.pop(0)
        first, last = bisect_left(slices, start), bisect_left(slices, end)
        over = bisect_left(slices, pending[0][1]) if pending else len(slices)
        entries = [entry for at in slices[first:last] for entry in _entries(counts, due, at)]
        dropped = (
            entries
            if (first, last) == (0, over)
            else [entry for at in slices[:over] for entry in _entries(counts, due, at)]
        )
        for at in slices[:over]:
            for number in range(-(-counts.get(at) // _CHUNK)):
                del due[at, number]
            del counts[at]
        del slices[:over]
        yield start, end, entries, dropped
    if not pending:
        del calendar[()], calendar["slices"], calendar["next"]


def _entries(counts: SlotMapping, due: SlotMapping, start: Any) -> Iterator[Any]:
    """Yield the entries of a slice in the order of insertion."""
    for number in range(-(-counts.get(start) // _CHUNK)):
        yield from due.get((start, number))


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
    return [] if mark is None else [time for time in kept if time + within > mark]
