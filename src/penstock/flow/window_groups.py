"""A stream with group keys and windows: half of an aggregation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, overload

from typing_extensions import TypeVar

from penstock.errors import SourceLocation, WrongType
from penstock.expr.check import check
from penstock.expr.tree import Expr
from penstock.expr.types import Field
from penstock.flow.columns import check_named, own_keywords, shown
from penstock.flow.event_time import watermark_of
from penstock.flow.grouped import answer_schema
from penstock.flow.markers import Changes, NoOrder, Unbounded
from penstock.flow.operators.window import END, START, Emit, Window
from penstock.flow.spans import TIME_TYPES
from penstock.flow.windows import Windows

if TYPE_CHECKING:
    from penstock.flow.aggregates import Aggregation
    from penstock.flow.stream import Stream
    from penstock.flow.windows import Shape

R = TypeVar("R")
B = TypeVar("B", bound=Unbounded, covariant=True, default=Unbounded)
G = TypeVar("G", bound=Changes, covariant=True, default=Changes)
O = TypeVar("O", bound=NoOrder, covariant=True, default=NoOrder)


class WindowGroups(Generic[B, G, O]):
    """A stream with group keys and windows, waiting for `agg`."""

    __slots__ = ("_emit", "_keys", "_shape", "_stream", "_time", "_watermark")

    def __init__(
        self,
        stream: Stream[Any, B, Any, Any],
        keys: tuple[tuple[str, Expr], ...],
        windows: Windows,
        emit: object,
        location: SourceLocation,
    ) -> None:
        """Raises `WrongType` for what is no time, `BadFlow` for one without a watermark."""
        self._stream = stream
        self._keys = keys
        self._emit = _emit(emit, location)
        self._time = windows.time
        self._shape = _shape(stream, windows, location)
        self._watermark = watermark_of(stream, windows.time, "windows", location)

    @overload
    def agg(
        self, *, into: type[R], name: str | Aggregation | None = None, **named: Aggregation
    ) -> Stream[R, B, G, O]: ...
    @overload
    def agg(self, *, name: str | Aggregation | None = None, **named: Aggregation) -> Stream[Any, B, G, O]: ...
    def agg(self, *unnamed: Any, **named: Any) -> Stream[Any, B, Any, Any]:
        """One row per group and window: the keys, `window_start`, `window_end`, then these aggregates.

        See `operators.window`. `into` and `name` are as in `Stream.select`.
        """
        location = SourceLocation.of_caller()
        check_named("agg takes aggregates", unnamed, "total=ps.sum(ps.col.price)", location)
        into, name = own_keywords(named)
        schema = self._stream.schema
        type_ = check(self._time, schema).type
        borders = (Field(START, type_), Field(END, type_))
        result = answer_schema(schema, self._keys, borders, named, into, location)
        operator = Window(self._keys, self._time, self._shape, tuple(named.items()), self._emit)
        return self._stream.flow.add(operator, result, (self._stream, self._watermark), name, location)


def _shape(stream: Stream[Any, Any, Any, Any], windows: Windows, location: SourceLocation) -> Shape:
    time = check(windows.time, stream.schema)
    if time.type not in TIME_TYPES:
        raise WrongType(
            f"windows need a time, got {time.type}: {windows.time}",
            where=[location],
            why="Times are timestamps, and numbers that count time.",
            fix="cast() it to a timestamp, or let .to_timestamp() read it from text",
        )
    if time.nullable:
        raise WrongType(
            f"the time of windows may be null: {windows.time}",
            where=[location],
            why="A row without a time is in no window.",
            fix="use the column that the watermark is on, where rows without a time are late",
        )
    return windows.shape(time.type, location)


def _emit(given: object, location: SourceLocation) -> Emit:
    try:
        return Emit(given)
    except ValueError:
        raise WrongType(
            f"windows cannot emit {shown(given)}",
            where=[location],
            fix='"close": each window once, when it closes; "updates": with every change until then',
        ) from None
