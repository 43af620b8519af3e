"""Current time in a query, as an input that has the time of each tick.

Spark's optimiser takes the time of planning for `current_timestamp()`, so an answer would stand still. Before
it runs, each such expression is replaced by `(SELECT max(value) FROM tick_time)` in a copy of the analysed
plan. So time is an input like others: kept in commits, and the same when a tick is run again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.errors import UnsupportedQuery
from headrace.operators.event_time.temporal_filter import Presence
from headrace.operators.source import TICK_TIME
from headrace.queries.catalyst_plan import CatalystNode, reads_table
from headrace.queries.plan_copier import PlanCopier
from headrace.queries.plan_details import items, java_class, with_subqueries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.errors import SourceLocation

_LATEST = f"(SELECT max(value) FROM {TICK_TIME})"
_MOMENTS = {"CurrentTimestamp": _LATEST, "Now": _LATEST, "CurrentDate": f"CAST({_LATEST} AS DATE)"}
_WITHOUT_ZONE = ("LocalTimestamp", "LocalTimestampNanos", "CurrentTime", "CurrentTimestampNanos")


def reads_current_time(plan: Any, session: SparkSession) -> bool:
    """Return whether an analysed plan may have an expression of the current time."""
    patterns = java_class(session, "org.apache.spark.sql.catalyst.trees.TreePattern")
    return any(each.containsPattern(patterns.CURRENT_LIKE()) for each in with_subqueries(plan))


def with_tick_time(plan: Any, session: SparkSession, location: SourceLocation) -> Any:
    """Return a copy of an analysed plan that reads the current time from table `tick_time`.

    Raises `UnsupportedQuery` for a time without a zone.
    """
    moments: dict[str, Any] = {}
    for kind, text in _MOMENTS.items():
        selected: Any = session.sql(f"SELECT {text} AS moment")
        (alias,) = items(selected._jdf.queryExecution().analyzed().expressions())
        moments[kind] = alias.children().apply(0)

    def moment(node: Any) -> Any:
        kind = node.getClass().getSimpleName()
        if kind in _WITHOUT_ZONE:
            raise UnsupportedQuery(
                f"the query uses {node.prettyName()}(), a time without a zone",
                where=[location],
                fix="current_timestamp() or current_date()",
                function=node.prettyName(),
            )
        return moments.get(kind)

    return PlanCopier(session, expressions=moment).plan(plan)


# -- comparisons -------------------------------------------------------------------------------

_RISING = frozenset({"ScalarSubquery", "DateAdd", "DateSub", "AddMonths", "TimeAdd"}) | {
    *("TimestampAddInterval", "DateAddYMInterval", "DateAddInterval"),
    *("TruncDate", "TruncTimestamp", "UnixSeconds", "UnixTimestamp", "KnownNullable", "Cast"),
    *("Add", "Subtract"),
}
"""Functions that never fall as their one argument that is no constant rises; of a difference, the first.

Not times plus months: a month before 30 March 12:00 is later than a month before 31 March 10:00.
"""

_PRESENCES: dict[str, tuple[Presence, ...]] = {
    "GreaterThan": (Presence.AFTER,),
    "GreaterThanOrEqual": (Presence.SINCE,),
    "LessThan": (Presence.BEFORE,),
    "LessThanOrEqual": (Presence.UNTIL,),
    "EqualTo": (Presence.SINCE, Presence.UNTIL),
}
_SWAPPED = {
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "EqualTo": "EqualTo",
}


Comparison: TypeAlias = tuple[CatalystNode, Presence, CatalystNode]
"""Comparison of a rising time with a moment of each row: the time, how, the moment."""


def comparisons_with_time(condition: CatalystNode) -> list[Comparison]:
    """Return a condition as comparisons of a rising time with a moment of each row; empty if it is none."""
    if condition.kind not in _PRESENCES:
        return []
    (one, other), kind = condition.children, condition.kind
    if not _is_time(one):
        one, other, kind = other, one, _SWAPPED[kind]
    if not _is_time(one) or any(node.kind == "ScalarSubquery" for node in other.walk()):
        return []
    return [(one, presence, other) for presence in _PRESENCES[kind]]


def _is_time(node: CatalystNode) -> bool:
    """Return whether an expression is the time of the tick, or rises with it."""
    varying = [child for child in node.children if child.kind != "Literal"]
    if node.kind == "ScalarSubquery":
        return reads_table(node, TICK_TIME)
    if node.kind == "Cast" and node.fields["dataType"] not in ("date", "timestamp"):
        return False
    if node.kind == "Subtract" and node.children[0] not in varying:
        return False
    if node.kind == "TimestampAddInterval" and node.children[1].fields.get("dataType") == "interval":
        return False  # of months, days and less
    return node.kind in _RISING and len(varying) == 1 and _is_time(varying[0])
