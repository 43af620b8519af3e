"""Runtime of generated ticks: functions over state values, the limit on rows, explanations of failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from headrace.errors import (
    HeadraceError,
    LimitExceeded,
    NoFixpoint,
    Step,
    UserFunctionFailed,
)
from headrace.expr.types import Rows
from headrace.lowering.generated_source import register_runtime

if TYPE_CHECKING:
    from types import FrameType

    from headrace.graph.node import Node
    from headrace.lowering.generated_source import Purpose


def consolidate(rows: Rows) -> Rows:
    """Sum the weights (last field) of equal rows and drop sums of 0, in order of first appearance."""
    if len(rows) < 2:
        return rows
    weights: dict[tuple[Any, ...], int] = {}
    for row in rows:
        key = row[:-1]
        weights[key] = weights.get(key, 0) + row[-1]
    return [(*row, weight) for row, weight in weights.items() if weight]


def no_fixpoint(rounds: int, growth: list[int], closing: dict[int, int]) -> None:
    """Raise the error for a loop that exceeds its limit of rounds.

    growth:  number of new rows in each of the last rounds, oldest first.
    closing: per feedback of the loop (its node) how many of the latest it got; `failure.explained`
             makes the user's lines of them.
    """
    raise NoFixpoint(
        f"the loop still makes new rows after {rounds - 1} rounds",
        why=f"New rows in the last rounds: {', '.join(map(str, growth))}.",
        fix="bound what the loop makes (a filter, a distinct key), or raise max_iterations",
        rounds=rounds - 1,
        growth=tuple(growth),
        closing=closing,
    )


register_runtime({"x_consolidate": consolidate, "x_no_fixpoint": no_fixpoint, "x_zip_longest": zip_longest})

LARGEST_TICK = 8_192
"""Rows of input that a limit is meant for; ticks of more may make as many for each of these."""


class TickBudget:
    """Counter of the rows that a tick has produced so far, with a limit.

    rows: the limit of the current tick. made: the count, reset before each tick.

    >>> budget = TickBudget(10)
    >>> budget(8)
    >>> budget(3)
    Traceback (most recent call last):
    headrace.errors.LimitExceeded: P751 LimitExceeded: a tick made 11 rows, and 10 is the limit
    ...
    """

    __slots__ = ("_usual", "made", "rows")

    def __init__(self, rows: int) -> None:
        self.rows = self._usual = rows
        self.made = 0

    def allow_for(self, given: int) -> None:
        """Set the limit for a tick with `given` input rows."""
        self.rows = self._usual * max(1, -(-given // LARGEST_TICK))

    def __call__(self, count: int) -> None:
        """Count rows. Raises `LimitExceeded` above the limit."""
        self.made += count
        if self.made > self.rows:
            raise LimitExceeded(
                f"a tick made {self.made:,} rows, and {self.rows:,} is the limit",
                fix="let fewer rows meet, or give the view higher limits",
                reached=self.made,
                limit=self.rows,
            )


Nodes: TypeAlias = "Sequence[Node] | Mapping[int, Node]"
PurposesOf: TypeAlias = "Callable[[str], Sequence[Purpose] | None]"
"""Function from a file name to the purpose of each line; None unless the file is generated."""

Values = tuple[Any, ...]


def explain_in_stream(error: Exception, nodes: Nodes, purposes_of: PurposesOf) -> Exception:
    """Add operator, location and row to a failure; return foreign errors unchanged."""
    found = _failing_operator(error, nodes, purposes_of)
    if found is None:
        return error
    node, row = found
    if isinstance(error, NoFixpoint):
        return _with_edges(error, nodes)
    if isinstance(error, HeadraceError):
        return _in_operator(error, node, error.why or _row_text(row), row=row)
    if next(node.operator.callables(), None) is None:
        return error
    why = f"a function of {node.name!r} raised. {_row_text(row)}".strip()
    return _of_user_function(error, node, why, "rows", row=row)


def explain_in_signals(error: Exception, nodes: Nodes, purposes_of: PurposesOf, tick: int) -> Exception:
    """Add operator, location, values and tick to a failure; return foreign errors unchanged.

    tick: below 0 where a subscription runs operators on the current values.
    """
    found = _failing_operator(error, nodes, purposes_of)
    if found is None:
        return error
    node, values = found
    if isinstance(error, HeadraceError):
        return _in_operator(error, node, error.why, tick=tick)
    when = f"in tick {tick}" if tick >= 0 else "on the current values, when it was subscribed to"
    inputs = ", ".join(f"{value!r:.100}" for value in values or ())
    why = f"{node.name!r} failed {when}. Its inputs were {inputs}."
    return _of_user_function(error, node, why, "values", row=values, tick=tick)


def raise_explained(explained: Exception, error: Exception) -> NoReturn:
    """Raise `explained` with `error` as its cause, unless they are the same."""
    if explained is error:
        raise error
    raise explained from error


def _in_operator(error: HeadraceError, node: Node, why: str, **facts: Any) -> HeadraceError:
    table = error.facts.get("table")
    step = f"operator {node.name!r}" if table is None else f"table {table!r}"
    where = (*error.where, Step(node.location, step))
    return type(error)(
        error.what, where=where, why=why, fix=error.fix, **{**error.facts, "operator": node.name, **facts}
    )


def _of_user_function(error: Exception, node: Node, why: str, items: str, **facts: Any) -> UserFunctionFailed:
    return UserFunctionFailed(
        f"{type(error).__name__}: {error}" if str(error) else type(error).__name__,
        where=[Step(node.location, f"operator {node.name!r}")],
        why=why,
        fix=f"the cause is attached; a filter before the operator can keep such {items} out",
        operator=node.name,
        **facts,
    )


def _with_edges(error: NoFixpoint, nodes: Nodes) -> NoFixpoint:
    """Add to an error the loop's feedbacks that still carry new rows, and the nodes that close them."""
    edges: list[str] = []
    where: list[Step] = []
    closing: dict[int, int] = error.facts["closing"]
    for at, news in closing.items():
        if news:
            (source,) = nodes[at].inputs
            edges.append(f"{nodes[source].name} -> {nodes[at].name}")
            where.append(
                Step(nodes[at].location, f"{nodes[at].name!r} gets {news} new rows in the last round")
            )
            where.append(Step(nodes[source].location, f"from {nodes[source].name!r}, which closes it"))
    facts = {**error.facts, "operator": nodes[next(iter(closing))].name, "edges": tuple(edges)}
    return NoFixpoint(error.what, where=where, why=error.why, fix=error.fix, **facts)


def _failing_operator(
    error: Exception, nodes: Nodes, purposes_of: PurposesOf
) -> tuple[Node, Values | None] | None:
    """Find the operator of the failing line in the innermost generated frame, and its input."""
    found: tuple[FrameType, Purpose] | None = None
    traceback = error.__traceback__
    while traceback is not None:
        purposes = purposes_of(traceback.tb_frame.f_code.co_filename)
        if purposes is not None:
            found = (traceback.tb_frame, purposes[traceback.tb_lineno - 1])
        traceback = traceback.tb_next
    if found is None:
        return None
    frame, purpose = found
    return None if purpose.node is None else (nodes[purpose.node], _values(frame, purpose.row))


def _values(frame: FrameType, sources: tuple[str, ...]) -> Values | None:
    """Evaluate a line's input: sources over the frame's variables."""
    try:
        return tuple(eval(source, frame.f_globals, frame.f_locals) for source in sources) or None
    except NameError:
        return None  # the line failed before the values were there


def _row_text(row: Values | None) -> str:
    return "" if row is None else f"The row was {row!r:.300}."
