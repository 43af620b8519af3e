"""Runtime of upserts: how a record changes the row that is held, and the errors of those that do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any, TypeAlias

from penstock.errors import EvaluationError, RecordMisfit
from penstock.expr.expression_text import literal_text
from penstock.expr.sort_keys import any_key
from penstock.expr.types import DataType, ListType, MapType, StructType

Held: TypeAlias = list[Any]
"""[row before the tick, row, sequence of the last record, that before the tick]; None where there is none."""


@singledispatch
def value_text(type: DataType, value: Any) -> str:
    """Render an internal value for people, with the names of its columns."""
    return literal_text(value)


@value_text.register
def _(type: StructType, value: Any) -> str:
    if value is None:
        return "null"
    return (
        f"({', '.join(f'{f.name}={value_text(f.type, v)}' for f, v in zip(type.fields, value, strict=True))})"
    )


@value_text.register
def _(type: ListType, value: Any) -> str:
    return "null" if value is None else f"[{', '.join(value_text(type.element, v) for v in value)}]"


@value_text.register
def _(type: MapType, value: Any) -> str:
    if value is None:
        return "null"
    return f"{{{', '.join(f'{value_text(type.key, k)}: {value_text(type.value, v)}' for k, v in value)}}}"


@dataclass(frozen=True, slots=True)
class MisfitTexts:
    """Texts about the records of an upsert that do not fit.

    table: name of the table, None for records of the user's own. keys: names and types of the key's columns.
    """

    table: str | None
    keys: tuple[tuple[str, DataType], ...]
    rows: StructType

    def of_sequence(self, sequence: Any, row: Any, held: Any) -> str:
        """Return the reason of a record that sets another row than the last one of its sequence."""
        shown = value_text(self.rows, row), value_text(self.rows, held)
        return f"of sequence {literal_text(sequence)}, it sets {shown[0]}, but {shown[1]} is held"

    def replaces(self, before: Any, held: Any) -> str:
        """Return the reason of a record that replaces another row than the one that is held."""
        there = "none is" if held is None else f"{value_text(self.rows, held)} is"
        return f"it replaces {value_text(self.rows, before)}, but {there} held"

    def error(self, reason: str, key: Any, held: Any, place: tuple[str, int] | None) -> RecordMisfit:
        """Build the error for a record that does not fit."""
        file, row = place or (None, None)
        values = (key,) if len(self.keys) == 1 else key
        named = (f"{name}={value_text(type, v)}" for (name, type), v in zip(self.keys, values, strict=True))
        table = "" if self.table is None else f" in table {self.table!r}"
        why = "" if self.table is None else "It comes from no file."
        return RecordMisfit(
            f"a record does not fit the row of {', '.join(named)}{table}: {reason}",
            fix='on_misfit="dead_letter" sets such records aside, "trust_key" applies them',
            why=why if place is None else f"It is row {row} of {file}.",
            key=key,
            held=held,
            file=file,
            number=row,
            table=self.table,
        )


def upsert_in_order(held: Held, row: Any, before: Any, texts: MisfitTexts) -> str | None:
    """Apply a record to the held row, unless it replaces another one: then return the reason."""
    now = held[1]
    if row == now:
        return None  # delivered again
    if before is not None and before != now:
        return texts.replaces(before, now)
    held[1] = row
    return None


def upsert_by_sequence(held: Held, row: Any, sequence: Any, trust: bool, texts: MisfitTexts) -> str | None:
    """Apply a record unless a later one was; return the reason if one of its sequence has another row.

    Of one sequence, a deletion is later than rows. trust: apply the record then if its row is greater.
    """
    if sequence is None:
        raise EvaluationError(
            "a record has no sequence",
            why="Without one it is neither before nor after the other records of its key.",
            fix="filter such records out before the upsert, or coalesce the sequence",
        )
    _, now, last, _ = held
    if last is not None and sequence <= last:
        if sequence < last or now is None or row == now:
            return None
        if row is not None and not trust:
            return texts.of_sequence(sequence, row, now)
        held[1] = row if row is None else max(row, now, key=any_key)
        return None
    held[1], held[2] = row, sequence
    return None


RUNTIME: dict[str, Any] = {
    "x_upsert_in_order": upsert_in_order,
    "x_upsert_by_sequence": upsert_by_sequence,
}
