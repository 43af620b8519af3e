"""Runtime of upserts: whether a record fits the row that is held for its key."""

from __future__ import annotations

from typing import Any, NoReturn

from penstock.errors import EvaluationError, RecordMisfit
from penstock.expr.sort_keys import any_key

Held = list[Any]
"""[row before the tick, row, sequence of the last record]; a row is None where the key has none."""


def upsert_in_order(held: Held, row: Any, before: Any) -> str | None:
    """Apply a record to the held row, unless it replaces another one: then return the reason."""
    now = held[1]
    if row == now:
        return None  # delivered again
    if before is not None and before != now:
        there = "none is" if now is None else f"{now!r} is"
        return f"the record replaces the row {before!r}, but {there} held"
    held[1] = row
    return None


def upsert_by_sequence(held: Held, row: Any, sequence: Any, trust: bool) -> str | None:
    """Apply a record unless a later one was; return the reason if one of its sequence has another row.

    Of one sequence, a deletion is later than rows. trust: apply the record then if its row is greater.
    """
    if sequence is None:
        raise EvaluationError(
            "a record has no sequence",
            why="Without one it is neither before nor after the other records of its key.",
            fix="filter such records out before the upsert, or coalesce the sequence",
        )
    _, now, last = held
    if last is not None and sequence <= last:
        if sequence < last or now is None or row == now:
            return None
        if row is not None and not trust:
            return f"the record with sequence {sequence} has another row: {now!r}"
        held[1] = row if row is None else max(row, now, key=any_key)
        return None
    held[1], held[2] = row, sequence
    return None


def record_misfit(reason: str, key: Any, held: Any) -> NoReturn:
    """Raise the error for a record that does not fit."""
    raise RecordMisfit(
        f"a record does not fit the row of its key {key!r}: {reason}",
        fix='on_misfit="dead_letter" sets such records aside, "trust_key" applies them',
        key=key,
        held=held,
    )


RUNTIME = {
    "x_upsert_in_order": upsert_in_order,
    "x_upsert_by_sequence": upsert_by_sequence,
    "x_record_misfit": record_misfit,
}
