"""Runtime of upserts: how a record changes the row that is held, and the errors of those that do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from hashlib import blake2b
from typing import Any, TypeAlias

from penstock.errors import EvaluationError, RecordMisfit
from penstock.expr.expression_text import literal_text
from penstock.expr.keyed_rows import Unavailable
from penstock.expr.sort_keys import any_key
from penstock.expr.types import DataType, ListType, MapType, StructType
from penstock.state.codec import key_encoder

Held: TypeAlias = list[Any]
"""[row before the tick, row] of a key whose records have no sequences; None where there is none."""


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

    def fills(self, row: Any, held: Any, unavailable: Unavailable) -> Any:
        """Return a row with the values that it does not tell from the one held; a text if none is."""
        if held is None and row is not None and (unknown := unavailable.names(row)):
            return f"it does not tell the value of {unknown[0]!r}, which did not change, but no row is held"
        return unavailable.fill(row, held)

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


@dataclass(frozen=True, slots=True)
class TieRule:
    """How a row and a deletion of one sequence are ordered (see `UpsertRule`).

    version: position of the sequence in rows, if they have it. trust: of different rows, the greatest wins.
    may_delete: whether records may delete; if none does, nothing has to be known of older rows.
    """

    version: int | None
    commits: bool
    trust: bool
    may_delete: bool

    def digest(self, row: Any) -> bytes:
        """Return what equal rows have in common, whatever their sequence."""
        rest = row if self.version is None else (*row[: self.version], *row[self.version + 1 :])
        return blake2b(_encode(rest), digest_size=8).digest()


class Sequenced:
    """The row of a key whose records have sequences, within a tick.

    stored: (sequence, row or None), then the digests of the rows of the next older sequence, then the row,
    the digests and the deletions of the last sequence; parts at the end that say nothing are left out.
    before: row before the tick. shown: row now. place: of the last record that was applied in this tick.

    Which row is shown depends on the set of the records alone, unless they have places.
    """

    __slots__ = (
        *("_deletions", "_older", "_older_row", "_row", "_rows"),
        *("before", "place", "sequence", "shown", "stored"),
    )

    def __init__(self, stored: tuple[Any, ...] | None) -> None:
        self.stored = stored
        self.sequence, self.shown = (None, None) if stored is None else stored[:2]
        self.before = self._row = self.shown
        self._older: tuple[Any, tuple[bytes, ...]] | None = None
        # A row of the next older sequence without its digest, which most never need.
        self._older_row: Any = None
        self._rows: tuple[bytes, ...] = ()
        self._deletions: tuple[bytes | None, ...] = ()
        self.place: Any = None
        if stored is not None and len(stored) > 2:
            self._older = stored[2]
        if stored is not None and len(stored) > 3:
            self._row, self._rows, self._deletions = stored[3:]

    def to_stored(self, rule: TieRule) -> tuple[Any, ...]:
        """Return what to store of the key."""
        older = self._digested(rule)
        if self._rows or self._deletions:
            return self.sequence, self.shown, older, self._row, self._rows, self._deletions
        return (self.sequence, self.shown) if older is None else (self.sequence, self.shown, older)

    def apply(
        self, row: Any, sequence: Any, image: Any, place: Any, rule: TieRule, texts: MisfitTexts
    ) -> str | None:
        """Apply a record; return the reason if one of its sequence has another row.

        image: the row that a deletion names. None: unknown.
        """
        if sequence is None:
            raise EvaluationError(
                "a record has no sequence",
                why="Without one it is neither before nor after the other records of its key.",
                fix="filter such records out before the upsert, or coalesce the sequence",
            )
        last = self.sequence
        # Where position or kind decides, nothing has to be known of older rows.
        alone = rule.commits or place is not None or not rule.may_delete
        if last is None or sequence > last:
            if self._row is not None:
                self._older = None if alone else (last, self._rows)
                self._older_row = None if alone or self._rows else self._row
            self.sequence, self.place, self._row = sequence, place, row
            self._rows = self._deletions = ()
            if row is None and image is not None and not alone:
                self._deletions = (rule.digest(image),)
        elif sequence < last:
            if row is None or alone:
                return None
            if self._older is None or sequence > self._older[0]:
                self._older, self._older_row = (sequence, ()), row
            elif sequence == self._older[0] and row != self._older_row:
                _, same = self._digested(rule) or self._older
                self._older = sequence, _with(same, rule.digest(row))
        else:
            reason = self._tie(row, image, place, rule, texts)
            if reason is not None:
                return reason
        self.shown = self._row if not self._deletions or self._stays(rule) else None
        return None

    def _tie(self, row: Any, image: Any, place: Any, rule: TieRule, texts: MisfitTexts) -> str | None:
        """Apply a record of the last sequence; return the reason if it has another row."""
        if row is not None and self.shown is not None and row != self.shown and not rule.trust:
            return texts.of_sequence(self.sequence, row, self.shown)
        if rule.commits:
            if row is not None:
                self._row = row if self._row is None else max(row, self._row, key=any_key)
        elif place is not None:
            # The records of earlier ticks stand before those of this one.
            if self.place is None or place > self.place:
                self.place, self._row, self._rows, self._deletions = place, row, (), ()
        elif row is None:
            if self._row is None and not self._deletions:
                self._deletions = (None,)
            self._deletions = _with(self._deletions, None if image is None else rule.digest(image))
        elif self._row is None:
            self._row, self._deletions = row, self._deletions or (None,)
        elif row != self._row:
            if rule.may_delete:
                self._rows = _with(self._rows or (rule.digest(self._row),), rule.digest(row))
            self._row = max(row, self._row, key=any_key)
        return None

    def _digested(self, rule: TieRule) -> tuple[Any, tuple[bytes, ...]] | None:
        """Return the next older sequence with the digests of all its rows."""
        if self._older is not None and self._older_row is not None:
            self._older = self._older[0], _with(self._older[1], rule.digest(self._older_row))
            self._older_row = None
        return self._older

    def _stays(self, rule: TieRule) -> bool:
        """Return whether the row of the last sequence wins against the deletions of it."""
        older = self._digested(rule)
        if self._row is None or older is None:
            return False
        own = rule.digest(self._row)
        return own not in self._deletions or own in older[1]


def _with(those: tuple[Any, ...], one: Any) -> tuple[Any, ...]:
    """Return a set with a further element, as a tuple."""
    return those if one in those else tuple(sorted((*those, one), key=lambda each: each or b""))


_encode = key_encoder()


RUNTIME: dict[str, Any] = {
    "x_upsert_in_order": upsert_in_order,
    "x_sequenced": Sequenced,
}
