"""Upsert rules and the order of records: the effect of records on the row held for their key.

A rule says which row is held after all records of a key. At run time, their order decides which row they
leave, and which records are misfits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, singledispatch
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.errors import EvaluationError, RecordMisfit
from headrace.expr.expression_text import literal_text
from headrace.expr.row_classes import PLACE, Unavailable
from headrace.expr.types import (
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    ListType,
    MapType,
    Row,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
)
from headrace.expr.value_keys import any_key
from headrace.graph.node import ADDED_LATER
from headrace.graph.operator_declarations import IN_ORDER, OLD_TOMBSTONES, Facts, Need
from headrace.lowering.generated_source import register_runtime
from headrace.lowering.reference import Bags, NotOfBags, function_of, functions_of, rank
from headrace.operators.time_spans import TIME_TYPES, check_span, shown_span
from headrace.state.marked_values import Erasable

if TYPE_CHECKING:
    from headrace.expr.tree import Expr
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Node
    from headrace.graph.operator_declarations import Unservable
    from headrace.operators.time_spans import Span


COMMITS = "_commit_version"
"""Name of the column with the commit of a change in the change data feed of a Delta table."""

SEQUENCE_TYPES = (IntegerType, DecimalType, DateType, TimestampType, TimestampNtzType, StrType)
"""Types of values that may order the records of a key."""


class OnMisfit(Enum):
    """Policy for a record that contradicts the row held for its key.

    ERROR:       raise `RecordMisfit`.
    DEAD_LETTER: leave the record out; `misfits` has it.
    TRUST_KEY:   apply it. Of rows with equal sequences, the later in files wins, elsewhere the greatest.
    """

    ERROR = "error"
    DEAD_LETTER = "dead_letter"
    TRUST_KEY = "trust_key"


@dataclass(frozen=True, slots=True)
class UpsertRule:
    """Rule by which records change the row held for their key.

    keys:     of a record; null is a key like any other.
    row:      the row that the record sets, a struct; null deletes the key's row.
    before:   the row that the record replaces, a struct like `row`, null where the record does not say.
    sequence: position of the record among those of its key, of one of `SEQUENCE_TYPES`. None: records count
              in the order in which they come.
    place:    file of the record and its number in it, a struct, or null; for errors.
    table:    name of the table whose records these are; for errors.
    tombstones: how far behind the highest sequence of all keys that of a deleted key is kept; None: for good.
    image:    of a record that deletes, the row that it names, a struct like `row`; null where unknown.
    version:  column of `row` that is the sequence, if one is. Images are compared without it.
    commits:  whether sequences are commits of a Delta table.

    With a sequence, a record below the last one applied to its key is passed over, also after a deletion, and
    a record that is delivered again changes nothing. One with the same sequence and another row is a misfit.

    Of a key's deletions and set rows with one sequence, in whatever order they come,

    - the one that stands later in its source is the later one, if both have a `place`;
    - otherwise the row wins, if an older row of the key was set before: the deletion is of that one;
    - but the deletion wins if there is no older row, or if it names the row of its sequence and not the
      older one: then it has the sequence of the row that it deletes;
    - of several rows the greatest is meant, of several deletions each, and of older rows those of the next
      older sequence. No row takes the place of one that lost.

    Commits have no order within, and delete only rows of earlier ones: there, a row always wins.
    Without a sequence, a record whose row is already held changes nothing, and one whose `before` is another
    row than the held one is a misfit.
    With `tombstones`, the second input is a table of one row, the highest sequence of all records so far. At
    the end of each tick, deleted keys whose sequence lies further below it are forgotten: a record that is
    older still is then taken for the first one of its key.
    """

    keys: tuple[Expr, ...]
    row: Expr
    before: Expr | None = None
    sequence: Expr | None = None
    on_misfit: OnMisfit = OnMisfit.ERROR
    place: Expr | None = None
    table: str | None = None
    tombstones: Span | None = field(default=None, metadata=ADDED_LATER)
    # They follow from how the records are made, and the state of older checkpoints goes on with them.
    image: Expr | None = field(default=None, compare=False)
    version: str | None = field(default=None, compare=False)
    commits: bool = field(default=False, compare=False)

    def check(self, context: CheckContext) -> StructType:
        """Return the type of the rows. Raises unless all expressions fit the input."""
        context.check_keys(self.keys)
        rows = context.type_of(self.row)
        if not isinstance(rows, StructType):
            raise context.unbuildable_error(f"its rows are {rows}, which is no struct")
        if self.before is not None:
            context.require(context.type_of(self.before) == rows, "rows before and after differ in type")
            context.require(self.sequence is None, "rows before are compared in order of arrival only")
        if self.image is not None:
            context.require(context.type_of(self.image) == rows, "rows and those deleted differ in type")
        if self.sequence is not None:
            type_ = context.type_of(self.sequence)
            context.require(isinstance(type_, SEQUENCE_TYPES), f"{type_} is no sequence")
        if self.tombstones is not None:
            self._check_tombstones(self.tombstones, context)
        if self.place is not None:
            context.require(context.type_of(self.place) == PLACE, "its place is no file and number")
        return rows

    def _check_tombstones(self, span: Span, context: CheckContext) -> None:
        type_ = None if self.sequence is None else context.type_of(self.sequence)
        if type_ not in TIME_TYPES:
            raise context.unbuildable_error("tombstones are kept for a span of a sequence that has none")
        check_span(span, type_, context, may_be_zero=True)
        highest = [each.type for each in context.inputs[1].fields]
        context.require(highest == [type_], "the highest sequence is of another type than the sequence")

    @property
    def in_order(self) -> bool:
        """Whether the held rows, or the misfits, depend on the order of records."""
        return self.sequence is None or self.on_misfit is OnMisfit.DEAD_LETTER

    def unservable(self) -> Unservable | None:
        if self.in_order:
            return IN_ORDER
        return None if self.tombstones is None else OLD_TOMBSTONES

    def output_facts(self, records: Facts) -> Facts:
        """Return the facts of the records that also hold for the output."""
        # Within a tick, or before a tombstone is forgotten, an older record is passed over.
        return records.but(det=records.det and self.tombstones is None)

    def required_facts(self) -> tuple[Need, ...]:
        append = Need(
            0,
            "append",
            "a record is an event; it can be followed by another one, but not taken back",
            "upsert the records as they come, before what takes rows back",
        )
        if not self.in_order:
            return (append,)
        fix = 'give sequence="...", or say what the order is by .assume_ordered(nondet="why it is kept")'
        if self.sequence is not None:
            fix = 'on_misfit="error" or "trust_key"; or .assume_ordered(nondet="why it is kept")'
        return append, Need(0, "ordered", "of two records of a key, the later one decides", fix)

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        for expr in self.keys:
            yield "by", expr
        yield "row", self.row
        if self.before is not None:
            yield "before", self.before
        if self.sequence is not None:
            yield "sequence", self.sequence
        if self.image is not None:
            yield "image", self.image
        if self.place is not None:
            yield "place", self.place

    def __str__(self) -> str:
        order = "in order of arrival" if self.sequence is None else f"by {self.sequence}"
        kept = "" if self.tombstones is None else f", tombstones={shown_span(self.tombstones)}"
        return f"by ({', '.join(map(str, self.keys))}), {order}, on_misfit={self.on_misfit.value}{kept}"


# --- the reference: what is held after all records ------------------------------------------------


KeyRecord: TypeAlias = tuple[Any, Any, Any, Any, Any]
"""Rank of the sequence, sequence, row, image and place of a record."""


def records_by_key(rule: UpsertRule, inputs: Bags) -> Iterable[list[KeyRecord]]:
    """Group records by key. Raises `NotOfBags` if their order of arrival or the ticks matter."""
    if rule.sequence is None:
        raise NotOfBags("records count in the order in which they come")
    if rule.tombstones is not None:
        raise NotOfBags("which tombstones are forgotten depends on the ticks")
    [(schema, bag)] = inputs
    key, row = functions_of(rule.keys, schema), function_of(rule.row, schema)
    sequence = function_of(rule.sequence, schema)
    image, place = (
        (lambda record: None) if each is None else function_of(each, schema)
        for each in (rule.image, rule.place)
    )
    records: dict[Row, list[KeyRecord]] = {}
    for record in bag:
        at = sequence(record)
        found = rank(at), at, row(record), image(record), place(record)
        records.setdefault(key(record), []).append(found)
    return records.values()


def held_row(records: list[KeyRecord], rule: UpsertRule, node: Node) -> Row | None:
    """Return the row that is held after all records of a key, or None."""
    top = max(at for at, *_ in records)
    last = [record for record in records if record[0] == top]
    rows = [row for _, _, row, _, _ in last if row is not None]
    if len(set(rows)) > 1 and rule.on_misfit is not OnMisfit.TRUST_KEY:
        raise NotOfBags("records of one sequence differ")
    shown = max(rows, key=rank, default=None)
    if not rule.commits and all(record[4] is not None for record in last):
        return max(last, key=lambda record: record[4])[2]
    if (
        not rule.commits
        and len(rows) < len(last)
        and not _wins_against_deletions(shown, last, records, rule, node)
    ):
        return None
    return shown


def _wins_against_deletions(
    shown: Any, last: list[KeyRecord], held: list[KeyRecord], rule: UpsertRule, node: Node
) -> bool:
    """Return whether a row wins against the deletions among `last`, the records of its sequence."""
    at = None if rule.version is None else node.schema.names.index(rule.version)

    def named(row: Row) -> Row:
        return row if at is None else (*row[:at], *row[at + 1 :])

    older = [record for record in held if record[0] < last[0][0] and record[2] is not None]
    if shown is None or not older:
        return False
    before = [named(record[2]) for record in older if record[0] == max(at for at, *_ in older)]
    images = [named(image) for _, _, row, image, _ in last if row is None and image is not None]
    return named(shown) not in images or named(shown) in before


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
    """Texts about the misfits of an upsert.

    table: name of the table, None for records of the user's own. keys: names and types of the key's columns.
    may_set_aside: whether `on_misfit` may be "dead_letter".
    """

    table: str | None
    keys: tuple[tuple[str, DataType], ...]
    rows: StructType
    may_set_aside: bool

    def of_sequence(self, sequence: Any, row: Any, other: Any) -> str:
        """Return the misfit reason if a record's row differs from one set earlier, perhaps deleted since."""
        texts = value_text(self.rows, row), value_text(self.rows, other)
        return f"of sequence {literal_text(sequence)}, it sets {texts[0]}, but another record set {texts[1]}"

    def replaces(self, before: Any, held: Any) -> str:
        """Return the misfit reason of a record that replaces a row other than the held one."""
        there = "none is" if held is None else f"{value_text(self.rows, held)} is"
        return f"it replaces {value_text(self.rows, before)}, but {there} held"

    def fills(self, row: Any, held: Any, unavailable: Unavailable) -> Any:
        """Fill a row's unavailable values from the held row; return the misfit reason if no row is held."""
        if held is None and row is not None and (unknown := unavailable.names(row)):
            return f"it does not tell the value of {unknown[0]!r}, which did not change, but no row is held"
        return unavailable.fill(row, held)

    def error(self, reason: str, key: Any, held: Any, place: tuple[str, int] | None) -> RecordMisfit:
        """Build the error for a misfit."""
        file, row = place or (None, None)
        values = (key,) if len(self.keys) == 1 else key
        named = (f"{name}={value_text(type, v)}" for (name, type), v in zip(self.keys, values, strict=True))
        table = "" if self.table is None else f" in table {self.table!r}"
        why = "" if self.table is None else "It comes from no file."
        ways = '"trust_key" applies such records'
        if self.may_set_aside:
            ways = '"dead_letter" sets such records aside, "trust_key" applies them'
        return RecordMisfit(
            f"a record does not fit the row of {', '.join(named)}{table}: {reason}",
            fix=f"on_misfit={ways}",
            why=why if place is None else f"It is row {row} of {file}.",
            key=key,
            held=held,
            file=file,
            number=row,
            table=self.table,
        )


def upsert_in_order(held: Held, row: Any, before: Any, texts: MisfitTexts) -> str | None:
    """Apply a record to the held row; return the misfit reason if it replaces a different row."""
    now = held[1]
    if row == now:
        return None  # delivered again
    if before is not None and before != now:
        return texts.replaces(before, now)
    held[1] = row
    return None


Tied: TypeAlias = tuple[Any, tuple[bytes, ...], tuple[bytes | None, ...]]
"""What a key has of one sequence: its greatest row, digests of all rows if there are several, and digests
of what deletions name. A deletion that names no row is None there.
"""


@dataclass(frozen=True, slots=True)
class TieRule:
    """Order of the rows and deletions of one key and sequence (see `UpsertRule`).

    version: position of the sequence in rows, if they have it. trust: of different rows, the greatest wins.
    may_delete: whether records may delete; if none does, nothing has to be known of older rows.
    """

    version: int | None
    commits: bool
    trust: bool
    may_delete: bool

    def digest(self, row: Any) -> bytes:
        """Hash a row without its sequence."""
        rest = row if self.version is None else (*row[: self.version], *row[self.version + 1 :])
        return blake2b(_encoder()(rest), digest_size=8).digest()

    def of_deletion(self, image: Any) -> Tied:
        """Return a key's state at a sequence whose first record is a deletion. image: the row it names.

        Without digests at all, it is one deletion that names no row.
        """
        return None, (), () if image is None or self.commits else (self.digest(image),)

    def added(self, tied: Tied, row: Any, image: Any) -> Tied:
        """Add a record to a key's state at a sequence; a deletion if `row` is None."""
        greatest, rows, deletions = tied
        if self.commits:
            known = [each for each in (greatest, row) if each is not None]
            return max(known, key=any_key, default=None), (), ()
        if greatest is None and not deletions:
            deletions = (None,)
        if row is None:
            return greatest, rows, _with_element(deletions, None if image is None else self.digest(image))
        if greatest is None or row == greatest:
            # An erased row is still known by its digest.
            return row, _with_element(rows, self.digest(row)) if rows else (), deletions
        if self.may_delete:
            rows = _with_element(rows or (self.digest(greatest),), self.digest(row))
        return max(row, greatest, key=any_key), rows, deletions

    def settled(self, tied: Tied, older: Callable[[], tuple[bytes, ...]]) -> Tied:
        """Settle a key's state at a sequence: its row is hidden if a deletion of it wins.

        older: digests of the rows of the next older sequence; none if there is no older row.
        """
        row, rows, deletions = tied
        if row is None or not deletions:
            return tied
        own, before = self.digest(row), older()
        if before and (own not in deletions or own in before):
            return tied
        return Erasable(row), rows or (own,), deletions


class Sequenced:
    """The row of a key whose records have sequences, within a tick.

    stored: (sequence, row or None), then the digests of the rows of the next older sequence, then the row,
    the digests and the deletions of the last sequence (`Tied`); parts at the end that say nothing are left
    out. A row that lost against a deletion is an `Erasable`.
    before: row before the tick. shown: row now. place: of the last record that was applied in this tick.

    Which row is shown depends on the set of the records alone, unless they have places.
    """

    __slots__ = ("_older", "_older_row", "_tied", "before", "place", "sequence", "shown", "stored")

    def __init__(self, stored: tuple[Any, ...] | None) -> None:
        self.stored = stored
        self.sequence, self.shown = (None, None) if stored is None else stored[:2]
        self.before = self.shown
        self._older: tuple[Any, tuple[bytes, ...]] | None = None
        # A row of the next older sequence without its digest, which most never need.
        self._older_row: Any = None
        self._tied: Tied = (self.shown, (), ())
        self.place: Any = None
        if stored is not None and len(stored) > 2:
            self._older = stored[2]
        if stored is not None and len(stored) > 3:
            self._tied = (known_row(stored[3]), *stored[4:])

    def to_stored(self, rule: TieRule) -> tuple[Any, ...]:
        """Return the key's state in its stored form."""
        older = self._digested(rule)
        _, rows, deletions = self._tied
        if rows or deletions:
            return self.sequence, self.shown, older, *rule.settled(self._tied, lambda: self._before(rule))
        return (self.sequence, self.shown) if older is None else (self.sequence, self.shown, older)

    def apply(
        self, row: Any, sequence: Any, image: Any, place: Any, rule: TieRule, texts: MisfitTexts
    ) -> str | None:
        """Apply a record; return the reason if its sequence already has another row.

        image: the row that a deletion names. None: unknown.
        """
        if sequence is None:
            raise without_sequence()
        last = self.sequence
        # Where position or kind decides, nothing has to be known of older rows.
        alone = rule.commits or place is not None or not rule.may_delete
        if last is None or sequence > last:
            held, rows, _ = self._tied
            if held is not None or rows:
                self._older = None if alone else (last, rows)
                self._older_row = None if alone or rows else held
            self.sequence, self.place, self.shown = sequence, place, row
            self._tied = (row, (), ()) if row is not None or alone else rule.of_deletion(image)
            return None
        if sequence < last:
            if row is None or alone:
                return None
            if self._older is None or sequence > self._older[0]:
                self._older, self._older_row = (sequence, ()), row
            elif sequence == self._older[0] and row != self._older_row:
                _, same = self._digested(rule) or self._older
                self._older = sequence, _with_element(same, rule.digest(row))
        else:
            held = self._tied[0]
            if row is not None and held is not None and row != held and not rule.trust:
                return texts.of_sequence(sequence, row, held)
            if place is None or rule.commits:
                self._tied = rule.added(self._tied, row, image)
            elif self.place is None or place > self.place:
                # The records of earlier ticks stand before those of this one.
                self.place, self._tied = place, (row, (), ())
        self.shown = self._tied[0]
        if self._tied[2]:
            self.shown = shown_row(rule.settled(self._tied, lambda: self._before(rule)))
        return None

    def _digested(self, rule: TieRule) -> tuple[Any, tuple[bytes, ...]] | None:
        """Return the next older sequence with the digests of all its rows."""
        if self._older is not None and self._older_row is not None:
            self._older = self._older[0], _with_element(self._older[1], rule.digest(self._older_row))
            self._older_row = None
        return self._older

    def _before(self, rule: TieRule) -> tuple[bytes, ...]:
        older = self._digested(rule)
        return () if older is None else older[1]


def shown_row(settled: Tied) -> Any:
    """Return the row of a settled `Tied`; None if it has no row, or only one that lost to a deletion."""
    row = settled[0]
    return None if row.__class__ is Erasable else row


def known_row(row: Any) -> Any:
    """Return the row of a `Tied`, even if a deletion hides it; None if it has none or it was erased."""
    return row.value if row.__class__ is Erasable else row


def without_sequence() -> EvaluationError:
    """Build the error for a record without a sequence."""
    return EvaluationError(
        "a record has no sequence",
        why="Without one it is neither before nor after the other records of its key.",
        fix="filter such records out before the upsert, or coalesce the sequence",
    )


def _with_element(elements: tuple[Any, ...], one: Any) -> tuple[Any, ...]:
    """Add an element to a set that is kept as a sorted tuple."""
    return elements if one in elements else tuple(sorted((*elements, one), key=lambda each: each or b""))


@cache
def _encoder() -> Callable[[object], bytes]:
    # Whoever only writes a flow needs no codec.
    from headrace.state.codec import key_encoder

    return key_encoder()


register_runtime(
    {
        "x_upsert_in_order": upsert_in_order,
        "x_sequenced": Sequenced,
    }
)
