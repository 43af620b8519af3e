"""Lowering of Spark's event time: `window`, `session_window`, watermarks, and duplicates within them.

Catalyst spells a window as arithmetic on microseconds and gives it as a struct of start and end. Here the
arithmetic is recognised and becomes `tumble`, so a window costs what one written by hand costs. Where a key
of groups is a time with a watermark, or a window of one, those whose time has passed are forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headrace.errors import UnsupportedQuery
from headrace.expr.check import check
from headrace.expr.code_runtime import EPOCH
from headrace.expr.tree import Column, Expr, FunctionCall, Literal
from headrace.expr.types import DATE, TIMESTAMP, TIMESTAMP_NTZ, MapType, StructType
from headrace.flow.state_expiry import timed_columns
from headrace.flow.timed_columns import has_watermark
from headrace.operators.aggregate import counts, extremes, sums
from headrace.operators.aggregate.aggregation import Aggregation
from headrace.operators.endpoints import SourceOperator
from headrace.operators.rows import Filter, Select
from headrace.operators.time_spans import session, tumbling
from headrace.queries import relations
from headrace.queries.catalyst_plan import DELAY, SESSION, CatalystNode, parse_tree
from headrace.queries.expressions import Scope, lowers
from headrace.queries.relations import Planner, Relation, RowStream


@lowers("PreciseTimestampConversion")
def _conversion(node: CatalystNode, scope: Scope) -> Expr:
    child = node.children[0]
    match node.fields["toType"]:
        case "timestamp":
            return _moment(child, scope)
        case "timestamp_ntz":
            return FunctionCall("cast", (_moment(child, scope),), (TIMESTAMP_NTZ,))
        case _:
            return FunctionCall("micros_since", (_in_utc(node, scope), Literal(EPOCH, TIMESTAMP)))


def _in_utc(conversion: CatalystNode, scope: Scope) -> Expr:
    """Lower the time in a conversion to microseconds. A time without a zone is taken as UTC."""
    time = scope.lower(conversion.children[0])
    return (
        FunctionCall("cast", (time,), (TIMESTAMP,))
        if conversion.fields["fromType"] == "timestamp_ntz"
        else time
    )


def _moment(node: CatalystNode, scope: Scope) -> Expr:
    """Lower microseconds since 1970 to a timestamp."""
    if node.kind == "PreciseTimestampConversion":
        return _in_utc(node, scope)
    if node.kind in ("Add", "Subtract"):
        left, right = node.children
        if right.kind == "Literal":
            micros = int(right.fields["value"])
            return _shifted(_moment(left, scope), micros if node.kind == "Add" else -micros)
        if node.kind == "Subtract" and right.kind == "CaseWhen":
            return _window_start(left, right.children[-1], scope)
    return FunctionCall("timestamp_micros", (scope.lower(node),))


def _window_start(time: CatalystNode, remainder: CatalystNode, scope: Scope) -> Expr:
    """Lower `time - (time - offset) mod width`."""
    offset, width = _offset_and_width(remainder)
    start = FunctionCall(
        "tumble", (_shifted(_moment(time, scope), -offset),), (timedelta(microseconds=width),)
    )
    return _shifted(start, offset)


def _offset_and_width(remainder: CatalystNode) -> tuple[int, int]:
    """Return the offset and the width of `(time - offset) mod width`, in microseconds."""
    return int(remainder.children[0].children[1].fields["value"]), int(remainder.children[1].fields["value"])


def _shifted(moment: Expr, micros: int) -> Expr:
    return FunctionCall("shift", (moment,), (timedelta(microseconds=micros),)) if micros else moment


# -- sessions ----------------------------------------------------------------------------------


def session_key(keys: tuple[CatalystNode, ...]) -> CatalystNode | None:
    """Return the key of a group that is a session window."""
    return next((key for key in keys if key.fields.get(SESSION)), None)


def with_session(below: Relation, key: CatalystNode, group: tuple[Expr, ...]) -> Relation:
    """Replace each row's window by that of its session: the rows of its group with overlapping windows."""
    name = below.columns[key.expr_id]
    own = Column(name)
    start, end = own.field("start"), own.field("end")
    before: Any = extremes.max(end).over(
        partition_by=group, order_by=start, range=(None, timedelta(microseconds=-1))
    )
    reached = below.stream.with_columns(**{"session before": before})
    opens = FunctionCall("when", (Column("session before") >= start, Literal(0), Literal(1)))
    number: Any = sums.sum(opens).over(partition_by=group, order_by=start, range=(None, 0))
    numbered = reached.with_columns(**{"session number": number})
    per = (*group, Column("session number"))
    bounds: dict[str, Any] = {
        "session start": extremes.min(start).over(partition_by=per),
        "session end": extremes.max(end).over(partition_by=per),
    }
    window = FunctionCall("struct", (Column("session start"), Column("session end")), (("start", "end"),))
    whole = numbered.with_columns(**bounds).with_columns(**{name: window})
    return Relation(whole.select(*below.stream.schema.names), below.columns)


# -- windows that answer when they are closed -----------------------------------------------------

_UPDATED = "make it a materialized view over the table that the stream reads"


def step_of_windows(plan: CatalystNode) -> timedelta | None:
    """Return the window size of a query, by which its watermark advances in steps; None without windows.

    So a row is late only if its window has closed. Raises `UnsupportedQuery` where no step has this effect.
    """
    lists = ("projectList", "groupingExpressions", "aggregateExpressions")
    trees = [
        tree for node in plan.walk() for name in lists if name in node.fields for tree in node.trees(name)
    ]
    rows = [row for node in plan.walk() if node.kind == "Expand" for row in node.fields["projections"]]
    overlapping = any(True for row in rows for each in row for _ in _windows(parse_tree(each)))
    found = {size for tree in trees for size in _windows(tree)}
    if overlapping or len(found) > 1 or any(offset for offset, _ in found):
        raise UnsupportedQuery(
            "its windows overlap, differ in size, or begin at a time of their own", fix=_UPDATED
        )
    if found and not _are_keys(plan):
        raise UnsupportedQuery(
            "it computes windows that it does not group by", fix="compute them in a table that reads this one"
        )
    return next((timedelta(microseconds=width) for _, width in found), None)


def _are_keys(plan: CatalystNode) -> bool:
    """Return whether all windows computed in a query are grouping keys."""
    keys = [
        key for node in plan.walk() if node.kind == "Aggregate" for key in node.trees("groupingExpressions")
    ]
    named = {key.expr_id for key in keys if "exprId" in key.fields}
    return all(
        column.fields.get("exprId") is not None and column.expr_id in named
        for node in plan.walk()
        if "projectList" in node.fields
        for column in node.trees("projectList")
        if any(True for _ in _windows(column))
    )


def _windows(tree: CatalystNode) -> Iterator[tuple[int, int]]:
    """Yield the offset and the width of each window computed in an expression."""
    for node in tree.walk():
        if node.kind == "Subtract" and node.children[1].kind == "CaseWhen":
            remainder = node.children[1].children[-1]
            if remainder.kind == "Remainder":
                yield _offset_and_width(remainder)


# -- watermarks --------------------------------------------------------------------------------

_MOMENT = timedelta(microseconds=1)


@relations.lowers("EventTimeWatermark")
def _watermark(node: CatalystNode, planner: Planner) -> Relation:
    below, time = planner.relation(node.children[0]), node.tree("eventTime")
    assert time is not None
    column = below.columns[time.expr_id]
    if check(Column(column), below.stream.schema).type != TIMESTAMP:
        raise UnsupportedQuery(
            f"a watermark on {time.fields['name']!r}, which is no timestamp",
            fix="put it on the time of each row, before the windows",
        )
    if not _is_of_sources(below.stream):
        return below
    delay = timedelta(milliseconds=node.fields[DELAY])
    if planner.closes and planner.step is None:
        # To Spark a time that the watermark has reached is over; here, one that it has passed.
        if not delay:
            raise UnsupportedQuery(
                "its watermark has no delay, and no windows are grouped by",
                fix="give the watermark a delay of '1 millisecond' or more, or group by windows",
            )
        delay -= _MOMENT
    stream = below.stream.watermark(column, lateness=delay, every=planner.step)
    return Relation(stream, below.columns)


def _is_of_sources(stream: Any) -> bool:
    """Return whether a stream reads no tables, over which a watermark has no meaning."""
    seen, reached = set[int](), [stream.node_id]
    while reached:
        node = stream.flow.node(reached.pop())
        if isinstance(node.operator, SourceOperator) and not node.operator.append:
            return False
        reached.extend(set(node.inputs) - seen)
        seen.update(node.inputs)
    return True


@relations.lowers("Deduplicate")
def _deduplicated(node: CatalystNode, planner: Planner) -> Relation:
    below = planner.relation(node.children[0])
    keys, fields = below.scope.lower_all(node.trees("keys")), below.stream.schema.fields
    time = _passing(below.stream, keys) if planner.closes else None
    if planner.closes and time is None and any(each.kind == "EventTimeWatermark" for each in node.walk()):
        # To Spark no row is late then; to a flow, those are which the watermark has passed.
        raise UnsupportedQuery(
            "it drops duplicates by columns without the time of its watermark",
            fix="add the time to the columns, or leave out the watermark",
        )
    whole = {key.name for key in keys if isinstance(key, Column)} >= {field.name for field in fields}
    if whole and not any(isinstance(field.type, MapType) for field in fields):
        # Of rows that are only added, nothing is taken back.
        return Relation(below.stream.distinct(), below.columns)
    if isinstance(time, Column):
        # Equal keys have equal times: the first of them is known when it comes.
        return Relation(below.stream.first_within(_MOMENT, by=keys, time=time.name), below.columns)
    return first_of_each(below, keys)


@relations.lowers("DeduplicateWithinWatermark")
def _deduplicated_within(node: CatalystNode, planner: Planner) -> Relation:
    if planner.closes:
        raise UnsupportedQuery(
            "which rows dropDuplicatesWithinWatermark keeps depends on how Spark cuts the stream",
            fix="use dropDuplicates by columns of which one is the time",
        )
    below = planner.relation(node.children[0])
    delays = (each.fields[DELAY] for each in node.walk() if each.kind == "EventTimeWatermark")
    within = max(timedelta(milliseconds=next(delays, 0)), _MOMENT)
    time = next(iter(timed_columns(below.stream)), None)
    keys = below.scope.lower_all(node.trees("keys"))
    return Relation(below.stream.first_within(within, by=keys, time=time), below.columns)


def first_of_each(below: Relation, keys: tuple[Expr, ...]) -> Relation:
    """Keep the least row of each key."""
    stream, names = below.stream, below.stream.schema.names
    if _passing(stream, keys) is None or any(isinstance(f.type, MapType) for f in stream.schema.fields):
        return Relation(stream.top_k(1, by=[], per=keys), below.columns)
    row = FunctionCall("struct", tuple(map(Column, names)), (tuple(names),))
    named = {f"key {at}": key for at, key in enumerate(keys)}
    groups = grouped(stream, named, {"row": extremes.min(row)})
    return Relation(groups.select(**{name: Column("row").field(name) for name in names}), below.columns)


@dataclass(frozen=True, slots=True)
class SessionGroups:
    """Sessions of rows with a watermark. key: the column of their windows. gap: inactivity that ends one."""

    key: Column
    gap: timedelta


def closing_sessions(below: Relation, key: CatalystNode) -> SessionGroups | None:
    """Return the sessions in a grouping key; None without a watermark or a constant gap."""
    column = Column(below.columns[key.expr_id])
    start = column.field("start")
    if not has_watermark(below.stream, start):
        return None
    node = below.stream.flow.node(below.stream.node_id)
    while isinstance(node.operator, Filter):
        node = below.stream.flow.node(node.inputs[0])
    made = dict(node.operator.columns).get(column.name) if isinstance(node.operator, Select) else None
    match made:
        case FunctionCall("struct", (begin, FunctionCall("shift", (at,), (timedelta() as gap,)))) if at.same(
            begin
        ):
            return SessionGroups(column, gap)
        case _:
            return None


def grouped(
    stream: RowStream,
    keys: Mapping[str, Expr],
    aggregations: Mapping[str, Aggregation],
    sessions: SessionGroups | None = None,
    *,
    closes: bool = False,
) -> RowStream:
    """Aggregate by keys, dropping groups once their time has passed. closes: emit groups only then."""
    wanted = aggregations or {"rows of a group": counts.count()}
    if sessions is not None:
        if closes:
            raise UnsupportedQuery("it has windows of sessions", fix=_UPDATED)
        # Spark's sessions touch; those of a flow do not.
        windows = session(sessions.key.field("start"), sessions.gap + _MOMENT)
        others = {name: key for name, key in keys.items() if not key.same(sessions.key)}
        groups = stream.group_by(**others, window=windows, emit="updates").agg(**wanted)
        end = FunctionCall("shift", (Column("window_end"),), (-_MOMENT,))
        window = FunctionCall("struct", (Column("window_start"), end), (("start", "end"),))
        shown = {name: Column(name) if name in others else window for name in keys}
        return groups.select(**shown, **{name: Column(name) for name in aggregations})
    time = _passing(stream, keys.values())
    if keys and not aggregations:
        keyed = stream.select(**keys)
        if time is None or timed_columns(keyed):
            return keyed.distinct()
    if time is not None:
        window = tumbling(time, _MOMENT)
        if closes:
            closed = stream.group_by(**keys, window=window, emit="close").agg(**wanted)
            return closed.select(*keys, *aggregations)
        groups = stream.group_by(**keys, window=window, emit="updates").agg(**wanted)
        return groups.select(*keys, *aggregations)
    return stream.group_by(**keys).agg(**aggregations)


def _passing(stream: RowStream, keys: Iterable[Expr]) -> Expr | None:
    """Return a time with a watermark that is a key or derived from a single key; None if there is none."""
    return next((time for key in keys for time in _times(key, stream) if has_watermark(stream, time)), None)


def _times(key: Expr, stream: RowStream) -> Iterator[Expr]:
    typed = check(key, stream.schema)
    if typed.nullable:
        return
    if typed.type == TIMESTAMP:
        yield key
    elif typed.type == DATE:
        yield FunctionCall("cast", (key,), (TIMESTAMP,))
    elif isinstance(typed.type, StructType):
        for field in typed.type.fields:
            if field.type == TIMESTAMP and not field.nullable:
                yield FunctionCall("field", (key,), (field.name,))
