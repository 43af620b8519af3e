"""Lowering of Spark's scalar functions: from Catalyst's classes to functions of the catalogue.

Catalyst replaces many functions by others before: `nvl` by `coalesce`, `left` by `substring`, `decode` of
cases by CASE. Some are calls of static methods of Spark (`StaticInvoke`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import NoReturn

from penstock.errors import UnsupportedQuery
from penstock.expr.tree import Call, Expr
from penstock.expr.types import INT32, INT64, STR
from penstock.queries.catalyst_plan import CatalystNode, simple_name
from penstock.queries.expressions import Scope, lowers, lowers_plainly, rounded, typed_constant

lowers_plainly(
    {
        # text
        "RLike": "regexp_like",
        "RegExpExtract": "regexp_extract",
        "RegExpExtractAll": "regexp_extract_all",
        "RegExpReplace": "regexp_replace",
        "StringSplit": "split",
        "ConcatWs": "concat_ws",
        "Overlay": "overlay",
        "FormatString": "format_string",
        "FormatNumber": "format_number",
        "Chr": "chr",
        "Sha2": "sha2",
        "XxHash64": "hash",
        "UnBase64": "unbase64",
        "Hex": "hex",
        "SoundEx": "soundex",
        "StringSpace": "space",
        "Elt": "elt",
        "FindInSet": "find_in_set",
        # numbers
        "Exp": "exp",
        "Expm1": "expm1",
        "Log": "ln",
        "Logarithm": "log",
        "Log10": "log10",
        "Log2": "log2",
        "Log1p": "log1p",
        "Pow": "power",
        "Cbrt": "cbrt",
        "Sin": "sin",
        "Cos": "cos",
        "Tan": "tan",
        "Cot": "cot",
        "Sec": "sec",
        "Csc": "csc",
        "Asin": "asin",
        "Acos": "acos",
        "Atan": "atan",
        "Atan2": "atan2",
        "Sinh": "sinh",
        "Cosh": "cosh",
        "Tanh": "tanh",
        "Asinh": "asinh",
        "Acosh": "acosh",
        "Atanh": "atanh",
        "Hypot": "hypot",
        "ToRadians": "radians",
        "Rint": "rint",
        "Factorial": "factorial",
        "ShiftLeft": "shiftleft",
        "ShiftRight": "shiftright",
        "ShiftRightUnsigned": "shiftrightunsigned",
        "Bin": "bin",
        "Conv": "conv",
        "WidthBucket": "width_bucket",
        # null where they fail
        "TryAdd": "try_add",
        "TrySubtract": "try_subtract",
        "TryMultiply": "try_multiply",
        "TryDivide": "try_divide",
        "TryRemainder": "try_modulo",
        # time
        "DateFormatClass": "date_format",
        "FromUnixTime": "from_unixtime",
        "UnixTimestamp": "unix_timestamp",
        "ToUnixTimestamp": "unix_timestamp",
        "MonthsBetween": "months_between",
        "NextDay": "next_day",
        "WeekOfYear": "weekofyear",
        "YearOfWeek": "yearofweek",
        "DayName": "dayname",
        "MonthName": "monthname",
        "SecondWithFraction": "second_with_fraction",
        "UnixMicros": "unix_micros",
        "UnixMillis": "unix_millis",
        "MicrosToTimestamp": "timestamp_micros",
        "MillisToTimestamp": "timestamp_millis",
        "SecondsToTimestamp": "timestamp_seconds",
        "FromUTCTimestamp": "from_utc_timestamp",
        "ToUTCTimestamp": "to_utc_timestamp",
    }
)

_INVOKED = {
    ("Base64", "encode"): "base64",
    ("Encode", "encode"): "encode",
    ("StringDecode", "decode"): "decode",
    ("UrlCodec", "encode"): "url_encode",
    ("ExpressionImplUtils", "isLuhnNumber"): "luhn_check",
    ("JsonExpressionUtils", "lengthOfJsonArray"): "json_array_length",
    ("JsonExpressionUtils", "jsonObjectKeys"): "json_object_keys",
}
_ARGUMENTS = {"base64": 1, "encode": 2, "decode": 2}


def refuse(what: str, function: str, fix: str = "") -> NoReturn:
    raise UnsupportedQuery(what, fix=fix or "express it by other functions", function=function)


@lowers("StaticInvoke")
def _static(node: CatalystNode, scope: Scope) -> Expr:
    called = simple_name(node.fields["staticObject"]), node.fields["functionName"]
    children = node.children
    if called == ("UrlCodec", "decode"):
        strict = children[1].fields.get("value") == "true"
        return Call("url_decode" if strict else "try_url_decode", (scope.lower(children[0]),))
    name = _INVOKED.get(called)
    if name is None:
        refuse(f"the query uses {'.'.join(called)}, which has no incremental form yet", called[1])
    return Call(name, scope.lower_all(children[: _ARGUMENTS.get(name, len(children))]))


@lowers("RegExpInStr")
def _instr(node: CatalystNode, scope: Scope) -> Expr:
    # Spark ignores the number of the group.
    return Call("regexp_instr", scope.lower_all(node.children[:2]))


@lowers("Unhex")
def _unhex(node: CatalystNode, scope: Scope) -> Expr:
    if node.fields.get("failOnError"):
        refuse("to_binary, which has no incremental form yet", "to_binary", "use unhex")
    return Call("unhex", scope.lower_all(node.children))


@lowers("NaNvl")
def _nanvl(node: CatalystNode, scope: Scope) -> Expr:
    value, instead = scope.lower_all(node.children)
    return Call("when", (Call("is_nan", (value,)), instead, value))


@lowers("BRound")
def _bround(node: CatalystNode, scope: Scope) -> Expr:
    return rounded(node, scope, lambda value, digits: Call("bround", (value,), (digits,)))


@lowers("RoundCeil", "RoundFloor")
def _round_towards(node: CatalystNode, scope: Scope) -> Expr:
    name = "round_ceil" if node.kind == "RoundCeil" else "round_floor"
    return rounded(node, scope, lambda value, digits: Call(name, (value,), (digits,)))


# -- time -------------------------------------------------------------------------------------


@lowers("GetTimestamp")
def _parsed_time(node: CatalystNode, scope: Scope) -> Expr:
    name = "to_timestamp" if node.fields["failOnError"] else "try_to_timestamp"
    return Call(name, scope.lower_all(node.children))


@lowers("MakeTimestamp")
def _make_timestamp(node: CatalystNode, scope: Scope) -> Expr:
    if len(node.children) != 6:
        refuse("make_timestamp with a time zone", "make_timestamp")
    name = "make_timestamp" if node.fields["failOnError"] else "try_make_timestamp"
    return Call(name, scope.lower_all(node.children))


_UNITS = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    **dict.fromkeys(("mon", "month", "mm"), "month"),
    **dict.fromkeys(("day", "dd"), "day"),
    **{unit: unit for unit in ("quarter", "week", "hour", "minute", "second")},
}


@lowers("TruncTimestamp", "TruncDate")
def _truncated(node: CatalystNode, scope: Scope) -> Expr:
    of_time = node.kind == "TruncTimestamp"
    unit, value = node.children if of_time else node.children[::-1]
    if unit.kind != "Literal" or unit.fields["value"] is None:
        refuse("a unit to truncate to that is no constant", "date_trunc" if of_time else "trunc")
    name, lowered = unit.fields["value"].lower(), scope.lower(value)
    if of_time and name in ("millisecond", "microsecond"):
        return Call("tumble", (lowered,), (timedelta(**{f"{name}s": 1}),))
    known = _UNITS.get(name)
    if known is None or (not of_time and known in ("day", "hour", "minute", "second")):
        refuse(f"no unit {name!r} to truncate to", "date_trunc" if of_time else "trunc")
    return Call("truncate", (lowered,), (known,))


@lowers("TimestampDiff", "TimestampAdd")
def _of_unit(node: CatalystNode, scope: Scope) -> Expr:
    name = "timestampdiff" if node.kind == "TimestampDiff" else "timestampadd"
    unit = node.fields["unit"].upper()
    return Call(name, (typed_constant(unit, STR), *scope.lower_all(node.children)))


def _constant_interval(node: CatalystNode) -> str:
    if node.kind != "Literal" or node.fields["value"] is None:
        refuse("an interval that is no constant", "interval", "use timestampadd or date_add")
    return node.fields["value"]


@dataclass(frozen=True, slots=True)
class Interval:
    """Interval of months, days and time, which are added in this order."""

    months: int
    days: int
    time: timedelta


_MONTHS = {"years": 12, "months": 1}
_TIME = ("hours", "minutes", "seconds")


def mixed_interval(node: CatalystNode) -> Interval:
    """Return a constant interval: microseconds, or a text such as `1 months 2 days -3.5 seconds`."""
    text = _constant_interval(node)
    if node.fields["dataType"] != "interval":
        return Interval(0, 0, timedelta(microseconds=int(text)))
    words = text.split()
    parts = {unit: Decimal(amount) for amount, unit in zip(words[::2], words[1::2], strict=True)}
    return Interval(
        months=sum(int(parts.get(unit, 0)) * length for unit, length in _MONTHS.items()),
        days=int(parts.get("days", 0)),
        time=timedelta(
            microseconds=sum(
                int(parts.get(unit, 0) * length)
                for unit, length in zip(_TIME, (3_600_000_000, 60_000_000, 1_000_000), strict=True)
            )
        ),
    )


@lowers("TimestampAddInterval")
def _plus_time(node: CatalystNode, scope: Scope) -> Expr:
    # Months come first: the 30th of January and a month and a day are the 1st of March.
    moment, interval = scope.lower(node.children[0]), mixed_interval(node.children[1])
    if interval.months:
        moment = _months_later(moment, interval.months)
    span = timedelta(days=interval.days) + interval.time
    return Call("shift", (moment,), (span,)) if span or not interval.months else moment


@lowers("DateAddInterval")
def _date_plus(node: CatalystNode, scope: Scope) -> Expr:
    day, interval = scope.lower(node.children[0]), mixed_interval(node.children[1])
    if interval.time:
        refuse("hours added to a date", "interval", "cast the date to a timestamp")
    if interval.months:
        day = Call("add_months", (day, typed_constant(interval.months, INT32)))
    return Call("date_add", (day, typed_constant(interval.days, INT32)))


def _months_later(moment: Expr, months: int) -> Expr:
    return Call("timestampadd", (typed_constant("MONTH", STR), typed_constant(months, INT64), moment))


@lowers("TimestampAddYMInterval")
def _plus_months(node: CatalystNode, scope: Scope) -> Expr:
    moment, interval = node.children
    return _months_later(scope.lower(moment), int(_constant_interval(interval)))


@lowers("DateAddYMInterval")
def _date_plus_months(node: CatalystNode, scope: Scope) -> Expr:
    day, interval = node.children
    return Call("add_months", (scope.lower(day), typed_constant(int(_constant_interval(interval)), INT32)))


# -- refused ------------------------------------------------------------------------------------

_NOT_REPEATED = (
    "Rand",
    "Randn",
    "RandStr",
    "Uuid",
    "Shuffle",
    "MonotonicallyIncreasingID",
    "SparkPartitionID",
)


@lowers(*_NOT_REPEATED)
def _not_deterministic(node: CatalystNode, scope: Scope) -> Expr:
    raise UnsupportedQuery(
        f"the query uses {node.kind}, which answers otherwise each time",
        why="The answer for a row could not be taken back with the row.",
        fix="compute it before, in a column of the table",
        function=node.kind,
    )
