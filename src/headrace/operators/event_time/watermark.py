"""Watermarks: lower bounds on the times of future rows, as policies, as streams, and of several streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.expr.check import Monotonicity, check, monotonicity
from headrace.expr.code_runtime import EPOCH
from headrace.expr.constructors import col
from headrace.expr.tree import Column
from headrace.expr.types import BOOL, FLOAT64, INTEGERS, TIMESTAMP, Field, Schema
from headrace.graph.node import Operator
from headrace.graph.operator_declarations import (
    ANYWHERE,
    EVENT_TIME,
    WHOLE,
    Facts,
    Need,
    Placement,
    Port,
    meet,
)
from headrace.lowering.reference import Examples
from headrace.lowering.row_code import RowCode
from headrace.lowering.slot import Slot, thaw_dict
from headrace.lowering.step import RowStep, register_step
from headrace.operators.aggregate.counts import count
from headrace.operators.time_spans import TIME_TYPES, check_span, shown_span, tumbling

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from headrace.expr.tree import Expr
    from headrace.expr.types import DataType
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Unservable
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.time_spans import Span


# --- watermark policies: rules that derive a watermark from the times seen ------------------------


@dataclass(frozen=True, slots=True)
class WatermarkPolicy:
    """Watermark policy: the greatest time in `column` minus `lateness`, rounded down to `every`.

    A row is late if its time is below the watermark of the rows before it. Multiples of `every` count from
    1970, or from 0; without `every`, the watermark is not rounded.
    """

    column: str
    lateness: Span
    every: Span | None = None

    def __str__(self) -> str:
        steps = "" if self.every is None else f" in steps of {shown_span(self.every)}"
        return f"{self.column} minus {shown_span(self.lateness)}{steps}"


def check_policy(policy: WatermarkPolicy, context: CheckContext) -> Field:
    """Return the column of a policy's time. Raises if the policy does not fit the input."""
    type_ = context.type_of(Column(policy.column))
    context.require(type_ in TIME_TYPES, "a watermark is on what is no time")
    check_span(policy.lateness, type_, context, may_be_zero=True)
    if policy.every is not None:
        check_span(policy.every, type_, context)
    return next(field for field in context.input.fields if field.name == policy.column)


EARLIEST = datetime.min.replace(tzinfo=UTC)


LATEST = datetime.max.replace(tzinfo=UTC)


def time_lower_bound(type: DataType) -> Any:
    """Return the lower bound of all times of the given type."""
    return EARLIEST if type == TIMESTAMP else -inf


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


class WatermarkWriter:
    """Writer of code that advances the watermark with row times.

    Slot: () -> (greatest time, watermark, number of late rows).
    """

    def __init__(self, node: Node, writer: StepWriter, clock: WatermarkPolicy) -> None:
        self._node, self._writer, self._code = node, writer, writer.code
        schema = writer.input_schema(node, 0)
        at = schema.position(clock.column)
        assert at is not None
        self.at = at
        self._field = schema.fields[at]
        self._clock = clock
        self.top = writer.node_variable("top", node.id)
        self.mark = writer.node_variable("mark", node.id)
        self.count = writer.node_variable("late", node.id)

    def slot(self) -> Slot:
        return Slot(f"{self._node.id}.clock")

    def begin(self) -> None:
        least = self._writer.constant("least", time_lower_bound(self._field.type))
        get = self._writer.slot_get(self._node.id, "clock")
        self._code.line(f"{self.top}, {self.mark}, {self.count} = {get}(()) or ({least}, {least}, 0)")

    def keep(self) -> None:
        slot = self._writer.slot(self._node.id, "clock")
        self._code.line(f"{slot}[()] = ({self.top}, {self.mark}, {self.count})")

    def invalid_time_test(self, time: str) -> str | None:
        """Return a test for a row without a valid time; None if every row has one."""
        tests: list[str] = []
        if self._field.nullable:
            tests.append(f"{time} is None")
        if self._field.type == FLOAT64:
            tests.append(f"{time} - {time} != 0.0")
        return " or ".join(tests) if tests else None

    def advance_watermark(self, time: str) -> None:
        """Write code that advances the watermark to a valid time."""
        with self._code.block(f"if {time} > {self.top}:"):
            self._code.line(f"{self.top} = {time}")
            self._code.line(f"{self.mark} = {self.mark_source(time)}")

    def mark_source(self, time: str) -> str:
        """Return the source of the watermark for a maximum time."""
        passed, every = f"{time} - {self._clock.lateness!r}", self._clock.every
        if self._field.type != TIMESTAMP and every is None:
            return passed
        if self._field.type in INTEGERS:
            return f"({passed}) // {every!r} * {every!r}"
        return f"{self._writer.constant('mark', watermark_function(self._clock, self._field.type))}({time})"


NEEDS = (
    Need(
        0,
        "append",
        "whether a row is late is decided when it comes,\nand what takes a row back comes at another time",
        "put the watermark on the source, before what takes rows back; "
        "or turn changes into rows that describe them",
    ),
    Need(
        0,
        "ordered",
        "the watermark rises row by row, so the order of rows decides which of them are late",
        "put the watermark on each source, before union() and joins: they keep the least of several",
    ),
)
"""Facts that every operator needs which reads times in order of arrival."""


# --- end-of-input operator: one row once sources have ended ---------------------------------------


VALUE = "value"
"""Name of the only column in a stream of watermarks."""


@dataclass(frozen=True, slots=True)
class EndOfInput(Operator):
    """One row in the tick in which all of `sources` have ended: `Engine.end()`, or the end of a run.

    Then their watermarks rise to the end of time, and every window closes.

    >>> import headrace as hr
    >>> from headrace import col
    >>> flow = hr.Flow("windows")
    >>> times = flow.source("times", int).watermark(col.value, lateness=2)
    >>> flow.sink("out", times.group_by(window=hr.tumbling(col.value, 10)).agg(n=hr.count()))
    >>> engine = hr.Engine(flow)
    >>> list(engine.tick(times=[1, 2, 3])["out"])
    []
    >>> [tuple(row) for row, _ in engine.end()["out"]]
    [(0, 10, 3)]
    """

    kind: ClassVar[str] = "end_of_input"
    examples: ClassVar[Examples] = {
        "updates": lambda x, y: (
            x.watermark(col.a, lateness=0).group_by(window=tumbling(col.a, 2), emit="updates").agg(n=count())
        ),
    }
    gives_watermark: ClassVar[bool] = True
    sources: tuple[str, ...]

    def ports(self) -> tuple[Port, ...]:
        return ()

    def output(self, context: CheckContext) -> Columns:
        return (Field(VALUE, BOOL),)

    def unservable(self) -> Unservable | None:
        return EVENT_TIME

    def placement(self) -> Placement:
        return ANYWHERE

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return Facts(ordered=True)

    def describe(self) -> str:
        return "of " + ", ".join(map(repr, self.sources))


# --- watermark operator: a lower bound on the times of future rows --------------------------------


@dataclass(frozen=True, slots=True)
class Watermark(Operator):
    """The watermark, as one row per tick in which it rises. Null is the end of time.

    It reads the rows before late ones are separated. For a bounded input, it is null after the first tick.
    """

    kind: ClassVar[str] = "watermark_time"
    examples: ClassVar[Examples] = {
        "close": lambda x, y: (
            x.watermark(col.a, lateness=0).group_by(window=tumbling(col.a, 2)).agg(n=count())
        ),
    }
    plan_name: ClassVar[str | None] = "watermark"
    gives_watermark: ClassVar[bool] = True
    clock: WatermarkPolicy

    def ports(self) -> tuple[Port, ...]:
        return (Port("rows"), Port("end"))

    def output(self, context: CheckContext) -> Columns:
        timed = check_policy(self.clock, context)
        end = context.upstream(1)
        reads_end = isinstance(end, EndOfInput) and end.sources == context.sources_reaching(0)
        context.require(reads_end, "it does not read the end of its input")
        return (Field(VALUE, timed.type, True),)

    def unservable(self) -> Unservable | None:
        return EVENT_TIME

    def required_facts(self) -> tuple[Need, ...]:
        return NEEDS

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        return {self.clock.column}, set(inputs[1].names)

    def over(
        self, inputs: Sequence[Schema], kept: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[Operator, tuple[Field, ...]]:
        return self, output.fields

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(bounded=False, once=True)

    def placement(self) -> Placement:
        return WHOLE

    def describe(self) -> str:
        return str(self.clock)


@register_step(Watermark)
class WatermarkStep(RowStep):
    """Watermark of a tick's maximum time. Slots: the clock, and () -> True once the input has ended."""

    operator: Watermark
    takes_rows = False

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self._clockwork = WatermarkWriter(node, writer, self.operator.clock)
        self._bounded = writer.analysis.facts[node.inputs[0]].bounded

    def slots(self) -> tuple[Slot, ...]:
        return (self._clockwork.slot(), Slot(f"{self.node.id}.ended"))

    def finish(self) -> None:
        writer, code = self.writer, self.code
        rows, end = (writer.buffer(source) for source in self.node.inputs)
        ended, slot = self.slot_getter("ended"), self.slot("ended")
        if self._bounded:
            end = f"{end} or {rows}"
        with code.block(f"if {end}:"), code.block(f"if {ended}(()) is None:"):
            code.line(f"{slot}[()] = True")
            self.emit(RowCode(("None",)))
        with code.block(f"elif {rows}:"):
            self._read(rows)

    def _read(self, rows: str) -> None:
        code, clockwork = self.code, self._clockwork
        clockwork.begin()
        row, time, before = (self.writer.fresh(name) for name in ("row", "time", "before"))
        code.line(f"{before} = {clockwork.top}")
        with code.block(f"for {row} in {rows}:"):
            code.line(f"{time} = {row}[{clockwork.at}]")
            unusable = clockwork.invalid_time_test(time)
            test = f"{time} > {clockwork.top}"
            with code.block(f"if {test if unusable is None else f'not ({unusable}) and {test}'}:"):
                code.line(f"{clockwork.top} = {time}")
        with code.block(f"if {clockwork.top} > {before}:"):
            code.line(f"{before} = {clockwork.mark}")
            code.line(f"{clockwork.mark} = {clockwork.mark_source(clockwork.top)}")
            clockwork.keep()
            with code.block(f"if {clockwork.mark} > {before}:"):
                self.emit(RowCode((clockwork.mark,)))


# --- least-watermark operator: watermark of computed times, or of several streams -----------------


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """Mapping of a watermark to that of a computed column: `expr` over the column `value` of `type`.

    `expr` must never decrease while `value` rises.
    """

    type: DataType
    expr: Expr

    def same(self, other: Move) -> bool:
        """Return whether two moves are equal. `==` would build an expression."""
        return self.type == other.type and self.expr.same(other.expr)


@dataclass(frozen=True, slots=True)
class LeastWatermark(Operator):
    """The least of the input watermarks, after their moves, whenever it rises. Null is the end of time.

    It exists once every input has one. An input that has ended does not hold it back.
    """

    kind: ClassVar[str] = "least_watermark"
    examples: ClassVar[Examples] = {
        "union": lambda x, y: (
            x.watermark(col.a, lateness=1)
            .union(x.watermark(col.a, lateness=2))
            .group_by(window=tumbling(col.a, 2))
            .agg(n=count())
        ),
    }
    gives_watermark: ClassVar[bool] = True
    moves: tuple[tuple[Move, ...], ...]

    def ports(self) -> tuple[Port, ...]:
        return tuple(Port(f"watermark {at}") for at in range(len(self.moves)))

    def output(self, context: CheckContext) -> Columns:
        inputs = zip(context.inputs, self.moves, strict=True)
        types = {_moved(schema.fields[0].type, moves, context) for schema, moves in inputs}
        read = all(isinstance(context.upstream(port), Watermark) for port in range(len(self.moves)))
        context.require(read and len(types) == 1, "the inputs are not watermarks of one type")
        return (Field(VALUE, types.pop(), True),)

    def unservable(self) -> Unservable | None:
        return EVENT_TIME

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return meet(inputs).but(once=True)

    def placement(self) -> Placement:
        return WHOLE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        for at, moves in enumerate(self.moves):
            for move in moves:
                yield f"watermark {at}", move.expr

    def describe(self) -> str:
        return ", ".join(
            str(moves[-1].expr) if len(moves) == 1 else "as it is" if not moves else "computed"
            for moves in self.moves
        )

    def same(self, other: LeastWatermark) -> bool:
        """Return whether two operators have equal moves."""
        pairs = zip(self.moves, other.moves, strict=False)
        return len(self.moves) == len(other.moves) and all(
            len(mine) == len(theirs) and all(m.same(t) for m, t in zip(mine, theirs, strict=True))
            for mine, theirs in pairs
        )


def _moved(type: DataType, moves: Sequence[Move], context: CheckContext) -> DataType:
    """Return a watermark's type after its moves, each of which must be increasing."""
    for move in moves:
        context.require(move.type == type, "a watermark is moved as one of another type")
        schema = Schema((Field(VALUE, type),), scalar=True)
        type = check(move.expr, schema).type
        rises = monotonicity(move.expr, schema, VALUE) is Monotonicity.INCREASING
        context.require(rises, "a watermark may fall")
    return type


@register_step(LeastWatermark)
class LeastWatermarkStep(RowStep):
    """Minimum of several watermarks. Slot: () -> {input number: its watermark, moved; -1: last emitted}.

    A bounded input is complete from its first tick on, so it does not hold the minimum back.
    """

    operator: LeastWatermark

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        facts = [writer.analysis.facts[source] for source in node.inputs]
        self._counting = [port for port, fact in enumerate(facts) if not fact.bounded]
        self._marks = writer.node_variable("marks", node.id)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.marks", thaw_dict),)

    def begin(self) -> None:
        self.code.line(f"{self._marks} = {self.slot_getter('marks')}(()) or {{}}")

    def consume(self, port: int, row: RowCode) -> None:
        value = self.writer.fresh("value")
        self.code.line(f"{value} = {row.columns[0]}")
        if self.operator.moves[port]:
            with self.code.block(f"if {value} is not None:"):
                for move in self.operator.moves[port]:
                    schema = Schema((Field("value", move.type),))
                    self.code.line(f"{value} = {self.writer.value(move.expr, schema, (value,))}")
        self.code.line(f"{self._marks}[{port}] = {value}")

    def finish(self) -> None:
        code, marks = self.code, self._marks
        least, ports = self.writer.fresh("least"), tuple(self._counting)
        with code.block(f"if {marks}:"):
            code.line(f"{self.slot('marks')}[()] = {marks}")
            with code.block(f"if all(port in {marks} for port in {ports}):"):
                values = f"{marks}[port] for port in {ports} if {marks}[port] is not None"
                code.line(f"{least} = min(({values}), default=None)")
                with code.block(f"if -1 not in {marks} or {least} != {marks}[-1]:"):
                    code.line(f"{marks}[-1] = {least}")
                    self.emit(RowCode((least,)))
