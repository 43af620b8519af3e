"""Random typed expressions and rows, for tests that compare lowerings.

`expressions()` draws a kind of value first and then an expression of that kind,
so everything it draws passes the check. Kinds are coarser than types: an
expression of kind "decimal" has whatever precision its parts give it.
"""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

from hypothesis import strategies as st

import headrace as hr
from headrace.expr.code_runtime import float32
from headrace.expr.constructors import lit
from headrace.expr.function_records import FixedFunction
from headrace.expr.functions import CATALOGUE
from headrace.expr.functions.calendar import weekday_of
from headrace.expr.functions.encodings import reader_of
from headrace.expr.functions.instants import unit_of
from headrace.expr.functions.string_search import start_at
from headrace.expr.java_patterns import java_pattern
from headrace.expr.json_writer import json_path
from headrace.expr.row_classes import from_user, schema_of
from headrace.expr.text_casts import number_writer
from headrace.expr.time_patterns import format_pattern, parse_pattern
from headrace.expr.time_texts import zone_of
from headrace.expr.tree import Column, Expr, FunctionCall, operand
from headrace.expr.types import (
    BOOL,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    INTEGERS,
    INTERVAL,
    INTERVALS,
    STR,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    Float32,
    Int8,
    Int16,
    Int32,
    IntegerType,
    ListType,
    MapType,
    TimestampNtz,
)
from headrace.expr.value_keys import nested_key
from tests.expr import random_json

F = hr.functions
MIN64, MAX64 = -(2**63), 2**63 - 1
MIN32, MAX32 = -(2**31), 2**31 - 1


class Inner(NamedTuple):
    n: int
    x: float | None
    s: str


class Wide(NamedTuple):
    """A column of each type, with nulls (`_`) and without."""

    b: bool
    b_: bool | None
    i: Int32
    i_: Int32 | None
    n: int
    n_: int | None
    m_: int | None
    x: float
    x_: float | None
    y_: float | None
    d: Annotated[Decimal, DecimalType(10, 2)]
    d_: Annotated[Decimal, DecimalType(10, 2)] | None
    e_: Annotated[Decimal, DecimalType(20, 6)] | None
    s: str
    s_: str | None
    number: str
    r_: bytes | None
    day: date
    day_: date | None
    t: datetime
    t_: datetime | None
    tiny: Int8
    tiny_: Int8 | None
    small: Int16
    small_: Int16 | None
    real: Float32
    real_: Float32 | None
    local: TimestampNtz
    local_: TimestampNtz | None
    span: timedelta
    span_: timedelta | None
    inner: Inner
    inner_: Inner | None
    ns: list[int]
    xs_: list[float | None] | None
    ms: dict[str, int]
    fs_: dict[float, float | None] | None


class Read(NamedTuple):
    """What is read from JSON."""

    a: Int32
    tiny: Int8
    real: Float32
    b: str | None
    c: list[int]
    x: float
    d: Annotated[Decimal, DecimalType(10, 2)]


SCHEMA = schema_of(Wide)

# Characters that Python and Java agree to be letters, and some that are hard: surrogate pairs
# outside the basic plane, a ligature, dotted capital i, final sigma, combining marks.
_CHARACTERS = st.one_of(
    st.sampled_from(list("aAbBzZ019 -,.%_\t\nßİΣςéÉ𐐀😀ﬁ\u0301")),
    st.characters(codec="utf-8", categories=["Lu", "Ll", "Nd", "Zs", "Po"], max_codepoint=0x17F),
)
strings = st.one_of(
    st.sampled_from(["", " ", "a", "a,b,c", ",", ",,", "  trim me  ", "Straße", "ΑΣ", "\t12\n"]),
    st.text(_CHARACTERS, max_size=8),
    st.text(_CHARACTERS, min_size=30, max_size=80),
)
numerals = st.one_of(
    st.sampled_from(
        ["12", " -7 ", "+0", "9223372036854775807", "9223372036854775808", "2147483648", "1e3", "1.5", ".5"]
    ),
    st.sampled_from(
        ["", "x", "nan", "Infinity", "-inf", "1.005", "5.", "1e400", "1.5d", "true", "NO", "1_0"]
    ),
    st.sampled_from(
        ["2001-01-02", "2001-1-2 3:4", "2001-02-29", "2000-02-29T23:59:59.9999999Z", "1999-12-31 23:59:60"]
    ),
    st.sampled_from(
        [
            "2001-01-02 03:04:05+01:30",
            "2001",
            "2001-13",
            "0001-01-01",
            "2001-01-02 3:4Z",
            "2001-01-02 03:04:05 +1",
        ]
    ),
    st.integers(MIN64, MAX64).map(str),
)
int64s = st.one_of(
    st.integers(-10, 10),
    st.sampled_from([0, 1, -1, MIN64, MAX64, MIN64 + 1, 2**53 + 1, -(2**53) - 1, 2**31, 3037000500]),
    st.integers(MIN64, MAX64),
)
int32s = st.one_of(
    st.integers(-10, 10), st.sampled_from([MIN32, MAX32, 46341, 65536]), st.integers(MIN32, MAX32)
)
int16s = st.one_of(
    st.integers(-10, 10), st.sampled_from([-(2**15), 2**15 - 1, 182]), st.integers(-(2**15), 2**15 - 1)
)
int8s = st.one_of(st.integers(-10, 10), st.sampled_from([-128, 127, 12]), st.integers(-128, 127))
floats = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 2.5, 1.005, math.nan, math.inf, -math.inf]),
    st.sampled_from([1e300, -1e300, 5e-324, 1e16, 0.1, 9.2e18, 2.0**63, -(2.0**63), 2.0**31]),
    st.floats(-1000, 1000),
    st.floats(),
)
float32s = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, float32(0.1), 2.5, 2.0**24, 2.0**127, math.nan, math.inf, -math.inf]),
    st.floats(-1000, 1000, width=32),
    st.floats(width=32),
)
decimals = st.one_of(
    st.sampled_from(["0.00", "1.00", "-1.00", "99999999.99", "-99999999.99", "0.01", "2.50", "-0.05"]).map(
        Decimal
    ),
    st.integers(-(10**10) + 1, 10**10 - 1).map(lambda n: Decimal(n).scaleb(-2)),
)
long_decimals = st.one_of(
    st.sampled_from(["0.000000", "1.000000", "-0.000001", "99999999999999.999999", "33.333333"]).map(Decimal),
    st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: Decimal(n).scaleb(-6)),
)
dates = st.one_of(
    st.dates(date(1900, 1, 1), date(2100, 12, 31)),
    st.sampled_from(
        [date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), date(2000, 2, 29), date(1582, 10, 10)]
    ),
)
timestamps = st.one_of(
    st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)).map(
        lambda t: t.replace(fold=0)
    ),
    st.sampled_from(
        [
            datetime(1970, 1, 1, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
            datetime(2001, 9, 9, 1, 46, 40, 5, UTC),
            datetime(1582, 10, 4, 12, tzinfo=UTC),
        ]
    ),
)
locals_ = timestamps.map(lambda t: t.replace(tzinfo=None))
spans = st.one_of(
    st.sampled_from([timedelta(seconds=10), timedelta(hours=1), timedelta(days=1), timedelta(minutes=7)]),
    st.timedeltas(timedelta(microseconds=1), timedelta(days=400)),
)
intervals = st.one_of(
    st.timedeltas(timedelta(days=-400), timedelta(days=400)),
    st.sampled_from(
        [
            timedelta(),
            timedelta(days=1),
            timedelta(hours=-30),
            timedelta(microseconds=-1),
            timedelta(microseconds=MIN64),
            timedelta(microseconds=MAX64),
        ]
    ),
)
inners = st.builds(Inner, int64s, st.none() | floats, strings)
_VALUES = {
    "b": st.booleans(),
    "i": int32s,
    "n": int64s,
    "m": int64s,
    "x": floats,
    "y": floats,
    "d": decimals,
    "e": long_decimals,
    "s": strings,
    "number": numerals,
    "r": st.binary(max_size=40),
    "day": dates,
    "t": timestamps,
    "tiny": int8s,
    "small": int16s,
    "real": float32s,
    "local": locals_,
    "span": intervals,
    "inner": inners,
    "ns": st.lists(int64s, max_size=3),
    "xs": st.lists(st.none() | floats, max_size=3),
    "ms": st.dictionaries(st.sampled_from(["a", "b", ""]) | strings, int64s, max_size=3),
    "fs": st.dictionaries(floats.map(nested_key), st.none() | floats, max_size=3),
}
rows: st.SearchStrategy[Wide] = st.builds(
    Wide,
    **{
        name: (st.none() | _VALUES[name.rstrip("_")] if name.endswith("_") else _VALUES[name])
        for name in SCHEMA.names
    },
)


def internal(some: list[Wide]) -> list[tuple[Any, ...]]:
    """The rows as they are inside."""
    return from_user(SCHEMA, what="rows")(some)


# -- expressions --------------------------------------------------------------------------


def _columns(*names: str) -> st.SearchStrategy[Expr]:
    return st.sampled_from(names).map(Column)


def _literals(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Expr]:
    return values.map(lit)


_LEAVES: dict[str, st.SearchStrategy[Expr]] = {
    "bool": _columns("b", "b_") | _literals(st.booleans()) | st.just(lit(None, bool)),
    "int8": _columns("tiny", "tiny_") | int8s.map(lambda v: lit(v, Int8)),
    "int16": _columns("small", "small_") | int16s.map(lambda v: lit(v, Int16)),
    "int32": _columns("i", "i_") | int32s.map(lambda v: lit(v, Int32)),
    "int64": _columns("n", "n_", "m_", "n") | _literals(int64s),
    "float": _columns("x", "x_", "y_") | _literals(floats),
    "float32": _columns("real", "real_") | float32s.map(lambda v: lit(v, Float32)),
    "decimal": _columns("d", "d_", "e_") | _literals(decimals),
    "str": _columns("s", "s_", "number") | _literals(strings),
    "bytes": _columns("r_") | _literals(st.binary(max_size=6)),
    "date": _columns("day", "day_") | _literals(dates),
    "timestamp": _columns("t", "t_") | _literals(timestamps),
    "timestamp_ntz": _columns("local", "local_") | locals_.map(lambda v: lit(v, TimestampNtz)),
    "interval": _columns("span", "span_") | _literals(intervals),
}
KINDS = tuple(_LEAVES)
_INTEGERS = ("int8", "int16", "int32", "int64")
_NUMBERS = (*_INTEGERS, "float32", "float", "decimal")
_KIND_OF = {
    BOOL: "bool", **{each: str(each) for each in INTEGERS}, FLOAT32: "float32", FLOAT64: "float", STR: "str",
    BYTES: "bytes", DATE: "date",
    TIMESTAMP: "timestamp", TIMESTAMP_NTZ: "timestamp_ntz", INTERVAL: "interval",
}  # fmt: skip
_FIXED: dict[str, list[FixedFunction]] = {}


def _kind_of(type: Any) -> str:
    """The kind of a parameter or result; lists and maps are drawn by their length."""
    if isinstance(type, ListType | MapType):
        return "list" if isinstance(type, ListType) else "map"
    return "decimal" if type is DecimalType or isinstance(type, DecimalType) else _KIND_OF[type]


for _function in CATALOGUE.values():
    if isinstance(_function, FixedFunction) and _function.meaning:
        _result = _function.result
        _kinds = (_kind_of(_result),) if _result is not None else map(_kind_of, _function.takes[0])
        for _kind in _kinds:
            _FIXED.setdefault(_kind, []).append(_function)
_ZONES = ("Z", " UTC+3", " Europe/Zurich", "PST", " -3:5", "GMT+04:30", " +0930", " utc", " UT-1 ", "X")
_SMALL = st.integers(-5, 5)

_PATTERNS = st.sampled_from(
    [
        *("a", "[a-c]+", "(?i)SS", r"\d+", r"\w", r"\s+", r"(\w)(\d)?", r"^\s", r"\d$", "(?m)^a|9$", "a|b|,"),
        *(
            r"(?<first>\p{L})\k<first>",
            r"[^\w\s]",
            r"\p{Lu}",
            r"\b[a-z]",
            r"(a|b)+?,",
            r"\Aa.*\z",
            "(?s)a.",
            "é",
        ),
        *(r"[\p{Alpha}&-]", r"\Q.\E", r"(?:1|2){1,2}", r"\h", r"\R", r"(?=1)\d", r"[0-9]++", r"(\d)(?!\1)\S"),
    ]
)
_LETTERS = [
    *("y", "yyyy", "yy", "M", "MM", "LLL", "d", "dd", "D", "DD", "H", "kk"),
    *("K", "hh", "m", "ss", "S", "SSS", "a"),
]
_TIME_PATTERNS = st.sampled_from(
    [
        *(
            "yyyy-MM-dd",
            "yyyy-MM-dd HH:mm:ss",
            "yyyy/M/d",
            "dd.MM.yy",
            "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
            "yyyy",
        ),
        *("d MMM yyyy hh:mm a", "MMMM d, y", "yyyy DDD", "HHmmss", "k:m", "yyyy-MM", "dd-DDD", "yyyy[-MM]"),
    ]
) | st.lists(st.sampled_from(_LETTERS), min_size=1, max_size=4).map("-".join)
_seeds = st.integers(0, 10_000).map(random.Random)
# Half of a surrogate pair is something else in `json_tuple` on Spark.
_JSON = _seeds.map(lambda choice: random_json.json_text(choice, 0.3).replace('\\ud83d"', '"'))
_NUMBER_FORMATS = ("9", "99999.99", "S$000,009.90", "999,999,999,999D999PR", "mi9G999.", "0009S", "999.99MI")
_PREPARED: dict[Any, st.SearchStrategy[Any]] = {
    json_path: _seeds.map(random_json.json_path),
    start_at: st.integers(1, 9),
    number_writer: st.sampled_from(_NUMBER_FORMATS),
    reader_of: st.sampled_from(["hex", "BASE64", "utf-8", "utf8"]),
    java_pattern: _PATTERNS,
    format_pattern: _TIME_PATTERNS | st.sampled_from(["EEE QQQ q", "EEEE K SSS D", "''yy"]),
    parse_pattern: _TIME_PATTERNS,
    unit_of: st.sampled_from(["microsecond", "SECOND", "hour", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"]),
    weekday_of: st.sampled_from(["MO", "tue", "Sunday"]),
    zone_of: st.sampled_from(
        [
            *("UTC", "Europe/Zurich", "America/New_York", "Asia/Kolkata", "+02:30", "-11:00", "UTC+3", "PST"),
            *("GMT-4:05", "+013007", "Etc/GMT+3"),
        ]
    ),
}


@st.composite
def expressions(draw: st.DrawFn, kind: str | None = None, depth: int = 3) -> Expr:
    """An expression over `SCHEMA` that passes the check."""
    if kind is None:
        kind = draw(st.sampled_from(KINDS))
    return _Drawing(draw).of(kind, depth)


@st.composite
def calls(draw: st.DrawFn, function: FixedFunction) -> Expr:
    """A call of a function of fixed types, with arguments of some depth."""
    kind = (
        "" if function.result is not None else draw(st.sampled_from(list(map(_kind_of, function.takes[0]))))
    )
    call = _Drawing(draw).fixed(function, draw(st.integers(0, 1)), kind)
    return call.length() if isinstance(function.result, ListType | MapType) else call


@st.composite
def lists(draw: st.DrawFn) -> Expr:
    """A list of whole numbers."""
    return _Drawing(draw).list(2)


@st.composite
def maps(draw: st.DrawFn) -> Expr:
    """A map from text to whole numbers, or what is made of one."""
    return draw(st.sampled_from((_Drawing.map, _Drawing.of_map)))(_Drawing(draw), 2)


def modest(value: Expr) -> Expr:
    """Floats without those that Java before 19 shows with a digit too many, by which they are rounded."""
    return hr.when((value.abs() < 1e9) | ~(value.abs() < math.inf), value).otherwise(2.5)


class _Drawing:
    """One expression being drawn. `_<kind>` lists the ways to make a value of a kind."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def of(self, kind: str, depth: int) -> Expr:
        if depth == 0 or self.draw(st.integers(0, 5)) == 0:
            return self.draw(_LEAVES[kind])
        ways = [*getattr(self, f"_{kind}")(depth - 1), *self._any(kind, depth - 1)]
        return self.draw(st.sampled_from(ways))()

    def pick(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def number(self, depth: int) -> Expr:
        return self.of(self.pick(*_NUMBERS), depth)

    def _any(self, kind: str, d: int) -> list[Any]:
        def value() -> Expr:
            return self.of(kind, d)

        ways: list[Any] = [
            lambda: hr.when(self.of("bool", d), value()).otherwise(value()),
            lambda: hr.when(self.of("bool", d), value()).when(self.of("bool", d), value()),
            lambda: hr.coalesce(value(), value()),
            lambda: hr.coalesce(value(), None, value()),
        ]
        # Spark drops what else is in a list or a struct, with its failures and its nulls.
        ways.append(lambda: hr.struct(a=value(), b=Column("n_")).field("a"))
        ways.append(lambda: self._of_twice(value()))
        ways.append(lambda: FunctionCall("only_row", (value(), self.of("int64", d))))
        ways.append(lambda: FunctionCall("try_eval", (value(),)))
        ways.append(lambda: hr.when(Column("n") == 7, F.raise_error(self.of("str", d))).otherwise(value()))
        if kind in _FIXED:
            # More of them than of other ways.
            ways += [lambda: self.fixed(self.pick(*_FIXED[kind]), d, kind)] * 2
        if kind != "bytes":
            ways.append(lambda: self.pick(hr.least, hr.greatest)(value(), value(), value()))
        return ways

    def fixed(self, function: FixedFunction, d: int, kind: str = "") -> Expr:
        """A call of a function of fixed types. Its counts and places are small."""
        of_bits = function.takes[:1] == (INTEGERS,) and function.result is None
        small = function.result not in (DATE, INT64, TIMESTAMP) and not of_bits
        arguments: list[Expr] = []
        for at, type in enumerate(function.takes):
            wanted = [_kind_of(each) for each in (type if isinstance(type, tuple) else (type,))]
            if of_bits:  # the widest one is the result's
                wanted = wanted[: wanted.index(kind) + 1]
            of_result = function.result is None and type == function.takes[0]
            wanted = kind if of_result and (at == 0 or not of_bits) else self.pick(*wanted)
            make = function.prepared.get(at)
            if make is not None:
                arguments.append(self.prepared(_PREPARED[make], at in function.constant))
            elif wanted == "int32" and small:
                arguments.append(self.draw(_SMALL.map(lit)))
            elif "json" in function.name:
                arguments.append(self.json(d))
            elif function.name == "format_number" and wanted == "float":
                # Java before 19 shows some large ones with a digit too many.
                number = self.of(wanted, d)
                arguments.append(hr.when(number.abs() < 1e9, number).otherwise(2.5))
            else:
                arguments.append(self.of(wanted, d))
        call = FunctionCall(function.name, tuple(arguments))
        if not function.approximate:
            return call
        # Its last digits depend on the library.
        return hr.when(call.abs() < 1e9, call).otherwise(2.5).round(4)

    def hash(self, *values: Expr) -> Expr:
        return self.pick(hr.hash(*values), FunctionCall("murmur3", values).cast(int))

    def prepared(self, texts: st.SearchStrategy[Any], constant: bool) -> Expr:
        """A pattern or the like: a constant for the most part, or by row."""
        one, other = lit(self.draw(texts)), lit(self.draw(texts))
        by_row = [hr.when(Column("b"), one).otherwise(other), Column("number"), Column("s_")]
        return one if constant else self.pick(one, one, one, *by_row)

    def json(self, d: int) -> Expr:
        """A text that is JSON for the most part."""
        return self.pick(
            lambda: self.draw(_JSON.map(lit)),
            lambda: hr.when(Column("b"), self.draw(_JSON)).otherwise(self.draw(_JSON)),
            lambda: F.to_json(hr.struct(a=self.of("int32", d), b=self.of("str", d), c=self.list(d))),
            lambda: self.of("str", d),
        )()

    def from_json(self, d: int, name: str) -> Expr:
        """A field of what is read from JSON."""
        return F.from_json(self.json(d), Read).field(name)

    def texts(self, d: int) -> Expr:
        texts = self.fixed(self.pick(*_FIXED["list"]), d)
        return self.pick(texts, texts, hr.concat(texts, hr.array(Column("s_"))), F.reverse(texts))

    # -- maps from text to int64 ----------------------------------------------------------

    def map(self, d: int) -> Expr:
        """A map from text to int64, which may be null and hold null values."""
        ms = Column("ms")
        if d <= 0 or self.draw(st.integers(0, 3)) == 0:
            one = F.map("a", Column("n_"), "b", Column("n"))
            return self.pick(ms, hr.when(Column("b"), ms), one, F.map(Column("s_"), Column("n_")))

        def some() -> Expr:
            return self.map(d - 1)

        def number() -> Expr:
            return self.of("int64", d - 1)

        return self.pick(
            # After a null, Spark evaluates a further argument in some ways, and in others not.
            lambda: F.map_concat(hr.coalesce(some(), Column("ms")), some()),
            lambda: F.map_concat(F.transform_keys(Column("ms"), lambda k, v: "_" + k), some()),
            lambda: F.map_from_arrays(F.map_keys(some()), F.map_values(some())),
            lambda: F.map_from_arrays(hr.array(Column("s"), Column("s_")), F.slice(self.list(d - 1), 1, 2)),
            lambda: F.map_from_entries(F.filter(F.map_entries(some()), lambda e: e.field("value") > 0)),
            lambda: F.map_from_entries(hr.array(hr.struct(a=Column("s"), b=number()))),
            lambda: FunctionCall("map_sort", (some(),)),
            lambda: F.transform_keys(some(), lambda k, v: self.pick(k, k + "x", k.upper(), v.cast(str))),
            lambda: F.transform_values(some(), lambda k, v: self.of_element(v, d)),
            lambda: F.transform_values(some(), lambda k, v: k.length().cast(int)),
            lambda: F.map_filter(some(), lambda k, v: self.pick(self.condition(v, d), k > "a", k == "b")),
            lambda: F.map_zip_with(some(), some(), lambda k, a, b: self.pick(a, hr.coalesce(a, b), a - b)),
            lambda: F.transform_values(Column("ms"), lambda k, v: v % 9).cast(dict[str, int | None]),
            lambda: F.map(1, Column("n_"), 2.5, 7).cast(dict[str, int | None]),
            lambda: F.from_json(self.json(d), dict[str, int]),
            lambda: F.from_json(F.to_json(some()), dict[str, int], "FAILFAST"),
        )()

    def of_map(self, d: int) -> Expr:
        """A value that is made of a map."""
        keys, fs = self.pick("a", "b", "", Column("s")), Column("fs_")
        return self.pick(
            lambda: self.map(d)[keys],
            lambda: self.map(d)["a"],
            lambda: self.pick(F.element_at, F.try_element_at)(self.map(d), keys),
            lambda: F.map_contains_key(self.map(d), keys),
            lambda: F.map_keys(self.map(d)),
            lambda: F.map_values(self.map(d)),
            lambda: F.map_entries(self.map(d)),
            lambda: F.size(self.map(d)),
            lambda: self.pick(fs, F.map_concat(fs, F.map(77.5, Column("x_")))),
            lambda: fs[self.of("float", d)],
            lambda: F.map_contains_key(fs, self.of("float", d)),
            lambda: F.transform_keys(fs, lambda k, v: k * 0.5),
            lambda: F.transform_values(fs, lambda k, v: hr.coalesce(v, k)),
            lambda: F.map_zip_with(fs, F.map(0, Column("x")), lambda k, a, b: hr.coalesce(a, b, k)),
            lambda: F.map(self.of("float", d), self.of("float", d)),
            lambda: F.map(-Column("x"), fs),
            lambda: FunctionCall("map_sort", (fs,)),
        )()

    # -- lists of int64 -------------------------------------------------------------------

    def list(self, d: int) -> Expr:
        """A list of int64, which may be null and hold nulls."""
        ns = Column("ns")
        if d <= 0 or self.draw(st.integers(0, 3)) == 0:
            return self.pick(ns, hr.when(Column("b"), ns), hr.array(Column("n_"), 1, Column("n")))

        def some() -> Expr:
            return self.list(d - 1)

        def few() -> Expr:
            return F.slice(some(), 1, 3)

        def small() -> Expr:
            return self.draw(_SMALL.map(lit))

        return self.pick(
            lambda: F.transform(some(), lambda x: self.of_element(x, d)),
            lambda: F.transform(some(), lambda x, at: self.of_element(x, d) % 7 + at),
            lambda: F.filter(some(), lambda x: self.condition(x, d)),
            lambda: F.filter(some(), lambda x, at: at < self.draw(_SMALL)),
            lambda: F.zip_with(some(), some(), lambda x, y: self.pick(x, y, hr.coalesce(x, y), x - y)),
            lambda: F.array_sort(some(), lambda x, y: hr.when(x > y, -1).otherwise(0).cast(Int32)),
            lambda: self.pick(F.array_sort, F.array_distinct, F.array_compact, F.reverse)(some()),
            lambda: F.sort_array(some(), self.draw(st.booleans())),
            lambda: F.array_insert(some(), self.pick(1, 2, -1, -2, 5, -5), self.of("int64", d - 1)),
            lambda: F.slice(some(), self.pick(1, 2, -1, -3), self.pick(0, 1, 2)),
            lambda: self.pick(F.array_union, F.array_intersect, F.array_except, hr.concat)(some(), some()),
            lambda: F.array_remove(some(), self.of("int64", d - 1)),
            lambda: F.flatten(hr.array(few(), few())),
            lambda: F.sequence(small().cast(int), small()),
            lambda: F.transform(F.arrays_zip(a=some(), b=few()), lambda x: x.field("b")),
            lambda: hr.array(Column("i_"), Column("i")).cast(list[int | None]),
            lambda: F.map_values(self.map(d - 1)),
        )()

    def of_element(self, x: Expr, d: int) -> Expr:
        return self.pick(x, x + 1, hr.coalesce(x, Column("n_")), hr.when(x > 0, x), x % 5 + Column("n_"))

    def condition(self, x: Expr, d: int) -> Expr:
        return self.pick(x > 0, x == Column("n_"), x.is_null(), x % 2 == 0, x < self.of("int64", d - 1))

    def _of_twice(self, value: Expr) -> Expr:
        return hr.array(value, value)[self.pick(0, 1)]

    def _bool(self, d: int) -> list[Any]:
        kind = self.pick(*KINDS)
        compare = self.pick("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "eq_null_safe")

        def pair() -> tuple[Expr, Expr]:
            if kind in _NUMBERS and self.draw(st.booleans()):
                return self.of(kind, d), self.number(d)
            return self.of(kind, d), self.of(kind, d)

        def two() -> Expr:
            a, b = pair()
            return getattr(a, compare)(b)

        def part() -> Expr:
            made = self.of(kind, d)
            # Structs of decimals of other precisions do not go together.
            return made.cast(DecimalType(20, 4)) if kind == "decimal" else made

        text = self.pick("contains", "starts_with", "ends_with", "like")
        return [
            two,
            two,
            lambda: getattr(self.list(d), compare)(self.list(d)),
            lambda: getattr(hr.struct(a=part(), b=self.list(d)), compare)(
                hr.struct(a=part(), b=self.list(d))
            ),
            lambda: getattr(FunctionCall("by_position", (hr.struct(a=part()),)), compare)(
                FunctionCall("by_position", (hr.struct(b=part()),))
            ),
            lambda: self.of("bool", d) & self.of("bool", d),
            lambda: self.of("bool", d) | self.of("bool", d),
            lambda: ~self.of("bool", d),
            lambda: self.of(kind, d).is_null(),
            lambda: self.of(kind, d).is_not_null(),
            lambda: self.of(self.pick("float", "float32"), d).is_nan(),
            lambda: self.of(kind, d).is_in(*(self.draw(_LEAVES[kind]) for _ in range(self.pick(1, 2, 3)))),
            lambda: self.of("int64", d).is_in(1, -1, None, MAX64),
            lambda: self.of("float", d).is_in(math.nan, 0.0, 1.5),
            lambda: self.of("str", d).is_in("a", ""),
            lambda: self.of(kind, d).between(self.of(kind, d), self.draw(_LEAVES[kind])),
            lambda: getattr(self.of("str", d), text)(self.of("str", d)),
            lambda: self.of("str", d).like(self.of("str", d), escape=self.pick("/", "%", "a", "_")),
            lambda: self.number(d).cast(bool),
            lambda: Column("number").cast(bool),
            lambda: F.array_contains(self.list(d), self.of("int64", d)),
            lambda: F.array_contains(Column("xs_"), self.of("float", d)),
            lambda: F.arrays_overlap(self.list(d), self.list(d)),
            lambda: F.map_contains_key(self.map(d), self.of("str", d)),
            lambda: self.pick(F.exists, F.forall)(self.list(d), lambda x: self.condition(x, d)),
        ]

    def _int8(self, d: int) -> list[Any]:
        return [*self._narrow_integer(INT8, d), lambda: self.from_json(d, "tiny")]

    def _int16(self, d: int) -> list[Any]:
        return [*self._narrow_integer(INT16, d), lambda: self.of("int16", d) + self.of("int8", d)]

    def _narrow_integer(self, type: IntegerType, d: int) -> list[Any]:
        others = [kind for kind in (*_NUMBERS, "bool") if kind != str(type)]
        return [
            *self._arithmetic(str(type), lambda: self.draw(_SMALL), d),
            lambda: self.of(self.pick(*others), d).cast(type),
            lambda: self.tried_cast(type, d, *others),
            lambda: Column("number").cast(type),
        ]

    def _int32(self, d: int) -> list[Any]:
        kind = self.pick(*KINDS)

        def day_field(name: str) -> Any:
            return lambda: getattr(self.of(self.pick("date", "timestamp", "timestamp_ntz"), d), name)()

        def time_field(name: str) -> Any:
            return lambda: getattr(self.of(self.pick("timestamp", "timestamp_ntz"), d), name)()

        return [
            *self._arithmetic("int32", lambda: self.draw(_SMALL), d),
            lambda: self.of(self.pick("str", "bytes"), d).length(),
            *map(day_field, ("year", "quarter", "month", "day", "day_of_week", "weekday", "day_of_year")),
            *map(time_field, ("hour", "minute", "second", "microsecond")),
            lambda: self.of("date", d).days_since(self.of("date", d)),
            lambda: self.of("int32", d) + self.of(self.pick("int8", "int16"), d),
            lambda: self.of(
                self.pick("int8", "int16", "int64", "float32", "float", "decimal", "bool"), d
            ).cast(Int32),
            lambda: self.tried_cast(INT32, d, "int8", "int64", "float", "decimal", "bool"),
            lambda: Column("number").cast(Int32),
            lambda: self.of("interval", d).cast(self.pick(*INTERVALS)).cast(Int32),
            lambda: FunctionCall("interval_part", (self.of("interval", d),), (self.pick(0, 0, 1, 2),)).cast(
                Int32
            ),
            lambda: self.pick(Column("ns"), Column("xs_")).length(),
            lambda: self.texts(d).length(),
            lambda: F.size(self.list(d)),
            lambda: self.from_json(d, "a"),
            lambda: F.size(self.map(d)),
            lambda: self.fixed(self.pick(*_FIXED["map"]), d).length(),
            lambda: FunctionCall("array_repeat", (self.of(kind, d), self.draw(_SMALL.map(lit)))).length(),
        ]

    def _int64(self, d: int) -> list[Any]:
        return [
            *self._arithmetic("int64", lambda: self.of("int32", d), d),
            *self._arithmetic("int64", lambda: self.draw(_SMALL), d),
            lambda: self.of("int64", d) // self.of("int64", d),
            lambda: self.of("interval", d) // self.of("interval", d),
            lambda: self.of("interval", d).cast(self.pick(*INTERVALS)).cast(int),
            lambda: self.of(self.pick(*_INTEGERS), d) // self.of(self.pick(*_INTEGERS), d),
            lambda: self.of("int64", d) // self.pick(3, 7, -2, MAX64),
            lambda: self.of(self.pick("int8", "int32", "float", "decimal", "bool", "timestamp"), d).cast(int),
            lambda: self.tried_cast(INT64, d, "int32", "float", "decimal", "bool", "timestamp"),
            lambda: Column("number").cast(int),
            lambda: self.hash(*(self.of(self.pick(*KINDS), d) for _ in range(self.pick(1, 2, 3)))),
            lambda: self.hash(*(Column(n) for n in ("inner_", "ns", "xs_", "e_"))),
            lambda: self.pick(Expr.floor, Expr.ceil)(self.of(self.pick("float", "int8", "int32"), d)),
            lambda: self.of("timestamp", d).micros_since(
                self.of(self.pick("timestamp", "timestamp_ntz", "date"), d)
            ),
            lambda: Column("inner_").field("n"),
            lambda: Column("ns")[self.draw(_SMALL)],
            lambda: self.pick(F.get, F.element_at, F.try_element_at)(self.list(d), self.draw(_SMALL)),
            lambda: self.pick(F.array_min, F.array_max)(self.list(d)),
            lambda: self.map(d)[self.of("str", d)],
            lambda: F.array_position(self.list(d), self.of("int64", d)),
            lambda: F.aggregate(self.list(d), self.of("int64", d).cast(int), lambda a, x: a % 9 + x),
            lambda: F.aggregate(self.list(d), lit(0), lambda a, x: hr.greatest(a, x), lambda a: a - 1),
        ]

    def _float(self, d: int) -> list[Any]:
        return [
            *self._arithmetic("float", lambda: self.number(d), d),
            lambda: self.of("int64", d) / self.of("int32", d),
            lambda: FunctionCall("try_divide", (self.of("int64", d), self.of("int32", d))),
            lambda: self.tried_cast(FLOAT64, d, "int32", "int64", "decimal", "bool"),
            lambda: self.of(self.pick(*_INTEGERS, "float32", "decimal", "bool", "timestamp"), d).cast(float),
            lambda: Column("number").cast(float),
            lambda: self.of("timestamp", d).seconds_since(self.of("timestamp", d)),
            lambda: Column("inner").field("x"),
            lambda: Column("xs_")[self.draw(st.integers(0, 2))],
            lambda: self.pick(F.array_min, F.array_max)(Column("xs_")),
            lambda: F.get(Column("xs_"), self.draw(_SMALL)),
            lambda: self.from_json(d, "x"),
        ]

    def _float32(self, d: int) -> list[Any]:
        return [
            *self._arithmetic("float32", lambda: self.of("float32", d), d),
            lambda: self.of(self.pick(*_INTEGERS, "float", "decimal", "bool"), d).cast(FLOAT32),
            lambda: self.tried_cast(FLOAT32, d, *_INTEGERS, "float", "decimal", "bool"),
            lambda: Column("number").cast(FLOAT32),
            lambda: self.from_json(d, "real"),
        ]

    def _arithmetic(self, kind: str, other: Any, d: int) -> list[Any]:
        """Operators of a kind with itself, or with `other` on the right."""

        def number() -> Expr:
            value = self.of(kind, d)
            if kind == "float32":
                return hr.when(value.abs() < 1e9, value).otherwise(lit(2.5, Float32))
            return modest(value) if kind == "float" else value

        def right() -> Any:
            return other() if self.draw(st.booleans()) else self.of(kind, d)

        ways = [
            lambda: self.of(kind, d) + right(),
            lambda: self.of(kind, d) - right(),
            lambda: self.of(kind, d) * right(),
            lambda: self.of(kind, d) % right(),
            lambda: -self.of(kind, d),
            lambda: abs(self.of(kind, d)),
            lambda: number().round(self.pick(0, 1, 2, -1, -2)),
            lambda: FunctionCall("bround", (number(),), (self.pick(0, 1, 2, -1, -2),)),
            lambda: F.pmod(self.of(kind, d), right()),
        ]
        tried = ["try_add", "try_subtract", "try_multiply", "try_modulo"]
        if kind in ("float", "decimal"):
            ways.append(lambda: self.of(kind, d) / right())
            tried.append("try_divide")
        return [*ways, lambda: FunctionCall(self.pick(*tried), (self.of(kind, d), operand(right())))]

    def tried_cast(self, target: DataType, d: int, *kinds: str) -> Expr:
        value = self.of(self.pick(*kinds), d) if self.draw(st.booleans()) else Column("number")
        return FunctionCall("try_cast", (value,), (target,))

    def _decimal(self, d: int) -> list[Any]:
        target = self.pick(DecimalType(10, 2), DecimalType(5, 0), DecimalType(38, 10), DecimalType(12, 12))
        whole = self.pick(*_INTEGERS)
        return [
            *self._arithmetic("decimal", lambda: self.pick(3, -7, 100), d),
            *self._arithmetic("decimal", lambda: self.of(whole, d), d),
            lambda: self.pick(Expr.floor, Expr.ceil)(self.of("decimal", d)),
            lambda: self.pick(Expr.floor, Expr.ceil)(
                self.of(self.pick("decimal", whole), d), self.pick(0, 1, 2, 7, -1, -2, -9)
            ),
            lambda: self.of(self.pick(*_INTEGERS, "decimal", "bool"), d).cast(target),
            lambda: self.of("interval", d).cast(self.pick(*INTERVALS)).cast(target),
            lambda: FunctionCall("interval_part", (self.of("interval", d),), (3,)),
            lambda: self.tried_cast(target, d, *_INTEGERS, "decimal", "bool"),
            lambda: Column("number").cast(target),
            lambda: (self.of("int32", 0) / 8).cast(target),
            lambda: modest(self.of("float", d)).cast(target),
            lambda: self.from_json(d, "d"),
            lambda: self.number_in_text(d),
        ]

    def number_in_text(self, d: int) -> Expr:
        """A number that is read by a format, from a text that was written by one for the most part."""
        written = F.to_char(self.of("decimal", d), self.pick(*_NUMBER_FORMATS)).trim()
        text = self.pick(written, written.replace("#", "7"), Column("number"), self.of("str", d))
        return self.pick(F.to_number, F.try_to_number)(text, self.pick(*_NUMBER_FORMATS))

    def _str(self, d: int) -> list[Any]:
        def text() -> Expr:
            return self.of("str", d)

        def position() -> Any:
            return self.draw(st.integers(-4, 6)) if self.draw(st.booleans()) else Column("i_")

        return [
            # Not of each other: Spark's optimizer takes lower(upper(x)) for lower(x), which "ﬁ" refutes.
            lambda: self.pick(Expr.upper, Expr.lower)(self.draw(_LEAVES["str"])),
            lambda: text().trim(),
            lambda: F.reverse(text()),
            lambda: F.mask(
                text(), self.pick("X", None, "é"), self.pick("x", None), "9", self.pick("*", None)
            ),
            lambda: F.array_join(hr.array(text(), Column("s_")), ","),
            lambda: F.array_join(self.texts(d), text(), Column("s")),
            lambda: hr.concat(text(), self.pick("-", "", "é"), text()),
            lambda: text() + text(),
            lambda: text().substring(position(), self.draw(st.integers(-1, 5))),
            lambda: text().replace(
                self.pick("a", ",", "", "ß", Column("s_")), self.pick("", "xx", Column("s"))
            ),
            lambda: text().split_part(self.pick(",", "", " ", "b,"), position()),
            lambda: self.of(
                self.pick("bool", *_INTEGERS, "decimal", "date", "timestamp", "timestamp_ntz", "interval"), d
            ).cast(str),
            lambda: FunctionCall(self.pick("ltrim_of", "rtrim_of"), (text(), text())),
            lambda: hr.array(text(), lit(None), text()).cast(str),
            lambda: hr.struct(q=self.of(self.pick("timestamp", "int32"), d), r=self.texts(d)).cast(str),
            lambda: (self.of("int32", 0) / 8).cast(str),
            lambda: (self.of("int8", 0) / 8).cast(Float32).cast(str),
            lambda: text().cast(bytes).cast(str),
            lambda: Column("inner_").field("s"),
            lambda: self.texts(d)[self.draw(st.integers(0, 1))],
            lambda: FunctionCall(
                "concat_ws", (self.pick(lit("-"), text()), text(), self.texts(d), Column("s_"))
            ),
            lambda: FunctionCall("elt", (self.draw(st.integers(1, 2).map(lit)), text(), text())),
            lambda: self.formatted(d),
            lambda: self.from_json(d, "b"),
            # Where there is no object, Spark evaluates no name here.
            lambda: F.json_tuple(self.json(d), "a", self.draw(_LEAVES["str"])).field(self.pick("c0", "c1")),
            lambda: F.to_csv(hr.struct(s=text(), n=self.number(d), day=Column("day_"), b=self.of("bool", d))),
            lambda: F.to_json(
                self.pick(self.list(d), self.map(d), hr.struct(s=text(), day=Column("day_"), e=Column("e_")))
            ),
        ]

    def formatted(self, d: int) -> Expr:
        number, directive = self.pick(
            ("int64", "%,d|"), ("int32", "%08d %x"), ("int8", "%d %x"), ("int16", "%o %X"),
            ("float", "%.3f"), ("float", "%12.2e"), ("str", "%-9s!"),
            ("bool", "%b %%"), ("int64", "%+d%n"),
        )  # fmt: skip
        value = self.of(number, d)
        if number == "float":
            # Java before 19 shows some large ones with a digit too many, and 5e-324 as 4.9e-324.
            value = hr.when(value.abs().between(1e-300, 1e9), value).otherwise(2.5)
        values = (value, value) if " %" in directive else (value,)
        return FunctionCall("format_string", (lit(f"{directive} %s"), *values, self.of("str", d)))

    def _bytes(self, d: int) -> list[Any]:
        return [
            lambda: self.of("str", d).cast(bytes),
            lambda: hr.concat(self.of("bytes", d), self.of("bytes", d)),
            lambda: self.of("bytes", d).substring(
                self.draw(st.integers(-5, 5)), self.draw(st.integers(-1, 5))
            ),
        ]

    def _timestamp_ntz(self, d: int) -> list[Any]:
        units = lit(self.pick("HOUR", "MONTH", "YEAR"))
        return [
            lambda: FunctionCall(
                "timestampadd", (units, self.draw(_SMALL.map(lit)), self.of("timestamp_ntz", d))
            ),
            lambda: self.of("timestamp_ntz", d) + self.draw(spans),
            lambda: self.of("timestamp_ntz", d) - self.draw(spans),
            lambda: self.of("timestamp_ntz", d) - self.of("interval", d),
            lambda: self.of("interval", d) + self.of("timestamp_ntz", d),
            lambda: self.of(self.pick("timestamp", "date"), d).cast(TIMESTAMP_NTZ),
            lambda: Column("number").cast(TIMESTAMP_NTZ),
            lambda: self.tried_cast(TIMESTAMP_NTZ, d, "timestamp", "date"),
            lambda: hr.coalesce(self.of("timestamp_ntz", d), self.of("date", d)),
        ]

    def _interval(self, d: int) -> list[Any]:
        times = ("date", "timestamp", "timestamp_ntz")

        def span() -> Expr:
            return self.of("interval", d)

        def exact() -> Expr:
            return self.of(self.pick(*_INTEGERS, "decimal"), d)

        def factor() -> Expr:
            number = self.of(self.pick(*_NUMBERS), d)
            return number if self.draw(st.booleans()) else self.draw(_SMALL.map(lit))

        return [
            lambda: span() + span(),
            lambda: span() - self.pick(span(), self.draw(spans)),
            lambda: self.of(self.pick(*times), d) - self.of(self.pick(*times), d),
            lambda: span() * factor(),
            lambda: factor() * span(),
            lambda: span() / factor(),
            lambda: -span(),
            lambda: abs(span()),
            lambda: span().cast(self.pick(*INTERVALS)),
            lambda: exact().cast(self.pick(*INTERVALS)),
            lambda: FunctionCall("try_cast", (exact(),), (self.pick(*INTERVALS),)),
            lambda: span().cast(self.pick(*INTERVALS)).cast(str).cast(INTERVAL),
            lambda: FunctionCall(self.pick("try_add", "try_subtract"), (span(), span())),
            lambda: FunctionCall(self.pick("try_multiply", "try_divide"), (span(), factor())),
        ]

    def _date(self, d: int) -> list[Any]:
        return [
            lambda: self.of("date", d) + timedelta(days=self.draw(st.integers(-400, 400))),
            lambda: self.of("date", d) + self.of("interval", d).cast(INTERVALS[0]),
            lambda: self.of("date", d) - self.of("decimal", d).cast(INTERVALS[0]),
            lambda: self.of("date", d).truncate(self.pick("week", "month", "quarter", "year")),
            lambda: self.of(self.pick("timestamp", "timestamp_ntz"), d).to_date(),
            lambda: Column("number").to_date(),
            lambda: self.tried_cast(DATE, d, "timestamp", "str"),
        ]

    def _timestamp(self, d: int) -> list[Any]:
        units = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
        return [
            lambda: self.of("timestamp", d) + self.draw(spans),
            lambda: self.of("timestamp", d) - self.draw(spans),
            lambda: self.of(self.pick("timestamp", "date"), d) + self.of("interval", d),
            lambda: self.of("timestamp", d) - self.of("interval", d),
            lambda: FunctionCall(
                self.pick("try_add", "try_subtract"), (self.of("timestamp", d), self.of("interval", d))
            ),
            lambda: self.tried_cast(TIMESTAMP, d, "int64", "date", "str"),
            lambda: self.of("timestamp", d).tumble(self.draw(spans)),
            lambda: self.of("timestamp", d).truncate(self.pick(*units)),
            lambda: self.of(self.pick("date", "timestamp_ntz"), d).to_timestamp(),
            lambda: hr.coalesce(self.of("timestamp_ntz", d), self.of("timestamp", d)),
            lambda: Column("number").to_timestamp(),
            lambda: hr.concat(self.of("timestamp", d).cast(str), self.pick(*_ZONES)).to_timestamp(),
            lambda: self.of("int32", d).cast(datetime),
        ]
