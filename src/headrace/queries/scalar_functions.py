"""Lowering of Spark's scalar functions: from Catalyst's classes to functions of the catalogue.

Catalyst replaces many functions by others before: `nvl` by `coalesce`, `left` by `substring`, `decode` of
cases by CASE. Some are calls of static methods of Spark (`StaticInvoke`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn, cast

from headrace.errors import UnsupportedQuery
from headrace.expr.tree import Call, Expr
from headrace.expr.types import STR
from headrace.queries.catalyst_plan import CONSTANT, INPUT, CatalystNode, simple_name
from headrace.queries.expressions import INVOKED, Scope, lowers, rounded, typed_constant

_OF_UTF8 = {
    ("ExpressionImplUtils", "validateUTF8String"): "validate_utf8",
    ("ExpressionImplUtils", "tryValidateUTF8String"): "try_validate_utf8",
}


@lowers("Mask")
def _mask(node: CatalystNode, scope: Scope) -> Expr:
    text, *by = node.children
    if any(each.kind != "Literal" for each in by):
        refuse("mask with a non-constant replacement", "mask", fix="give the replacement as a constant")
    return Call("mask", (scope.lower(text),), tuple(each.fields["value"] for each in by))


def refuse(what: str, function: str, fix: str = "", why: str = "") -> NoReturn:
    raise UnsupportedQuery(what, why=why, fix=fix or "express it by other functions", function=function)


def of_utf8(name: str, node: CatalystNode, scope: Scope) -> Expr:
    """Lower a test or repair of text, of bytes that become text as they are: a cast of ours refuses some."""
    text = node.children[0]
    return Call(name, (scope.lower(text.child("child") if node.fields[INPUT] == "binary" else text),))


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
        return Call("url_decode" if strict else "try_url_decode", (scope.lower(children[0]),))
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
    return Call(function.name, scope.lower_all(children[: function.arity[1]]))


@lowers("RegExpInStr")
def _instr(node: CatalystNode, scope: Scope) -> Expr:
    # Spark ignores the number of the group.
    return Call("regexp_instr", scope.lower_all(node.children[:2]))


@lowers("Unhex", "UnBase64")
def _to_bytes(node: CatalystNode, scope: Scope) -> Expr:
    value, name = scope.lower(node.child("child")), node.kind.lower()
    if not node.fields["failOnError"]:
        return Call(name, (value,))
    return Call("to_binary", (value, typed_constant(name.removeprefix("un"), STR)))


@lowers("RaiseError")
def _raise_error(node: CatalystNode, scope: Scope) -> Expr:
    kind, parameters = node.children
    if kind.kind != "Literal" or kind.fields["value"] != "USER_RAISED_EXCEPTION":
        refuse("raise_error with a class of errors", "raise_error", "give it a text")
    if parameters.kind == "CreateMap":
        return Call("raise_error", (scope.lower(parameters.children[1]),))
    ((_, message),) = cast("tuple[tuple[str, str | None]]", parameters.fields[CONSTANT])
    return Call("raise_error", (typed_constant(message, STR),))


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


@lowers("UnixTimestamp", "ToUnixTimestamp")
def _unix_timestamp(node: CatalystNode, scope: Scope) -> Expr:
    value, pattern = node.children
    # Of a time there is nothing to read, and the pattern may be anything.
    lowered = scope.lower(pattern) if node.fields[INPUT] == "string" else typed_constant("y", STR)
    return Call("unix_timestamp", (scope.lower(value), lowered))


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
