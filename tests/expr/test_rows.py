"""Row types, and rows on their way in and out."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import pytest
from hypothesis import given

import headrace as hr
from headrace.engine.live_rows import number_columns
from headrace.errors import BadRow, UnknownRowType, WrongType
from headrace.expr.check import check
from headrace.expr.code_runtime import NAN
from headrace.expr.row_classes import computed_schema, from_user, placeholder, row_class, schema_of, to_user
from headrace.expr.types import (
    BOOL,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    INTEGERS,
    STR,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    Field,
    Int32,
    IntegerType,
    ListType,
    MapType,
    StructType,
    as_type,
)
from tests.expr.random_expressions import SCHEMA, Wide, internal, rows


class Point(NamedTuple):
    x: float
    y: float | None = None


@dataclass(frozen=True)
class Place:
    name: str
    at: Point
    tags: list[str]
    size: Int32 | None = None


class Money(NamedTuple):
    amount: Annotated[Decimal, DecimalType(5, 2)]
    when: datetime


def test_a_row_class_becomes_a_schema() -> None:
    schema = schema_of(Place)
    assert schema.fields == (
        Field("name", STR),
        Field("at", StructType((Field("x", FLOAT64), Field("y", FLOAT64, nullable=True)))),
        Field("tags", ListType(STR)),
        Field("size", INT32, nullable=True),
    )
    assert schema.row_class is Place
    assert not schema.scalar


def test_a_scalar_is_a_row_of_one_column() -> None:
    assert schema_of(int).fields == (Field("value", INT64),)
    assert schema_of(int).scalar
    assert schema_of(float | None).fields == (Field("value", FLOAT64, nullable=True),)


class Widths(NamedTuple):
    t: hr.Int8
    s: hr.Int16
    i: hr.Int32
    n: int
    f: hr.Float32
    x: float
    d: Annotated[Decimal, DecimalType(5, 2)]
    text: str


@pytest.mark.parametrize(
    ("expr", "type"),
    [
        (hr.col.t * 100, INT8),
        (hr.col.t * 128, INT32),
        (hr.col.s + 40_000, INT32),
        (hr.col.t + 2**31, INT64),
        (hr.col.i * 5, INT32),
        (hr.col.f * 2, FLOAT64),
        (hr.col.f + hr.col.t, FLOAT64),
        (hr.col.d + 1000, DecimalType(7, 2)),
    ],
)
def test_a_constant_that_does_not_fit_beside_an_integer_is_at_least_an_int32(
    expr: hr.Expr, type: DataType
) -> None:
    assert check(expr, schema_of(Widths)).type == type


def test_columns_of_every_kind_of_number_are_shown_as_numbers() -> None:
    assert number_columns(schema_of(Widths)) == [True] * 7 + [False]


@pytest.mark.parametrize("element", INTEGERS)
def test_what_stands_for_an_unchanged_list_of_integers_is_the_text_in_bytes(element: IntegerType) -> None:
    assert placeholder(ListType(element), "ab") == (97, 98)


def test_what_mask_puts_in_is_one_character() -> None:
    with pytest.raises(WrongType, match="a replacement in mask must be one character, or None to keep"):
        check(hr.functions.mask(hr.col.text, "XY"), schema_of(Widths))


def test_types_have_names_and_annotations() -> None:
    assert as_type("int32") == as_type(Int32) == INT32
    assert as_type("float32") == as_type(hr.Float32) == FLOAT32
    assert as_type("timestamp_ntz") == as_type(hr.TimestampNtz) == TIMESTAMP_NTZ
    assert [as_type(name) for name in ("int8", "int16", "int64")] == [INT8, INT16, INT64]
    assert [as_type(each) for each in (hr.Int8, hr.Int16, int)] == [INT8, INT16, INT64]
    assert as_type("decimal(12,2)") == as_type(Annotated[Decimal, DecimalType(12, 2)]) == DecimalType(12, 2)
    assert as_type(bool) == as_type("bool") == as_type(BOOL) == BOOL


class Counts(NamedTuple):
    shop: str
    by_day: dict[str, int | None]
    at: dict[tuple[int, ...], list[Point]]


def test_a_dict_is_a_map() -> None:
    schema = schema_of(Counts)
    assert schema.fields[1:] == (
        Field("by_day", MapType(STR, INT64, nullable=True)),
        Field("at", MapType(ListType(INT64), ListType(schema_of(Place).fields[1].type))),
    )
    row = Counts("north", {"mon": 1, "sun": None}, {(1, 2): [Point(0.5)]})
    (made,) = from_user(schema, what="rows")([row])
    assert made == ("north", (("mon", 1), ("sun", None)), (((1, 2), ((0.5, None),)),))
    assert to_user(schema)(made) == row


@pytest.mark.parametrize(
    "rows", [dict[str | None, int], dict[dict[str, int], int], dict[object, int]], ids=str
)
def test_keys_of_a_map_are_values_that_are_never_null_and_no_maps(rows: Any) -> None:
    with pytest.raises(UnknownRowType, match=r"the keys of .* cannot be"):
        schema_of(rows)


def test_a_map_with_one_key_twice_is_refused() -> None:
    with pytest.raises(BadRow, match="must be map<float64, int64>"):
        from_user(schema_of(dict[float, int]), what="rows")([{math.nan: 1, float("nan"): 2}])
    with pytest.raises(BadRow, match="must be int64, got str 'b'"):
        from_user(schema_of(dict[str, int]), what="rows")([{"a": "b"}])


def test_rows_of_a_table_are_equal_whatever_the_order_in_their_maps() -> None:
    flow = hr.Flow("maps")
    flow.sink("out", flow.table("counts", Counts))
    engine = hr.Engine(flow)
    assert engine.tick(counts=[hr.insert(Counts("north", {"sun": 1, "mon": 2}, {}))])["out"]
    made = engine.tick(counts=[hr.delete(Counts("north", {"mon": 2, "sun": 1}, {}))])["out"]
    assert [(change.weight, *change.row.by_day) for change in made] == [(-1, "mon", "sun")]


class TwoTypes(NamedTuple):
    a: int | str


class Untyped(NamedTuple):
    a: complex


class TooLong(NamedTuple):
    a: Annotated[Decimal, DecimalType(39, 2)]


@pytest.mark.parametrize(
    "rows", [TwoTypes, Untyped, TooLong, dict, set[int], "int33", "decimal(3,4)"], ids=str
)
def test_what_is_no_row_type_is_refused(rows: Any) -> None:
    with pytest.raises(UnknownRowType):
        as_type(rows) if isinstance(rows, str) else schema_of(rows)


def test_valid_rows_pass_as_they_are() -> None:
    good = [Point(1.0, None), Point(-0.0, NAN)]
    converted = from_user(schema_of(Point), what="points")(good)
    assert all(a is b for a, b in zip(converted, good, strict=True))


def test_rows_are_made_right_where_that_loses_nothing() -> None:
    convert = from_user(schema_of(Point), what="points")
    assert convert([Point(1, 2)]) == [(1.0, 2.0)]
    assert type(convert([Point(1)])[0][0]) is float
    assert convert([(float("nan"), None)])[0][0] is NAN
    assert convert([{"x": 1.0}]) == [(1.0, None)]
    east = timezone(timedelta(hours=2))
    money = from_user(schema_of(Money), what="money")
    row = (Decimal("1.5"), datetime(2001, 1, 1, 2, tzinfo=east))
    ((amount, when),) = money([row])
    assert (str(amount), when) == ("1.50", datetime(2001, 1, 1, tzinfo=UTC))
    assert when.tzinfo is UTC
    places = from_user(schema_of(Place), what="places")
    assert places([Place("here", Point(1, 2), ["a"])]) == [("here", (1.0, 2.0), ("a",), None)]


@pytest.mark.parametrize(
    ("rows", "bad", "number", "field"),
    [
        (Point, (1.0, "2"), 0, "y"),
        (Point, (True, None), 0, "x"),
        (Point, (None, None), 0, "x"),
        (Point, (1.0,), 0, None),
        (Point, "ab", 0, None),
        (Point, {"x": 1.0, "z": 1.0}, 0, None),
        (int, 2**63, 0, "value"),
        (int, 1.0, 0, "value"),
        (int, True, 0, "value"),
        (int, None, 0, "value"),
        (Int32, -(2**31) - 1, 0, "value"),
        (Money, (Decimal("1.005"), datetime(2001, 1, 1, tzinfo=UTC)), 0, "amount"),
        (Money, (Decimal("1000"), datetime(2001, 1, 1, tzinfo=UTC)), 0, "amount"),
        (Money, (1.5, datetime(2001, 1, 1, tzinfo=UTC)), 0, "amount"),
        (Money, (Decimal("NaN"), datetime(2001, 1, 1, tzinfo=UTC)), 0, "amount"),
        (Money, (Decimal(1), datetime(2001, 1, 1)), 0, "when"),
        (Money, (Decimal(1), date(2001, 1, 1)), 0, "when"),
        (date, datetime(2001, 1, 1, tzinfo=UTC), 0, "value"),
        (Place, Place("a", (1.0, "b"), []), 0, "at.y"),
        (Place, Place("a", Point(1.0), ["b", 3]), 0, "tags[1]"),
        (str, b"abc", 0, "value"),
    ],
)
def test_bad_rows_are_refused_with_their_place(rows: Any, bad: Any, number: int, field: str | None) -> None:
    convert = from_user(schema_of(rows), what="source 'a'")
    with pytest.raises(BadRow) as caught:
        convert([bad])
    assert caught.value.row == number
    assert caught.value.field == field
    assert "source 'a', row 0" in str(caught.value)


def test_the_number_of_a_bad_row_counts_all_rows() -> None:
    with pytest.raises(BadRow) as caught:
        from_user(schema_of(int), what="numbers")([1, 2, 3, "4", 5])
    assert caught.value.row == 3


def test_users_see_their_classes() -> None:
    assert to_user(schema_of(Point))((1.0, None)) == Point(1.0, None)
    assert type(to_user(schema_of(Point))((1.0, None))) is Point
    place = to_user(schema_of(Place))(("here", (1.0, None), ("a", "b"), 3))
    assert place == Place("here", Point(1.0, None), ["a", "b"], 3)
    assert type(place.at) is Point
    assert to_user(schema_of(int))((3,)) == 3
    assert to_user(schema_of(list[int]))(((1, 2),)) == [1, 2]


def test_derived_rows_get_a_class_when_it_is_asked_for() -> None:
    schema = computed_schema((Field("total", INT64), Field("class", STR)))
    row = to_user(schema)((3, "a"))
    assert row.total == 3
    assert row == (3, "a")
    assert row_class(schema) is row_class(computed_schema((Field("total", STR), Field("class", STR))))
    assert pickle.loads(pickle.dumps(row)) == row
    assert repr(row).startswith("Row(total=3")


@given(rows)
def test_rows_come_back_from_inside_as_they_went_in(row: Wide) -> None:
    (inside,) = internal([row])
    assert repr(to_user(SCHEMA)(inside)) == repr(row)
    assert internal([to_user(SCHEMA)(inside)]) == [inside]


def test_rows_with_nan_are_equal_and_hash_equal_inside() -> None:
    (a,), (b,) = (internal([_with_nan()]), internal([_with_nan()]))
    assert a == b
    assert hash(a) == hash(b)


def _with_nan() -> Wide:
    from hypothesis import find

    row = find(rows, lambda _: True)
    return row._replace(x=math.nan * 1, xs_=[math.nan * 1, None])


class Cents(NamedTuple):
    amount: Annotated[Decimal, DecimalType(5, 2)]


@pytest.mark.parametrize("text", ["1.50", "-999.99", "0.00"])
def test_decimals_of_the_right_scale_pass_as_they_are(text: str) -> None:
    row = Cents(Decimal(text))
    assert from_user(schema_of(Cents), what="cents")([row])[0] is row


@pytest.mark.parametrize(
    ("given", "inside"), [("1.5", "1.50"), ("-0.00", "0.00"), ("1E+2", "100.00"), ("0", "0.00")]
)
def test_decimals_get_the_scale_of_their_column(given: str, inside: str) -> None:
    ((amount,),) = from_user(schema_of(Cents), what="cents")([Cents(Decimal(given))])
    assert str(amount) == inside


def test_a_timestamp_has_one_form() -> None:
    given = datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)
    rows = from_user(schema_of(datetime), what="times")([given.replace(fold=1), given])
    assert repr(rows[0]) == repr(rows[1]) == repr((given,))


@pytest.mark.parametrize("text", ["1000.00", "-1000.00", "NaN", "sNaN", "Infinity", "0.001"])
def test_decimals_that_do_not_fit_are_refused(text: str) -> None:
    with pytest.raises(BadRow):
        from_user(schema_of(Cents), what="cents")([Cents(Decimal(text))])


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (int, 7, 2**63),
        (int, -(2**63), True),
        (str, "a", 7),
        (bool, True, 1),
        (bytes, b"a", "a"),
        (str, "a", None),
    ],
)
def test_a_long_list_is_checked_as_strictly_as_a_short_one(kind: type, good: object, bad: object) -> None:
    convert = from_user(schema_of(kind), what="values")
    assert convert([good] * 100) == [(good,)] * 100
    for length in (1, 100):
        with pytest.raises(BadRow) as refused:
            convert([*[good] * (length - 1), bad])
        assert refused.value.facts["row"] == length - 1
