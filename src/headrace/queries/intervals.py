"""Lowering of intervals: their products, parts, and sums with times.

Intervals of days and time are values. Those of years and months are none: an amount of months, as int32, is
what a time moves by.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from headrace.expr.tree import Call, Expr
from headrace.expr.types import INT32, INT64, STR, DecimalType
from headrace.queries.catalyst_plan import CatalystNode
from headrace.queries.expressions import Scope, lowers, typed_constant
from headrace.queries.scalar_functions import refuse


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
    """Return a constant interval: microseconds, or a text such as `1 months 2 days -3.5 seconds`."""
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
    return Call("subtract", scope.lower_all(node.children))


_SCALED = {"MultiplyDTInterval": "multiply", "DivideDTInterval": "divide"}


@lowers(*_SCALED)
def _scaled(node: CatalystNode, scope: Scope) -> Expr:
    return Call(_SCALED[node.kind], scope.lower_all(node.children))


_PARTS = ("Days", "Hours", "Minutes", "Seconds")


@lowers(*(f"ExtractANSIInterval{part}" for part in _PARTS))
def _part(node: CatalystNode, scope: Scope) -> Expr:
    part = _PARTS.index(node.kind.removeprefix("ExtractANSIInterval"))
    return Call("interval_part", scope.lower_all(node.children), (part,))


# -- of months --------------------------------------------------------------------------------

_SCALED_MONTHS = {"MultiplyYMInterval": "multiply", "DivideYMInterval": "divide"}
_DIGITS_OF_INT64 = 19


def _amount(node: CatalystNode, scope: Scope) -> Expr:
    """Lower an interval to its months."""
    function = _SCALED_MONTHS.get(node.kind)
    if function is not None:
        interval, number = node.children
        # With a float, they become floats as on Spark; with other numbers, the result is exact.
        whole = Call("cast", (_amount(interval, scope),), (DecimalType(_DIGITS_OF_INT64, 0),))
        scaled = Call("round", (Call(function, (whole, scope.lower(number))),), (0,))
        return Call("cast", (scaled,), (INT32,))
    if node.kind == "TryEval":
        return Call("try_eval", (_amount(node.child("child"), scope),))
    if node.kind == "UnaryMinus":
        return Call("negate", (_amount(node.child("child"), scope),))
    if node.kind == "MakeYMInterval":
        return _months_in(*scope.lower_all(node.children))
    return typed_constant(int(_interval_text(node)), INT32)


def _months_in(years: Expr, months: Expr) -> Expr:
    return Call("add", (Call("multiply", (years, typed_constant(12, INT32))), months))


def is_of_months(constant: CatalystNode) -> bool:
    """Return whether the type of a constant interval is one of years and months."""
    return "year" in constant.fields["dataType"] or "month" in constant.fields["dataType"]


# -- sums with times --------------------------------------------------------------------------


@lowers("TimestampAddInterval")
def _plus_time(node: CatalystNode, scope: Scope) -> Expr:
    # Months come first: the 30th of January and a month and a day are the 1st of March.
    moment, added = scope.lower(node.children[0]), node.children[1]
    if (parts := _parts_made(added)) is not None:
        years, months, weeks, days, *time = _lowered_parts(added, parts, scope)
        moment = _months_later(moment, Call("cast", (_months_in(years, months),), (INT64,)))
        return Call("add", (moment, Call("make_dt_interval", (_days_in(weeks, days), *time))))
    if added.kind != "Literal" or added.fields["value"] is None:
        return Call("add", (moment, scope.lower(added)))
    interval = constant_interval(added)
    if interval.months:
        moment = _months_later(moment, typed_constant(interval.months, INT64))
    span = timedelta(days=interval.days) + interval.time
    return Call("shift", (moment,), (span,)) if span or not interval.months else moment


@lowers("DateAddInterval")
def _date_plus(node: CatalystNode, scope: Scope) -> Expr:
    day, added = scope.lower(node.children[0]), node.children[1]
    parts = _parts_made(added)
    if parts is not None and not any(map(_may_be_time, parts[4:])):
        years, months, weeks, days = _lowered_parts(added, parts[:4], scope)
        later = Call("add_months", (day, _months_in(years, months)))
        return Call("date_add", (later, _days_in(weeks, days)))
    interval = constant_interval(added)
    if interval.time:
        refuse("hours added to a date", "interval", "cast the date to a timestamp")
    if interval.months:
        day = Call("add_months", (day, typed_constant(interval.months, INT32)))
    return Call("date_add", (day, typed_constant(interval.days, INT32)))


def _parts_made(interval: CatalystNode) -> tuple[CatalystNode, ...] | None:
    """Return the numbers of years to seconds that an interval, or one with the other sign, is made of."""
    made = interval.child("child") if interval.kind == "UnaryMinus" else interval
    return tuple(made.children) if made.kind == "MakeInterval" else None


def _lowered_parts(interval: CatalystNode, parts: tuple[CatalystNode, ...], scope: Scope) -> list[Expr]:
    lowered = scope.lower_all(parts)
    return [Call("negate", (part,)) for part in lowered] if interval.kind == "UnaryMinus" else list(lowered)


def _may_be_time(node: CatalystNode) -> bool:
    return node.kind != "Literal" or node.fields["value"] is None or Decimal(node.fields["value"]) != 0


def _days_in(weeks: Expr, days: Expr) -> Expr:
    return Call("add", (Call("multiply", (weeks, typed_constant(7, INT32))), days))


def _months_later(moment: Expr, months: Expr) -> Expr:
    return Call("timestampadd", (typed_constant("MONTH", STR), months, moment))


@lowers("TimestampAddYMInterval")
def _plus_months(node: CatalystNode, scope: Scope) -> Expr:
    moment, interval = scope.lower(node.children[0]), node.children[1]
    return _months_later(moment, _amount(interval, scope))


@lowers("DateAddYMInterval")
def _date_plus_months(node: CatalystNode, scope: Scope) -> Expr:
    day, interval = scope.lower(node.children[0]), node.children[1]
    return Call("add_months", (day, _amount(interval, scope)))
