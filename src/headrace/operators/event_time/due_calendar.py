"""Calendars of what is due once a watermark, or a clock, has passed: ends of windows, moments, expiries.

Slots cannot be iterated, so what is due is found through a calendar: a heap of times and, for each, its
entries in chunks, so that adding an entry rewrites one chunk only. All of it is plain data.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Any

from headrace.expr.code_runtime import EPOCH
from headrace.expr.types import FLOAT64, TIMESTAMP
from headrace.lowering.slot import Slot, thaw_list
from headrace.lowering.step import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from headrace.expr.types import DataType
    from headrace.graph.node import Node
    from headrace.lowering.row_code import RowCode
    from headrace.lowering.slot import SlotMapping
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.time_spans import Span


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
        """Return the source of the bucket number of a time, or of one a span after it."""
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


class ExpiringStep(Step):
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
