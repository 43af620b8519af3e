"""Steps of upsert, misfits and history."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.engine.upserts import MisfitTexts, TieRule
from headrace.expr.check import check
from headrace.expr.row_classes import Unavailable
from headrace.expr.tree import Call
from headrace.expr.types import StructType
from headrace.lowering.row_code import Row
from headrace.lowering.slot import Slot
from headrace.lowering.step import Step, register_step
from headrace.operators.event_time.due_calendar import DueCalendar
from headrace.operators.event_time.watermark import WatermarkPolicy, watermark_function
from headrace.operators.history import History
from headrace.operators.misfits import Misfits
from headrace.operators.upsert import KeyedRecords, OnMisfit, Upsert, UpsertRule

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


class KeyedRecordsStep(Step):
    """Base of the steps that hold the latest row of each key.

    Slot: key -> its row, or with a sequence what `Sequenced` stores: (sequence, row or None, ...). Within a
    tick the keys of its records have [row before the tick, row], with a sequence a `Sequenced`.
    If tombstones are forgotten: highest, () -> the highest sequence of all keys, and a calendar of the
    sequences of deleted keys.
    """

    operator: Upsert | Misfits | History
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

    def consume(self, port: int, row: Row) -> None:
        if port == 0:
            self._consume_record(row)
            return
        # A row that is taken back is not above those after it.
        (sequence,) = row.columns
        is_higher = f"{sequence} is not None and ({self._highest} is None or {sequence} > {self._highest})"
        with self.code.block(f"if {is_higher}:"):
            self.code.line(f"{self.slot('highest')}[()] = {self._highest} = {sequence}")

    def _consume_record(self, row: Row) -> None:
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
            told = f"{self.texts}.fills({new}, {own}{'[1]' if rule.sequence is None else '.shown'}, {{}})"
            told = told.format(writer.constant("unavailable", unknown))
            with code.block(f"if {self._is_last(own, row)}:"):
                code.line(f"{new} = {told}")
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
        """Return the values that records may not tell: only those of change data for a table."""
        rows = check(self.rule.row, self.input_schema()).type
        assert isinstance(rows, StructType)
        return Unavailable(()) if self.rule.table is None else Unavailable.of(rows.fields)

    def _is_last(self, own: str, row: Row) -> str:
        """Return the condition of a record that no later one has replaced."""
        if self.rule.sequence is None:
            return "True"
        sequence = self.writer.value(self.rule.sequence, self.input_schema(), row.columns)
        return f"{own}.sequence is None or {sequence} >= {own}.sequence"

    def take_misfit(self, row: Row, reason: str) -> None:
        """Write the code for a record that is left out, with the variable of the reason, None if it fits."""

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
    """Return the texts about the records of an operator that do not fit."""
    rule = operator.rule
    keys = tuple((_name(key), check(key, records).type) for key in rule.keys)
    return MisfitTexts(rule.table, keys, _row_type(rule, records), not isinstance(operator, History))


def tie_rule(rule: UpsertRule, records: Schema) -> TieRule:
    """Return how the rows and deletions of one key and sequence are ordered."""
    names = [field.name for field in _row_type(rule, records).fields]
    version = None if rule.version is None else names.index(rule.version)
    may_delete = rule.image is not None or check(rule.row, records).nullable
    return TieRule(version, rule.commits, rule.on_misfit is OnMisfit.TRUST_KEY, may_delete)


def oldest_tombstone(rule: UpsertRule, records: Schema) -> Callable[[Any], Any]:
    """Return the function from the highest sequence to the least one of a deleted key that is kept."""
    assert rule.sequence is not None
    assert rule.tombstones is not None
    type = check(rule.sequence, records).type
    return watermark_function(WatermarkPolicy(str(rule.sequence), rule.tombstones), type)


def _row_type(rule: UpsertRule, records: Schema) -> StructType:
    rows = check(rule.row, records).type
    assert isinstance(rows, StructType)
    return rows


def _name(key: Expr) -> str:
    """Return what users call a part of the key."""
    return str(key.options[0]) if isinstance(key, Call) and key.function == "field" else str(key)


@register_step(Upsert)
class UpsertStep(KeyedRecordsStep):
    """Step of upsert."""

    sites = 2

    def emit_change(self, before: str, after: str) -> None:
        for row, weight in ((before, "-1"), (after, "1")):
            with self.code.block(f"if {row} is not None:"):
                self.emit_unpacked(row, weight)


@register_step(Misfits)
class MisfitsStep(KeyedRecordsStep):
    """Step of misfits."""

    def take_misfit(self, row: Row, reason: str) -> None:
        with self.code.block(f"if {reason} is not None:"):
            self.emit(Row((*row.columns, reason)))


@register_step(History)
class HistoryStep(KeyedRecordsStep):
    """Step of history. Slot: key -> its moments in order (see `KeyHistory`)."""

    by_sequence = "x_key_history"

    def finish(self) -> None:
        code, writer = self.code, self.writer
        key, own, changes, row, n = (writer.fresh(name) for name in ("key", "own", "changes", "row", "n"))
        assert isinstance(self.operator, History)
        tracked = writer.constant("tracked", tracked_values(self.operator, self.node.schema))
        with code.block(f"for {key}, {own} in {self.held}.items():"):
            code.line(f"{changes} = {own}.changes({self.ties}, {tracked})")
            with code.block(f"if {own}.has_changed:"):
                code.line(f"{self.slot('rows')}[{key}] = {own}.moments")
            with code.block(f"for {row}, {n} in {changes}:"):
                self.emit_unpacked(row, n)


def tracked_values(operator: History, schema: Schema) -> Callable[[Any], Any]:
    """Return the function of a row whose value starts a version when it changes. schema: of the output."""
    at = [schema.names.index(name) for name in operator.track]
    if len(at) > 1:
        return itemgetter(*at)
    # Of equal NaNs, only tuples say that they are.
    return itemgetter(slice(at[0], at[0] + 1) if at else slice(0))
