"""Operators derived from facts of streams: state that expires, and thresholds on monotone columns.

State of distinct, first-within and join operators expires on streams with watermarks. A threshold
(`at_least(...)`) is on a column that only grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headrace.errors import BadRow, NeedNotMet, SourceLocation, Step, WrongType
from headrace.expr.row_classes import computed_schema, from_user
from headrace.expr.tree import Column, Expr, FunctionCall, Literal
from headrace.expr.types import TIMESTAMP, DataType, Field, Schema
from headrace.flow.timed_columns import reaching_sources, rename_columns, times_of, watermark_of
from headrace.graph.check_context import CheckContext
from headrace.graph.operator_declarations import find_monotone_columns, introducing_operator
from headrace.operators.column_arguments import render_argument
from headrace.operators.distinct import Distinct, ExpiringDistinct
from headrace.operators.event_time.late_rows import FirstWithin
from headrace.operators.join.interval_join import IntervalJoin
from headrace.operators.join.join import How, Join
from headrace.operators.lattice_fold import AtLeast
from headrace.operators.lifetime import Lifetime
from headrace.operators.time_spans import TIME_TYPES, span_in_unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.flow.stream import Stream
    from headrace.flow.stream_base import AnyStream, Output
    from headrace.graph.node import Node, Operator
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


def expiring_distinct(stream: Output, operator: Distinct) -> ExpiringDistinct | None:
    """Return a distinct over `stream` with state expiry, or None if its state cannot expire."""
    timed = timed_columns(stream) if operator.lifetime is Lifetime.STATIC else {}
    for column, type_ in timed.items():
        return ExpiringDistinct(operator.columns, column, _moment(type_))
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


def expiring_join(left: Output, right: Output, operator: Join) -> IntervalJoin | None:
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
                return IntervalJoin(operator, (column, own), low, high, max(span, moment))
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
        if not isinstance(expr, FunctionCall):
            return None
        inner, by = expr.arguments[0], _added(expr)
        if by is None and expr.function == "add":
            inner, by = expr.arguments[1], _added(FunctionCall("add", expr.arguments[::-1]))
        if type(by) is not type(self._zero):
            return None
        found = self._shifted(inner)
        return None if found is None else (found[0], found[1] + by)


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    if isinstance(condition, FunctionCall) and condition.function == "and":
        for argument in condition.arguments:
            yield from _conjuncts(argument)
    else:
        yield condition


def _orders(part: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Yield the pairs (smaller, greater) implied by a comparison."""
    if isinstance(part, FunctionCall) and len(part.arguments) == 2:
        one, other = part.arguments
        if part.function in ("lt", "le", "eq"):
            yield one, other
        if part.function in ("gt", "ge", "eq"):
            yield other, one


def _added(expr: FunctionCall) -> Any:
    """Constant that an expression adds to its first argument, or None."""
    if expr.function == "shift":
        return expr.options[0]
    if expr.function not in ("add", "subtract"):
        return None
    constant = expr.arguments[1]
    if not isinstance(constant, Literal) or type(constant.value) is not int:
        return None
    return constant.value if expr.function == "add" else -constant.value


def threshold(
    stream: Output,
    value: object,
    column: Column | str | None,
    location: SourceLocation,
) -> tuple[AtLeast, Schema]:
    """Return the threshold operator and its output schema: the keys, then the threshold.

    Raises `NeedNotMet` unless the column is monotone by construction; the analysis checks for retractions.
    """
    nodes, schema = stream.flow.nodes, stream.schema
    growth = find_monotone_columns(nodes, stream.node_id)
    growing = tuple(growth.columns) if growth is not None else ()
    if not isinstance(column, Column | str | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WrongType(
            f"at_least needs a column, got {render_argument(column)}",
            where=[location],
            fix='at_least(100, column="n")',
        )
    named = column.name if isinstance(column, Column) else column
    name = named if named is not None else growing[0] if len(growing) == 1 else None
    if name is None and growing:
        raise WrongType(
            "at_least does not know which column is meant",
            where=[location],
            why=f"Several only grow: {', '.join(growing)}.",
            fix=f"say it: at_least(..., column={growing[0]!r})",
        )
    if name is not None and schema.position(name) is None:
        raise WrongType(
            f"at_least has no column {name!r}",
            where=[location],
            why=f"The rows have {schema}.",
            fix=f"one that only grows: {', '.join(growing)}" if growing else "a column that only grows",
            column=name,
        )
    if growth is None or name is None or name not in growth.columns:
        raise _refused(
            introducing_operator(nodes, stream.node_id), nodes[stream.node_id].name, location, name
        )
    fields = {f.name: f for f in schema.fields}
    checked = _checked(value, fields[name], location)
    row = (*(fields[key] for key in growth.keys), Field(name, fields[name].type))
    keys = tuple(Column(key) for key in growth.keys)
    result = computed_schema(row)
    if not keys and schema.scalar:
        result = Schema(row, schema.row_class, scalar=True)
    return AtLeast(checked, name, keys, growth.columns[name]), result


def _checked(value: object, field: Field, location: SourceLocation) -> object:
    """Convert the threshold to the column's internal value. Raises `WrongType` for another type."""
    try:
        ((checked,),) = from_user(Schema((Field(field.name, field.type),), scalar=True), what="it")([value])
    except BadRow as error:
        raise WrongType(
            f"at_least of {field.name!r} needs a threshold of type {field.type}, "
            f"got {render_argument(value)}",
            where=[location],
            why=error.why,
            fix="a value that the column may have",
            column=field.name,
        ) from None
    return checked


def _refused(maker: Node, node: str, location: SourceLocation, column: str | None) -> NeedNotMet:
    what = "at_least needs a value that only grows"
    if column is not None:
        what = f"at_least needs {column!r} to only grow, and it may fall"
    note = "nothing that is made here only grows" if column is None else f"{column!r} is made here"
    end = "what passed the threshold is never taken back"
    same = maker.location == location
    return NeedNotMet(
        what,
        where=[Step(location, f"{note}; {end}")]
        if same
        else [Step(maker.location, note), Step(location, end)],
        why="Of a value that falls again, it would have been wrong to say that it had come so far.",
        fix="read count(), max() or count_distinct() of rows that are only added, lattice_fold(...),\n"
        "or a fold that claims monotone=True; of a value that may fall, filter(...) the table",
        node=node,
        fact="grows",
    )


class FlowContext(CheckContext):
    """Check context over streams of a flow. Subclasses add `refused` and `check_name`."""

    def __init__(
        self, streams: Sequence[Stream[Any, Any, Any, Any]], output: Schema, location: SourceLocation
    ) -> None:
        super().__init__([stream.schema for stream in streams], output, location)
        self.streams = tuple(streams)

    def upstream(self, port: int) -> Operator:
        stream = self.streams[port]
        return stream.flow.node(stream.node_id).operator

    def sources_reaching(self, port: int) -> tuple[str, ...]:
        stream = self.streams[port]
        return reaching_sources(stream.flow, stream.node_id)

    def timed_columns(self, port: int) -> Mapping[str, DataType]:
        return timed_columns(self.streams[port])

    def require_watermark(self, port: int, time: Expr, rows: int) -> None:
        stream = self.streams[rows]
        before = len(stream.flow.nodes)
        watermark = watermark_of(stream, time, "it", self.location)
        same = watermark.node_id == self.streams[port].node_id
        # One that was made just now is not the one that the port reads.
        self.require(
            same and len(stream.flow.nodes) == before, f"input {port} is not the watermark of {time}"
        )

    def with_state_expiry(self, operator: object) -> object:
        if isinstance(operator, Distinct):
            return expiring_distinct(self.streams[0], operator)
        assert isinstance(operator, Join)
        return expiring_join(self.streams[0], self.streams[1], operator)

    def threshold(self, value: object, column: str) -> tuple[object, Schema]:
        return threshold(self.streams[0], value, column, self.location)
