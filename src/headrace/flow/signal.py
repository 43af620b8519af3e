"""Signals: values over time that support Python's operators.

`d = (a + 1) / (a + 2)` is a signal that fires once in each tick in which `a`
fires, with the quotient of this tick.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, cast

from typing_extensions import TypeVar

from headrace.errors import ExpressionTruthValue, SourceLocation, WrongType
from headrace.expr.row_classes import schema_of
from headrace.flow.signal_statistics import SignalStatistics
from headrace.flow.stream_base import Output
from headrace.operators.column_arguments import ANY_VALUE, render_argument
from headrace.operators.signals.earlier_values import (
    DelaySignal,
    FilterSignal,
    NoRepeats,
    Sample,
    ScanSignal,
    ValueRows,
    WhenSignal,
    WindowSignal,
)
from headrace.operators.signals.lift import Align, Argument, Constant, Lift

if TYPE_CHECKING:
    from headrace.expr.types import Schema
    from headrace.flow.flow import Flow
    from headrace.flow.stream import Stream
    from headrace.flow.stream_base import Append, Ordered, Unbounded
    from headrace.graph.node import Operator

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
U = TypeVar("U")


_NOT_GIVEN: Any = object()

# The stubs of these functions have no types that a strict checker accepts.
python: Any = operator


class Signal(Output, SignalStatistics, Generic[T_co]):
    """Value over time, which fires at most once per tick and otherwise keeps its last value.

    Signals are created by `flow.signal(...)`, `stream.latest()`, Python's operators on signals, `lift`, and
    the methods below. Each of these adds an operator to the flow.
    """

    __slots__ = ()

    @property
    def flow(self) -> Flow:
        """Flow that contains the signal."""
        return cast("Flow", self._flow)

    def __repr__(self) -> str:
        return f"Signal({self._flow.name!r}, {self._flow.node(self._id).name})"

    def add(
        self,
        operator: Operator,
        location: SourceLocation,
        others: tuple[Signal[Any], ...] = (),
        *,
        schema: Schema = ANY_VALUE,
        name: str | None = None,
    ) -> Signal[Any]:
        """Add an operator on this signal and `others`, and return its output."""
        stream = self._flow.add(operator, schema, (self, *others), name, location)
        return Signal(self._flow, stream.node_id, schema)

    # -- selection -----------------------------------------------------------------------------

    def filter(
        self, predicate: Callable[[T_co], object] | Signal[Any], *, name: str | None = None
    ) -> Signal[T_co]:
        """The values that satisfy `predicate` (see `operators.signals.earlier_values`).

        predicate: a function of a value; or a signal, to keep the values while it is true (see
                   `operators.signals.earlier_values`).
        """
        location = SourceLocation.of_caller()
        if isinstance(predicate, Signal):
            condition = cast("Signal[Any]", predicate)
            return self.add(WhenSignal(), location, (condition,), schema=self._schema, name=name)
        check_function("filter", predicate, location)
        return self.add(FilterSignal(predicate), location, schema=self._schema, name=name)

    def changes(self, *, name: str | None = None) -> Signal[T_co]:
        """The values that differ from the previous one (see `operators.signals.earlier_values`)."""
        return self.add(NoRepeats(), SourceLocation.of_caller(), schema=self._schema, name=name)

    def sample(self, trigger: Signal[Any], *, name: str | None = None) -> Signal[T_co]:
        """The current value whenever `trigger` fires (see `operators.signals.earlier_values`)."""
        location = SourceLocation.of_caller()
        check_signal("sample", trigger, location)
        return self.add(Sample(), location, (trigger,), schema=self._schema, name=name)

    # -- history ---------------------------------------------------------------------------------

    def scan(self, init: U, function: Callable[[U, T_co], U], *, name: str | None = None) -> Signal[U]:
        """Accumulate the values, starting with `init` (see `operators.signals.earlier_values`)."""
        location = SourceLocation.of_caller()
        check_function("scan", function, location)
        return self.add(ScanSignal(init, function), location, name=name)

    def window(
        self,
        size: int,
        function: Callable[[list[Any]], U] = list,
        *,
        full: bool = False,
        name: str | None = None,
    ) -> Signal[U]:
        """Apply a function to the last `size` values (see `operators.signals.earlier_values`)."""
        location = SourceLocation.of_caller()
        check_function("window", function, location)
        check_count("window", size, location)
        return self.add(WindowSignal(size, function, full), location, name=name)

    def delay(self, count: int = 1, *, init: Any = _NOT_GIVEN, name: str | None = None) -> Signal[Any]:
        """The value `count` firings ago (see `operators.signals.earlier_values`).

        init: value for the first `count` firings; without it, the result does not fire for these.
        """
        location = SourceLocation.of_caller()
        check_count("delay", count, location)
        initial = None if init is _NOT_GIVEN else Constant(init)
        schema = self._schema if initial is None else ANY_VALUE
        return self.add(DelaySignal(count, initial), location, schema=schema, name=name)

    def lag(self, count: int = 1, *, init: Any = _NOT_GIVEN, name: str | None = None) -> Signal[Any]:
        """Alias of `delay`, under its usual name in statistics."""
        return self.delay(count, init=init, name=name)

    # -- to a stream -----------------------------------------------------------------------------

    def stream(
        self, rows: type[U] | None = None, *, name: str | None = None
    ) -> Stream[U, Unbounded, Append, Ordered]:
        """The values as a stream, one row per firing (see `operators.signals.earlier_values`).

        rows: type of the values; a value of another type raises `BadRow`. By default the type of the source;
              for computed values `object`, which means any value.
        """
        schema = self._schema if rows is None else schema_of(rows)
        return self._flow.add(ValueRows(), schema, (self,), name, SourceLocation.of_caller())

    # -- Python's operators ------------------------------------------------------------------------

    def __bool__(self) -> NoReturn:
        raise ExpressionTruthValue(
            "a signal has no truth value while the flow is being built",
            where=[SourceLocation.of_caller()],
            why="`and`, `or`, `not`, `if` and `in` ask for one; so does a chained comparison.",
            fix="use `&`, `|`, `~`, or a function of values: hr.lift(function)(a, b)",
        )

    def __iter__(self) -> NoReturn:
        raise WrongType(
            f"a signal cannot be iterated: {self!r}",
            where=[SourceLocation.of_caller()],
            fix="index it, signal[0], or take it apart in a function: hr.lift(function)(signal)",
        )

    def __contains__(self, value: object) -> NoReturn:
        self.__bool__()

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Signal[bool]:  # type: ignore[override]
        return apply(python.eq, self, other)

    def __ne__(self, other: object) -> Signal[bool]:  # type: ignore[override]
        return apply(python.ne, self, other)

    def __lt__(self, other: object) -> Signal[bool]:
        return apply(python.lt, self, other)

    def __le__(self, other: object) -> Signal[bool]:
        return apply(python.le, self, other)

    def __gt__(self, other: object) -> Signal[bool]:
        return apply(python.gt, self, other)

    def __ge__(self, other: object) -> Signal[bool]:
        return apply(python.ge, self, other)

    def __add__(self, other: object) -> Signal[Any]:
        return apply(python.add, self, other)

    def __radd__(self, other: object) -> Signal[Any]:
        return apply(python.add, other, self)

    def __sub__(self, other: object) -> Signal[Any]:
        return apply(python.sub, self, other)

    def __rsub__(self, other: object) -> Signal[Any]:
        return apply(python.sub, other, self)

    def __mul__(self, other: object) -> Signal[Any]:
        return apply(python.mul, self, other)

    def __rmul__(self, other: object) -> Signal[Any]:
        return apply(python.mul, other, self)

    def __truediv__(self, other: object) -> Signal[Any]:
        return apply(python.truediv, self, other)

    def __rtruediv__(self, other: object) -> Signal[Any]:
        return apply(python.truediv, other, self)

    def __floordiv__(self, other: object) -> Signal[Any]:
        return apply(python.floordiv, self, other)

    def __rfloordiv__(self, other: object) -> Signal[Any]:
        return apply(python.floordiv, other, self)

    def __mod__(self, other: object) -> Signal[Any]:
        return apply(python.mod, self, other)

    def __rmod__(self, other: object) -> Signal[Any]:
        return apply(python.mod, other, self)

    def __pow__(self, other: object) -> Signal[Any]:
        return apply(python.pow, self, other)

    def __rpow__(self, other: object) -> Signal[Any]:
        return apply(python.pow, other, self)

    def __matmul__(self, other: object) -> Signal[Any]:
        return apply(python.matmul, self, other)

    def __rmatmul__(self, other: object) -> Signal[Any]:
        return apply(python.matmul, other, self)

    def __lshift__(self, other: object) -> Signal[Any]:
        return apply(python.lshift, self, other)

    def __rlshift__(self, other: object) -> Signal[Any]:
        return apply(python.lshift, other, self)

    def __rshift__(self, other: object) -> Signal[Any]:
        return apply(python.rshift, self, other)

    def __rrshift__(self, other: object) -> Signal[Any]:
        return apply(python.rshift, other, self)

    def __and__(self, other: object) -> Signal[Any]:
        return apply(python.and_, self, other)

    def __rand__(self, other: object) -> Signal[Any]:
        return apply(python.and_, other, self)

    def __or__(self, other: object) -> Signal[Any]:
        return apply(python.or_, self, other)

    def __ror__(self, other: object) -> Signal[Any]:
        return apply(python.or_, other, self)

    def __xor__(self, other: object) -> Signal[Any]:
        return apply(python.xor, self, other)

    def __rxor__(self, other: object) -> Signal[Any]:
        return apply(python.xor, other, self)

    def __invert__(self) -> Signal[Any]:
        return apply(python.invert, self)

    def __neg__(self) -> Signal[Any]:
        return apply(python.neg, self)

    def __pos__(self) -> Signal[Any]:
        return apply(python.pos, self)

    def __abs__(self) -> Signal[Any]:
        return apply(builtins.abs, self)

    def __getitem__(self, key: object) -> Signal[Any]:
        return apply(python.getitem, self, key)


def apply(
    function: Callable[..., object],
    *given: object,
    align: Align = Align.LATEST,
    name: str | None = None,
) -> Signal[Any]:
    """Apply `function` to signals and constants, at least one of them a signal."""
    location = SourceLocation.of_caller()
    signals = [cast("Signal[Any]", g) for g in given if isinstance(g, Signal)]
    if not signals:
        raise WrongType(
            "lift needs a signal among its arguments",
            where=[location],
            why="What depends on no signal never fires.",
            fix="call the function itself, and use its result as a constant",
        )
    arguments: list[Argument] = []
    ports = 0
    for value in given:
        if isinstance(value, Signal):
            arguments.append(ports)
            ports += 1
        else:
            _refuse_streams(value, location)
            arguments.append(Constant(value))
    operator = Lift(function, tuple(arguments), align)
    return signals[0].add(operator, location, tuple(signals[1:]), name=name)


def lift(
    function: Callable[..., U], *, align: Literal["latest", "zip"] = "latest", name: str | None = None
) -> Callable[..., Signal[U]]:
    """Turn a function of values into a function of signals and constants (see `operators.signals.lift`).

    align: rule that matches values: "latest" combines the current ones; "zip" those at the same position.
    name:  name of the operator that the call adds.

    >>> import headrace as hr
    >>> flow = hr.Flow("the larger one")
    >>> a, b = flow.signal("a", int), flow.signal("b", int)
    >>> flow.sink("larger", hr.lift(max)(a, b, 0))
    >>> list(hr.Engine(flow).replay(a=[1, -1], b=[3, -3])["larger"])
    [(0, 3), (1, 0)]
    """
    location = SourceLocation.of_caller()
    check_function("lift", function, location)
    try:
        alignment = Align(align)
    except ValueError:
        raise WrongType(
            f"lift got align {render_argument(align)}",
            where=[location],
            fix='"latest" (the default) or "zip"',
        ) from None

    def lifted(*given: object) -> Signal[U]:
        return apply(function, *given, align=alignment, name=name)

    return lifted


def check_function(what: str, function: Any, location: SourceLocation) -> None:
    """Raise `WrongType` unless a value is callable."""
    if not callable(function) or isinstance(function, Signal):
        raise WrongType(
            f"{what} needs a function of values, got {render_argument(cast(Any, function))}",
            where=[location],
            fix="give a function, which is called with values and not with signals",
        )


def check_signal(what: str, signal: Any, location: SourceLocation) -> None:
    """Raise `WrongType` unless a value is a signal."""
    if not isinstance(signal, Signal):
        raise WrongType(
            f"{what} needs a signal, got {render_argument(signal)}",
            where=[location],
            fix="flow.signal(...), or .latest() of a stream",
        )


def check_count(what: str, count: Any, location: SourceLocation) -> None:
    """Raise `WrongType` unless a value is an int of at least 1."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise WrongType(
            f"{what} needs a count of at least 1, got {render_argument(count)}",
            where=[location],
            fix="give a whole number",
        )


def _refuse_streams(value: object, location: SourceLocation) -> None:
    if isinstance(value, Output):
        raise WrongType(
            "a stream is no value: it brings any number of rows in a tick",
            where=[location],
            fix="take its last row of each tick, stream.latest()",
        )
