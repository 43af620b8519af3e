"""Converter from users' rows to internal rows: validation in bulk, by generated code.

The fast path only tests whether every value of a row has exactly the type and range declared by its column;
such a row is used unchanged. All other rows take the slow path, which converts them (an int for a float
column, a timestamp in another zone, a dataclass) or raises `BadRow`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import singledispatch
from typing import Any, cast

from headrace.expr.code_runtime import NAN, float32
from headrace.expr.decimal_arithmetic import DecimalSpec
from headrace.expr.row_validation import RowValidator
from headrace.expr.types import (
    BOOL,
    BYTES,
    INT64,
    STR,
    AnyType,
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Field,
    Float32Type,
    Float64Type,
    FloatingType,
    IntegerType,
    IntervalType,
    Schema,
    StrType,
    TimestampNtzType,
    TimestampType,
)

PLAIN = frozenset({bool, int, str, bytes, date, datetime, type(None)})
"""Types whose values are all valid in a column of type any."""


def from_user(
    schema: Schema,
    *,
    what: str,
    change: type | None = None,
    fix: str = "",
    elsewhere: Mapping[type, str] | None = None,
) -> Callable[[Iterable[object]], list[tuple[Any, ...]]]:
    """Make a converter from users' rows to internal rows of `schema`.

    what:   name of the rows in errors ("source 'bids'").
    change: if given, an item may also be an instance of that class, a pair of row and weight, and every
            internal row has its weight as last field. Rows of weight 0 are checked and dropped.
    fix:    advice in errors about a value of another type.
    elsewhere: ways out by classes of items that are no rows, even if their fields would fit.

    The converter raises `BadRow` with the number of the row in its argument, the
    field, and the expected and the found type.
    """
    source = _source(schema, weighted=change is not None)
    slow = RowValidator(schema, what, fix, elsewhere or {})
    names: dict[str, Any] = {
        "slow": slow.convert,
        "weighed": slow.check_weight,
        "x_nan": NAN,
        "x_f32": float32,
        "utc": UTC,
        "datetime": datetime,
        "timedelta": timedelta,
        "Decimal": Decimal,
        "date": date,
        "plain": PLAIN,
        "Change": change,
        "Row": schema.row_class if not schema.scalar and schema.row_class is not None else tuple,
    }
    for at, field in enumerate(schema.fields):
        if isinstance(field.type, DecimalType):
            shape = DecimalSpec.of(field.type)
            names |= {f"c{at}_step": shape.step, f"c{at}_bound": shape.bound}
    exec(compile(source, f"<rows of {what}>", "exec"), names)
    return cast("Callable[[Iterable[object]], list[tuple[Any, ...]]]", names["convert"])


def from_trusted(
    schema: Schema, *, change: type | None = None
) -> Callable[[Iterable[object]], list[tuple[Any, ...]]]:
    """Make a converter like `from_user` that checks nothing: each value is taken for one of its column's."""
    names: dict[str, Any] = {"Change": change}
    exec(compile(_trusting_source(schema, weighted=change is not None), "<trusted rows>", "exec"), names)
    return cast("Callable[[Iterable[object]], list[tuple[Any, ...]]]", names["convert"])


def _trusting_source(schema: Schema, *, weighted: bool) -> str:
    if schema.scalar:
        whole, fields = "zip(rows)", "row"
    elif schema.row_class is not None and dataclasses.is_dataclass(schema.row_class):
        values = ", ".join(f"row.{name}" for name in schema.names)
        one = f"row if type(row) is tuple else ({values},)"  # a tuple: of a frame
        whole, fields = f"[{one} for row in rows]", f"*({one})"
    else:
        whole, fields = "rows", "*row"
    if not weighted:
        return f"def convert(rows):\n    return list({whole})\n"
    weights = "(row if type(row) is Change else (row, 1) for row in rows)"
    return f"def convert(rows):\n    return [({fields}, weight) for row, weight in {weights} if weight]\n"


_TESTED_INLINE = (BoolType, BytesType, FloatingType, IntegerType, StrType)


def exact_test(field: Field, variable: str) -> str | None:
    """Return Python source that tests whether a variable already holds an internal value of a column.

    It uses the names of `headrace.expr.compile_python.RUNTIME`. None for types without a cheap test.
    """
    return f"({_test(field, variable)})" if isinstance(field.type, _TESTED_INLINE) else None


def _source(schema: Schema, *, weighted: bool) -> str:
    variables = [f"c{at}" for at in range(len(schema.fields))]
    test = " and ".join(_test(f, v) for f, v in zip(schema.fields, variables, strict=True))
    rebuilt = f"({', '.join(variables)},)"
    whole, slow = ("row", "slow(row, len(out))") if not weighted else ("", "(*slow(row, len(out)), weight)")
    if weighted:
        whole = rebuilt = f"({', '.join(variables)}, weight)"
    if schema.scalar:
        body = ["c0 = row", f"if {test}:", f"    append({rebuilt})", "    continue"]
    elif schema.row_class is not None and dataclasses.is_dataclass(schema.row_class):
        reads = [f"    {v} = row.{f.name}" for f, v in zip(schema.fields, variables, strict=True)]
        taken = [f"    if {test}:", f"        append({rebuilt})", "        continue"]
        body = ["if type(row) is Row:", *reads, *taken]
    else:
        body = [
            f"if (type(row) is Row or type(row) is tuple) and len(row) == {len(variables)}:",
            f"    {', '.join(variables)}, = row",
            f"    if {test}:",
            f"        append({whole})",
            "        continue",
        ]
    unwrap = [
        "weight = 1",
        "if type(row) is Change:",
        "    row, weight = row",
        "    if type(weight) is not int or not weight:",
        "        nothing = not weighed(weight, len(out))",
    ]
    at_once = _all_at_once(schema.fields[0].type) if schema.scalar and not weighted else None
    lines = [
        "def convert(rows):",
        *([f"    if {at_once}:", "        return list(zip(rows))"] if at_once else []),
        "    out = []",
        "    nothing = False",
        "    append = out.append",
        "    for row in rows:",
        *(f"        {line}" for line in (*(unwrap if weighted else []), *body)),
        f"        append({slow})",
        "    return [row for row in out if row[-1]] if nothing else out",
    ]
    return "\n".join(lines)


def _all_at_once(type: DataType) -> str | None:
    """Return Python source that tests a whole list of scalars at once, with functions that run in C."""
    kind = CLASSES.get(type)
    if kind is None:
        return None
    test = f"rows.__class__ is list and len(rows) >= {_LONG} and {{*map(type, rows)}} == {{{kind.__name__}}}"
    if type == INT64:
        test += f" and {-(2**63)} <= min(rows) and max(rows) < {2**63}"
    return test


_LONG = 32

CLASSES: dict[DataType, type] = {BOOL: bool, BYTES: bytes, INT64: int, STR: str}
"""Classes whose instances are all valid in a column of the type, but for the range of integers."""


def _test(field: Field, variable: str) -> str:
    test = _exact(field.type, variable)
    return f"({variable} is None or {test})" if field.nullable else test


@singledispatch
def _exact(type: DataType, v: str) -> str:
    # Structs and lists: tuples of checked values cannot be distinguished from others cheaply.
    return "False"


@_exact.register(BoolType)
def _bool(type: BoolType, v: str) -> str:
    return f"({v} is True or {v} is False)"


@_exact.register(AnyType)
def _any(type: AnyType, v: str) -> str:
    return f"type({v}) in plain"


@_exact.register(IntegerType)
def _integer(type: IntegerType, v: str) -> str:
    low, high = type.range
    return f"type({v}) is int and {low} <= {v} <= {high}"


@_exact.register(Float64Type)
def _float64(type: Float64Type, v: str) -> str:
    return f"type({v}) is float and ({v} == {v} or {v} is x_nan)"


@_exact.register(Float32Type)
def _float32(type: Float32Type, v: str) -> str:
    return f"type({v}) is float and (x_f32({v}) == {v} or {v} is x_nan)"


@_exact.register(DecimalType)
def _decimal(type: DecimalType, v: str) -> str:
    # `same_quantum` implies the number of digits after the point, and no NaN. A zero must not be negative.
    digits = f"{v}.same_quantum({v}_step) and -{v}_bound < {v} < {v}_bound"
    return f"type({v}) is Decimal and {digits} and ({v} or not {v}.is_signed())"


@_exact.register(StrType)
def _str(type: StrType, v: str) -> str:
    return f"type({v}) is str"


@_exact.register(BytesType)
def _bytes(type: BytesType, v: str) -> str:
    return f"type({v}) is bytes"


@_exact.register(DateType)
def _date(type: DateType, v: str) -> str:
    return f"type({v}) is date"


@_exact.register(TimestampNtzType)
def _timestamp_ntz(type: TimestampNtzType, v: str) -> str:
    return f"type({v}) is datetime and {v}.tzinfo is None and not {v}.fold"


@_exact.register(IntervalType)
def _interval(type: IntervalType, v: str) -> str:
    # So many days are within 64 bits of microseconds; others are checked one by one.
    return f"type({v}) is timedelta and {type.last} == 3 and -100000000 < {v}.days < 100000000"


@_exact.register(TimestampType)
def _timestamp(type: TimestampType, v: str) -> str:
    return f"type({v}) is datetime and {v}.tzinfo is utc and not {v}.fold"
