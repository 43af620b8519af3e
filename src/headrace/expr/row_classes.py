"""Row classes and schemas: conversion between users' row types and internal rows.

A schema comes from a `NamedTuple`, a dataclass or a scalar type (`schema_of`), or from columns that an
operator computed (`computed_schema`). The row class of a derived schema is made on demand.

Users' rows are validated in bulk, by generated code. The fast path only tests whether every value of a row
has exactly the type and range declared by its column; such a row is used unchanged. All other rows take the
slow path, which converts them (an int for a float column, a timestamp in another zone, a dataclass) or raises
`BadRow`.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache, partial, singledispatch
from operator import itemgetter
from typing import Any, cast

from headrace.errors import UnknownRowType
from headrace.expr.code_runtime import NAN, DecimalSpec, float32
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
    ListType,
    MapType,
    Schema,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
    as_field,
    fields_of,
    is_row_class,
)

__all__ = [
    "computed_schema",
    "exact_test",
    "from_user",
    "row_class",
    "schema_of",
    "to_user",
]

PLAIN = frozenset({bool, int, str, bytes, date, datetime, type(None)})
"""Types whose values are all valid in a column of type any."""


SCALAR_COLUMN = "value"


def schema_of(rows: Any) -> Schema:
    """Return the schema of a row type. Raises `UnknownRowType` for other types."""
    if is_row_class(rows):
        return Schema(fields_of(rows), rows)
    try:
        field = as_field(SCALAR_COLUMN, rows)
    except UnknownRowType as error:
        if not isinstance(rows, type):
            raise
        raise UnknownRowType(
            f"{rows.__name__} is not a row type",
            where=error.where,
            why="A row is a NamedTuple, a dataclass, or one value: bool, int, float, Decimal, str, bytes,\n"
            "date, datetime.",
            fix="class Row(NamedTuple), with an annotation for each column",
        ) from None
    return Schema((field,), rows if isinstance(rows, type) else None, scalar=True)


def computed_schema(fields: tuple[Field, ...]) -> Schema:
    """Make the schema of computed columns. `row_class` makes its row class on demand."""
    return Schema(fields)


def row_class(schema: Schema) -> type[Any]:
    """Return the class of users' rows of `schema`; for scalars the type of the value."""
    if schema.row_class is not None:
        return schema.row_class
    return _made_class(schema.names)


@lru_cache(maxsize=1024)
def _made_class(names: tuple[str, ...]) -> type[Any]:
    # `rename` gives names that Python does not allow (keywords, dots) a position instead.
    base = namedtuple("Row", names, rename=True)  # pyright: ignore

    def reduce(row: Any) -> tuple[Any, ...]:
        return _remake, (names, tuple(row))

    members = {"__slots__": (), "__reduce__": reduce, "__module__": __name__}
    return type("Row", (cast("type[Any]", base),), members)


def _remake(names: tuple[str, ...], values: tuple[object, ...]) -> object:
    return cast("Any", _made_class(names))._make(values)


def to_user(schema: Schema) -> Callable[[tuple[Any, ...]], Any]:
    """Make a function from internal rows to users' rows.

    A user's row is an instance of the row class, or the bare value in a scalar stream; nested structs are
    converted to their class, lists to `list`, maps to `dict`.
    """
    if schema.scalar:
        convert = _value_to_user(schema.fields[0].type)
        if convert is None:
            return itemgetter(0)
        return lambda row: None if row[0] is None else convert(row[0])
    return _row_to_user(schema.fields, row_class(schema))


def _row_to_user(
    fields: tuple[Field, ...], wanted: type[Any], sequence: Callable[[Iterable[Any]], Any] = list
) -> Callable[[tuple[Any, ...]], Any]:
    converters = [
        (at, convert) for at, f in enumerate(fields) if (convert := _value_to_user(f.type, sequence))
    ]
    make: Callable[[Any], Any]
    if dataclasses.is_dataclass(wanted):
        make = partial(_call, wanted)
    else:
        make = partial(cast("Any", tuple).__new__, wanted)
    if not converters:
        return make

    def convert_row(row: tuple[Any, ...]) -> Any:
        values = list(row)
        for at, convert in converters:
            if values[at] is not None:
                values[at] = convert(values[at])
        return make(tuple(values))

    return convert_row


def _call(wanted: type[Any], values: tuple[Any, ...]) -> Any:
    return wanted(*values)


def _value_to_user(
    type: DataType, sequence: Callable[[Iterable[Any]], Any] = list
) -> Callable[[Any], Any] | None:
    """Make a function from internal to user values, or None if they are the same. sequence: makes lists."""
    if isinstance(type, StructType):
        return _row_to_user(type.fields, row_class(Schema(type.fields, type.row_class)), sequence)
    if isinstance(type, ListType):
        convert = _value_to_user(type.element, sequence)
        if convert is None:
            return None if sequence is tuple else sequence
        return lambda values: sequence(None if v is None else convert(v) for v in values)
    if isinstance(type, MapType):
        return _map_to_user(type)
    return None


def _map_to_user(type: MapType) -> Callable[[Any], Any]:
    # A list is no key of a dict, nor part of one; a tuple is.
    key = _value_to_user(type.key, tuple)
    value = _value_to_user(type.value)
    if key is None and value is None:
        return dict

    def convert(entries: tuple[tuple[Any, Any], ...]) -> dict[Any, Any]:
        return {
            k if key is None else key(k): v if v is None or value is None else value(v) for k, v in entries
        }

    return convert


# --- rows held by key, and the columns of the records that change them ----------------------------


PLACE = StructType((Field("file", STR), Field("row", INT64)))
"""Type of the place of a record: path of its file, and its number in it from 1."""

_UNAVAILABLE = "\0unavailable"
"""Text in place of an unknown value. PostgreSQL's texts have no zeros."""


@singledispatch
def placeholder(data_type: DataType, text: str) -> Any:
    """Convert a placeholder text to the type of the values it replaces; None if that is impossible."""
    return None


@placeholder.register
def _(data_type: StrType, text: str) -> Any:
    return text


@placeholder.register
def _(data_type: BytesType, text: str) -> Any:
    return text.encode()


@placeholder.register
def _(data_type: ListType, text: str) -> Any:
    if isinstance(data_type.element, IntegerType):
        return tuple(text.encode())
    one = placeholder(data_type.element, text)
    return None if one is None else (one,)


@placeholder.register
def _(data_type: MapType, text: str) -> Any:
    one = placeholder(data_type.key, text), placeholder(data_type.value, text)
    return None if None in one else (one,)


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Row values that a record omits because it does not change them.

    marks: position, name and placeholder of each column that may be unknown.
    """

    marks: tuple[tuple[int, str, Any], ...]

    @classmethod
    def of(cls, fields: tuple[Field, ...], text: str = _UNAVAILABLE) -> Unavailable:
        """Build the placeholders of rows in which `text` replaces unknown values."""
        found = ((at, f.name, placeholder(f.type, text)) for at, f in enumerate(fields))
        return cls(tuple(each for each in found if each[2] is not None))

    def names(self, row: tuple[Any, ...]) -> list[str]:
        """Return the columns whose values a row omits."""
        return [name for at, name, mark in self.marks if row[at] == mark]

    def fill(self, row: Any, held: Any) -> Any:
        """Return a row with omitted values filled in from another row; null stays null.

        Values that both rows omit stay as they are.
        """
        if row is None or held is None:
            return row
        unknown = [at for at, _, mark in self.marks if row[at] == mark]
        if not unknown:
            return row
        return tuple(held[at] if at in unknown else value for at, value in enumerate(row))

    def mark(self, row: tuple[Any, ...], others: Unavailable) -> tuple[Any, ...]:
        """Return a row with these placeholders replaced by others."""
        if not self.names(row):
            return row
        marks = {
            at: (mark, other) for (at, _, mark), (_, _, other) in zip(self.marks, others.marks, strict=True)
        }
        return tuple(
            marks[at][1] if at in marks and value == marks[at][0] else value for at, value in enumerate(row)
        )


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows of a table that are held by key.

    sequence: column that orders the records of a key; None if they apply in order of arrival.
    """

    rows: Schema
    key: tuple[str, ...]
    sequence: str | None = None

    @property
    def records(self) -> Schema:
        """Columns of records: key, row before, row, the sequence if there is one, and place in a file."""
        whole = StructType(self.rows.fields, self.rows.row_class)
        fields = (
            Field("key", StructType(self.key_fields)),
            Field("before", whole, nullable=True),
            Field("row", whole, nullable=True),
            *self.sequence_fields,
            Field("place", PLACE, nullable=True),
        )
        return Schema(fields)

    @property
    def sequence_fields(self) -> tuple[Field, ...]:
        """The sequence field of a record, if there is one."""
        if self.sequence is None:
            return ()
        return (Field("sequence", self._field(self.sequence).type, nullable=True),)

    @property
    def key_fields(self) -> tuple[Field, ...]:
        return tuple(map(self._field, self.key))

    @property
    def relaxed(self) -> Schema:
        """Columns of rows in which all but the key may be null."""
        fields = (f if f.name in self.key else replace(f, nullable=True) for f in self.rows.fields)
        return Schema(tuple(fields), self.rows.row_class)

    def _field(self, name: str) -> Field:
        return next(f for f in self.rows.fields if f.name == name)


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
    """Make a converter like `from_user` without checks: values are assumed to have their column's type."""
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
