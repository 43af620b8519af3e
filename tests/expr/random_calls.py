"""Random calls of one function of the catalogue, with simple arguments, and many rows with extreme values."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import product
from typing import Any

from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.expr.check import check
from headrace.expr.code_runtime import NAN, float32
from headrace.expr.constructors import lit
from headrace.expr.function_records import FixedFunction
from headrace.expr.functions import CATALOGUE
from headrace.expr.tree import Column, Expr, FunctionCall, Literal
from headrace.expr.types import (
    BOOL,
    DATE,
    FLOAT32,
    FLOAT64,
    INT64,
    INTEGERS,
    INTERVALS,
    STR,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DecimalType,
    Int32,
)
from tests.expr.random_expressions import _LEAVES, KINDS, SCHEMA, calls

_DIGITS = st.integers(-12, 12)
_UNITS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
_DECIMALS = st.integers(1, 38).flatmap(lambda p: st.builds(DecimalType, st.just(p), st.integers(0, p)))
_TARGETS = st.one_of(
    _DECIMALS,
    st.sampled_from(
        [BOOL, DATE, FLOAT32, FLOAT64, STR, TIMESTAMP, TIMESTAMP_NTZ, *INTEGERS, *INTERVALS[::3]]
    ),
)
_SPANS = st.sampled_from(
    [timedelta(seconds=10), timedelta(hours=1), timedelta(days=1), timedelta(minutes=7), timedelta(days=-9)]
)
_OPTIONS: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    "round": st.tuples(_DIGITS),
    "bround": st.tuples(_DIGITS),
    "round_floor": st.tuples(_DIGITS),
    "round_ceil": st.tuples(_DIGITS),
    "cast": st.tuples(_TARGETS),
    "try_cast": st.tuples(_TARGETS),
    "shift": st.tuples(_SPANS),
    "tumble": st.tuples(_SPANS.map(abs)),
    "truncate": st.tuples(st.sampled_from(_UNITS)),
    "interval_part": st.tuples(st.integers(0, 3)),
}
_FEW = st.one_of(
    st.integers(-3, 7).map(lambda n: lit(n, Int32)),
    st.just((Column("i_") % 9).cast(Int32)),
    st.just(lit(None, Int32)),
)
_SMALL = st.integers(-3, 7).map(lambda n: lit(n, Int32)) | st.just(Column("i_"))
_TEXTS = st.sampled_from(
    ["", "a", "b", ",", " ", "%a_", "a%", "%b%", "_", "%", "%a%b%", "\\%", "é", "ab"]
).map(lit)
_TEXT = st.sampled_from(["s", "s_", "number"]).map(Column)
_BITS = st.sampled_from(["i", "i_", "n_", "tiny"]).map(Column)
_PATTERNS = st.sampled_from(
    [
        *(
            "yyyy-MM-dd",
            "yyyy-MM-dd HH:mm:ss",
            "yyyyMMdd",
            "dd/MM/yyyy",
            "yyyy-MM-dd'T'HH:mm",
            "HH:mm",
            "d.M.yy",
        )
    ]
).map(lit)
_ANY_TEXT = _TEXTS | _TEXT
_SEPARATORS = st.sampled_from([" ", ",", "a", "-", r"\.", "ab", "[ab]", "."]).map(lit)
_SPLIT = st.builds(
    lambda *of: FunctionCall("split", of), _TEXT, _SEPARATORS, st.sampled_from([-1, 0, 2]).map(lit)
)
_WITH_TEXTS: dict[str, tuple[st.SearchStrategy[Expr], ...]] = {
    "substring": (_TEXT | st.just(Column("r_")), _SMALL, _SMALL),
    "replace": (_TEXT, _ANY_TEXT, _ANY_TEXT),
    "split_part": (_TEXT, _ANY_TEXT, _SMALL),
    "like": (_TEXT, _ANY_TEXT),
    "ltrim_of": (_TEXT, _ANY_TEXT),
    "rtrim_of": (_TEXT, _ANY_TEXT),
    "btrim": (_TEXT, _ANY_TEXT),
    "lpad": (_TEXT, _SMALL, _ANY_TEXT),
    "rpad": (_TEXT, _SMALL, _ANY_TEXT),
    "repeat": (_TEXT, _FEW),
    "space": (_FEW,),
    "translate": (_TEXT, _ANY_TEXT, _ANY_TEXT),
    "substring_index": (_TEXT, _ANY_TEXT, _SMALL),
    "instr": (_TEXT, _ANY_TEXT),
    "locate": (_TEXTS, _ANY_TEXT, _SMALL),
    "concat_ws": (_TEXTS, _ANY_TEXT, _ANY_TEXT),
    "elt": (_SMALL, _ANY_TEXT, _ANY_TEXT),
    "left": (_TEXT, _SMALL),
    "right": (_TEXT, _SMALL),
    **dict.fromkeys(("shiftleft", "shiftright", "shiftrightunsigned"), (_BITS, _FEW)),
    "getbit": (_BITS, _FEW),
    "pmod": (_BITS, st.integers(-3, 9).map(lit) | st.just(Column("n"))),
    **dict.fromkeys(("to_date", "to_timestamp", "try_to_date", "try_to_timestamp"), (_TEXT, _PATTERNS)),
    "unix_timestamp": (st.sampled_from(["number", "t_", "day_"]).map(Column), _PATTERNS),
    "date_format": (st.sampled_from(["t", "t_", "local_"]).map(Column), _PATTERNS),
    "from_unixtime": (st.sampled_from(["n", "n_"]).map(Column), _PATTERNS),
    "overlay": (_TEXT, _ANY_TEXT, _SMALL, _SMALL),
    "split": (_TEXT, _SEPARATORS, st.sampled_from([-1, 0, 2]).map(lit)),
    "array_contains": (_SPLIT, _ANY_TEXT),
    **dict.fromkeys(("get", "element_at", "try_element_at"), (_SPLIT, _SMALL)),
}
_COUNTS: dict[str, tuple[int, ...]] = dict.fromkeys(("eq", "ne", "and", "or"), (2,))


@st.composite
def _argument(draw: st.DrawFn, kind: str) -> Expr:
    made = draw(_LEAVES[kind])
    if kind == "decimal" and draw(st.booleans()):
        return made.cast(draw(_DECIMALS))
    return made


@lru_cache
def _fitting(name: str, count: int) -> list[tuple[str, ...]]:
    """Return the kinds of arguments that a function takes."""
    kinds = product(KINDS, repeat=count) if count < 3 else [(kind,) * count for kind in KINDS]
    option = {
        "shift": timedelta(1),
        "tumble": timedelta(1),
        "truncate": "year",
        "cast": STR,
        "try_cast": INT64,
    }
    options = (option.get(name, 1),) if name in _OPTIONS else ()
    return [each for each in kinds if passes(FunctionCall(name, tuple(map(_column, each)), options))]


def _column(kind: str) -> Expr:
    names = {
        "int32": "i_",
        "int64": "n_",
        "int8": "tiny_",
        "int16": "small_",
        "float": "x_",
        "float32": "real_",
    }
    more = {"bytes": "r_", "timestamp": "t_", "timestamp_ntz": "local_", "interval": "span_", "date": "day_"}
    return Column({"bool": "b_", "decimal": "d_", "str": "s_", **names, **more}[kind])


def passes(expr: Expr) -> bool:
    try:
        check(expr, SCHEMA)
    except (HeadraceError, ValueError):
        return False
    return True


@st.composite
def calls_of(draw: st.DrawFn, name: str) -> Expr:
    """Draw a call of a function that passes the check."""
    function = CATALOGUE[name]
    drawn = isinstance(function, FixedFunction) and name not in _WITH_TEXTS and bool(function.prepared)
    if isinstance(function, FixedFunction) and (drawn or draw(st.booleans())):
        return draw(calls(function))
    options = draw(_OPTIONS.get(name, st.just(())))
    if name in _WITH_TEXTS:
        return draw(
            st.tuples(*_WITH_TEXTS[name]).map(lambda a: FunctionCall(name, a, options)).filter(passes)
        )
    if name == "when":
        kind = draw(st.sampled_from(KINDS))
        parts = [draw(_argument(k)) for k in ("bool", kind, "bool", kind, kind)]
        return FunctionCall(name, tuple(parts))
    if name == "is_in" and draw(st.booleans()):
        kind = draw(st.sampled_from(KINDS))
        options = st.lists(_LEAVES[kind].filter(lambda e: isinstance(e, Literal)), min_size=1, max_size=7)
        return FunctionCall(name, (draw(_argument(kind)), *draw(options)))
    if name == "raise_error":
        return FunctionCall("when", (Column("b_"), FunctionCall(name, (Column("s"),)), Column("n_")))
    counts = [count for count in _COUNTS.get(name, (1, 2, 3)) if _fitting(name, count)]
    kinds = draw(st.sampled_from(_fitting(name, draw(st.sampled_from(counts)))))
    return draw(
        st.tuples(*map(_argument, kinds)).map(lambda a: FunctionCall(name, a, options)).filter(passes)
    )


# -- rows ------------------------------------------------------------------------------------

_INTEGERS = {"i": 32, "n": 64, "m": 64, "tiny": 8, "small": 16}
_FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.5,
    -2.5,
    1.005,
    NAN,
    math.inf,
    -math.inf,
    1e300,
    5e-324,
    0.1,
    9.2e18,
    2.0**63,
]
_LETTERS = "aAbBzZ019 -,.%_\\\t\n%aabb  ßİΣςéÉ𐐀😀ﬁ\u0301"
_NUMERALS = [
    *("12", " -7 ", "+0", "9223372036854775807", "2147483648", "1e3", "1.5", "", "x", "nan", "2001-01-02"),
    *(
        "2001-1-2 3:4",
        "2001-02-29",
        "true",
        "0001-01-01",
        "-128",
        "0",
        "00012",
        "2001-13-01",
        "1999-12-31",
        "12.345",
        "-0.5",
        "1e5",
    ),
    *("2001-02-03 04:05:06", "2001-02-03T04:05:06.120", "0000-01-01", "2001-02-30 00:00:00.5", "T", "no"),
    *("20010203", "20011303", "03/02/2001", "1969-12-31T23:59", "2001-02-29 01:02:03", "23:59", "0000-00-00"),
]
_DAYS = [
    date(1, 1, 1),
    date(9999, 12, 31),
    date(1970, 1, 1),
    date(2000, 2, 29),
    date(1582, 10, 10),
    date(2023, 1, 31),
]


def _integer(choice: random.Random, bits: int) -> int:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return choice.choice(
        [choice.randint(-10, 10), low, high, low + 1, choice.randint(low, high), choice.randint(-99, 99)]
    )


def _float(choice: random.Random) -> float:
    return choice.choice([choice.choice(_FLOATS), choice.uniform(-1000, 1000), choice.randint(-99, 99) / 8])


def _decimal(choice: random.Random, digits: int, scale: int) -> Decimal:
    most = 10**digits - 1
    whole = choice.choice(
        [0, 1, -1, most, -most, 5, -5, 250, choice.randint(-most, most), choice.randint(-9999, 9999)]
    )
    return Decimal(f"{whole}e-{scale}") if whole else Decimal(f"0e-{scale}")


def _moment(choice: random.Random) -> datetime:
    day = _day(choice)
    clock = choice.choice(
        [(0, 0, 0, 0), (23, 59, 59, 999_999), (1, 2, 3, 4), (choice.randrange(24), 30, 7, 500_000)]
    )
    return datetime(day.year, day.month, day.day, *clock)


def _day(choice: random.Random) -> date:
    return choice.choice([choice.choice(_DAYS), date.fromordinal(choice.randint(690_000, 760_000))])


def _span(choice: random.Random) -> timedelta:
    most = timedelta(microseconds=2**63 - 1)
    some = [timedelta(), timedelta(1), -timedelta(1), timedelta(hours=-30), timedelta(0, 0, -1), most, -most]
    return choice.choice(
        [choice.choice(some), timedelta(choice.randint(-400, 400), choice.randint(0, 86_399))]
    )


def _text(choice: random.Random) -> str:
    return "".join(choice.choices(_LETTERS, k=choice.choice([0, 1, 2, 3, 5, 9])))


def _list(choice: random.Random, make: Any) -> tuple[Any, ...]:
    return tuple(make() for _ in range(choice.randrange(4)))


def _value(choice: random.Random, name: str) -> Any:
    if name.endswith("_") and choice.random() < 0.15:
        return None
    base = name.rstrip("_")
    if base in _INTEGERS:
        return _integer(choice, _INTEGERS[base])
    match base:
        case "b":
            return choice.random() < 0.5
        case "x" | "y":
            return _float(choice)
        case "real":
            return float32(_float(choice))
        case "d":
            return _decimal(choice, 10, 2)
        case "e":
            return _decimal(choice, 20, 6)
        case "s":
            return _text(choice)
        case "number":
            return choice.choice([*_NUMERALS, str(_integer(choice, 64))])
        case "r":
            return choice.randbytes(choice.randrange(6))
        case "day":
            return _day(choice)
        case "t":
            return _moment(choice).replace(tzinfo=UTC)
        case "local":
            return _moment(choice)
        case "span":
            return _span(choice)
        case "inner":
            return (_integer(choice, 64), _float(choice) if choice.random() < 0.8 else None, _text(choice))
        case "ns":
            return _list(choice, lambda: _integer(choice, 64))
        case "xs":
            return _list(choice, lambda: _float(choice) if choice.random() < 0.8 else None)
        case _:
            return ()


@lru_cache
def many_rows(seed: int, count: int = 150) -> list[tuple[Any, ...]]:
    """Return rows of `SCHEMA`, as they are inside."""
    choice = random.Random(seed)
    return [tuple(_value(choice, name) for name in SCHEMA.names) for _ in range(count)]
