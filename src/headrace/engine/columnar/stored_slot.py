"""Slot over an arrangement in files: at the end of each tick, what rows changed is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.arrangement.batch import negated
from headrace.columns.columns import ColumnarDeclined
from headrace.columns.slot_forms import SlotForm, Values
from headrace.engine.columnar.arranged_slot import ArrangedSlot
from headrace.engine.columnar.columnar_flow import large_ticks_code
from headrace.engine.spilling import estimated_bytes
from headrace.errors import NotPlainData
from headrace.expr.types import TimestampType
from headrace.state.arranged_store import ArrangedForm
from headrace.state.described_rows import DescribedRows

if TYPE_CHECKING:
    from headrace.arrangement.spine import Spine
    from headrace.engine.program import Program
    from headrace.lowering.slot import SlotMapping


def stored_forms(program: Program, slots: Mapping[str, SlotMapping]) -> dict[str, ArrangedForm]:
    """Return how a store keeps those slots of a program that are arrangements.

    slots: mappings of all its slots, which need not be there before something is read.
    """
    forms = large_ticks_code(program, arranged=True).forms(slots.__getitem__)
    return {name: _stored(form) for name, form in forms.items()}


def _stored(form: SlotForm) -> ArrangedForm:
    return ArrangedForm(form.layout, partial(StoredSlot, form), partial(_description, form))


def _description(form: SlotForm) -> str:
    parts = dict(zip(form.layout.keys, form.keys, strict=False))
    moments = [name for name, type in (*parts.items(), *form.read) if isinstance(type, TimestampType)]
    read = tuple(name for name, _ in form.read)
    described = DescribedRows(
        form.layout, tuple(parts), form.bare, read, frozenset(moments), form.of_pair, form.aside
    )
    return described.to_text()


class StoredSlot(ArrangedSlot):
    """Slot that remembers what it has read, so that only what differs from it is written."""

    def __init__(self, form: SlotForm, spine: Spine) -> None:
        super().__init__(form, spine)
        self._rows_read: dict[Any, Sequence[Values]] = {}

    @property
    def in_memory(self) -> Mapping[Any, Any]:
        """Return the entries in memory."""
        return self._entries

    def estimated_bytes(self) -> int:
        return estimated_bytes(self._entries)

    def _found(self, key: Any) -> Sequence[Values]:
        rows = self._rows_read[key] = super()._found(key)
        return rows

    def settle(self) -> None:
        """Write all entries that changed into the arrangement. Raises `NotPlainData` if columns can't."""
        try:
            if self._dropped:
                super().settle()
            elif self._entries:
                self._settle_changed()
        except ColumnarDeclined as error:
            raise NotPlainData(
                "a tick left a value in the state that no column holds",
                why=str(error.__cause__ or error),
                fix="leave out such values, or run without a checkpoint and without a bound of memory",
            ) from error
        self.discard()

    def _settle_changed(self) -> None:
        read = {key: self._entry(key, rows) for key, rows in self._rows_read.items()}
        changed = {key: e for key, e in self._entries.items() if key not in read or e != read[key]}
        if not changed:
            return
        before = {key: read[key] for key in changed if key in read}
        changes = self._form.changes(before, changed)
        if len(before) < len(changed):
            unread = self._key_columns([key for key in changed if key not in before])
            self._add(negated(self.spine.layout, self.spine.probe(unread).rows), changes)
        else:
            self._add(changes)

    def discard(self) -> None:
        super().discard()
        self._rows_read.clear()
