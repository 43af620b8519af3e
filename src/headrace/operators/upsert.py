"""Upsert operator: the latest row of each key, from records that set or delete it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.row_classes import PLACE
from headrace.expr.types import (
    DateType,
    DecimalType,
    IntegerType,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
)
from headrace.graph.node import ADDED_LATER, Operator
from headrace.graph.operator_declarations import (
    EverywhereSlot,
    Facts,
    KeyedSlot,
    Need,
    Placement,
    Port,
    calendar_slots,
    place_by_key,
)
from headrace.operators.time_spans import TIME_TYPES, check_span, shown_span
from headrace.operators.unservable import IN_ORDER, OLD_TOMBSTONES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.tree import Expr
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import SlotLayout, Unservable
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


class KeyedRecords(Operator):
    """Base of the operators that hold the latest row of each key."""

    __slots__ = ()
    rule: UpsertRule

    def ports(self) -> tuple[Port, ...]:
        records = Port("input", blocking=True, why="a further record could replace a row")
        if self.rule.tombstones is None:
            return (records,)
        why = "a higher sequence lets tombstones be forgotten"
        return records, Port("highest", blocking=True, why=why, completeness=True)

    def unservable(self) -> Unservable | None:
        return self.rule.unservable()

    def needs(self) -> tuple[Need, ...]:
        return self.rule.needs()

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        rows = KeyedSlot()
        if self.rule.tombstones is None:
            return {"rows": rows}
        return {"rows": rows, "highest": EverywhereSlot(), **calendar_slots("", rows)}

    def placement(self) -> Placement:
        return place_by_key(self.rule.keys, *(() if self.rule.tombstones is None else (None,)))

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        return self.rule.expressions()

    def describe(self) -> str:
        return str(self.rule)


@dataclass(frozen=True, slots=True)
class Upsert(KeyedRecords):
    """The latest row of each key. A tick emits the difference between a key's rows before and after it.

    State: the row of each key, and with a sequence that of its last record, which is kept when the row is
    deleted (a tombstone), so that an older record cannot bring it back: for good, or with `tombstones` until
    the highest sequence of all keys is so far ahead of it. For records without a place, if they may delete,
    also digests of the rows before, and the row that lost against a deletion of its sequence, until it is
    erased. An empty tick emits nothing.

    >>> from dataclasses import dataclass
    >>> import headrace as hr
    >>> from headrace.testing import show
    >>> @dataclass(frozen=True)
    ... class Price:
    ...     item: str
    ...     price: int
    ...     at: int
    >>> prices = [Price("tea", 3, 1), Price("tea", 5, 4), Price("tea", 4, 2), Price("tea", 5, 4)]
    >>> show(lambda prices: prices.upsert("item", sequence="at"), prices=prices)
    + Price(item='tea', price=5, at=4)
    """

    kind: ClassVar[str] = "upsert"
    rule: UpsertRule

    def output(self, context: CheckContext) -> Columns:
        return self.rule.check(context).fields

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return True

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return self.rule.gives(inputs[0]).but(append=False, ordered=False)
