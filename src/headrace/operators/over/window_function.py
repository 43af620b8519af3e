"""Window functions as data: `hr.row_number().over(partition_by="shop", order_by=col.price)` and the like.

Their meaning is SQL's, as Spark has it. A partition's rows are ordered by `order_by`; rows that it holds
equal are peers. Functions that tell peers apart (`row_number`, `ntile`, `lag`, `lead`, frames of rows) take
them in the order of the whole row, ascending, so that answers depend only on the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

from headrace.errors import SourceLocation, WrongType
from headrace.expr.check import check, check_ordered
from headrace.expr.tree import Column, Expr, Ordering, operand
from headrace.expr.types import (
    DateType,
    DecimalType,
    Field,
    Float32Type,
    Float64Type,
    IntegerType,
    IntervalType,
    TimestampNtzType,
)
from headrace.expr.types import TimestampType as _TimestampType
from headrace.shown import Shown

if TYPE_CHECKING:
    from headrace.expr.types import DataType, Schema


@dataclass(frozen=True, slots=True, order=True)
class Months:
    """Distance of dates or times in months of the calendar; a day missing in a month becomes its last."""

    count: int = 0

    def __bool__(self) -> bool:
        return self.count != 0

    def __str__(self) -> str:
        return f"{self.count} months"


Offset: TypeAlias = int | float | Decimal | timedelta | Months


class FrameUnit(Enum):
    """Unit of frame bounds: rows, or differences of the sort value."""

    ROWS = "rows"
    RANGE = "range"


class RecomputeScope(Enum):
    """Rows of a partition to recompute when one of them changes, from few to all."""

    NEAR = "the rows near it"
    BEHIND = "the rows behind it"
    PARTITION = "its partition"


@dataclass(frozen=True, slots=True)
class WindowFrame:
    """Rows around each row that a function reads. A bound is an offset, negative before; None: unbounded."""

    described_as: ClassVar[str] = "Frame"

    unit: FrameUnit
    start: Offset | None
    end: Offset | None

    def __str__(self) -> str:
        start = "unbounded" if self.start is None else self.start
        return f"{self.unit.value} {start} to {'unbounded' if self.end is None else self.end}"

    @property
    def measures_values(self) -> bool:
        """Return whether a bound is a distance between ordering values."""
        return self.unit is FrameUnit.RANGE and bool(self.start or self.end)

    @property
    def may_be_empty(self) -> bool:
        """Return whether a row may lie outside its own frame."""
        start: Any = self.start
        end: Any = self.end
        return (start is not None and start > type(start)()) or (end is not None and end < type(end)())


class WindowFunction(Shown, ABC):
    """Base of the functions that require `over`, which aggregate functions support, too.

    ordered: it has no meaning without `order_by`. framed: it reads the rows of a frame.
    """

    __slots__ = ()
    ordered: ClassVar[bool] = True
    framed: ClassVar[bool] = False

    def is_possible(self) -> bool:
        """Return whether its numeric parameters, such as the number of a row, are valid."""
        return True

    def over(
        self,
        *,
        partition_by: str | Expr | Sequence[str | Expr] = (),
        order_by: str | Expr | Ordering | Sequence[str | Expr | Ordering] = (),
        rows: tuple[int | None, int | None] | None = None,
        range: tuple[Offset | None, Offset | None] | None = None,
    ) -> Over:
        """Compute this over each row's partition, as a column for `with_columns`.

        partition_by: columns or expressions whose equal values make a partition; none: all rows are one.
        order_by:     columns, expressions, `.desc()` of them.
        rows:         frame by positions: `(-2, 0)` is the row and the two before it; None is no bound.
        range:        frame by the distance of the value that is ordered by: `(-timedelta(days=7), 0)`.

        Without a frame, it is that of all rows up to the last peer with `order_by`, else the whole partition.
        Raises `WrongType` for two frames, for a frame of a function that has none, and for a missing order.
        """
        location = SourceLocation.of_caller()
        name = str(self)
        if rows is not None and range is not None:
            raise WrongType(f"{name} has two frames", where=[location], fix="give rows= or range=")
        given = rows if range is None else range
        if given is not None and not self.framed:
            raise WrongType(f"{name} has no frame", where=[location], fix="leave out rows= and range=")
        by = orderings_of(order_by)
        if self.ordered and not by:
            raise WrongType(f"{name} needs an order", where=[location], fix="give order_by=")
        frame = None
        if self.framed:
            frame = WindowFrame(FrameUnit.RANGE, None, 0 if by else None)
            if given is not None:
                frame = WindowFrame(
                    FrameUnit.ROWS if range is None else FrameUnit.RANGE, *_bounds(given, location)
                )
        per = tuple(_expression(each) for each in _several(partition_by))
        return Over(self, per, by, frame)

    @property
    def of_no_rows(self) -> Any:
        """The result for a frame without rows."""
        return None

    def reach(self, frame: WindowFrame | None) -> RecomputeScope:
        """Return the scope affected by a changed row: nearby rows, or the whole partition."""
        bounded = frame is not None and frame.start is not None and frame.end is not None
        near = bounded and (frame is None or frame.unit is FrameUnit.ROWS or frame.measures_values)
        return RecomputeScope.NEAR if near else RecomputeScope.PARTITION

    @abstractmethod
    def field(self, name: str, schema: Schema) -> Field:
        """Return the output column. Raises `WrongType`, and the errors of invalid arguments."""

    @abstractmethod
    def arguments(self) -> tuple[Expr, ...]:
        """Expressions over the input columns."""


def _several(given: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", given) if isinstance(given, list | tuple) else (given,)


def _expression(given: str | Expr) -> Expr:
    return Column(given) if isinstance(given, str) else operand(given)


def orderings_of(given: str | Expr | Ordering | Sequence[str | Expr | Ordering]) -> tuple[Ordering, ...]:
    """Convert an `order_by` argument to orderings."""
    return tuple(_ordering(each) for each in _several(given))


def _ordering(given: str | Expr | Ordering) -> Ordering:
    return given if isinstance(given, Ordering) else Ordering(_expression(given))


def _bounds(given: Any, location: SourceLocation) -> tuple[Any, Any]:
    pair = cast("tuple[Any, ...]", given)
    if not isinstance(given, tuple) or len(pair) != 2:
        raise WrongType(
            f"a frame is {given!r}", where=[location], fix="give two bounds: (-2, 0), (None, 0), (0, None)"
        )
    return pair[0], pair[1]


@dataclass(frozen=True, slots=True)
class Over:
    """Window function over the partitions of a stream: `function OVER (per, by, frame)`."""

    function: WindowFunction
    per: tuple[Expr, ...]
    by: tuple[Ordering, ...]
    frame: WindowFrame | None

    def field(self, name: str, schema: Schema) -> Field:
        """Return the output column. Raises `WrongType`, and the errors of invalid arguments."""
        made = self.function.field(name, schema)
        for ordering in self.by:
            check_ordered(ordering.expr, schema)
        if self.frame is None:
            return made
        _check_frame(self.frame, self.by, schema)
        empty_is_null = self.frame.may_be_empty and self.function.of_no_rows is None
        return Field(name, made.type, made.nullable or empty_is_null)

    def shares_partitions(self, other: Over) -> bool:
        """Return whether another function has the same partitions and order."""
        return repr((self.per, self.by)) == repr((other.per, other.by))

    def __str__(self) -> str:
        return str(self.function) if self.frame is None else f"{self.function} of {self.frame}"


_OFFSETS: tuple[tuple[tuple[type[DataType], ...], tuple[type, ...]], ...] = (
    ((IntegerType,), (int,)),
    ((Float32Type, Float64Type), (int, float)),
    ((DecimalType,), (int, Decimal)),
    ((DateType,), (int, timedelta, Months)),
    ((_TimestampType, TimestampNtzType), (timedelta, Months)),
    ((IntervalType,), (timedelta,)),
)


def measured_by(by: Sequence[Ordering]) -> Ordering | None:
    """Return the only ordering value, perhaps preceded by its null test; None for other orders."""
    *before, last = by
    if not before or repr([each.expr for each in before]) == repr([last.expr.is_null()]):
        return last
    return None


def _check_frame(frame: WindowFrame, by: Sequence[Ordering], schema: Schema) -> None:
    """Raise `WrongType` unless a frame fits the sort keys."""
    where = [SourceLocation.of_caller()]
    bounds: list[Any] = [bound for bound in (frame.start, frame.end) if bound is not None]
    if frame.unit is FrameUnit.ROWS:
        if not all(type(bound) is int for bound in bounds):
            raise WrongType(f"a frame counts rows by {frame}", where=where, fix="rows= takes whole numbers")
    elif any(bounds):
        measured = measured_by(by)
        if measured is None:
            raise WrongType(
                f"a frame is a range of values, {frame}, of {len(by)} columns",
                where=where,
                fix="order by one column, or count rows",
            )
        type_ = check(measured.expr, schema).type
        allowed = next((offsets for types, offsets in _OFFSETS if isinstance(type_, types)), ())
        if not all(not bound or type(bound) in allowed for bound in bounds):
            raise WrongType(
                f"a frame is a range of {type_}, {frame}",
                where=where,
                fix="give numbers for numbers, days for dates, timedelta for timestamps and intervals",
            )
        if len({isinstance(bound, Months) for bound in bounds if bound}) > 1:
            raise WrongType(f"a frame measures months and days, {frame}", where=where, fix="give one of them")
    if len(bounds) == 2 and _is_after(*bounds):
        raise WrongType(
            f"a frame ends before it starts: {frame}",
            where=where,
            fix="give the earlier bound first: (-2, 0)",
        )


def _is_after(start: Any, end: Any) -> bool:
    # The row itself is 0 of whatever the other bound is.
    if not start or not end:
        return start > type(start)() or end < type(end)()
    if isinstance(start, timedelta) or isinstance(end, timedelta):
        start, end = (timedelta(days=b) if isinstance(b, int) else b for b in (start, end))
    return start > end


def grouped_by_partition(named: Iterable[tuple[str, Over]]) -> list[list[tuple[str, Over]]]:
    """Group named window functions by partition and order, first seen first."""
    groups: list[list[tuple[str, Over]]] = []
    for name, over in named:
        for group in groups:
            if over.shares_partitions(group[0][1]):
                group.append((name, over))
                break
        else:
            groups.append([(name, over)])
    return groups
