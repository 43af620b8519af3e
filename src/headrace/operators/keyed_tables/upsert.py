"""Upsert and misfits operators: the latest row of each key, and the records that contradict it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.expr.check import check
from headrace.expr.constructors import coalesce, col, struct, when
from headrace.expr.row_classes import Unavailable
from headrace.expr.tree import FunctionCall
from headrace.expr.types import STR, Field, StructType
from headrace.graph.node import Operator
from headrace.graph.operator_declarations import EverywhereSlot, KeyedSlot, Port, calendar_slots, place_by_key
from headrace.lowering.reference import Bag, Bags, Examples, answer_of_bags
from headrace.lowering.row_code import RowCode
from headrace.lowering.slot import Slot
from headrace.lowering.step import RowStep, register_step
from headrace.operators.event_time.due_calendar import DueCalendar
from headrace.operators.event_time.watermark import WatermarkPolicy, watermark_function
from headrace.operators.keyed_tables.upsert_rule import (
    MisfitTexts,
    OnMisfit,
    TieRule,
    UpsertRule,
    held_row,
    records_by_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Facts, Need, Placement, SlotLayout, Unservable
    from headrace.lowering.step_writer import StepWriter


# --- keyed records: what upserts, misfits and histories share --------------------------------------

_AT = coalesce(col.b, 0)
"""Sequence of the examples' records."""


class KeyedRecords(Operator):
    """Base of the operators that hold the latest row of each key."""

    may_set_aside: ClassVar[bool] = True
    """Whether records that do not fit may be left out, by `on_misfit="dead_letter"`."""
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

    def required_facts(self) -> tuple[Need, ...]:
        return self.rule.required_facts()

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


class KeyedRecordsStep(RowStep):
    """Base of the steps that hold the latest row of each key.

    Slot: key -> its row, or with a sequence what `Sequenced` stores: (sequence, row or None, ...). Within a
    tick the keys of its records have [row before the tick, row], with a sequence a `Sequenced`.
    If tombstones are forgotten: highest, () -> the highest sequence of all keys, and a calendar of the
    sequences of deleted keys.
    """

    operator: KeyedRecords
    keeps_state = True
    by_sequence: ClassVar[str] = "x_sequenced"
    """What keeps the records of a key that have sequences, within a tick."""

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.rule = self.operator.rule
        self.held = writer.node_variable("held", node.id)
        self.texts = writer.constant("misfits", misfit_texts(self.operator, self.input_schema()))
        self.ties = writer.constant("ties", tie_rule(self.rule, self.input_schema()))
        self._highest = writer.node_variable("highest", node.id)
        self._calendar = None if self.rule.tombstones is None else DueCalendar(node, writer)

    def slots(self) -> tuple[Slot, ...]:
        rows = Slot(f"{self.node.id}.rows")
        if self._calendar is None:
            return (rows,)
        return rows, Slot(f"{self.node.id}.highest"), *self._calendar.slots()

    def begin(self) -> None:
        self.code.line(f"{self.held} = {{}}")
        if self._calendar is not None:
            self.code.line(f"{self._highest} = {self.slot_getter('highest')}(())")

    def consume(self, port: int, row: RowCode) -> None:
        if port == 0:
            self._consume_record(row)
            return
        # A row that is taken back is not above those after it.
        (sequence,) = row.columns
        is_higher = f"{sequence} is not None and ({self._highest} is None or {sequence} > {self._highest})"
        with self.code.block(f"if {is_higher}:"):
            self.code.line(f"{self.slot('highest')}[()] = {self._highest} = {sequence}")

    def _consume_record(self, row: RowCode) -> None:
        code, writer, rule = self.code, self.writer, self.rule
        key, own, stored, new = (writer.fresh(n) for n in ("key", "own", "stored", "new"))
        schema = self.input_schema()
        writer.assign_key(key, rule.keys, schema, row.columns)
        code.line(f"{new} = {writer.representative(rule.row, schema, row.columns)}")
        code.line(f"{own} = {self.held}.get({key})")
        with code.block(f"if {own} is None:"):
            code.line(f"{stored} = {self.slot_getter('rows')}({key})")
            held = f"[{stored}, {stored}]" if rule.sequence is None else f"{self.by_sequence}({stored})"
            code.line(f"{own} = {self.held}[{key}] = {held}")
        unknown = self._unavailable()
        if unknown.marks:
            filled = f"{self.texts}.fills({new}, {own}{'[1]' if rule.sequence is None else '.shown'}, {{}})"
            filled = filled.format(writer.constant("unavailable", unknown))
            with code.block(f"if {self._is_last(own, row)}:"):
                code.line(f"{new} = {filled}")
        if rule.sequence is not None:
            sequence = writer.value(rule.sequence, schema, row.columns)
            image = "None" if rule.image is None else writer.representative(rule.image, schema, row.columns)
            place = "None" if rule.place is None else writer.value(rule.place, schema, row.columns)
            # Of a record that sets a row, the image is not looked at: most need not make one.
            image = f"{image} if {new} is None else None"
            fits = f"{own}.apply({new}, {sequence}, {image}, {place}, {self.ties}, {self.texts})"
        elif rule.before is not None and rule.on_misfit is not OnMisfit.TRUST_KEY:
            before = writer.representative(rule.before, schema, row.columns)
            fits = f"x_upsert_in_order({own}, {new}, {before}, {self.texts})"
        elif unknown.marks:
            fits = f"x_upsert_in_order({own}, {new}, None, {self.texts})"
        else:
            code.line(f"{own}[1] = {new}")
            return
        if unknown.marks:
            fits = f"{new} if {new}.__class__ is str else {fits}"
        reason = writer.fresh("reason")
        code.line(f"{reason} = {fits}")
        if rule.on_misfit is not OnMisfit.DEAD_LETTER:
            with code.block(f"if {reason} is not None:"):
                place = "None" if rule.place is None else writer.value(rule.place, schema, row.columns)
                held = f"{own}[1]" if rule.sequence is None else f"{own}.shown"
                code.line(f"raise {self.texts}.error({reason}, {key}, {held}, {place})")
        else:
            self.take_misfit(row, reason)

    def _unavailable(self) -> Unavailable:
        """Return the values that a record may omit, as in change data of tables."""
        rows = check(self.rule.row, self.input_schema()).type
        assert isinstance(rows, StructType)
        return Unavailable(()) if self.rule.table is None else Unavailable.of(rows.fields)

    def _is_last(self, own: str, row: RowCode) -> str:
        """Return the condition of a record that no later one has replaced."""
        if self.rule.sequence is None:
            return "True"
        sequence = self.writer.value(self.rule.sequence, self.input_schema(), row.columns)
        return f"{own}.sequence is None or {sequence} >= {own}.sequence"

    def take_misfit(self, row: RowCode, reason: str) -> None:
        """Write the code for a record. reason: variable with its misfit reason, None if it fits."""

    def finish(self) -> None:
        code, writer, slot = self.code, self.writer, self.slot("rows")
        key, own, before, after = (writer.fresh(n) for n in ("key", "own", "before", "after"))
        with code.block(f"for {key}, {own} in {self.held}.items():"):
            if self.rule.sequence is None:
                code.line(f"{before}, {after} = {own}")
            else:
                kept = writer.fresh("kept")
                code.line(
                    f"{before}, {after}, {kept} = {own}.before, {own}.shown, {own}.to_stored({self.ties})"
                )
                with code.block(f"if {kept} != {own}.stored:"):
                    code.line(f"{slot}[{key}] = {kept}")
                    if self._calendar is not None:
                        with code.block(f"if {after} is None:"):
                            self._calendar.schedule_end(f"{own}.sequence", key)
            with code.block(f"if {before} != {after}:"):
                if self.rule.sequence is None:
                    with code.block(f"if {after} is not None:"):
                        code.line(f"{slot}[{key}] = {after}")
                    with code.block("else:"):
                        code.line(f"del {slot}[{key}]")
                self.emit_change(before, after)
        if self._calendar is not None:
            self._forget_tombstones(self._calendar)

    def _forget_tombstones(self, calendar: DueCalendar) -> None:
        """Write the code that removes deleted keys whose sequence is too far below the highest one."""
        code, writer, slot = self.code, self.writer, self.slot("rows")
        bound = oldest_tombstone(self.rule, self.input_schema())
        oldest, at, key, stored = (writer.fresh(n) for n in ("oldest", "at", "key", "stored"))
        with code.block(f"if {self._highest} is not None:"):
            code.line(f"{oldest} = {writer.constant('bound', bound)}({self._highest})")
            with code.block(f"for {at}, {key} in {calendar.entries_before(oldest)}:"):
                code.line(f"{stored} = {self.slot_getter('rows')}({key})")
                # A record may have come for the key since.
                with code.block(f"if {stored} is not None and {stored}[1] is None and {stored}[0] == {at}:"):
                    code.line(f"del {slot}[{key}]")

    def emit_change(self, before: str, after: str) -> None:
        """Write the code for a key whose row a tick has changed."""
        self.code.line("pass")


def misfit_texts(operator: KeyedRecords, records: Schema) -> MisfitTexts:
    """Return the texts about an operator's misfits."""
    rule = operator.rule
    keys = tuple((_name(key), check(key, records).type) for key in rule.keys)
    return MisfitTexts(rule.table, keys, _row_type(rule, records), operator.may_set_aside)


def tie_rule(rule: UpsertRule, records: Schema) -> TieRule:
    """Build the order of the rows and deletions of one key and sequence."""
    names = [field.name for field in _row_type(rule, records).fields]
    version = None if rule.version is None else names.index(rule.version)
    may_delete = rule.image is not None or check(rule.row, records).nullable
    return TieRule(version, rule.commits, rule.on_misfit is OnMisfit.TRUST_KEY, may_delete)


def oldest_tombstone(rule: UpsertRule, records: Schema) -> Callable[[Any], Any]:
    """Return the function from the highest sequence to the lowest whose tombstones are kept."""
    assert rule.sequence is not None
    assert rule.tombstones is not None
    type = check(rule.sequence, records).type
    return watermark_function(WatermarkPolicy(str(rule.sequence), rule.tombstones), type)


def _row_type(rule: UpsertRule, records: Schema) -> StructType:
    rows = check(rule.row, records).type
    assert isinstance(rows, StructType)
    return rows


def _name(key: Expr) -> str:
    """Return the name of a key column in errors."""
    return str(key.options[0]) if isinstance(key, FunctionCall) and key.function == "field" else str(key)


# --- the rows held --------------------------------------------------------------------------------


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
    examples: ClassVar[Examples] = {
        "in order": lambda x, y: x.upsert("a", deleted=col.b == 1),
        "of rows before": lambda x, y: x.upsert(
            "a", before=when(col.b > 1, struct(a=col.a, b=col.b - 1)), on_misfit="dead_letter"
        ),
        "by sequence": lambda x, y: x.upsert("a", row=struct(a=col.a, at=_AT), sequence=_AT),
        "by sequence, trusted": lambda x, y: x.upsert(
            "a", row=struct(b=col.b), sequence=_AT // 2, deleted=col.b == 3, on_misfit="trust_key"
        ),
        "by sequence, some tombstones": lambda x, y: x.upsert(
            "a", row=struct(a=col.a, at=_AT), deleted=_AT % 2 == 1, sequence=_AT, tombstones=1
        ),
    }
    rule: UpsertRule

    def output(self, context: CheckContext) -> Columns:
        return self.rule.check(context).fields

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return True

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return self.rule.output_facts(inputs[0]).but(append=False, ordered=False)


@register_step(Upsert)
class UpsertStep(KeyedRecordsStep):
    """Step of upsert."""

    sites = 2

    def emit_change(self, before: str, after: str) -> None:
        for row, weight in ((before, "-1"), (after, "1")):
            with self.code.block(f"if {row} is not None:"):
                self.emit_unpacked(row, weight)


@answer_of_bags.register(Upsert)
def _answer(operator: Upsert, node: Node, inputs: Bags) -> Bag:
    out: Bag = Counter()
    for records in records_by_key(operator.rule, inputs):
        shown = held_row(records, operator.rule, node)
        if shown is not None:
            out[shown] += 1
    return out


# --- the records that do not fit ------------------------------------------------------------------


REASON = "misfit"
"""Column with the reason why a record does not fit."""


@dataclass(frozen=True, slots=True)
class Misfits(KeyedRecords):
    """The records that contradict the row held for their key, which `upsert` leaves out, with the reason.

    It holds the rows of all keys a second time.

    >>> from dataclasses import dataclass
    >>> import headrace as hr
    >>> from headrace.testing import show
    >>> @dataclass(frozen=True)
    ... class Price:
    ...     id: int
    ...     price: int
    ...     at: int
    >>> def misfits(prices):
    ...     latest = prices.upsert("id", sequence="at", on_misfit="dead_letter")
    ...     return latest.misfits().select("misfit")
    >>> show(misfits, prices=[Price(1, 3, 1), Price(1, 4, 1)])
    + (misfit='of sequence 1, it sets (id=1, price=4, at=1), but another record set (id=1, price=3, at=1)')
    """

    kind: ClassVar[str] = "misfits"
    examples: ClassVar[Examples] = {
        "misfits": lambda x, y: x.upsert("a", sequence=_AT // 2, on_misfit="dead_letter").misfits(),
        "with some tombstones": lambda x, y: x.upsert(
            "a", sequence=_AT // 2, on_misfit="dead_letter", tombstones=0
        ).misfits(),
    }
    rule: UpsertRule

    def output(self, context: CheckContext) -> Columns:
        self.rule.check(context)
        context.require(self.rule.on_misfit is OnMisfit.DEAD_LETTER, "nothing is left out by its policy")
        context.require(context.input.position(REASON) is None, f"there is a column {REASON!r} already")
        return (*context.input.fields, Field(REASON, STR))

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return self.rule.output_facts(inputs[0])


@register_step(Misfits)
class MisfitsStep(KeyedRecordsStep):
    """Step of misfits."""

    def take_misfit(self, row: RowCode, reason: str) -> None:
        with self.code.block(f"if {reason} is not None:"):
            self.emit(RowCode((*row.columns, reason)))
