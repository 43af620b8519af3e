"""Slot over an arrangement: recently used entries are Python values, the rest stay in columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from headrace.arrangement.batch import concat_frames, negated
from headrace.arrangement.codes import coder
from headrace.arrangement.reading import RowReader, RowReaders
from headrace.arrangement.spine import Spine, SumOverflow
from headrace.columns.columns import ColumnarDeclined
from headrace.columns.slot_forms import SlotForm, Values, key_columns
from headrace.engine.external_join_sides import SharedSide
from headrace.engine.spilling import ShardedSlot, estimated_bytes
from headrace.errors import NotPlainData
from headrace.expr.polars_columns import from_series, row_reader, value_reader
from headrace.expr.types import TimestampType
from headrace.requirements import np, pl
from headrace.state.arranged_store import ArrangedForm
from headrace.state.manifest import DescribedRows

if TYPE_CHECKING:
    from headrace.arrangement.batch import SortedBatch
    from headrace.engine.runtime_library import TickBudget
    from headrace.lowering.slot import SlotMapping


_SAMPLE = 100_000
"""Rows by which the number of rows of a key is estimated."""


class ArrangedSlot:
    """Mapping from keys to entries, over an arrangement.

    entries: initial contents, kept as Python values.
    """

    def __init__(self, form: SlotForm, spine: Spine, entries: dict[Any, Any] | None = None) -> None:
        self.spine = spine
        self._form = form
        self._entries: dict[Any, Any] = {} if entries is None else entries
        layout = spine.layout
        self._exact = layout.exact
        self._sections = form.sections
        self._code = coder([layout.types[name] for name in layout.keys], exact=self._exact)
        # Where codes are keys, these need not be compared.
        read, keys = tuple(name for name, _ in form.read), () if self._exact else layout.keys
        columns = tuple(dict.fromkeys((*read, *layout.sums, *keys)))
        self._rows = RowReaders(spine, columns)
        self._key_places = [columns.index(name) for name in keys]
        self._width = len(read) + len(layout.sums)
        self._convert = row_reader([value_reader(type) for _, type in form.read])
        self._convert_key = row_reader([value_reader(type) for type in form.keys])
        self._sampled: SortedBatch | None = None
        self._rows_per_key = 1.0
        self._dropped: set[Any] = set()

    def get(self, key: Any, default: Any = None) -> Any:
        found = self._entries.get(key, self)
        if found is self:
            found = self._entry(key, self._found(key))
            if found is None:
                return default
            self._entries[key] = found
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        self._entries[key] = value

    def __delitem__(self, key: Any) -> None:
        if self._form.group is not None and not isinstance(key, tuple):
            self._dropped.add(key)
        elif self._found(key):
            self._entries[key] = None
        else:
            # It came and went in rows: nothing is to be remembered of it.
            self._entries.pop(key, None)

    def reached(self, now: Any) -> tuple[list[Any], Any]:
        """Return the arranged keys whose moment `now` has reached, and the next moment (`HeldForm`)."""
        return cast("Any", self._form).reached(self.spine, now)

    @property
    def rows_per_key(self) -> float:
        """Estimate the number of rows to be fetched for the key of a random row."""
        largest = self.spine.batches[0] if self.spine.batches else None
        if largest is not self._sampled:
            self._sampled = largest
            codes = np.empty(0, np.int64) if largest is None else largest.codes[:_SAMPLE]
            ends = np.flatnonzero(np.diff(codes)) + 1
            sizes = np.diff(ends, prepend=0, append=len(codes)).astype(np.float64)
            expected = (sizes * sizes).sum() / max(1, len(codes))
            self._rows_per_key = max(1.0, expected * max(1, len(self._form.sections)) / self._form.reused)
        return self._rows_per_key

    def keys(self) -> Iterator[Any]:
        """Yield all keys that have an entry."""
        snapshot = self.spine.snapshot()
        names = zip(self.spine.layout.keys, self._form.keys, strict=False)
        parts = [from_series(type, snapshot[name]) for name, type in names]
        arranged: dict[Any, None] = dict.fromkeys(
            map(self._form.key, zip(*parts, strict=True)) if parts else [()] * snapshot.height
        )
        dropped, entries = self._dropped, self._entries
        own = [key for key, entry in entries.items() if entry is not None]
        others = [key for key in arranged if key not in entries]
        yield from (key for key in chain(others, own) if not dropped or key[1] not in dropped)

    def estimated_bytes(self) -> int:
        """Estimate the memory of the entries."""
        return estimated_bytes(self._entries) + sum(batch.estimated_bytes for batch in self.spine.batches)

    def settle(self) -> None:
        """Write all entries into the arrangement. Raises `ColumnarDeclined` if columns can't hold one."""
        if not self._entries and not self._dropped:
            return
        if self._form.grows and not self._dropped and None not in self._entries.values():
            self._add(self._form.present(self._came()))
        else:
            taken_back = negated(self.spine.layout, self._before())
            self._add(taken_back, self._form.present(self._entries))
        self.discard()

    def _came(self) -> dict[Any, Any]:
        """Return the rows appended to each list entry since it was read."""
        # To take back all rows and add them again would add up 0.0 and -0.0.
        asked, rows = self.spine.probe(self._key_columns(list(self._entries)))
        (copies,) = self.spine.layout.sums
        known = np.bincount(asked, rows[copies].to_numpy(), minlength=len(self._entries)).astype(np.int64)
        each = zip(self._entries.items(), known.tolist(), strict=True)
        return {key: entry[n:] for (key, entry), n in each if len(entry) > n}

    def _add(self, *rows: pl.DataFrame) -> None:
        """Add rows to the arrangement. Raises `ColumnarDeclined`."""
        try:
            self.spine.add(concat_frames(rows))
        except SumOverflow as error:
            raise ColumnarDeclined from error

    def _before(self) -> pl.DataFrame:
        """Return the rows of the arrangement that are dropped or replaced by entries."""
        dropped, group = self._dropped, self._form.group
        if not dropped or group is None:
            return self.spine.probe(self._key_columns(list(self._entries))).rows
        for key in [key for key in self._entries if key[1] in dropped]:
            self._entries[key] = None
        kept = [key for key in self._entries if key[1] not in dropped]
        rows = [self.spine.probe(self._key_columns(kept)).rows]
        numbers = np.array(sorted(dropped))
        for batch in self.spine.batches:
            at = np.flatnonzero(np.isin(batch.numbers(group).to_numpy(), numbers))
            rows.append(batch.take(at).select(rows[0].columns))
        return concat_frames(rows)

    def discard(self) -> None:
        """Forget entries that are not in the arrangement."""
        self._entries.clear()
        self._dropped.clear()

    def _entry(self, key: Any, rows: Sequence[Values]) -> Any:
        return self._form.entry(key, rows) if rows else None

    def _key_columns(self, keys: list[Any]) -> list[pl.Series]:
        sections = self._form.sections
        columns = key_columns(self._form, keys * max(1, len(sections)))
        if sections:
            columns.append(pl.Series(np.repeat(np.array(sections, np.int8), len(keys))))
        return columns

    def _found(self, key: Any) -> Sequence[Values]:
        """Return the rows of a key in the arrangement."""
        readers = self._rows.current()
        if not readers:
            return ()
        parts = self._form.parts(key) or (0,)
        sections = self._sections
        try:
            if sections:
                coded = [(self._code(each), each) for each in [(*parts, section) for section in sections]]
            else:
                coded = [(self._code(parts), parts)]
        except (UnicodeEncodeError, OverflowError):
            # No column holds half a surrogate pair, or an integer of more than 64 bits.
            return ()
        found: list[Values] = []
        for reader in readers:
            for code, each in coded:
                places = reader.places(code)
                if places:
                    found += self._read(reader, places, None if self._exact else each)
        return found

    def _read(self, reader: RowReader, places: range, key: Values | None) -> list[Values]:
        """Return the rows of a code, at `places`. key: filter, if other keys may share the code."""
        rows = reader.rows(places)
        if key is not None:
            rows = [
                row[: self._width]
                for row in rows
                if self._convert_key(tuple([row[at] for at in self._key_places])) == key
            ]
        return rows if self._convert is tuple else list(map(self._convert, rows))


COLUMNS, KEY, ROW = 1_500, 3, 2
"""Microseconds, about: of a tick in columns, of a key that is fetched, and of each of its rows."""


@dataclass(slots=True)
class ArrangedSlots:
    """Slots of one operator: those that large ticks need as arrangements, and its other slots.

    forms: by the name of the slot; none if the operator has few values, which stay in rows.
    slot:  returns a slot's mapping as it is at the time. replace: replaces it.
    alone: the operator may do something in a tick that has no rows for it.
    limit: on the rows that a tick makes; None for no limit.
    rows_met: rows of the ticks for which the state was no arrangement yet, since it last became one in vain.
    """

    forms: Mapping[str, SlotForm]
    slot: Callable[[str], SlotMapping]
    replace: Callable[[str, SlotMapping], None]
    alone: bool = False
    limit: TickBudget | None = None
    rows_met: int = 0
    _new: dict[str, SortedBatch] = field(default_factory=dict["str", "SortedBatch"], init=False)
    _left: dict[str, Sequence[SortedBatch]] = field(
        default_factory=dict["str", "Sequence[SortedBatch]"], init=False
    )
    _effects: dict[Any, Callable[[], None]] = field(
        default_factory=dict["Any", "Callable[[], None]"], init=False
    )
    _arranging: dict[str, ArrangedSlot] = field(default_factory=dict["str", ArrangedSlot], init=False)

    @property
    def least(self) -> int:
        """Break-even row count: above it, columns cost less than row-by-row lookups in arrangements."""
        arranged = (self.arranged(name) for name in self.forms)
        rows = max((slot.rows_per_key for slot in arranged if slot is not None), default=1.0)
        return max(1, int(COLUMNS / (KEY + ROW * rows)))

    @property
    def are_arranged(self) -> bool:
        """Return whether all slots are arrangements."""
        return all(isinstance(self.slot(name), ArrangedSlot | SharedSide) for name in self.forms)

    @property
    def are_new(self) -> bool:
        """Return whether this tick moves the state into arrangements, unless it is declined."""
        return bool(self._arranging)

    def arranged(self, name: str) -> ArrangedSlot | None:
        """Return a slot as an arrangement, possibly one of this tick only; None if it is not arranged."""
        if name in self._arranging:
            return self._arranging[name]
        slot = self.slot(name)
        if isinstance(slot, SharedSide):
            return slot.arranged
        return slot if isinstance(slot, ArrangedSlot) else None

    def pays(self, rows: int) -> bool:
        """Return whether arrangements pay off for a tick with this many rows."""
        slots = {name: self.slot(name) for name in self.forms}
        shared = {name: slot for name, slot in slots.items() if isinstance(slot, SharedSide)}
        if not all(
            slot.arrange(partial(ArrangedSlot, self.forms[name]), rows) for name, slot in shared.items()
        ):
            return False
        others = [slot for slot in slots.values() if not isinstance(slot, ArrangedSlot | SharedSide)]
        if not others:
            return True
        if not all(isinstance(slot, dict | ShardedSlot) for slot in others):
            return False
        held = cast("list[Mapping[Any, Any]]", others)
        # The rows of large ticks pay for the way into columns, those of the state that they brought included.
        self.rows_met += rows
        most = 2 * self.rows_met
        if sum(map(len, held)) > most:
            # Without a look at each entry.
            return False
        return sum(_size(entry) for entries in held for entry in entries.values()) <= most

    def arrange(self) -> None:
        """Move the state into arrangements. Called only if that `pays`.

        Until `add` what is no arrangement yet stays as it is.

        Raises `ColumnarDeclined` for a value that no column can hold.
        """
        # What an earlier tick prepared before it was declined.
        self.forget()
        for name, form in self.forms.items():
            slot = self.slot(name)
            if not isinstance(slot, ArrangedSlot | SharedSide):
                held = cast("Mapping[Any, Any]", slot)
                self._arranging[name] = ArrangedSlot(form, Spine(form.layout), dict(held))
        for name in self.forms:
            cast("ArrangedSlot", self.arranged(name)).settle()

    @property
    def most(self) -> int | None:
        """Return the limit on the number of rows that a tick produces."""
        return None if self.limit is None else self.limit.rows

    def spine(self, name: str) -> Spine:
        """Return the arrangement of a slot."""
        slot = self.arranged(name)
        assert slot is not None
        return slot.spine

    def prepare(self, name: str, frame: pl.DataFrame) -> SortedBatch:
        """Build a batch of a slot's new rows. It takes effect on `add`, unless another one replaces it.

        Raises `ColumnarDeclined` if sums might leave 64 bits.
        """
        try:
            batch = self._new[name] = self.spine(name).prepare(frame)
        except SumOverflow as error:
            raise ColumnarDeclined from error
        return batch

    def prepare_batch(self, name: str, batch: SortedBatch, left: Sequence[SortedBatch] | None = None) -> None:
        """Register new rows of a slot, like `prepare`. left: its remaining batches, if some are replaced."""
        self._new[name] = batch
        if left is not None:
            self._left[name] = left

    def value(self, name: str) -> Any:
        """Return the value of a single-value slot; None if it is empty."""
        return self.slot(name).get(())

    def prepare_value(self, name: str, value: Any) -> None:
        """Register the next value of a single-value slot. It takes effect on `add`."""

        def keep() -> None:
            self.slot(name)[()] = value

        self.prepare_effect(name, keep)

    def prepare_effect(self, key: Any, effect: Callable[[], None]) -> None:
        """Register an effect for the end of `add`. The last one per key wins."""
        self._effects[key] = effect

    def undo(self) -> None:
        """Restore the state from before a declined tick."""
        if self._arranging:
            # It became arrangements in vain: as many rows as before must pay for the next time.
            self.rows_met = 0
        self.forget()

    def forget(self) -> None:
        """Discard prepared changes and effects."""
        self._new, self._left, self._effects, self._arranging = {}, {}, {}, {}

    def bind(self) -> None:
        """Replace slots by the arrangements that this tick made of them."""
        arranging, self._arranging = self._arranging, {}
        for name, slot in arranging.items():
            self.replace(name, slot)

    def add(self) -> None:
        """Apply a successful tick's prepared rows and effects to the state."""
        self.bind()
        for name, left in self._left.items():
            self.spine(name).replace(left)
        for name, batch in self._new.items():
            self.spine(name).add_batch(batch)
        for effect in self._effects.values():
            effect()
        self.forget()


def _size(entry: Any) -> int:
    return len(cast("list[Any]", entry)) if isinstance(entry, list | dict) else 1


def stored_form(form: SlotForm) -> ArrangedForm:
    """Return the form in which a store keeps a slot of this form."""
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
    """Slot that remembers the entries it has read, in order to write only differences."""

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
        """Write all changed entries into the arrangement. Raises `NotPlainData` if columns can't hold one."""
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
