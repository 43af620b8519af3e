"""Upsert rules: how records change the row held for their key, and which row is held after all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.expr.row_classes import PLACE
from headrace.expr.types import (
    DateType,
    DecimalType,
    IntegerType,
    Row,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
)
from headrace.graph.node import ADDED_LATER
from headrace.graph.operator_declarations import Facts, Need
from headrace.lowering.reference import Bags, NotOfBags, function_of, functions_of, rank
from headrace.operators.time_spans import TIME_TYPES, check_span, shown_span
from headrace.operators.unservable import IN_ORDER, OLD_TOMBSTONES

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
    """How records change the row held for their key.

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
        """Whether the rows held, or the misfits, depend on the order of records."""
        return self.sequence is None or self.on_misfit is OnMisfit.DEAD_LETTER

    def unservable(self) -> Unservable | None:
        if self.in_order:
            return IN_ORDER
        return None if self.tombstones is None else OLD_TOMBSTONES

    def gives(self, records: Facts) -> Facts:
        """Return the facts of the records, as far as they hold of what is made of them."""
        # Within a tick, or before a tombstone is forgotten, an older record is passed over.
        return records.but(det=records.det and self.tombstones is None)

    def needs(self) -> tuple[Need, ...]:
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
