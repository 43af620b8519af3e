"""Lowering of Spark's `window` and `session_window` over tables.

Catalyst spells a window as arithmetic on microseconds and gives it as a struct of start and end. Here the
arithmetic is recognised and becomes `tumble`, so a window costs what one written by hand costs.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from penstock.expr.code_runtime import EPOCH
from penstock.expr.tree import Call, Column, Expr, Literal
from penstock.expr.types import TIMESTAMP
from penstock.flow import aggregates
from penstock.queries.catalyst_plan import SESSION, CatalystNode
from penstock.queries.expressions import Scope, lowers
from penstock.queries.relations import Relation


@lowers("PreciseTimestampConversion")
def _conversion(node: CatalystNode, scope: Scope) -> Expr:
    child = node.children[0]
    if node.fields["toType"] == "timestamp":
        return _moment(child, scope)
    return Call("micros_since", (scope.lower(child), Literal(EPOCH, TIMESTAMP)))


def _moment(node: CatalystNode, scope: Scope) -> Expr:
    """Lower microseconds since 1970 as a timestamp."""
    if node.kind == "PreciseTimestampConversion":
        return scope.lower(node.children[0])
    if node.kind in ("Add", "Subtract"):
        left, right = node.children
        if right.kind == "Literal":
            micros = int(right.fields["value"])
            return _shifted(_moment(left, scope), micros if node.kind == "Add" else -micros)
        if node.kind == "Subtract" and right.kind == "CaseWhen":
            return _window_start(left, right.children[-1], scope)
    return Call("timestamp_micros", (scope.lower(node),))


def _window_start(time: CatalystNode, remainder: CatalystNode, scope: Scope) -> Expr:
    """Lower `time - (time - offset) mod width`."""
    offset, width = (
        int(n.fields["value"]) for n in (remainder.children[0].children[1], remainder.children[1])
    )
    start = Call("tumble", (_shifted(_moment(time, scope), -offset),), (timedelta(microseconds=width),))
    return _shifted(start, offset)


def _shifted(moment: Expr, micros: int) -> Expr:
    return Call("shift", (moment,), (timedelta(microseconds=micros),)) if micros else moment


# -- sessions ----------------------------------------------------------------------------------


def session_key(keys: tuple[CatalystNode, ...]) -> CatalystNode | None:
    """Return the key of a group that is a session window."""
    return next((key for key in keys if key.fields.get(SESSION)), None)


def with_session(below: Relation, session: CatalystNode, keys: tuple[CatalystNode, ...]) -> Relation:
    """Replace the window of each row by that of its session, the rows of a group whose windows overlap."""
    name = below.columns[session.expr_id]
    own = Column(name)
    group = below.scope.lower_all(tuple(key for key in keys if key is not session))
    start, end = own.field("start"), own.field("end")
    before: Any = aggregates.max(end).over(
        partition_by=group, order_by=start, range=(None, timedelta(microseconds=-1))
    )
    reached = below.stream.with_columns(**{"session before": before})
    opens = Call("when", (Column("session before") >= start, Literal(0), Literal(1)))
    number: Any = aggregates.sum(opens).over(partition_by=group, order_by=start, range=(None, 0))
    numbered = reached.with_columns(**{"session number": number})
    per = (*group, Column("session number"))
    bounds: dict[str, Any] = {
        "session start": aggregates.min(start).over(partition_by=per),
        "session end": aggregates.max(end).over(partition_by=per),
    }
    window = Call("struct", (Column("session start"), Column("session end")), (("start", "end"),))
    whole = numbered.with_columns(**bounds).with_columns(**{name: window})
    return Relation(whole.select(*below.stream.schema.names), below.columns)
