"""Calendars of entries due once a watermark or a clock has passed them: window ends, moments, expiries.

Slots cannot be iterated, so due entries are found through a calendar: a heap of times and, for each, its
entries in chunks, so that adding an entry rewrites one chunk only. All of it is plain data.

Overlapping windows of a grid are merged from slices. A slice is a span in which no window begins or ends, so
all its times are in the same windows. (Krishnamurthy, Wu, Franklin, "On-the-fly sharing for streamed
aggregation", SIGMOD 2006: paired windows; Traub et al., "Scotty", TODS 2021.) Open windows and slices have a
calendar.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from heapq import heapify, heappop, heappush
from math import floor, inf, ulp
from typing import TYPE_CHECKING, Any

from headrace.expr.code_runtime import EPOCH, raise_overflow
from headrace.expr.types import FLOAT64, TIMESTAMP
from headrace.lowering.slot import Slot, thaw_list
from headrace.lowering.step import RowStep

if TYPE_CHECKING:
    from collections.abc import Generator

    from headrace.expr.types import DataType
    from headrace.graph.node import Node
    from headrace.lowering.row_code import RowCode
    from headrace.lowering.slot import SlotMapping
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.time_spans import Grid, Span

# --- at run time ----------------------------------------------------------------------------------


CHUNK = 256
"""Number of entries of a calendar in one value."""


def schedule_entry(
    calendar: SlotMapping, counts: SlotMapping, due: SlotMapping, end: Any, entry: Any
) -> None:
    """Add an entry that is due at `end`.

    calendar: () -> heap of ends. counts: end -> how many entries. due: (end, chunk) -> entries.
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
        due.get(chunk).append(entry)
    else:
        due[chunk] = [entry]
    counts[end] = count + 1


def pop_due(
    calendar: SlotMapping, counts: SlotMapping, due: SlotMapping, mark: Any, *, before: bool = False
) -> Iterator[tuple[Any, Any]]:
    """Remove and yield (end, entry) of all entries that are due by `mark`, ordered by end, then by insertion.

    mark: None for the end of time. before: leave those that are due exactly at `mark`.
    """
    ends = calendar.get(())
    while ends and (mark is None or ends[0] < mark or (ends[0] == mark and not before)):
        end = heappop(ends)
        count = counts.get(end)
        del counts[end]
        for number in range(-(-count // CHUNK)):
            entries = due.get((end, number))
            del due[(end, number)]
            for entry in entries:
                yield end, entry
    if ends is not None and not ends:
        del calendar[()]


ARRANGED_ROWS = 0
"""Entry of a calendar that stands for all rows of an arrangement, from the least of their moments on."""


def due_rows(
    calendar: SlotMapping, counts: SlotMapping, due: SlotMapping, held: Any, now: Any, *, before: bool = False
) -> Iterator[Any]:
    """Remove and yield the rows that are due at `now`. held: the slot of rows. before: as in `pop_due`."""
    arranged = False
    for _, row in pop_due(calendar, counts, due, now, before=before):
        if row == ARRANGED_ROWS:
            arranged = True
        else:
            yield row
    if arranged:
        rows, later = held.reached(now)
        yield from rows
        if later is not None:
            schedule_entry(calendar, counts, due, later, ARRANGED_ROWS)


def bucket_function(width: Any, type: DataType) -> Callable[..., int]:
    """Return the function from a time, and optionally a span to add, to its bucket number.

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


# --- in generated code -----------------------------------------------------------------------------


class WatermarkInput:
    """Writer of code over the watermark read by a step.

    prefix: distinguishes several watermarks of one node. risen, mark: variables that tell whether the
          watermark rose in this tick, and its value.
    """

    def __init__(self, node: Node, writer: StepWriter, prefix: str = "") -> None:
        self._code = writer.code
        self.risen = writer.node_variable(f"{prefix}risen", node.id)
        self.mark = writer.node_variable(f"{prefix}mark", node.id)

    def begin(self) -> None:
        self._code.line(f"{self.risen} = False")

    def consume(self, row: RowCode) -> None:
        """Write code that advances the watermark.

        The watermarks of a tick rise, so the last one counts.
        """
        self._code.line(f"{self.risen} = True")
        self._code.line(f"{self.mark} = {row.columns[0]}")


class DueCalendar:
    """Writer of code for a calendar: entries, each with the time at which it is due.

    prefix: distinguishes several calendars of one node.
    """

    def __init__(self, node: Node, writer: StepWriter, prefix: str = "") -> None:
        self._node, self._writer = node.id, writer
        self._slots = tuple(f"{prefix}{what}" for what in ("calendar", "counts", "due"))
        self._state = ", ".join(writer.slot(node.id, what) for what in self._slots)

    def slots(self) -> tuple[Slot, ...]:
        calendar, counts, due = (f"{self._node}.{what}" for what in self._slots)
        return (Slot(calendar, thaw_calendar), Slot(counts), Slot(due, thaw_list))

    def schedule_end(self, end: str, entry: str) -> None:
        """Write code that adds an entry which is due at `end`."""
        self._writer.code.line(
            f"{self._writer.constant('schedule', schedule_entry)}({self._state}, {end}, {entry})"
        )

    def due_rows(self, held: str, now: str, *, before: bool) -> str:
        """Return the source of the iterator over the rows that are due at `now`; held: their slot."""
        due = self._writer.constant("due_rows", partial(due_rows, before=before))
        return f"{due}({self._state}, {held}, {now})"

    def closed_entries(self, mark: str) -> str:
        """Return the source of the iterator over the entries that are due by `mark`, with their ends."""
        return f"{self._writer.constant('pop_due', pop_due)}({self._state}, {mark})"

    def entries_before(self, mark: str) -> str:
        """Return the source of the iterator over the entries that are due before `mark`, with their ends."""
        return f"{self._writer.constant('pop_due', partial(pop_due, before=True))}({self._state}, {mark})"


def thaw_calendar(value: Any) -> Any:
    """Thaw function for a calendar's lists, stored beside the next number."""
    return value if isinstance(value, int) else list(value)


class ExpiryCalendar:
    """Writer of code for a calendar of keys to drop once the watermark has passed their time bucket.

    prefix: distinguishes several calendars of one node. width: of the buckets. type: of the times.
    after:  how far the watermark must have passed. If given, it is the watermark of another input, so
            that rows may come to buckets it has passed: slot `passed`, () -> the first that it has not.
    """

    def __init__(
        self,
        node: Node,
        writer: StepWriter,
        prefix: str,
        width: Span,
        type: DataType,
        after: Span | None = None,
    ) -> None:
        self._writer, self._code = writer, writer.code
        self._calendar = DueCalendar(node, writer, prefix)
        self.watermark = WatermarkInput(node, writer, prefix)
        self._bucket = writer.constant("bucket", bucket_function(width, type))
        self._after = None if after is None else writer.constant("after", after)
        self._node, self._passed = node.id, f"{prefix}passed"
        self._open_from = writer.node_variable(f"{prefix}open_from", node.id)

    def slots(self) -> tuple[Slot, ...]:
        passed = () if self._after is None else (Slot(f"{self._node}.{self._passed}"),)
        return (*self._calendar.slots(), *passed)

    def begin(self) -> None:
        """Write the code to run before all rows."""
        self.watermark.begin()
        if self._after is not None:
            self._code.line(f"{self._open_from} = {self._writer.slot_get(self._node, self._passed)}(())")
            with self._code.block(f"if {self._open_from} is None:"):
                self._code.line(f"{self._open_from} = {self._writer.constant('least', -inf)}")

    @contextmanager
    def if_open(self, bucket: str) -> Generator[None]:
        """Open a block that runs if the other input's watermark had not passed a bucket before this tick."""
        with self._code.block(f"if {bucket} >= {self._open_from}:"):
            yield

    def bucket(self, time: str, *after: str) -> str:
        """Return the source of the bucket number of a time, optionally with a span added."""
        return f"{self._bucket}({', '.join((time, *after))})"

    def schedule_expiry(self, bucket: str, key: str) -> None:
        """Write code that schedules `key` to be dropped once the watermark has passed its bucket."""
        self._calendar.schedule_end(f"{bucket} + 1", key)

    @contextmanager
    def each_passed(self) -> Generator[str]:
        """Open a block that runs for each key to drop."""
        code, writer, top = self._code, self._writer, self.watermark.mark
        number, key = writer.fresh("number"), writer.fresh("key")
        with code.block(f"if {self.watermark.risen}:"):
            mark = self.bucket(top, *(() if self._after is None else (f"-{self._after}",)))
            code.line(f"{number} = None if {top} is None else {mark}")
            if self._after is not None:
                all_passed = writer.constant("all_passed", inf)
                slot = writer.slot(self._node, self._passed)
                code.line(f"{slot}[()] = {all_passed} if {number} is None else {number}")
            with code.block(f"for _, {key} in {self._calendar.closed_entries(number)}:"):
                yield key


class ExpiringStep(RowStep):
    """Base of steps with one input and its watermark."""

    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter, time: str, width: Span) -> None:
        super().__init__(node, writer)
        at = node.schema.position(time)
        assert at is not None
        self._at = at
        self._forgetting = ExpiryCalendar(node, writer, "", width, node.schema.fields[at].type)

    def begin(self) -> None:
        self._forgetting.begin()

    def consume(self, port: int, row: RowCode) -> None:
        if port == 1:
            self._forgetting.watermark.consume(row)
        else:
            self.consume_on_time(row)

    def consume_on_time(self, row: RowCode) -> None:
        """Write the code for one row on time."""
        raise NotImplementedError


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
    """Return the function from a float to the numbers of the first and the last window containing it."""
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
