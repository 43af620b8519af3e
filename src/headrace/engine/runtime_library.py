"""Runtime library for generated ticks: functions over compound state values."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from decimal import Context, Decimal, Inexact
from itertools import islice, zip_longest
from operator import itemgetter
from typing import Any, cast

from headrace.engine.float_totals import RUNTIME as FLOAT_TOTALS
from headrace.engine.loops.round_runtime import RUNTIME as LOOPS
from headrace.engine.ordered_values import RUNTIME as ORDERED_VALUES
from headrace.engine.power_sums import RUNTIME as POWER_SUMS
from headrace.errors import EvaluationError, NoFixpoint, UnknownPort, UserFunctionFailed
from headrace.expr.sort_keys import any_key
from headrace.operators.keyed_tables.history import RUNTIME as HISTORIES
from headrace.operators.keyed_tables.record_order import RUNTIME as UPSERTS

Rows = list[tuple[Any, ...]]
OrderKey = Callable[[Any], Any] | None


def consolidate(rows: Rows) -> Rows:
    """Sum the weights (last field) of equal rows and drop rows of weight 0. First seen, first out."""
    if len(rows) < 2:
        return rows
    weights: dict[tuple[Any, ...], int] = {}
    for row in rows:
        key = row[:-1]
        weights[key] = weights.get(key, 0) + row[-1]
    return [(*row, weight) for row, weight in weights.items() if weight]


def int64_overflow() -> int:
    """Raise the error for an integer sum beyond the range of its type."""
    raise EvaluationError("a sum of integers leaves the range of int64", fix="cast the argument to a decimal")


# -- decimals -------------------------------------------------------------------------------

_WIDE = Context(prec=200, traps=[Inexact])


def to_unscaled(value: Decimal, scale: int) -> int:
    """Return the integer `value * 10**scale`."""
    return int(value.scaleb(scale, _WIDE))


def decimal_of_unscaled(total: int, precision: int, scale: int) -> Decimal:
    """Decimal of an unscaled integer. Raises `EvaluationError` beyond `precision` digits."""
    if abs(total) >= 10**precision:
        raise EvaluationError(
            f"a sum of decimals leaves decimal({precision},{scale})", fix="cast the argument to fewer digits"
        )
    return Decimal(total).scaleb(-scale, _WIDE)


def decimal_mean(total: int, count: int, scale: int, precision: int, to_scale: int) -> Decimal:
    """Return the mean of an unscaled sum with `scale` digits, rounded half up to `to_scale` digits."""
    numerator = abs(total) * 10 ** (to_scale - scale)
    rounded = (2 * numerator + count) // (2 * count)
    return decimal_of_unscaled(rounded if total >= 0 else -rounded, precision, to_scale)


# -- multisets ---------------------------------------------------------------------------------


def count_value(counts: dict[Any, int], value: Any, weight: int) -> int:
    """Add `weight` copies of `value`; return +1 if it becomes present, -1 if absent, else 0."""
    before = counts.get(value, 0)
    after = before + weight
    if after:
        counts[value] = after
    elif before:
        del counts[value]
    return (after > 0) - (before > 0)


def collected(counts: dict[Any, int], order_key: OrderKey) -> tuple[Any, ...]:
    """Return all present values in ascending order, with repetitions."""
    values = sorted((v for v, n in counts.items() if n > 0), key=order_key)
    return tuple(v for v in values for _ in range(counts[v]))


# -- top k --------------------------------------------------------------------------------------


def first_copies(rows: Rows, counts: dict[tuple[Any, ...], int], k: int) -> dict[tuple[Any, ...], int]:
    """Return the first `k` copies of ordered `rows`: row -> number of copies taken."""
    top: dict[tuple[Any, ...], int] = {}
    for row in islice(rows, k):
        taken = min(counts[row], k)
        top[row] = taken
        k -= taken
        if not k:
            break
    return top


def add_to_top(top: Rows, rows: Rows, k: int, order_key: Callable[[Any], Any]) -> list[tuple[Any, int]]:
    """Add rows to the first `k` rows in order; return the changes, retractions first."""
    if len(rows) > 1:
        rows.sort(key=order_key)
    changes: dict[Any, int] = {}
    for row in rows[:k]:
        if len(top) >= k:
            if order_key(row) >= order_key(top[-1]):
                break
            gone = top.pop()
            changes[gone] = changes.get(gone, 0) - 1
        insort(top, row, key=order_key)
        changes[row] = changes.get(row, 0) + 1
    found = [change for change in changes.items() if change[1]]
    return sorted(found, key=itemgetter(1)) if len(found) > 1 else found


def top_changes(old: dict[Any, int], new: dict[Any, int]) -> list[tuple[Any, int]]:
    """Return the changes from one top-k result to another: retractions first, then insertions."""
    gone = [(row, new.get(row, 0) - n) for row, n in old.items() if n > new.get(row, 0)]
    return gone + [(row, n - old.get(row, 0)) for row, n in new.items() if n > old.get(row, 0)]


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
    **ORDERED_VALUES,
    **POWER_SUMS,
    **FLOAT_TOTALS,
    **HISTORIES,
    **UPSERTS,
    "x_sort": sort,
    "x_no_fixpoint": no_fixpoint,
    "x_consolidate": consolidate,
    "x_int64_overflow": int64_overflow,
    "x_unscaled": to_unscaled,
    "x_decimal_of": decimal_of_unscaled,
    "x_decimal_mean": decimal_mean,
    "x_count_value": count_value,
    "x_collected": collected,
    "x_first_copies": first_copies,
    "x_add_to_top": add_to_top,
    "x_top_changes": top_changes,
    "x_items": checked_items,
    "x_no_pair": check_pair,
    "x_unknown_port": unknown_port,
    "x_zip_longest": zip_longest,
    "x_row_failing": row_failing,
}
