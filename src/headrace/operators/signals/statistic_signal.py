"""Statistic operator for signals: a function of all values so far, or of a window, with checked arguments."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from headrace.errors import SourceLocation, WrongType
from headrace.expr.row_classes import schema_of
from headrace.expr.time_texts import format_duration
from headrace.expr.types import FLOAT32, FLOAT64, INTEGERS, TIMESTAMP, AnyType, BoolType, DataType
from headrace.graph.operator_declarations import Port
from headrace.lowering.signal_step import (
    SignalCell,
    SignalOutcome,
    SignalStep,
    SignalWriter,
    register_signal_step,
)
from headrace.operators.column_arguments import render_argument
from headrace.operators.signals.lift import SignalOperator
from headrace.operators.statistics.ewm import Decay
from headrace.operators.statistics.kernel import InputValues, KernelVariable, kernel_of, rename_variables
from headrace.operators.statistics.kernel_runtime import FUNCTIONS
from headrace.operators.statistics.statistic import Holes, ResultType, Statistic, Times
from headrace.operators.time_spans import time_span

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node

C = TypeVar("C", bound=Enum)


# -- kinds of signals ----------------------------------------------------------------------------------


def signal_type(schema: Schema) -> DataType | None:
    """Return the type of a signal's values, or None for rows of columns."""
    return schema.fields[0].type if schema.scalar else None


def time_kind(schema: Schema) -> Times:
    """Kind of times in a signal."""
    known = signal_type(schema)
    if known == TIMESTAMP:
        return Times.DATETIMES
    return Times.SECONDS if known in (*INTEGERS, FLOAT32, FLOAT64) else Times.EITHER


def missing_kind(schema: Schema) -> Holes:
    """Return which values of a signal count as missing."""
    known = signal_type(schema)
    if known is None or schema.fields[0].nullable:
        return Holes.NAN_NONE
    if known in INTEGERS or isinstance(known, BoolType):
        return Holes.NONE
    return Holes.NAN


def check_numbers(kind: str, schema: Schema, location: SourceLocation) -> None:
    """Raise `WrongType` for values known not to be `int`, `float` or `bool`."""
    known = signal_type(schema)
    if known not in (*INTEGERS, FLOAT32, FLOAT64) and not isinstance(known, AnyType | BoolType):
        raise WrongType(
            f"{kind} needs numbers, got {known or schema}",
            where=[location],
            fix="take a number from each value: hr.lift(float)(signal), or signal[0]",
        )


def check_times(schema: Schema, location: SourceLocation) -> None:
    """Raise `WrongType` for values known not to be times."""
    known = signal_type(schema)
    if time_kind(schema) is Times.EITHER and not isinstance(known, AnyType):
        raise WrongType(
            f"a signal of times has datetimes or numbers of seconds, got {known or schema}",
            where=[location],
            fix="take the time from each value: hr.lift(lambda row: row.time)(signal)",
        )


def schema_of_result(result: ResultType, given: Schema) -> Schema:
    """Return the type of a statistic's results, derived from that of its input."""
    match result:
        case ResultType.FLOAT:
            return schema_of(float)
        case ResultType.BOOL:
            return schema_of(bool)
        case ResultType.AS_GIVEN:
            return given
        case ResultType.FLOAT_OF_FLOATS if signal_type(given) == FLOAT64 and missing_kind(given) is Holes.NAN:
            return given
        case _:
            return schema_of(object)


# -- numbers and choices -------------------------------------------------------------------------------


def check_count(what: str, count: object, location: SourceLocation) -> None:
    """Raise `WrongType` unless a value is an int of at least 1."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise WrongType(
            f"{what} needs a count of at least 1, got {render_argument(count)}",
            where=[location],
            fix="give 1 or more",
        )


def check_least(least: object, location: SourceLocation, most: int | None = None) -> None:
    """Raise `WrongType` for a `min_periods` that is not a count, or exceeds the window size `most`."""
    if not isinstance(least, int) or isinstance(least, bool) or least < 0:
        raise WrongType(
            f"min_periods is a count of values, got {render_argument(least)}",
            where=[location],
            fix="give 0 or more",
        )
    if most is not None and least > most:
        raise WrongType(
            f"a window of {most} never has {least} values",
            where=[location],
            why="The statistic would stay silent for ever.",
            fix=f"min_periods={most} or less",
        )


def parse_span(what: str, span: object, location: SourceLocation) -> timedelta:
    """Convert to a time span. Raises `WrongType` unless it is positive."""
    found = time_span(span, what, location)
    if found <= timedelta():
        raise WrongType(
            f"{what} got a span of {format_duration(found)}", where=[location], fix="give more than 0"
        )
    return found


def check_ddof(ddof: object, location: SourceLocation) -> int:
    """Validate the degrees of freedom `ddof`. Raises `WrongType`."""
    if not isinstance(ddof, int) or isinstance(ddof, bool) or ddof < 0:
        raise WrongType(f"ddof is a count, got {render_argument(ddof)}", where=[location], fix="give 1, or 0")
    return ddof


def parse_choice(choices: type[C], given: object, what: str, location: SourceLocation) -> C:
    """Look up a member of `choices` by value. Raises `WrongType`."""
    try:
        return choices(given)
    except ValueError:
        known = ", ".join(repr(c.value) for c in choices)
        raise WrongType(
            f"{what} got {render_argument(given)}", where=[location], fix=f"one of {known}"
        ) from None


# -- decay ---------------------------------------------------------------------------------------------

_RANGES = {
    "com": (0.0, "at least 0"),
    "span": (1.0, "at least 1"),
    "halflife": (0.0, "above 0"),
    "alpha": (0.0, "above 0 and at most 1"),
}


def build_decay(said: dict[str, Any], adjust: bool, ignore_na: bool, location: SourceLocation) -> Decay:
    """Build the decay from exactly one parameter. Raises `WrongType` for none or several."""
    said = {how: value for how, value in said.items() if value is not None}
    if len(said) != 1:
        raise WrongType(
            f"ewm needs one of com, span, halflife, alpha; got {' and '.join(said) or 'none'}",
            where=[location],
            why="Each of them says how fast weights fall.",
            fix="a.ewm(span=10)",
        )
    ((how, value),) = said.items()
    if how == "halflife" and isinstance(value, str | timedelta):
        if not adjust or ignore_na:
            raise WrongType(
                f"an ewm by time has no {'ignore_na' if ignore_na else 'adjust=False'}",
                where=[location],
                why="Its weights fall with time, whatever comes.",
                fix="leave it out, or give a half life in values",
            )
        return Decay(half_life=parse_span("halflife", value, location))
    return Decay(alpha=_alpha(how, value, location), adjust=adjust, ignore_na=ignore_na)


def _alpha(how: str, value: object, location: SourceLocation) -> float:
    least, said = _RANGES[how]
    fits = isinstance(value, int | float) and not isinstance(value, bool) and least <= value < float("inf")
    if not fits or (value == 0 and how != "com") or (how == "alpha" and value > 1):  # type: ignore[operator]
        raise WrongType(
            f"{how} is {said}, got {render_argument(value)}", where=[location], fix="a.ewm(span=10)"
        )
    number = float(value)  # type: ignore[arg-type]
    match how:
        case "com":
            return 1 / (1 + number)
        case "span":
            return 2 / (number + 1)
        case "halflife":
            return 1 - 0.5 ** (1 / number)
        case _:
            return number


@dataclass(frozen=True, slots=True)
class StatisticSignal(SignalOperator):
    """Statistic of one or two signals, with a time signal if it needs times.

    It is activated when a signal of values fires and all have a value, at the current time. Statistics that
    wait for time to pass are also activated by the time alone. It is silent until it has enough values.

    >>> import headrace as hr
    >>> flow = hr.Flow("moving mean")
    >>> flow.sink("mean", flow.signal("a", float).moving(2).mean())
    >>> list(hr.Engine(flow).replay(a=[1.0, 2.0, 4.0])["mean"])
    [(1, 1.5), (2, 3.0)]
    """

    kind: ClassVar[str] = "statistic"
    plan_name: ClassVar[str | None] = "signal.statistic"
    statistic: Statistic
    holes: Holes = Holes.NAN_NONE
    times: Times = Times.EITHER

    def ports(self) -> tuple[Port, ...]:
        values = (Port("values"), Port("other values"))[: self.statistic.inputs]
        return (*values, Port("times")) if self.statistic.reads_time else values

    def output(self, context: CheckContext) -> Columns:
        statistic, location = self.statistic, context.location
        statistic.check(context.require)
        values = context.inputs[: statistic.inputs]
        if statistic.numbers:
            for schema in values:
                check_numbers(statistic.kind, schema, location)
        holes = max(map(missing_kind, values), key=list(Holes).index, default=Holes.NONE)
        times = Times.EITHER
        if statistic.reads_time:
            check_times(context.inputs[-1], location)
            times = time_kind(context.inputs[-1])
        context.require((self.holes, self.times) == (holes, times), "values and times are of other types")
        return schema_of_result(statistic.result, context.input).fields

    def triggers(self) -> tuple[int, ...]:
        heard = len(self.ports()) if self.statistic.waits_for_time else self.statistic.inputs
        return tuple(range(heard))

    def reads_every_value(self) -> tuple[int, ...]:
        return tuple(range(self.statistic.inputs))

    def tells_inputs_apart(self) -> bool:
        return self.statistic.waits_for_time

    def waits_for_all(self) -> bool:
        return True

    def may_be_silent(self) -> bool:
        return self.statistic.may_be_silent

    def is_steady(self) -> bool:
        return self.statistic.is_steady

    def describe(self) -> str:
        described = self.statistic.describe()
        return f"{self.statistic.kind}: {described}" if described else self.statistic.kind


@register_signal_step(StatisticSignal)
class StatisticStep(SignalStep):
    """Step of a statistic, which inlines its kernel in the function."""

    operator: StatisticSignal

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        operator, statistic = self.operator, self.operator.statistic
        self._kernel = kernel_of(statistic, InputValues(statistic.inputs, operator.holes, operator.times))

    def cells(self) -> tuple[SignalCell, ...]:
        return tuple(as_cell(v) for v in self._kernel.variables)

    def write(self, writer: SignalWriter, *inputs: str) -> SignalOutcome:
        source = self._names(writer, inputs)
        for line in self._kernel.lines:
            writer.code.line(rename_variables(line, source))
        fires = self._kernel.fires
        condition = rename_variables(fires, source) if self.operator.may_be_silent() else None
        return SignalOutcome(rename_variables(self._kernel.value, source), condition)

    def _names(self, writer: SignalWriter, inputs: tuple[str, ...]) -> Callable[[str], str]:
        """Return the names of the kernel's variables in generated code."""
        names: dict[str, str] = dict(zip(("x", "y")[: self.operator.statistic.inputs], inputs))
        if self.operator.statistic.reads_time:
            names["t"] = inputs[-1]
        cells = {v.name for v in self._kernel.variables}

        def name(wanted: str) -> str:
            if wanted not in names:
                names[wanted] = self._new_name(writer, wanted, cells)
            return names[wanted]

        return name

    def _new_name(self, writer: SignalWriter, wanted: str, cells: set[str]) -> str:
        if wanted in cells:
            return writer.cell(self.node, wanted)
        if wanted in FUNCTIONS:
            return writer.constant(wanted, FUNCTIONS[wanted])
        if wanted in self._kernel.constants:
            return writer.constant(wanted, self._kernel.constants[wanted])
        if wanted == "fresh":
            fired = [writer.fired_test(self.node, port) for port in range(self.operator.statistic.inputs)]
            return "True" if None in fired else f"({' or '.join(f for f in fired if f)})"
        return writer.fresh(wanted)


def as_cell(variable: KernelVariable) -> SignalCell:
    def first() -> Any:
        return variable.first(FUNCTIONS)

    return SignalCell(
        variable.name,
        first,
        partial(_nested, lists=variable.lists, made=tuple),
        partial(_nested, lists=variable.lists, made=list),
    )


def _nested(value: Any, *, lists: int, made: Callable[[Any], Any]) -> Any:
    """Copy the nested lists of `value`."""
    if not lists:
        return value
    return made([_nested(v, lists=lists - 1, made=made) for v in value])
