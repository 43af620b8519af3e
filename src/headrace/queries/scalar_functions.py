"""Lowering of Spark's scalar functions: from Catalyst's classes to functions of the catalogue.

Catalyst replaces many functions by others before: `nvl` by `coalesce`, `left` by `substring`, `decode` of
cases by CASE. Some are calls of static methods of Spark (`StaticInvoke`).

Intervals of days and time are values. Those of years and months are none: an amount of months, as int32, is
what a time moves by.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import NoReturn, cast

from headrace.errors import UnsupportedQuery
from headrace.expr.constructors import fresh_names, lambda_of, variable
from headrace.expr.tree import Expr, FunctionCall, Literal
from headrace.expr.types import INT32, INT64, STR, DecimalType
from headrace.queries.catalyst_plan import (
    CONSTANT,
    INPUT,
    OPTIONS,
    CatalystNode,
    parse_tree,
    parse_type,
    simple_name,
)
from headrace.queries.expressions import INVOKED, Scope, lowers, rounded, typed_constant
from headrace.queries.plan_details import TIME_ZONE, UTC_NAMES, refused_setting

_OF_UTF8 = {
    ("ExpressionImplUtils", "validateUTF8String"): "validate_utf8",
    ("ExpressionImplUtils", "tryValidateUTF8String"): "try_validate_utf8",
}


@lowers("Mask")
def _mask(node: CatalystNode, scope: Scope) -> Expr:
    text, *by = node.children
    if any(each.kind != "Literal" for each in by):
        refuse("mask with a non-constant replacement", "mask", fix="give the replacement as a constant")
    return FunctionCall("mask", (scope.lower(text),), tuple(each.fields["value"] for each in by))


def refuse(what: str, function: str, fix: str = "", why: str = "") -> NoReturn:
    raise UnsupportedQuery(what, why=why, fix=fix or "express it by other functions", function=function)


def of_utf8(name: str, node: CatalystNode, scope: Scope) -> Expr:
    """Lower a validity test or repair of text. Bytes are passed uncast, because our cast refuses some."""
    text = node.children[0]
    return FunctionCall(name, (scope.lower(text.child("child") if node.fields[INPUT] == "binary" else text),))


@lowers("VariantGet", "ToVariantObject", "SchemaOfVariant")
def _variant(node: CatalystNode, scope: Scope) -> NoReturn:
    refuse(
        "the query uses a variant, a type that columns of flows do not have",
        node.kind,
        fix="read the JSON text by get_json_object, or by from_json with its type",
    )


@lowers("StaticInvoke")
def _static(node: CatalystNode, scope: Scope) -> Expr:
    called = simple_name(node.fields["staticObject"]), node.fields["functionName"]
    children = node.children
    if called == ("UrlCodec", "decode"):
        strict = children[1].fields.get("value") == "true"
        return FunctionCall("url_decode" if strict else "try_url_decode", (scope.lower(children[0]),))
    function = INVOKED.get(".".join(called))
    if called == ("ExpressionImplUtils", "getSentences"):
        refuse(
            "the query uses sentences, which has no incremental form",
            "sentences",
            why="Where words and sentences end is a matter of Java's BreakIterator.",
            fix="split the text by a regular expression, or compute it before, in a column of the table",
        )
    if called[0].startswith("VariantExpression"):
        _variant(node, scope)
    if called in _OF_UTF8:
        return of_utf8(_OF_UTF8[called], node, scope)
    if function is None:
        refuse(f"the query uses {'.'.join(called)}, which has no incremental form yet", called[1])
    return FunctionCall(function.name, scope.lower_all(children[: function.arity[1]]))


@lowers("RegExpInStr")
def _instr(node: CatalystNode, scope: Scope) -> Expr:
    # Spark ignores the number of the group.
    return FunctionCall("regexp_instr", scope.lower_all(node.children[:2]))


@lowers("Unhex", "UnBase64")
def _to_bytes(node: CatalystNode, scope: Scope) -> Expr:
    value, name = scope.lower(node.child("child")), node.kind.lower()
    if not node.fields["failOnError"]:
        return FunctionCall(name, (value,))
    return FunctionCall("to_binary", (value, typed_constant(name.removeprefix("un"), STR)))


@lowers("RaiseError")
def _raise_error(node: CatalystNode, scope: Scope) -> Expr:
    kind, parameters = node.children
    if kind.kind != "Literal" or kind.fields["value"] != "USER_RAISED_EXCEPTION":
        refuse("raise_error with a class of errors", "raise_error", "give it a text")
    if parameters.kind == "CreateMap":
        return FunctionCall("raise_error", (scope.lower(parameters.children[1]),))
    ((_, message),) = cast("tuple[tuple[str, str | None]]", parameters.fields[CONSTANT])
    return FunctionCall("raise_error", (typed_constant(message, STR),))


@lowers("NaNvl")
def _nanvl(node: CatalystNode, scope: Scope) -> Expr:
    value, instead = scope.lower_all(node.children)
    return FunctionCall("when", (FunctionCall("is_nan", (value,)), instead, value))


@lowers("BRound")
def _bround(node: CatalystNode, scope: Scope) -> Expr:
    return rounded(node, scope, lambda value, digits: FunctionCall("bround", (value,), (digits,)))


@lowers("RoundCeil", "RoundFloor")
def _round_towards(node: CatalystNode, scope: Scope) -> Expr:
    name = "round_ceil" if node.kind == "RoundCeil" else "round_floor"
    return rounded(node, scope, lambda value, digits: FunctionCall(name, (value,), (digits,)))


# -- time -------------------------------------------------------------------------------------


@lowers("UnixTimestamp", "ToUnixTimestamp")
def _unix_timestamp(node: CatalystNode, scope: Scope) -> Expr:
    value, pattern = node.children
    # Of a time there is nothing to read, and the pattern may be anything.
    lowered = scope.lower(pattern) if node.fields[INPUT] == "string" else typed_constant("y", STR)
    return FunctionCall("unix_timestamp", (scope.lower(value), lowered))


@lowers("GetTimestamp")
def _parsed_time(node: CatalystNode, scope: Scope) -> Expr:
    name = "to_timestamp" if node.fields["failOnError"] else "try_to_timestamp"
    return FunctionCall(name, scope.lower_all(node.children))


@lowers("MakeTimestamp")
def _make_timestamp(node: CatalystNode, scope: Scope) -> Expr:
    if len(node.children) != 6:
        refuse("make_timestamp with a time zone", "make_timestamp")
    name = "make_timestamp" if node.fields["failOnError"] else "try_make_timestamp"
    return FunctionCall(name, scope.lower_all(node.children))


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
        return FunctionCall("tumble", (lowered,), (timedelta(**{f"{name}s": 1}),))
    known = _UNITS.get(name)
    if known is None or (not of_time and known in ("day", "hour", "minute", "second")):
        refuse(f"no unit {name!r} to truncate to", "date_trunc" if of_time else "trunc")
    return FunctionCall("truncate", (lowered,), (known,))


@lowers("TimestampDiff", "TimestampAdd")
def _of_unit(node: CatalystNode, scope: Scope) -> Expr:
    name = "timestampdiff" if node.kind == "TimestampDiff" else "timestampadd"
    unit = node.fields["unit"].upper()
    return FunctionCall(name, (typed_constant(unit, STR), *scope.lower_all(node.children)))


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


def _interval_text(node: CatalystNode) -> str:
    if node.kind != "Literal" or node.fields["value"] is None:
        refuse(
            "an interval of months that is no constant, no multiple of one and not made of numbers",
            "interval",
            "use timestampadd or date_add",
        )
    return node.fields["value"]


@dataclass(frozen=True, slots=True)
class Interval:
    """Interval of months, days and time, which are added in this order."""

    months: int
    days: int
    time: timedelta


_MONTHS = {"years": 12, "months": 1}
_TIME = ("hours", "minutes", "seconds")


def constant_interval(node: CatalystNode) -> Interval:
    """Parse a constant interval: microseconds, or a text such as `1 months 2 days -3.5 seconds`."""
    text = _interval_text(node)
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


# -- of days and time -------------------------------------------------------------------------


@lowers("SubtractTimestamps", "SubtractDates")
def _between(node: CatalystNode, scope: Scope) -> Expr:
    return FunctionCall("subtract", scope.lower_all(node.children))


_SCALED = {"MultiplyDTInterval": "multiply", "DivideDTInterval": "divide"}


@lowers(*_SCALED)
def _scaled(node: CatalystNode, scope: Scope) -> Expr:
    return FunctionCall(_SCALED[node.kind], scope.lower_all(node.children))


_PARTS = ("Days", "Hours", "Minutes", "Seconds")


@lowers(*(f"ExtractANSIInterval{part}" for part in _PARTS))
def _part(node: CatalystNode, scope: Scope) -> Expr:
    part = _PARTS.index(node.kind.removeprefix("ExtractANSIInterval"))
    return FunctionCall("interval_part", scope.lower_all(node.children), (part,))


# -- of months --------------------------------------------------------------------------------

_SCALED_MONTHS = {"MultiplyYMInterval": "multiply", "DivideYMInterval": "divide"}
_DIGITS_OF_INT64 = 19


def _amount(node: CatalystNode, scope: Scope) -> Expr:
    """Lower an interval to its number of months."""
    function = _SCALED_MONTHS.get(node.kind)
    if function is not None:
        interval, number = node.children
        # With a float, they become floats as on Spark; with other numbers, the result is exact.
        whole = FunctionCall("cast", (_amount(interval, scope),), (DecimalType(_DIGITS_OF_INT64, 0),))
        scaled = FunctionCall("round", (FunctionCall(function, (whole, scope.lower(number))),), (0,))
        return FunctionCall("cast", (scaled,), (INT32,))
    if node.kind == "TryEval":
        return FunctionCall("try_eval", (_amount(node.child("child"), scope),))
    if node.kind == "UnaryMinus":
        return FunctionCall("negate", (_amount(node.child("child"), scope),))
    if node.kind == "MakeYMInterval":
        return _months_in(*scope.lower_all(node.children))
    return typed_constant(int(_interval_text(node)), INT32)


def _months_in(years: Expr, months: Expr) -> Expr:
    return FunctionCall("add", (FunctionCall("multiply", (years, typed_constant(12, INT32))), months))


def is_of_months(constant: CatalystNode) -> bool:
    """Return whether a constant interval has a year-month type."""
    return "year" in constant.fields["dataType"] or "month" in constant.fields["dataType"]


# -- sums with times --------------------------------------------------------------------------


@lowers("TimestampAddInterval")
def _plus_time(node: CatalystNode, scope: Scope) -> Expr:
    # Months come first: the 30th of January and a month and a day are the 1st of March.
    moment, added = scope.lower(node.children[0]), node.children[1]
    if (parts := _parts_made(added)) is not None:
        years, months, weeks, days, *time = _lowered_parts(added, parts, scope)
        moment = _months_later(moment, FunctionCall("cast", (_months_in(years, months),), (INT64,)))
        return FunctionCall("add", (moment, FunctionCall("make_dt_interval", (_days_in(weeks, days), *time))))
    if added.kind != "Literal" or added.fields["value"] is None:
        return FunctionCall("add", (moment, scope.lower(added)))
    interval = constant_interval(added)
    if interval.months:
        moment = _months_later(moment, typed_constant(interval.months, INT64))
    span = timedelta(days=interval.days) + interval.time
    return FunctionCall("shift", (moment,), (span,)) if span or not interval.months else moment


@lowers("DateAddInterval")
def _date_plus(node: CatalystNode, scope: Scope) -> Expr:
    day, added = scope.lower(node.children[0]), node.children[1]
    parts = _parts_made(added)
    if parts is not None and not any(map(_may_be_time, parts[4:])):
        years, months, weeks, days = _lowered_parts(added, parts[:4], scope)
        later = FunctionCall("add_months", (day, _months_in(years, months)))
        return FunctionCall("date_add", (later, _days_in(weeks, days)))
    interval = constant_interval(added)
    if interval.time:
        refuse("hours added to a date", "interval", "cast the date to a timestamp")
    if interval.months:
        day = FunctionCall("add_months", (day, typed_constant(interval.months, INT32)))
    return FunctionCall("date_add", (day, typed_constant(interval.days, INT32)))


def _parts_made(interval: CatalystNode) -> tuple[CatalystNode, ...] | None:
    """Return the parts, years to seconds, of a constructed interval or its negation; None for others."""
    made = interval.child("child") if interval.kind == "UnaryMinus" else interval
    return tuple(made.children) if made.kind == "MakeInterval" else None


def _lowered_parts(interval: CatalystNode, parts: tuple[CatalystNode, ...], scope: Scope) -> list[Expr]:
    lowered = scope.lower_all(parts)
    return (
        [FunctionCall("negate", (part,)) for part in lowered]
        if interval.kind == "UnaryMinus"
        else list(lowered)
    )


def _may_be_time(node: CatalystNode) -> bool:
    return node.kind != "Literal" or node.fields["value"] is None or Decimal(node.fields["value"]) != 0


def _days_in(weeks: Expr, days: Expr) -> Expr:
    return FunctionCall("add", (FunctionCall("multiply", (weeks, typed_constant(7, INT32))), days))


def _months_later(moment: Expr, months: Expr) -> Expr:
    return FunctionCall("timestampadd", (typed_constant("MONTH", STR), months, moment))


@lowers("TimestampAddYMInterval")
def _plus_months(node: CatalystNode, scope: Scope) -> Expr:
    moment, interval = scope.lower(node.children[0]), node.children[1]
    return _months_later(moment, _amount(interval, scope))


@lowers("DateAddYMInterval")
def _date_plus_months(node: CatalystNode, scope: Scope) -> Expr:
    day, interval = scope.lower(node.children[0]), node.children[1]
    return FunctionCall("add_months", (day, _amount(interval, scope)))


@lowers("LambdaFunction")
def _lambda(node: CatalystNode, scope: Scope) -> Expr:
    body, *parameters = node.children
    around = tuple(str(each.options[0]) for each in scope.variables.values())
    names = fresh_names(tuple(each.fields["name"] for each in parameters), around)
    own = {each.expr_id: variable(name) for each, name in zip(parameters, names, strict=True)}
    return lambda_of(replace(scope, variables={**scope.variables, **own}).lower(body), names)


@lowers("NamedLambdaVariable")
def _variable(node: CatalystNode, scope: Scope) -> Expr:
    return scope.variables[node.expr_id]


@lowers("ArrayAggregate")
def _aggregate(node: CatalystNode, scope: Scope) -> Expr:
    values, start, merge, finish = node.children
    body, state, *element = merge.children
    if isinstance(state.fields["dataType"], dict):
        # Spark looks at the types of its fields only, not at their names.
        named = CatalystNode("Cast", {"child": 0, "dataType": state.fields["dataType"]}, (body,))
        merge = CatalystNode(merge.kind, merge.fields, (named, state, *element))
    functions = (merge,) if _is_identity(finish) else (merge, finish)
    return FunctionCall("aggregate", scope.lower_all((values, start, *functions)))


def _is_identity(function: CatalystNode) -> bool:
    body, parameter = function.children
    return body.kind == "NamedLambdaVariable" and body.expr_id == parameter.expr_id


@lowers("ArraySort")
def _sorted(node: CatalystNode, scope: Scope) -> Expr:
    values, function = node.children
    if _is_default_order(function):
        return FunctionCall("array_sort", (scope.lower(values),))
    return FunctionCall("array_sort", scope.lower_all(node.children))


def _is_default_order(function: CatalystNode) -> bool:
    """Return whether a comparison is the default one of `array_sort`: nulls last, then by `<` and `>`."""
    body, *parameters = function.children
    names = {each.expr_id: name for each, name in zip(parameters, ("left", "right"), strict=True)}

    def shown(node: CatalystNode) -> str:
        if node.kind == "NamedLambdaVariable":
            return names.get(node.expr_id, "")
        return node.fields["value"] if node.kind == "Literal" else node.kind

    return list(map(shown, body.walk())) == [
        *("If", "And", "IsNull", "left", "IsNull", "right", "0", "If", "IsNull", "left", "1"),
        *("If", "IsNull", "right", "-1", "If", "LessThan", "left", "right", "-1"),
        *("If", "GreaterThan", "left", "right", "1", "0"),
    ]


@lowers("KnownNotContainsNull")
def _compact(node: CatalystNode, scope: Scope) -> Expr:
    (child,) = node.children
    if child.kind == "ArrayFilter" and child.children[1].children[0].kind == "IsNotNull":
        return FunctionCall("array_compact", (scope.lower(child.children[0]),))
    return scope.lower(child)


@lowers("ElementAt")
def _element_at(node: CatalystNode, scope: Scope) -> Expr:
    values, place = node.children
    if values.kind == "StringSplitSQL":
        return FunctionCall("split_part", scope.lower_all((*values.children, place)))
    name = "element_at" if node.fields["failOnError"] else "try_element_at"
    return FunctionCall(name, scope.lower_all(node.children))


@lowers("ArrayInsert")
def _insert(node: CatalystNode, scope: Scope) -> Expr:
    if node.fields["legacyNegativeIndex"]:
        refuse("array_insert with spark.sql.legacy.negativeIndexInArrayInsert", "array_insert")
    return FunctionCall("array_insert", scope.lower_all(node.children))


@lowers("GetArrayStructFields")
def _fields(node: CatalystNode, scope: Scope) -> Expr:
    field = lambda_of(variable("each").field(node.fields["field"]["name"]), ("each",))
    return FunctionCall("transform", (scope.lower(node.child("child")), field))


@lowers("ArraysZip")
def _zipped(node: CatalystNode, scope: Scope) -> Expr:
    names = tuple(str(parse_tree(each).fields["value"]) for each in node.fields["names"])
    return FunctionCall("arrays_zip", scope.lower_all(node.children), (names,))


def _days(step: CatalystNode) -> int:
    """Return the days of a constant interval. Raises `UnsupportedQuery` for other intervals."""
    interval = Interval(1, 0, timedelta()) if is_of_months(step) else constant_interval(step)
    span = interval.time + timedelta(days=interval.days)
    if interval.months or span != timedelta(days=span.days):
        refuse("a sequence by steps that are no days", "sequence", "make one of days, and filter it")
    return span.days


@lowers("Sequence")
def _sequence(node: CatalystNode, scope: Scope) -> Expr:
    start, stop, *steps = node.children
    if steps and str(steps[0].fields.get("dataType")).startswith("interval"):
        return FunctionCall("sequence", (*scope.lower_all((start, stop)), Literal(_days(steps[0]))))
    return FunctionCall("sequence", scope.lower_all((start, stop, *steps)))


@lowers("JsonToStructs")
def _from_json(node: CatalystNode, scope: Scope) -> Expr:
    options = {name.lower(): value for name, value in node.fields.get(OPTIONS, {}).items()}
    mode = options.pop("mode", "PERMISSIVE").upper()
    for name in options:
        refuse(f"from_json with the option {name!r}, which has no incremental form yet", "from_json")
    if mode not in ("PERMISSIVE", "FAILFAST"):
        refuse(f"from_json in the mode {mode}, which has no incremental form yet", "from_json")
    schema = parse_type(node.fields["schema"])
    return FunctionCall("from_json", scope.lower_all(node.children), (schema, mode))


@lowers("StructsToCsv")
def _to_csv(node: CatalystNode, scope: Scope) -> Expr:
    for name in node.fields[OPTIONS]:
        refuse(
            f"to_csv with the option {name!r}, which has no incremental form yet", "to_csv", "leave it out"
        )
    return FunctionCall("to_csv", (scope.lower(node.child("child")),))


@lowers("CsvToStructs")
def _from_csv(node: CatalystNode, scope: Scope) -> Expr:
    refuse(
        "the query uses from_csv, which has no incremental form yet",
        "from_csv",
        why="How a line is divided, and what is left of a malformed one, is a matter of the parser of Spark.",
        fix="write the text as JSON, and use from_json; or take its parts by split and casts; or declare a"
        " source of CSV files",
    )


_WRITER = "StructsToJsonEvaluator("


@lowers("Invoke")
def _invoked(node: CatalystNode, scope: Scope) -> Expr:
    target, *arguments = node.children
    of_text = {"isValid": "is_valid_utf8", "makeValid": "make_valid_utf8"}.get(node.fields["functionName"])
    if of_text is not None:
        return of_utf8(of_text, node, scope)
    called = str(target.fields.get("value")) if target.kind == "Literal" else target.kind
    if not called.startswith(_WRITER):
        method = f"{called.partition('(')[0]}.{node.fields['functionName']}"
        refuse(f"the query uses {method}, which has no incremental form yet", method)
    options, _, _ = called.removeprefix(_WRITER).partition("),")
    if options != "Map(":
        refuse(f"to_json with the options {options.partition('(')[2]}", "to_json", "leave them out")
    _, _, zone = called.removesuffix("))").rpartition("Some(")
    if "TimestampType" in called and zone not in UTC_NAMES:
        raise refused_setting(TIME_ZONE, zone, "to_json is computed in that time zone.")
    return FunctionCall("to_json", scope.lower_all(tuple(arguments)))
