"""What expressions mean in generated Python, case by case, without Spark."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, cast

import pytest
from hypothesis import given

import headrace as hr
from headrace import col
from headrace.errors import EvaluationError, WrongType
from headrace.expr.check import check
from headrace.expr.code_runtime import NAN
from headrace.expr.compile_python import (
    RUNTIME,
    CodeScope,
    compile_rows,
    dict_key_source,
    predicate_source,
    value_source,
)
from headrace.expr.constructors import lambda_of, lit, variable
from headrace.expr.function_records import FixedFunction
from headrace.expr.functions import CATALOGUE
from headrace.expr.functions.calendar import weekday_of
from headrace.expr.functions.encodings import reader_of
from headrace.expr.functions.instants import unit_of
from headrace.expr.functions.string_search import start_at
from headrace.expr.row_classes import schema_of
from headrace.expr.text_casts import number_writer
from headrace.expr.time_patterns import format_pattern, parse_pattern
from headrace.expr.time_texts import zone_of
from headrace.expr.tree import Column, Expr, FunctionCall
from headrace.expr.types import (
    ANY,
    BOOL,
    BYTES,
    DATE,
    FLOAT64,
    INT64,
    INTERVAL,
    INTERVALS,
    STR,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    Field,
    Int32,
    IntegerType,
    ListType,
    MapType,
    Schema,
    StructType,
    holds_maps,
)
from headrace.expr.typing_rules import bounded_code
from tests.expr.random_expressions import SCHEMA, Wide, expressions, internal, rows

MAX64, MIN64 = 2**63 - 1, -(2**63)


class Row(NamedTuple):
    n: int
    m: int | None
    i: Int32
    x: float
    y: float | None
    s: str
    p: bool | None
    q: bool | None
    d: Annotated[Decimal, DecimalType(10, 2)]
    t: datetime


ROW = schema_of(Row)
NOON = datetime(2001, 9, 11, 12, 34, 56, 789012, UTC)
DEFAULT = Row(1, None, 1, 1.0, None, "text", None, None, Decimal("1.00"), NOON)


def value(expr: Expr, **columns: Any) -> Any:
    """The expression's value on a row with these columns."""
    return compile_rows((expr,), ROW)(DEFAULT._replace(**columns))[0]


def source(expr: Expr) -> str:
    return value_source(expr, CodeScope(ROW, tuple(Row._fields), {}))


def keeps(expr: Expr, p: bool | None, q: bool | None) -> bool:
    scope = CodeScope(ROW, Row._fields, {})
    return bool(eval(predicate_source(expr, scope), {**RUNTIME, "p": p, "q": q}))


# -- integers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expr", "columns"),
    [
        (col.n + 1, {"n": MAX64}),
        (col.n - 1, {"n": MIN64}),
        (col.n * col.n, {"n": 2**32}),
        (-col.n, {"n": MIN64}),
        (col.n.abs(), {"n": MIN64}),
        (col.i + 1, {"i": 2**31 - 1}),
        (col.n // -1, {"n": MIN64}),
        (col.n.cast(Int32), {"n": 2**31}),
        (col.n.round(-1), {"n": MAX64}),
    ],
    ids=str,
)
def test_leaving_the_range_of_an_integer_raises(expr: Expr, columns: dict[str, int]) -> None:
    with pytest.raises(EvaluationError, match="overflow"):
        value(expr, **columns)


@pytest.mark.parametrize("expr", [col.n // col.m, col.n % col.m, col.n / col.m, col.x / col.m, col.x % col.m])
def test_division_by_zero_raises(expr: Expr) -> None:
    with pytest.raises(EvaluationError, match="division by zero"):
        value(expr, m=0)


@pytest.mark.parametrize("expr", [col.d / col.m, col.d % col.m, col.x / -0.0, col.d / 0], ids=str)
def test_division_by_a_zero_of_any_kind_raises(expr: Expr) -> None:
    with pytest.raises(EvaluationError, match="division by zero"):
        value(expr, m=0)


def test_whole_division_cuts_towards_zero_and_the_remainder_has_the_sign_of_the_left() -> None:
    for n, m in [(7, 2), (-7, 2), (7, -2), (-7, -2)]:
        assert value(col.n // col.m, n=n, m=m) == int(n / m)
        assert value(col.n % col.m, n=n, m=m) == int(math.fmod(n, m))
        assert value(col.n // lit(m), n=n) == int(n / m)
        assert value(col.n % lit(m), n=n) == int(math.fmod(n, m))


def test_division_of_integers_is_that_of_their_floats() -> None:
    big = 2**53 + 1
    assert value(col.n / col.m, n=big, m=3) == float(big) / float(3)
    assert value(col.n / col.m, n=7, m=2) == 3.5


# -- floats -------------------------------------------------------------------------------


def test_nan_equals_itself_and_is_greater_than_every_number() -> None:
    for x, y in [(NAN, NAN), (NAN, math.inf), (math.inf, NAN), (1.0, NAN), (1.0, 2.0), (-0.0, 0.0)]:
        order = {"x": (x != x, 0.0 if x != x else x), "y": (y != y, 0.0 if y != y else y)}
        a, b = order["x"], order["y"]
        for left, right, columns in [(col.x, col.y, {"x": x, "y": y}), (lit(x), col.y, {"y": y})]:
            assert value(left == right, **columns) is (a == b)
            assert value(left != right, **columns) is (a != b)
            assert value(left < right, **columns) is (a < b)
            assert value(left <= right, **columns) is (a <= b)
            assert value(left > right, **columns) is (a > b)
            assert value(left >= right, **columns) is (a >= b)
            assert value(left.eq_null_safe(right), **columns) is (a == b)


def test_every_nan_that_is_computed_is_the_one_nan() -> None:
    assert value(col.x - col.x, x=math.inf) is NAN
    assert value(-col.x, x=NAN) is NAN
    assert value(hr.when(col.n > 0, col.x * 0.0).otherwise(1.0), x=math.inf) is NAN
    assert value(col.s.cast(float), s="NaN") is NAN


def test_both_zeros_are_one_key_and_so_are_all_nan() -> None:
    source = dict_key_source(col.y * 1.0, CodeScope(ROW, Row._fields, {}))
    compute = eval(f"lambda x, y: {source}", dict(RUNTIME))
    positive, negative = compute(0, 0.0), compute(0, -0.0)
    assert math.copysign(1, positive) == math.copysign(1, negative) == 1
    assert compute(0, math.inf * 0) is NAN
    assert compute(0, None) is None
    (zero,) = (eval(dict_key_source(col.x, CodeScope(ROW, Row._fields, {})), {**RUNTIME, "x": -0.0}),)
    assert math.copysign(1, zero) == 1


def test_floats_round_halves_away_from_zero_as_they_are_shown() -> None:
    assert value(col.x.round(), x=2.5) == 3.0
    assert value(col.x.round(), x=-2.5) == -3.0
    assert value(col.x.round(2), x=1.005) == 1.01
    assert math.copysign(1, value(col.x.round(), x=-0.2)) == 1


FLOATS = (0.0, 5e-324, 2.2250738585072014e-308, 0.1, 2.5, 1e15 + 0.5, 1e300, 1e308, math.inf, math.nan)


@pytest.mark.parametrize("number", [*FLOATS, *(-number for number in FLOATS)])
@pytest.mark.parametrize("digits", [325, 400, 401, 2**31 - 1])
def test_a_float_rounded_to_more_digits_than_it_has_is_itself(number: float, digits: int) -> None:
    assert value(col.x.round(digits), x=number) in (number, NAN)


@pytest.mark.parametrize("digits", [-310, -400, -401, -10_000_000, -(2**31)])
def test_what_is_rounded_to_a_power_of_ten_beyond_it_is_zero(digits: int) -> None:
    for number in (MAX64, MIN64, 5, 0):
        assert value(col.n.round(digits), n=number) == 0
    for number in (1.7e308, -1.7e308, 5e-324):
        assert math.copysign(1, value(col.x.round(digits), x=number)) == 1
        assert value(col.x.round(digits), x=number) == 0
    assert value(col.d.round(digits), d=Decimal("-99999999.99")) == 0


@pytest.mark.parametrize(
    ("number", "digits", "rounded"),
    [
        (5e18, -19, None),
        (4.9e18, -19, 0),
        (5e17, -18, 10**18),
        (-5e17, -18, -(10**18)),
        (4.9e17, -18, 0),
        (MAX64, -20, 0),
        (2**31, -10, 0),
    ],
)
def test_halves_of_the_greatest_powers_of_ten_are_rounded_away_from_zero(
    number: float, digits: int, rounded: int | None
) -> None:
    if rounded is None:
        with pytest.raises(EvaluationError, match="overflow"):
            value(col.n.round(digits), n=int(number))
    else:
        assert value(col.n.round(digits), n=int(number)) == rounded
    assert value(col.x.round(digits), x=float(number)) == (10.0**19 if rounded is None else rounded)


@pytest.mark.parametrize(
    ("digits", "rounded"),
    [(2**31 - 1, "12345678.95"), (3, "12345678.95"), (1, "12345679.0"), (-7, "1E7"), (-8, "0"), (-40, "0")],
)
def test_decimals_round_to_any_number_of_digits(digits: int, rounded: str) -> None:
    assert value(col.d.round(digits), d=Decimal("12345678.95")) == Decimal(rounded)


@pytest.mark.parametrize("digits", [2**31, -(2**31) - 1, 10**20, 10**5000], ids=["max", "min", "20", "5000"])
def test_digits_that_spark_cannot_count_are_refused_where_they_are_written(digits: int) -> None:
    with pytest.raises(WrongType, match="round needs digits between") as caught:
        col.x.round(digits)  # here
    (step,) = caught.value.where
    assert step.location.text.endswith("# here")


# -- decimals -------------------------------------------------------------------------------


def test_decimals_have_the_precision_that_spark_gives_them() -> None:
    def typed(expr: Expr) -> str:
        return str(check(expr, ROW))

    assert typed(col.d + col.d) == "decimal(11,2)"
    assert typed(col.d * col.d) == "decimal(21,4)"
    assert typed(col.d / col.d) == "decimal(23,13)"
    assert typed(col.d * 2) == "decimal(12,2)"
    assert typed(col.d + col.n) == "decimal(23,2)"
    assert typed(col.d * 0.5) == "float64"
    assert typed(col.d.round(1)) == "decimal(10,1)"
    assert typed(col.d.floor()) == "decimal(9,0)"
    wide = lit(Decimal(1), DecimalType(38, 10))
    assert typed(wide * wide) == "decimal(38,6)"


def test_decimals_are_exact_and_too_many_digits_raise() -> None:
    assert str(value(col.d / 3)) == "0.333333"
    assert str(value(col.d * col.d, d=Decimal("0.05"))) == "0.0025"
    assert str(value(col.d * -1, d=Decimal("0.00"))) == "0.00"
    with pytest.raises(EvaluationError, match=r"does not fit decimal\(4,2\)"):
        value(col.d.cast("decimal(4,2)"), d=Decimal("100.00"))
    for x in (NAN, math.inf, -math.inf):
        assert value(col.x.cast("decimal(4,2)"), x=x) is None


# -- null ------------------------------------------------------------------------------------


def test_truth_has_three_values() -> None:
    values = (True, False, None)
    for p in values:
        for q in values:
            both = False if False in (p, q) else None if None in (p, q) else True
            either = True if True in (p, q) else None if None in (p, q) else False
            assert value(col.p & col.q, p=p, q=q) is both
            assert value(col.p | col.q, p=p, q=q) is either
            assert value(~(col.p & col.q), p=p, q=q) is (None if both is None else not both)
            assert keeps(col.p & col.q, p, q) is (both is True)
            assert keeps(~(col.p & col.q), p, q) is (both is False)
            assert keeps(col.p | col.q, p, q) is (either is True)
            assert keeps(~(col.p | col.q), p, q) is (either is False)
            assert keeps(~~(~col.p | col.q), p, q) is (p is False or q is True)


def test_null_goes_through_functions_but_not_through_null_safe_ones() -> None:
    assert value(col.n + col.m) is None
    assert value(col.m == col.m) is None
    assert value(col.m.eq_null_safe(None)) is True
    assert value(hr.coalesce(col.m, col.n)) == 1
    assert value(hr.least(col.m, col.n, 5)) == 1
    assert value(col.m.is_in(1, 2)) is None
    assert value(col.n.is_in(2, None)) is None
    assert value(col.n.is_in(1, None)) is True
    assert value(col.m.between(0, 5)) is None
    assert value(hr.when(col.m > 0, 1)) is None


def test_guards_stand_only_where_a_type_allows_null() -> None:
    assert "None" not in source((col.n + col.i) * 2)
    assert source(col.x > 0.5) == "(not x <= 0.5)"
    assert source(col.n == 3) == "(n == 3)"
    assert source(hr.coalesce(col.n, 5)) == "n"
    assert source(col.n.is_null()) == "False"
    twice = source((col.m == col.m) == (col.m != 3))
    assert twice.count("m is None") == 1


def test_python_has_nothing_to_warn_of_where_constants_are_compared_with_null() -> None:
    text = hr.coalesce("a", col.s)
    assert value((text + hr.coalesce("b", col.s)).is_not_null()) is True
    assert value((lit("a") + "b").is_null()) is False
    assert value((lit(1) + 2).is_null()) is False
    assert value(hr.coalesce("a", col.s + col.s).is_not_null()) is True
    with pytest.raises(EvaluationError):
        value((lit(1) // (col.n - col.n)).is_null())


def test_what_raises_on_the_left_is_evaluated_before_a_null_on_the_right() -> None:
    with pytest.raises(EvaluationError):
        value((col.n // 0) + col.m)
    assert value(col.m + col.n // 0) is None
    with pytest.raises(EvaluationError):
        value((col.n + 1) * col.m, n=MAX64)


def test_divisors_are_evaluated_first() -> None:
    assert value((col.n + 1) // col.m, n=MAX64) is None
    with pytest.raises(EvaluationError):
        value(col.m // (col.n + 1), n=MAX64)


def test_only_the_chosen_branch_is_evaluated() -> None:
    assert value(hr.when(col.n != 0, 10 // col.n).otherwise(-1), n=0) == -1
    assert value(hr.coalesce(col.n, 1 // lit(0))) == 1
    assert value((col.n == 0) & (1 // col.n == 1), n=1) is False
    assert value((col.n == 0) | (10 // col.n == 1), n=0) is True


# -- places where source may stand -----------------------------------------------------------


def test_sources_work_in_comprehensions_and_lambdas() -> None:
    scope = CodeScope(ROW, Row._fields, {})
    computed = value_source((col.n + col.m) * 2 - col.n, scope)
    wanted = predicate_source((col.n + 1 > 2) & (col.x > 0.0), scope)
    unpacked = ", ".join(Row._fields)
    names: dict[str, Any] = {**RUNTIME, **scope.constants}
    code = f"def run(rows):\n return [{computed} for {unpacked} in rows if {wanted}]\n"
    exec(code, names)
    some = [DEFAULT._replace(n=n, m=m) for n, m in [(1, 1), (2, None), (3, 4)]]
    assert names["run"](some) == [None, 11]
    assert eval(f"[(lambda {unpacked}: {computed})(*row) for row in rows]", {**names, "rows": some}) == [
        3,
        None,
        11,
    ]


def test_constants_are_shared_and_named_apart() -> None:
    scope = CodeScope(ROW, Row._fields, {})
    a = value_source(col.t + timedelta(hours=1), scope)
    b = value_source(col.t == lit(NOON), scope)
    assert len(scope.constants) == 2
    assert set(scope.constants.values()) == {timedelta(hours=1), NOON}
    assert all(name in a + b for name in scope.constants)


def test_texts_are_repeated_without_a_call_except_in_bounded_code() -> None:
    scope = CodeScope(ROW, Row._fields, {})
    for expr in hr.functions.repeat(col.s, 3), hr.functions.space(col.n.cast(Int32)):
        assert "x_repeat" not in value_source(expr, scope)
        with bounded_code():
            assert "x_repeat" in value_source(expr, CodeScope(ROW, Row._fields, {}))


def test_temporaries_of_one_scope_differ() -> None:
    scope = CodeScope(ROW, Row._fields, {})
    first, second = value_source(col.n + 1, scope), value_source(col.n + 1, scope)
    assert first != second


# -- everything ---------------------------------------------------------------------------------


@given(expressions("bool"), rows)
def test_a_predicate_is_true_exactly_where_the_value_is(expr: Expr, row: Wide) -> None:
    (inside,) = internal([row])
    try:
        expected = compile_rows((expr,), SCHEMA)(inside)[0]
    except EvaluationError:
        return
    scope = CodeScope(SCHEMA, SCHEMA.names, {})
    run = eval(
        f"lambda {', '.join(SCHEMA.names)}: {predicate_source(expr, scope)}", {**RUNTIME, **scope.constants}
    )
    assert bool(run(*inside)) is (expected is True)


@given(expressions(), rows)
def test_values_are_of_the_type_that_the_check_says(expr: Expr, row: Wide) -> None:
    from headrace.expr.row_classes import from_user
    from headrace.expr.types import Field, Schema

    (inside,) = internal([row])
    try:
        computed = compile_rows((expr,), SCHEMA)(inside)
    except EvaluationError:
        return
    typed = check(expr, SCHEMA)
    schema = Schema((Field("value", typed.type, typed.nullable),))
    assert from_user(schema, what="computed")([computed]) == [computed]


@given(expressions())
def test_expressions_are_the_same_as_themselves(expr: Expr) -> None:
    assert expr.same(expr)
    assert not (expr == expr).same(expr)
    assert check(expr == expr, SCHEMA).type == BOOL


def test_names_of_generated_code_are_marked() -> None:
    assert all(name.startswith("x_") for name in RUNTIME)
    assert len(CATALOGUE) == len({f.name for f in CATALOGUE.values()})


def test_dates_and_times_are_utc() -> None:
    assert value(col.t.hour()) == 12
    assert value(col.t.tumble("5 min")) == NOON.replace(minute=30, second=0, microsecond=0)
    assert value(col.t.truncate("quarter")) == datetime(2001, 7, 1, tzinfo=UTC)
    assert value(col.t.truncate("week")) == datetime(2001, 9, 10, tzinfo=UTC)
    assert value(col.t.day_of_week()) == 3
    assert value(col.t.weekday()) == 1
    assert value(col.t.to_date()) == date(2001, 9, 11)
    assert value(col.t.micros_since(lit(NOON - timedelta(seconds=2)))) == 2_000_000
    assert value(col.t.seconds_since(lit(NOON - timedelta(milliseconds=1500)))) == 1.5
    assert value(col.s.to_timestamp(), s="2001-09-11T12:34:56.789012Z") == NOON
    assert value(col.s.to_timestamp(), s="2001-09-11 14:34:56.789012+02:00") == NOON
    before_1970 = datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert value(col.t.tumble("1h"), t=before_1970) == datetime(1969, 12, 31, 23, tzinfo=UTC)


@pytest.mark.parametrize(("days", "later", "earlier"), [("1.5", 11, 9), ("-1.5", 9, 11), ("-0.5", 10, 10)])
def test_a_date_moves_by_whole_days_cut_toward_zero(days: str, later: int, earlier: int) -> None:
    by = lit(Decimal(days)).cast(INTERVALS[0])
    tenth = hr.date("2024-01-10")
    assert value(tenth + by) == value(by + tenth) == date(2024, 1, later)
    assert value(tenth - by) == date(2024, 1, earlier)


class Moving(timedelta):
    """An interval with more than Python's has, as those of pandas."""


def test_intervals_that_are_added_are_plain_and_within_64_bits() -> None:
    least = timedelta(microseconds=MIN64)
    zero = lit(timedelta())
    assert value(zero + least) == least
    assert value(zero - timedelta(microseconds=MAX64)) == timedelta(microseconds=-MAX64)
    assert value(lit(timedelta(microseconds=-1)) - least) == timedelta(microseconds=MAX64)
    for moved in (zero + Moving(1), Moving(1) + zero, zero - Moving(-1)):
        assert isinstance(moved, FunctionCall)
        assert type(moved.options[0]) is timedelta
        assert value(moved) == timedelta(1)
    for wrong in (zero + timedelta.max, timedelta.max + zero, zero - timedelta.max, zero - timedelta.min):
        with pytest.raises(WrongType, match="not a supported column value"):
            value(wrong)


_SPAN = "1 02:03:04"
_TEXTS_OF_SPANS = {
    **dict.fromkeys((_SPAN, f" {_SPAN} ", f"\x01{_SPAN}\x7f", "+1 2:3:4"), True),
    **dict.fromkeys((f"INTERVAL '{_SPAN}' DAY TO SECOND", f"\tinterval\n'{_SPAN}'  day  to second"), True),
    **dict.fromkeys(("1   02:03:04", "1\t02:03:04", f"\xa0{_SPAN}", f"\u2003{_SPAN}", f"\x85{_SPAN}"), False),
    **dict.fromkeys(("' 1 02:03:04'", "'1 02:03:04 '", "'1  02:03:04'", f"'\xa0{_SPAN}'"), False),
}


@pytest.mark.parametrize(("text", "is_read"), _TEXTS_OF_SPANS.items())
def test_texts_of_intervals_have_blanks_only_where_spark_takes_them(text: str, is_read: bool) -> None:
    text = f"INTERVAL {text} DAY TO SECOND" if text.startswith("'") else text
    read = value(FunctionCall("try_cast", (col.s,), (INTERVAL,)), s=text)
    assert read == (timedelta(days=1, hours=2, minutes=3, seconds=4) if is_read else None)


@pytest.mark.parametrize("part", [-1, 4, 9, "day"])
def test_only_parts_that_intervals_have_are_taken(part: object) -> None:
    with pytest.raises(WrongType, match="no part"):
        value(FunctionCall("interval_part", (lit(timedelta()),), (part,)))


def test_leaving_the_years_1_to_9999_raises() -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    with pytest.raises(EvaluationError, match="does not fit timestamp"):
        value(col.t + timedelta(days=1), t=last)
    with pytest.raises(EvaluationError, match="does not fit timestamp"):
        value(col.t.tumble("400 days"), t=datetime(1, 1, 1, tzinfo=UTC))


_CONSTANTS: dict[DataType, object] = {
    BOOL: True,
    INT64: 7,
    FLOAT64: 1.5,
    DecimalType(10, 2): Decimal("1.50"),
    STR: "a",
    BYTES: b"a",
    DATE: date(2001, 9, 11),
    TIMESTAMP: NOON,
    INTERVAL: timedelta(hours=1),
    ANY: 7,
}
_LISTS, _PAIRS, _MAPS = ListType(FLOAT64), StructType((Field("x", FLOAT64),)), MapType(FLOAT64, STR, True)
_COLUMNS = Schema(tuple(Field(str(type), type, True) for type in (*_CONSTANTS, _LISTS, _PAIRS, _MAPS)))
_LEAVES: dict[DataType, tuple[Expr, ...]] = {
    type: (lit(constant), hr.coalesce(constant, None), Column(str(type)), lit(None))
    for type, constant in _CONSTANTS.items()
}
_NUMBERS = (INT64, FLOAT64, DecimalType(10, 2))
_PAIRED = {*itertools.product(_NUMBERS, repeat=2), (TIMESTAMP, DATE), *((type, type) for type in _LEAVES)}
_OF_TWO = (
    *(
        "add",
        "subtract",
        "multiply",
        "divide",
        "div",
        "modulo",
        "micros_since",
        "seconds_since",
        "days_since",
    ),
    *("try_add", "try_subtract", "try_multiply", "try_divide", "try_modulo"),
    *("eq", "ne", "lt", "le", "gt", "ge", "eq_null_safe", "is_in", "and", "or", "least", "greatest"),
    *("coalesce", "hash", "murmur3", "concat", "contains", "starts_with", "ends_with", "like", "concat_ws"),
)
_OPTIONS: dict[str, tuple[object, ...]] = {
    "arrays_zip": (("a", "b"),),
    "cast": tuple(_CONSTANTS)[:-1],
    "try_cast": tuple(_CONSTANTS)[:-1],
    "round": (1, -1),
    "bround": (1, -1),
    "round_floor": (1, -1),
    "round_ceil": (1, -1),
    "field": ("x",),
    "from_json": ([ListType(INT64), "PERMISSIVE"], [StructType((Field("a", STR),)), "FAILFAST"]),
    "mask": (["X", None, "n", "-"],),
    "struct": (("x",),),
    "interval_part": (0, 3),
    "shift": (timedelta(hours=1),),
    "tumble": (timedelta(hours=1),),
    "truncate": ("hour",),
}


_PREPARED: dict[Any, object] = {
    start_at: 1,
    unit_of: "DAY",
    weekday_of: "MO",
    zone_of: "UTC",
    reader_of: "hex",
    number_writer: "9",
    format_pattern: "yyyy",
    parse_pattern: "yyyy",
}


def _fixed_arguments(function: FixedFunction) -> Iterable[tuple[Expr, ...]]:
    """At the last places of a long call, constants only."""
    choices: list[tuple[Expr, ...]] = []
    for at, parameter in enumerate(function.takes):
        wanted = parameter[0] if isinstance(parameter, tuple) else parameter
        if isinstance(wanted, DecimalType) or wanted is DecimalType:
            wanted = DecimalType(10, 2)
        assert isinstance(wanted, DataType)
        leaves = _LEAVES[_drawn_as(wanted)]
        if wanted == TIMESTAMP_NTZ:
            leaves = tuple(leaf.cast(hr.TimestampNtz) for leaf in leaves)
        if at in function.prepared:
            leaves = (lit(_PREPARED.get(function.prepared[at], "a")), *leaves[1:])
        choices.append(leaves[:1] if at > 2 else leaves)
    return itertools.product(*choices)


def _drawn_as(type: DataType) -> DataType:
    if isinstance(type, IntegerType):
        return INT64
    return TIMESTAMP if type == TIMESTAMP_NTZ else type


_OF_LISTS: tuple[Expr, ...] = (
    Column(str(_LISTS)),
    hr.array(lit("a"), lit(None)),
    hr.array(Column(str(_LISTS)), Column(str(_LISTS))),
    *(lit(1), lit(True), lit("a"), lit(None), lit(date(2024, 2, 29))),
    lambda_of(variable("x"), ("x",)),
    lambda_of(variable("x") == variable("x"), ("x",)),
    lambda_of(variable("y").is_null(), ("x", "y")),
    lambda_of(lit(1, Int32), ("x", "y")),
)
"""Arguments of functions of lists, of which some combinations are legal."""

_OF_MAPS: tuple[Expr, ...] = (
    Column(str(_MAPS)),
    Column(str(_LISTS)),
    hr.array(hr.struct(a=lit(1), b=Column(str(FLOAT64)))),
    *(lit(1.5), lit("a"), lit(None)),
    lambda_of(variable("x"), ("x", "y")),
    lambda_of(variable("x") > 1, ("x", "y")),
    lambda_of(variable("y") + variable("z"), ("x", "y", "z")),
)
"""Arguments of functions of maps, of which some combinations are legal."""


def _arguments(function: str) -> Iterable[tuple[Expr, ...]]:
    """Constants and columns in every position, some that no type allows too."""
    fixed = CATALOGUE[function]
    if isinstance(fixed, FixedFunction):
        return _fixed_arguments(fixed)
    if function == "to_csv":
        pairs = itertools.product(_LEAVES[STR], _LEAVES[INT64])
        return ((hr.struct(a=one, b=other),) for one, other in pairs)
    if function.endswith("to_number"):
        return itertools.product(_LEAVES[STR], [lit("9"), lit(None)])
    if fixed.meaning:
        of_maps = "map" in function or function.startswith("transform_")
        most = fixed.arity[1] or (2 if of_maps else fixed.arity[0] + 1)
        return itertools.product(_OF_MAPS if of_maps else _OF_LISTS, repeat=most)
    match function:
        case "when":
            pairs = (itertools.product(values, repeat=2) for values in _LEAVES.values())
            return ((c, *pair) for c, pair in itertools.product(_LEAVES[BOOL], itertools.chain(*pairs)))
        case "substring":
            return itertools.product(_LEAVES[STR], _LEAVES[INT64], _LEAVES[INT64])
        case "replace":
            return itertools.product(_LEAVES[STR], repeat=3)
        case "ltrim_of" | "rtrim_of":
            return itertools.product(_LEAVES[STR], repeat=2)
        case "split_part":
            return itertools.product(_LEAVES[STR], _LEAVES[STR], _LEAVES[INT64])
        case "array_repeat" | "only_row":
            return itertools.product(itertools.chain(*_LEAVES.values()), _LEAVES[INT64])
        case "format_string":
            return ((lit("%s %<s".replace("<", "1$")), leaf) for leaf in _LEAVES[STR])
        case "elt":
            return itertools.product(_LEAVES[INT64], _LEAVES[STR], _LEAVES[STR])
        case "arrays_zip":
            return itertools.product(_OF_LISTS, repeat=2)
        case "element":
            maps = itertools.product([Column(str(_MAPS))], _LEAVES[FLOAT64])
            return itertools.chain(itertools.product([Column(str(_LISTS))], _LEAVES[INT64]), maps)
    if function in _OF_TWO:
        return itertools.chain(*(itertools.product(_LEAVES[a], _LEAVES[b]) for a, b in _PAIRED))
    leaves = itertools.chain(*_LEAVES.values())
    return ((leaf,) for leaf in (*leaves, *(Column(str(type)) for type in (_LISTS, _PAIRS, _MAPS))))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("function", sorted(CATALOGUE.keys() - {"lambda", "variable"}))
def test_constants_in_every_position_compile_without_a_warning(function: str) -> None:
    legal = 0
    for arguments, option in itertools.product(_arguments(function), _OPTIONS.get(function, (None,))):
        options = cast("list[object]", option) if isinstance(option, list) else [option]
        expr = FunctionCall(function, arguments, () if option is None else tuple(options))
        if function == "raise_error":
            expr = expr.cast(int)
        scope = CodeScope(_COLUMNS, tuple(f"c{at}" for at in range(len(_COLUMNS.fields))), {})
        try:
            sources = [value_source(expr, scope)]
        except WrongType:
            continue
        legal += 1
        tested = expr.is_null() & expr.is_not_null()
        if not holds_maps(check(expr, _COLUMNS).type):
            tested &= expr.eq_null_safe(expr)
        sources += [
            value_source(tested, scope),
            predicate_source(tested, scope),
            dict_key_source(expr, scope),
        ]
        compile(f"({', '.join(sources)})", str(expr), "eval")
    assert legal


@pytest.mark.filterwarnings("error")
@given(expressions())
def test_generated_code_compiles_without_a_warning(expr: Expr) -> None:
    compile(value_source(expr, CodeScope(SCHEMA, SCHEMA.names, {})), "<expression>", "eval")


@pytest.mark.filterwarnings("error")
def test_a_constant_before_a_null_needs_no_guard() -> None:
    assert value((lit(1079).round(1) + col.m) / -3) is None


def test_long_sums_work_and_endless_ones_are_refused() -> None:
    total = col.n
    for _ in range(60):
        total = total + 1
    assert value(total) == 61
    for _ in range(60):
        total = total + 1
    with pytest.raises(WrongType, match="nested too deeply"):
        value_source(total, CodeScope(ROW, Row._fields, {}))
