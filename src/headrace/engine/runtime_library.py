"""Runtime library for generated ticks: functions over compound state values."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from operator import itemgetter
from typing import Any, cast

from headrace.errors import EvaluationError, NoFixpoint, UnknownPort, UserFunctionFailed
from headrace.expr.sort_keys import any_key
from headrace.expr.types import Rows
from headrace.lowering.round_history import RUNTIME as LOOPS
from headrace.operators.aggregate import (
    collected_values,
    counts,
    float_totals,
    histograms,
    ordered_values,
    percentiles,
    power_sums,
    sums,
)
from headrace.operators.keyed_tables.history import RUNTIME as HISTORIES
from headrace.operators.keyed_tables.record_order import RUNTIME as UPSERTS
from headrace.operators.top_k import RUNTIME as TOP_K


def consolidate(rows: Rows) -> Rows:
    """Sum the weights (last field) of equal rows and drop rows of weight 0. First seen, first out."""
    if len(rows) < 2:
        return rows
    weights: dict[tuple[Any, ...], int] = {}
    for row in rows:
        key = row[:-1]
        weights[key] = weights.get(key, 0) + row[-1]
    return [(*row, weight) for row, weight in weights.items() if weight]


# -- rows of any value -----------------------------------------------------------------------------


def checked_items(value: Any) -> Any:
    """Return the items of a value of any type. Raises `EvaluationError` if it is not a collection."""
    if isinstance(value, tuple | list):
        return cast("Any", value)
    if isinstance(value, frozenset):
        return _in_order(cast("frozenset[Any]", value))
    if value is None:
        return ()
    raise EvaluationError(
        f"{value!r:.100} is no list: {type(value).__name__}", fix="flatten takes tuples, lists and frozensets"
    )


def _in_order(members: frozenset[Any]) -> Any:
    """Return a set's members in value order, since set order differs between processes."""
    try:
        return sorted(members, key=any_key)
    except EvaluationError:  # of a class without an order
        return members


def unknown_port(tag: object, ports: dict[Any, int]) -> None:
    """Raise the error for a partitioned row whose tag is not among the ports."""
    raise UnknownPort(
        f"{tag!r:.100} is not a port of this partition",
        fix=f"return one of its ports: {', '.join(map(repr, ports))}",
        port=tag,
    )


def check_pair(made: object) -> None:
    """Raise an error unless a scan function's result is a pair: a tuple or list of two."""
    given: Any = made
    if isinstance(given, tuple | list) and len(cast("list[object]", given)) == 2:
        return
    found = type(made).__name__
    raise UserFunctionFailed(
        f"the function gave {found} {made!r:.100}, which is no pair (carried, row), nor None",
        fix="return the value to carry on and the row to send, or None to end",
    )


def row_failing(function: Callable[[Rows], object], rows: Rows) -> tuple[Any, ...]:
    """Find by bisection a row for which `function`, which fails on `rows`, fails too.

    Where it fails on none of them alone, any row is returned.
    """
    while len(rows) > 1:
        half = rows[: len(rows) // 2]
        try:
            function(half)
            rows = rows[len(half) :]
        except Exception:
            rows = half
    return rows[0]


# -- loops ------------------------------------------------------------------------------------------


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


# -- order ------------------------------------------------------------------------------------------


def sort(pending: list[tuple[Any, Any]]) -> None:
    """Sort pairs of sort key and row by key, stably."""
    try:
        pending.sort(key=itemgetter(0))
    except TypeError as error:
        raise EvaluationError(
            f"rows cannot be put in order: {error}",
            fix="sort by a function whose values are of one kind: sort_by(str), say; or by columns, sort()",
        ) from None


RUNTIME: dict[str, Any] = {
    **LOOPS,
    **collected_values.RUNTIME,
    **counts.RUNTIME,
    **float_totals.RUNTIME,
    **histograms.RUNTIME,
    **ordered_values.RUNTIME,
    **percentiles.RUNTIME,
    **power_sums.RUNTIME,
    **sums.RUNTIME,
    **TOP_K,
    **HISTORIES,
    **UPSERTS,
    "x_sort": sort,
    "x_no_fixpoint": no_fixpoint,
    "x_consolidate": consolidate,
    "x_items": checked_items,
    "x_no_pair": check_pair,
    "x_unknown_port": unknown_port,
    "x_zip_longest": zip_longest,
    "x_row_failing": row_failing,
}
