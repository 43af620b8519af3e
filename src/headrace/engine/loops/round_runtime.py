"""Runtime library for generated loops. A history is `{round: weight}`, with the rank under `RANK`."""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from typing import Any

RANK = -1
"""Key in a history for the first round with a positive weight; absent if there is none."""

History = dict[int, int]
Pending = dict[int, dict[Any, None]]
Sums = dict[int, dict[Any, int]]


def next_round_after(history: History, after: int) -> int:
    """Return the first round of a history after `after` (0 or more); 0 if there is none."""
    found = 0
    for at in history:
        if at > after and (at < found or not found):
            found = at
    return found


def schedule(pending: Pending, times: list[int], at: int, row: Any) -> None:
    """Schedule `row` for a future round `at`."""
    rows = pending.get(at)
    if rows is None:
        pending[at] = {row: None}
        heappush(times, at)
    else:
        rows[row] = None


_MANY = 50


def count_entries(came: list[Any], went: list[Any]) -> dict[Any, int]:
    """Count insertions minus deletions per entry."""
    found: dict[Any, int] = Counter(came) if len(came) > _MANY else {}
    if not found:
        for entry in came:
            found[entry] = found.get(entry, 0) + 1
    for entry in went:
        found[entry] = found.get(entry, 0) - 1
    return found


def sum_by_round(pending: Sums, times: list[int], now: int, at: int, row: Any, weight: int) -> None:
    """Add `weight` copies of a row to round `at`, which must not be over yet."""
    rows = pending.get(at)
    if rows is None:
        pending[at] = {row: weight}
        if at > now:
            heappush(times, at)
    else:
        rows[row] = rows.get(row, 0) + weight


RUNTIME: dict[str, Any] = {
    "x_counted": count_entries,
    "x_heappop": heappop,
    "x_heappush": heappush,
    "x_later": next_round_after,
    "x_no_rows": {},
    "x_schedule": schedule,
    "x_sum_by_round": sum_by_round,
}
