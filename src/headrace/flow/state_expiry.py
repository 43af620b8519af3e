"""State expiry of distinct, first-within and join operators on streams with watermarks.

Answers are the same as without a watermark; only state is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headrace.errors import WrongType
from headrace.expr.tree import Call, Column, Expr, Literal
from headrace.expr.types import TIMESTAMP, DataType
from headrace.flow.timed_columns import rename_columns, times_of, watermark_of
from headrace.operators.distinct import DistinctOnTime
from headrace.operators.event_time.late_rows import FirstWithin
from headrace.operators.join.interval_join import JoinOnTime
from headrace.operators.join.join import How, Join
from headrace.operators.lifetime import Lifetime
from headrace.operators.time_spans import TIME_TYPES, span_in_unit

if TYPE_CHECKING:
    from headrace.errors import SourceLocation
    from headrace.expr.types import Schema
    from headrace.flow.output_handle import AnyStream, Output
    from headrace.operators.distinct import Distinct
    from headrace.operators.time_spans import GivenSpan, Span, Unit


def timed_columns(stream: Output) -> dict[str, DataType]:
    """Return the columns of a stream that are event times with a watermark, with their types."""
    times = times_of(stream.flow, stream.node_id)
    return {
        field.name: field.type
        for field in stream.schema.fields
        if field.name in times and field.type in TIME_TYPES and not field.nullable
    }


def add_distinct(stream: Output, operator: Distinct, name: str | None, location: SourceLocation) -> AnyStream:
    """Add a distinct over all rows so far, with state expiry if possible."""
    forgetting = expiring_distinct(stream, operator)
    if forgetting is None:
        return stream.flow.add(operator, stream.schema, (stream,), name, location)
    watermark = watermark_of(stream, Column(forgetting.time), "distinct", location)
    return stream.flow.add(forgetting, stream.schema, (stream, watermark), name, location)


def expiring_distinct(stream: Output, operator: Distinct) -> DistinctOnTime | None:
    """Return a distinct over `stream` with state expiry, or None if its state cannot expire."""
    timed = timed_columns(stream) if operator.lifetime is Lifetime.STATIC else {}
    for column, type_ in timed.items():
        return DistinctOnTime(operator.columns, column, _moment(type_))
    return None


def add_first_within(
    stream: Output,
    within: GivenSpan,
    keys: tuple[Expr, ...],
    time: str | None,
    unit: Unit | None,
    name: str | None,
    location: SourceLocation,
) -> AnyStream:
    """Add an operator that keeps the first of rows close in time. Raises `BadFlow`, `WrongType`."""
    timed = timed_columns(stream)
    if time is None and len(timed) > 1:
        raise WrongType(
            f"the rows have several times: {', '.join(timed)}",
            where=[location],
            fix=f'say which: time="{next(iter(timed))}"',
        )
    column = time if time is not None else next(iter(timed), "the rows")
    watermark = watermark_of(stream, Column(column), "first_within", location)
    span = span_in_unit(within, timed[column], unit, "the span", location)
    operator = FirstWithin(keys, column, span)
    return stream.flow.add(operator, stream.schema, (stream, watermark), name, location)


# -- joins -----------------------------------------------------------------------------------------


def add_inner_join(
    left: Output,
    right: Output,
    operator: Join,
    schema: Schema,
    name: str | None,
    location: SourceLocation,
) -> AnyStream | None:
    """Add an inner join with state expiry, or return None if its state cannot expire."""
    forgetting = expiring_join(left, right, operator)
    if forgetting is None:
        return None
    watermarks = (
        watermark_of(side, Column(time), "join", location)
        for side, time in zip((left, right), forgetting.times, strict=True)
    )
    return left.flow.add(forgetting, schema, (left, right, *watermarks), name, location)


def expiring_join(left: Output, right: Output, operator: Join) -> JoinOnTime | None:
    """Return an inner join with state expiry, or None if its state cannot expire."""
    if operator.how is not How.INNER or Lifetime.TICK in operator.lifetimes:
        return None
    width = len(left.schema.fields)
    names = dict(zip(operator.pair_names[width:], right.schema.names, strict=True))
    rights = timed_columns(right)
    for column, type_ in timed_columns(left).items():
        bounds = _Bounds(_in_pairs(operator, names), timedelta() if type_ == TIMESTAMP else 0)
        for in_pair, own in names.items():
            low, high = bounds.between(column, in_pair)
            if rights.get(own) == type_ and low is not None and high is not None:
                moment: Any = _moment(type_)
                span: Any = high - low
                return JoinOnTime(operator, (column, own), low, high, max(span, moment))
    return None


def _in_pairs(operator: Join, names: Mapping[str, str]) -> Iterator[Expr]:
    """Yield the conditions that hold for every pair, in terms of the pair's column names."""
    if operator.residual is not None:
        yield from _conjuncts(operator.residual)
    in_pair = {own: name for name, own in names.items()}
    for left, right in zip(operator.left_keys, operator.right_keys, strict=True):
        yield left == rename_columns(right, in_pair)


def _moment(type: DataType) -> Span:
    """Granularity of expiry: small compared with usual lateness, large compared with the clock's unit."""
    return timedelta(seconds=1) if type == TIMESTAMP else 1


class _Bounds:
    """Bounds on the differences of columns, derived from conditions.

    zero: the zero difference, of type `timedelta` for times and int for numbers.
    """

    def __init__(self, conditions: Iterable[Expr], zero: Any) -> None:
        self._zero = zero
        self._least: dict[tuple[str, str], Any] = {}
        for part in conditions:
            for smaller, greater in _orders(part):
                low, high = self._shifted(smaller), self._shifted(greater)
                if low is not None and high is not None:
                    # smaller + a <= greater + b, so greater - smaller >= a - b
                    self._note((low[0], high[0]), low[1] - high[1])

    def _note(self, pair: tuple[str, str], least: Any) -> None:
        known = self._least.get(pair)
        self._least[pair] = least if known is None else max(known, least)

    def between(self, left: str, right: str) -> tuple[Any, Any]:
        """Return the lower and upper bound of `right - left`; None where unbounded."""
        low, high = self._least.get((left, right)), self._least.get((right, left))
        return low, None if high is None else -high

    def _shifted(self, expr: Expr) -> tuple[str, Any] | None:
        """Split an expression into a column and an added constant; None for other expressions."""
        if isinstance(expr, Column):
            return expr.name, self._zero
        if not isinstance(expr, Call):
            return None
        inner, by = expr.arguments[0], _added(expr)
        if by is None and expr.function == "add":
            inner, by = expr.arguments[1], _added(Call("add", expr.arguments[::-1]))
        if type(by) is not type(self._zero):
            return None
        found = self._shifted(inner)
        return None if found is None else (found[0], found[1] + by)


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    if isinstance(condition, Call) and condition.function == "and":
        for argument in condition.arguments:
            yield from _conjuncts(argument)
    else:
        yield condition


def _orders(part: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Yield the pairs (smaller, greater) implied by a comparison."""
    if isinstance(part, Call) and len(part.arguments) == 2:
        one, other = part.arguments
        if part.function in ("lt", "le", "eq"):
            yield one, other
        if part.function in ("gt", "ge", "eq"):
            yield other, one


def _added(expr: Call) -> Any:
    """Constant that an expression adds to its first argument, or None."""
    if expr.function == "shift":
        return expr.options[0]
    if expr.function not in ("add", "subtract"):
        return None
    constant = expr.arguments[1]
    if not isinstance(constant, Literal) or type(constant.value) is not int:
        return None
    return constant.value if expr.function == "add" else -constant.value
