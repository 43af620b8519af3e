"""Lowering of row expressions to Polars, with the semantics of generated Python.

Polars wraps where an integer leaves its type and has its own answers for a
division by zero. So a lowered expression carries, beside its value, an
expression that is true on every row where evaluating it might raise; a tick in
which that is true anywhere runs row by row, and raises there what it always
raised. Bounds of the integers of a tick are carried along, and most sums and
products are known to stay in range without a look at a single row.

A function whose record has no `columns` keeps its operator in rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import singledispatch

from headrace.errors import EvaluationError
from headrace.expr.check import checked_tree
from headrace.expr.code_runtime import EXACT
from headrace.expr.compile_python import CodeScope, PythonEmitter, runtime_names
from headrace.expr.function_records import StrictFunction
from headrace.expr.functions.integer_columns import decimal_constant
from headrace.expr.polars_columns import (
    Bounds,
    LoweredExpression,
    Lowering,
    NotLowered,
    carried_dtype,
    dtype_of,
    either_condition,
    unscaled_bounds,
)
from headrace.expr.tree import Column, Expr
from headrace.expr.types import FLOAT32, DataType, DecimalType, IntervalType, ListType, Schema
from headrace.expr.typing_rules import CallTerm, ColumnTerm, LiteralTerm, Term
from headrace.requirements import pl

_MAX_COLUMNS = 24
"""Number of times that the arguments of a call may read columns, before they are computed on their own."""


def lower_expression(expr: Expr, schema: Schema, columns: Sequence[LoweredExpression]) -> LoweredExpression:
    """Lower `expr` over a frame of rows of `schema`: columns "0", "1", ... with their known bounds.

    Raises `NotLowered`. The ticks to come look up what is lowered, which takes a thousand times as long. So
    that they find it, bounds are widened to powers of 16. Only columns that are read are looked at.
    """
    key = id(expr), id(schema)
    known = _CHECKED.get(key)
    if known is None:
        if len(_CHECKED) >= _MAX_LOWERED:
            _CHECKED.clear()
        term = checked_tree(expr, schema)
        # With what its key is made of, whose place nothing else takes then.
        known = _CHECKED[key] = _CheckedExpression(term, tuple(sorted(_positions(term))), {}, expr, schema)
    if isinstance(known.term, ColumnTerm):
        return _lowered(known.term, columns)
    fields = schema.fields
    bounds = tuple(_widened(columns[at].bounds, fields[at].type) for at in known.positions)
    lowered = known.lowered.get(bounds)
    if lowered is None:
        frame = [LoweredExpression(pl.col(str(at))) for at in range(len(fields))]
        for at, each in zip(known.positions, bounds, strict=True):
            frame[at] = LoweredExpression(pl.col(str(at)), each)
        if len(known.lowered) >= _MAX_BOUNDS:
            known.lowered.clear()
        lowered = known.lowered[bounds] = _lowered(known.term, frame)
    return lowered


@dataclass(frozen=True, slots=True)
class _CheckedExpression:
    """Checked expression. lowered: its lowered forms by the bounds of the columns read, at `positions`."""

    term: Term
    positions: tuple[int, ...]
    lowered: dict[tuple[Bounds | None, ...], LoweredExpression]
    expr: Expr
    schema: Schema


_CHECKED: dict[tuple[int, int], _CheckedExpression] = {}
_MAX_LOWERED, _MAX_BOUNDS = 10_000, 64


def _positions(term: Term) -> set[int]:
    """Return the positions of the columns that an expression reads."""
    match term:
        case ColumnTerm(position=position):
            return {position}
        case CallTerm(arguments=arguments):
            return {at for argument in arguments for at in _positions(argument)}
        case _:
            return set()


def _widened(bounds: Bounds | None, type: DataType) -> Bounds | None:
    """Widen bounds to one of few values, keeping their signs and staying within the type's bounds."""
    least_and_most = unscaled_bounds(type)
    if bounds is None or least_and_most is None:
        return bounds
    (low, high), (least, most) = bounds, least_and_most
    low = min(low, 1) if low >= 0 else max(-_power(-low), least)
    high = max(high, -1) if high <= 0 else min(_power(high), most)
    return low, high


def _power(number: int) -> int:
    """Return the smallest power of 16 that is at least the given positive number."""
    return 1 << ((number - 1).bit_length() + 3) // 4 * 4


def reads_columns(expr: Expr) -> bool:
    """Return whether an expression depends on the row. Polars gives a constant one value, not one per row."""
    return any(isinstance(part, Column) for part in expr.walk())


def columns_without_bounds(schema: Schema) -> list[LoweredExpression]:
    """Return the columns without known bounds, for testing whether an expression can be lowered."""
    return [LoweredExpression(pl.col(str(at)), unscaled_bounds(f.type)) for at, f in enumerate(schema.fields)]


@singledispatch
def _lowered(term: Term, columns: Sequence[LoweredExpression]) -> LoweredExpression:
    raise NotLowered(f"{type(term).__name__} has no columnar form")


@_lowered.register(ColumnTerm)
def _column(term: ColumnTerm, columns: Sequence[LoweredExpression]) -> LoweredExpression:
    carried_dtype(term.type)
    return columns[term.position]


@_lowered.register(LiteralTerm)
def _literal(term: LiteralTerm, columns: Sequence[LoweredExpression]) -> LoweredExpression:
    value = term.value
    if isinstance(term.type, DecimalType) and isinstance(value, Decimal):
        return decimal_constant(int(value.scaleb(term.type.scale, EXACT)), term.type)
    if isinstance(value, datetime):
        value = value.replace(tzinfo=None)
    if isinstance(value, timedelta):
        value = value // timedelta(microseconds=1)
    if isinstance(value, float) and value == 0.0 and math.copysign(1.0, value) < 0:
        # Polars takes two expressions for one if they differ in the sign of a zero alone.
        bits = (
            pl.lit(-(2**31), dtype=pl.Int32()) if term.type == FLOAT32 else pl.lit(-(2**63), dtype=pl.Int64())
        )
        return LoweredExpression(bits.reinterpret(dtype=dtype_of(term.type)))
    bounds = None
    if unscaled_bounds(term.type) is not None:
        bounds = (value, value) if isinstance(value, int) else (0, 0)
    if isinstance(term.type, IntervalType):
        return LoweredExpression(pl.lit(value, dtype=pl.Int64()).cast(dtype_of(term.type)))
    return LoweredExpression(pl.lit(value, dtype=dtype_of(term.type)), bounds)


@_lowered.register(CallTerm)
def _call(term: CallTerm, columns: Sequence[LoweredExpression]) -> LoweredExpression:
    function, lowering = term.function, term.function.columns
    if lowering is None:
        raise NotLowered(f"{function.name}() has no columnar form")
    if not function.takes_lists and any(isinstance(a.type, ListType) for a in term.arguments):
        raise NotLowered(f"{function.name}() of lists has no columnar form")
    carried_dtype(term.type)
    if not any(isinstance(part, ColumnTerm) for part in _parts(term)):
        return _lowered_constant(term, columns)
    arguments = [_lowered(a, columns) for a in term.arguments]
    leaves = sum(
        len(part.meta.root_names()) for a in arguments for part in (a.value, a.fails) if part is not None
    )
    if leaves <= _MAX_COLUMNS and all(a.once is None for a in arguments):
        return _applied(lowering, term, arguments)
    return _lower_once(lowering, term, arguments)


def _applied(lowering: Lowering, term: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    made = lowering(term, arguments)
    if isinstance(term.function, StrictFunction):
        return LoweredExpression(
            made.value, made.bounds, either_condition(*(a.fails for a in arguments), made.fails)
        )
    return made


def _lower_once(
    lowering: Lowering, term: CallTerm, arguments: Sequence[LoweredExpression]
) -> LoweredExpression:
    """Lower a call with large arguments.

    A lowering repeats its arguments, and Polars finds what is repeated only after it has gone through all of
    it. So what it makes of large arguments is an expression over columns of them, in a frame of its own.
    """
    parts: list[pl.Expr] = []
    columns: list[LoweredExpression] = []
    for at, argument in enumerate(arguments):
        column = pl.col(str(at))
        if argument.fails is None:
            parts.append(argument.value)
            columns.append(LoweredExpression(column, argument.bounds))
            continue
        value, fails = column.struct.field("v"), column.struct.field("f")
        both = pl.struct(argument.value.alias("v"), argument.fails.alias("f"))
        parts.append(both if argument.once is None else argument.once)
        columns.append(LoweredExpression(value, argument.bounds, fails))
    made, dtype = _applied(lowering, term, columns), carried_dtype(term.type)
    if made.fails is None:
        value = _over(parts, made.value, dtype)
        return LoweredExpression(value, made.bounds, None, value)
    both = pl.struct(made.value.alias("v"), made.fails.alias("f"))
    once = _over(parts, both, pl.Struct({"v": dtype, "f": pl.Boolean()}))
    return LoweredExpression(once.struct.field("v"), made.bounds, once.struct.field("f"), once)


def _over(parts: Sequence[pl.Expr], expr: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Apply an expression over columns "0", "1", ... to the values of `parts`."""

    def compute(columns: Sequence[pl.Series]) -> pl.Series:
        rows = max(map(len, columns)) if all(map(len, columns)) else 0
        frame = pl.DataFrame([_of_length(s, rows).alias(str(at)) for at, s in enumerate(columns)])
        return _of_length(frame.select(expr).to_series(), rows)

    return pl.map_batches(parts, compute, return_dtype=dtype, is_elementwise=True)


def _of_length(series: pl.Series, rows: int) -> pl.Series:
    """Extend a column to `rows` rows if Polars computed a single value for all of them."""
    return series if len(series) == rows else series.new_from_index(0, rows) if rows else series.clear()


def _parts(term: Term) -> Iterator[Term]:
    yield term
    for argument in term.arguments if isinstance(term, CallTerm) else ():
        yield from _parts(argument)


def _lowered_constant(term: CallTerm, columns: Sequence[LoweredExpression]) -> LoweredExpression:
    """Lower a call that reads no column: Polars would compute one value, and not always repeat it."""
    scope = CodeScope(Schema(()), (), {}, bounded=False)
    source = PythonEmitter(scope).value(term)
    try:
        value = eval(source, {**runtime_names(bounded=False), **scope.constants})
    except EvaluationError:
        nothing = _lowered(LiteralTerm(term.type, True, None), columns)
        return LoweredExpression(nothing.value, nothing.bounds, pl.lit(True))
    return _lowered(LiteralTerm(term.type, value is None, value), columns)
