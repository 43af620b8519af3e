"""Session windows: per key, rows in close succession; one row may merge two sessions.

A session is [start, last time, number, group]; it ends `gap` after its last time. Its
number tells in which order sessions were first seen. The calendar holds each under the
end that it had when it was scheduled, which may have moved on: then it is scheduled anew when
that time comes. Ends are arbitrary, so they lie in buckets as wide as the gap: a heap of
bucket numbers, and in each a heap of (end, number, key).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from headrace.expr.code_runtime import EPOCH, raise_overflow
from headrace.expr.types import TIMESTAMP
from headrace.lowering.slot import Slot, Thaw, thaw_list
from headrace.operators.aggregate.aggregation import ANSWER
from headrace.operators.event_time.due_calendar import thaw_calendar
from headrace.operators.event_time.window import WindowStep

if TYPE_CHECKING:
    from headrace.expr.types import DataType
    from headrace.graph.node import Node
    from headrace.lowering.row_code import RowCode
    from headrace.lowering.slot import SlotMapping
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.event_time.window import Window
    from headrace.operators.time_spans import Sessions

START, LAST, NUMBER, GROUP = range(4)
Session = list[Any]


class SessionRule:
    """Rule that divides a key's rows into sessions.

    empty: creates the list of a group without rows. merge: adds the second list to the first.
    """

    def __init__(
        self,
        gap: Any,
        type: DataType,
        empty: Callable[[], list[Any]],
        merge: Callable[[list[Any], list[Any]], None],
    ) -> None:
        self._gap = gap
        self._origin = EPOCH if type == TIMESTAMP else 0
        self._empty = empty
        self._merge = merge

    def enter(
        self,
        sessions: SlotMapping,
        calendar: SlotMapping,
        due: SlotMapping,
        key: Any,
        time: Any,
        absorbed: list[Session],
    ) -> Session:
        """Find the session of a row at `time`, creating or merging sessions as needed.

        sessions: key -> sessions, by start. Sessions merged into the result are added to `absorbed`.
        """
        mine: list[Session] | None = sessions.get(key)
        if mine is None:
            mine = []
            sessions[key] = mine
        elif mine[-1][START] <= time <= mine[-1][LAST]:  # as most rows that come a little late
            return mine[-1]
        # Sessions are apart by the gap or more, so only those on either side can be near.
        at = bisect_right(mine, time, key=_start)
        after = mine[at] if at < len(mine) and mine[at][START] < self._end(time) else None
        if at and time < self._end(mine[at - 1][LAST]):
            session = mine[at - 1]
            if after is not None:
                del mine[at]
                absorbed.append(self._join(session, after))
            elif time > session[LAST]:
                session[LAST] = time
        elif after is not None:
            session = after
            session[START] = time
        else:
            session = [time, time, self._next(calendar), self._empty()]
            mine.insert(at, session)
            self._schedule(calendar, due, session, key)
        return session

    def enter_span(
        self,
        sessions: SlotMapping,
        calendar: SlotMapping,
        due: SlotMapping,
        key: Any,
        start: Any,
        last: Any,
        absorbed: list[Session],
    ) -> Session:
        """Find the session of rows from `start` to `last` that are less than a gap apart."""
        session = self.enter(sessions, calendar, due, key, start, absorbed)
        mine = sessions.get(key)
        following, end = bisect_right(mine, start, key=_start), self._end(last)
        while following < len(mine) and mine[following][START] < end:
            absorbed.append(self._join(session, mine.pop(following)))
        session[LAST] = max(session[LAST], last)
        return session

    def _join(self, session: Session, after: Session) -> Session:
        """Merge a session with its successor under the lower number; return the absorbed one."""
        self._merge(session[GROUP], after[GROUP])
        session[LAST] = after[LAST]
        numbers = session[NUMBER], after[NUMBER]
        session[NUMBER], after[NUMBER] = min(numbers), max(numbers)
        return after

    def closing(
        self, sessions: SlotMapping, calendar: SlotMapping, due: SlotMapping, mark: Any
    ) -> Iterator[tuple[Any, Any, Session]]:
        """Remove and yield (key, end, session) for sessions that end by `mark`, by end, then by first row.

        mark: None for the end of time.
        """
        buckets = calendar.get(())
        while buckets and (mark is None or buckets[0] <= self._bucket(mark)):
            bucket = buckets[0]
            scheduled = due.get(bucket)
            while scheduled and (mark is None or scheduled[0][0] <= mark):
                then, number, key = heappop(scheduled)
                mine: list[Session] = sessions.get(key) or []
                session = next((s for s in mine if s[NUMBER] == number), None)
                if session is None:  # it became part of another
                    continue
                end = self._end(session[LAST])
                if end > then:
                    self._schedule(calendar, due, session, key)
                    continue
                mine.remove(session)
                if not mine:
                    del sessions[key]
                yield key, end, session
            if scheduled:
                return
            heappop(buckets)
            del due[bucket]
        if buckets is not None and not buckets:
            del calendar[()]

    def _schedule(self, calendar: SlotMapping, due: SlotMapping, session: Session, key: Any) -> None:
        end = self._end(session[LAST])
        bucket = self._bucket(end)
        entry = (end, session[NUMBER], key)
        scheduled = due.get(bucket)
        if scheduled is not None:
            heappush(scheduled, entry)
            return
        due[bucket] = [entry]
        buckets = calendar.get(())
        if buckets is None:
            calendar[()] = [bucket]
        else:
            heappush(buckets, bucket)

    def _next(self, calendar: SlotMapping) -> int:
        number = calendar.get("next") or 1
        calendar["next"] = number + 1
        return number

    def _end(self, time: Any) -> Any:
        try:
            end = time + self._gap
        except OverflowError:
            raise_overflow(f"the end of a session at {time}", "timestamp")
        if end == time:  # so large a float that the gap is lost in it
            raise_overflow(f"the end of a session at {time}", "float64")
        return end

    def _bucket(self, time: Any) -> int:
        return int((time - self._origin) // self._gap)


def _start(session: Session) -> Any:
    return session[START]


# --- their step -----------------------------------------------------------------------------------


def thaw_sessions(thaw_group: Thaw) -> Thaw:
    """Thaw function for a key's sessions."""

    def thaw(sessions: Any) -> list[list[Any]]:
        return [[start, last, number, thaw_group(group)] for start, last, number, group in sessions]

    return thaw


class SessionStep(WindowStep):
    """Step of session windows.

    Slots: sessions, key -> list of sessions; and their calendar (see `SessionRule`).

    `touched`: number -> key and session; `absorbed`: the sessions that became part of others.
    """

    def __init__(self, node: Node, writer: StepWriter, operator: Window, shape: Sessions) -> None:
        super().__init__(node, writer, operator)
        self.shape = shape
        self.absorbed = writer.node_variable("absorbed", node.id)
        self.rule = writer.node_variable("rule", node.id)

    def slots(self) -> tuple[Slot, ...]:
        return (
            Slot(f"{self.node.id}.sessions", thaw_sessions(self.group.thaw)),
            Slot(f"{self.node.id}.calendar", thaw_calendar),
            Slot(f"{self.node.id}.due", thaw_list),
        )

    def begin(self) -> None:
        super().begin()
        self._write_rule()
        self.code.line(f"{self.absorbed} = []")

    def _write_rule(self) -> None:
        writer, node = self.writer, self.node.id
        writer.function(f"def empty_of_{node}():", f"return {self.group.empty}")
        with writer.function_body(node, f"def merge_of_{node}(group, other):"):
            self.group.merge("group", self.group.part_columns("other"))
        rule = writer.constant("SessionRule", SessionRule)
        gap, type_ = writer.constant("gap", self.shape.gap), writer.constant("type", self.type)
        made = f"{rule}({gap}, {type_}, empty_of_{node}, merge_of_{node})"
        writer.functions.line(f"{self.rule} = {made}")

    def consume_on_time(self, row: RowCode) -> None:
        time, key = self.assign_time(row), self.assign_key(row)
        self.group.add(self.enter("enter", key, time), row)

    def enter(self, how: str, key: str, *times: str) -> str:
        """Write the code that finds the session of a row or of several; return the variable with its list."""
        code, writer = self.code, self.writer
        session, group = writer.fresh("session"), writer.fresh("group")
        given = ", ".join((self._state(), key, *times, self.absorbed))
        code.line(f"{session} = {self.rule}.{how}({given})")
        code.line(f"{group} = {session}[{GROUP}]")
        if self.updates:
            code.line(f"{self.touched}[{session}[{NUMBER}]] = ({key}, {session})")
        return group

    def _state(self) -> str:
        return ", ".join(self.slot(what) for what in ("sessions", "calendar", "due"))

    def finish(self) -> None:
        if self.updates:
            self._write_updates()
        code, writer = self.code, self.writer
        key, end, session = writer.fresh("key"), writer.fresh("end"), writer.fresh("session")
        closing = f"{self.rule}.closing({self._state()}, {self.watermark.mark})"
        with (
            code.block(f"if {self.watermark.risen}:"),
            code.block(f"for {key}, {end}, {session} in {closing}:"),
        ):
            if self.updates:
                code.line("pass")
                return
            group = writer.fresh("group")
            code.line(f"{group} = {session}[{GROUP}]")
            self.group.settle(group)
            self.emit_tuple(self.answer(key, f"{session}[{START}]", end, group))

    def _write_updates(self) -> None:
        code, writer = self.code, self.writer
        key, session, group = writer.fresh("key"), writer.fresh("session"), writer.fresh("group")
        old, end = writer.fresh("old"), writer.fresh("end")
        with code.block(f"for {session} in {self.absorbed}:"):
            code.line(f"{self.touched}.pop({session}[{NUMBER}], None)")
            if not writer.is_append(self.node.id):
                code.line(f"{old} = {session}[{GROUP}][{ANSWER}]")
                with code.block(f"if {old} is not None:"):
                    self.emit_tuple(old, "-1")
        with code.block(f"for {key}, {session} in {self.touched}.values():"):
            code.line(f"{group} = {session}[{GROUP}]")
            code.line(f"{end} = {session}[{LAST}] + {writer.constant('gap', self.shape.gap)}")
            self.group.settle(group)
            code.line(f"{old} = {group}[{ANSWER}]")
            new = self.answer(key, f"{session}[{START}]", end, group)
            code.line(f"{group}[{ANSWER}] = {new}")
            self.emit_update(old, new)
