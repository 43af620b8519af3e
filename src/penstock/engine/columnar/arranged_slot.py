"""Slot over an arrangement: what rows touched lately are Python values, the rest lies in columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import polars as pl

from penstock.arrangement.batch import negated, select, stacked, take
from penstock.arrangement.codes import coder
from penstock.arrangement.reading import RowReader, RowReaders
from penstock.arrangement.spine import Spine, SumOverflow
from penstock.engine.columnar.column_types import from_series, row_reader, to_series, value_reader
from penstock.engine.columnar.columns import ColumnarDeclined
from penstock.engine.external_join_sides import SharedSide
from penstock.engine.spilling import ShardedSlot, estimated_bytes
from penstock.expr.tree import Column
from penstock.expr.types import DataType
from penstock.expr.widening import is_float

if TYPE_CHECKING:
    from penstock.arrangement.batch import Batch, Layout
    from penstock.engine.slot import SlotMapping
    from penstock.engine.tick_budget import TickBudget
    from penstock.expr.tree import Expr
    from penstock.expr.types import Schema

Values = tuple[Any, ...]

_SAMPLE = 100_000
"""Rows by which the number of rows of a key is estimated."""


@dataclass(frozen=True)
class SlotForm(ABC):
    """Correspondence of a slot's entries, each under its key, with rows of an arrangement.

    layout: of the arrangement.
    keys:   types of the parts of a key, in the layout's order.
    bare:   whether a key is the value of its one part, and no tuple.
    read:   columns that an entry is made of, besides the key and the sums.
    of_pair: a key is a pair of such a key and the last part.
    group:  last part of the key, if its values can be deleted like keys, with all keys that have them.
    aside:  columns of rows that are put aside (`DescribedRows`).
    reused: how often a key that rows fetched is touched before columns take it back, about.
    grows:  entries are lists of rows, to which rows are added at the end.
    """

    of_pair: ClassVar[bool] = False
    group: ClassVar[str | None] = None
    reused: ClassVar[int] = 1

    @property
    def aside(self) -> tuple[str, ...]:
        return ()

    @property
    def grows(self) -> bool:
        return False

    layout: Layout
    keys: tuple[DataType, ...]
    bare: bool
    read: tuple[tuple[str, DataType], ...]

    def parts(self, key: Any) -> Values:
        """Return the parts of a key."""
        if self.of_pair:
            own, last = key
            return (own, last) if self.bare else (*own, last)
        return (key,) if self.bare else key

    def key(self, parts: Values) -> Any:
        """Return the key of some parts."""
        if self.of_pair:
            return (parts[0] if self.bare else parts[:-1], parts[-1])
        return parts[0] if self.bare else parts

    @property
    def sections(self) -> tuple[int, ...]:
        """Return the values of the layout's last key, if that is not in the key of an entry."""
        return ()

    @abstractmethod
    def entry(self, key: Any, found: Sequence[Values]) -> Any:
        """Return what rows of a key are as an entry; None if nothing. Each has `read`, then the sums."""

    @abstractmethod
    def frame(self, entries: Mapping[Any, Any]) -> pl.DataFrame:
        """Return the rows of entries, with all columns of the layout. Raises `ColumnarDeclined`."""

    def changes(self, before: Mapping[Any, Any], after: Mapping[Any, Any]) -> pl.DataFrame:
        """Return rows that replace entries by others. Raises `ColumnarDeclined`."""
        return stacked([negated(self.layout, self.present(before)), self.present(after)])

    def present(self, entries: Mapping[Any, Any]) -> pl.DataFrame:
        """Return the rows of entries, none for None, with the columns as the layout has them."""
        there = {key: entry for key, entry in entries.items() if entry is not None}
        types = self.layout.types
        return select(self.frame(there), types) if there else pl.DataFrame(schema=types)


class BagForm(SlotForm):
    """Form of a slot whose entries are rows, of which a tick changes few."""

    @abstractmethod
    def rows_of(self, entry: Any) -> Iterable[tuple[Values, int]]:
        """Return the rows of an entry, with their copies."""

    @abstractmethod
    def weighted(self, rows: list[Values]) -> pl.DataFrame:
        """Return rows, each with its copies, with all columns of the layout. Raises `ColumnarDeclined`."""

    def frame(self, entries: Mapping[Any, Any]) -> pl.DataFrame:
        return self.weighted([row for entry in entries.values() for row in self._weighted_rows(entry)])

    def changes(self, before: Mapping[Any, Any], after: Mapping[Any, Any]) -> pl.DataFrame:
        changed: list[Values] = []
        for key in dict.fromkeys((*before, *after)):
            old, new = self._weighted_rows(before.get(key)), self._weighted_rows(after.get(key))
            if new[: len(old)] == old:
                # Rows that are only added keep their -0.0, which equals 0.0 where copies are counted.
                changed += new[len(old) :]
                continue
            was, is_now = consolidated(old), consolidated(new)
            changed += [(*row, -n) for row, n in was.items() if row not in is_now]
            changed += [(*row, n - was.get(row, 0)) for row, n in is_now.items() if was.get(row) != n]
        types = self.layout.types
        return select(self.weighted(changed), types) if changed else pl.DataFrame(schema=types)

    def _weighted_rows(self, entry: Any) -> list[Values]:
        return [] if entry is None else [(*row, n) for row, n in self.rows_of(entry)]


def consolidated(found: Sequence[Values]) -> dict[Values, int]:
    """Return the rows that are there, with their copies. found: rows of a key, the copies last."""
    copies: dict[Values, int] = {}
    for row in found:
        copies[row[:-1]] = copies.get(row[:-1], 0) + row[-1]
    return {row: count for row, count in copies.items() if count}


@dataclass(frozen=True)
class CountForm(SlotForm):
    """Form of a slot of numbers: key -> number of rows, of which there are no other columns."""

    def entry(self, key: Any, found: Sequence[Values]) -> Any:
        return sum(count for (count,) in found) or None

    def frame(self, entries: Mapping[Any, Any]) -> pl.DataFrame:
        return keys_with_sums(self, list(entries), [list(entries.values())])


class ArrangedSlot:
    """Mapping from keys to entries, over an arrangement.

    entries: what the slot holds already; it becomes the part of Python values.
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
        self._sampled: Batch | None = None
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
        """Return the keys in the arrangement whose moment has come, and the next moment (`HeldForm`)."""
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
        return estimated_bytes(self._entries) + int(sum(b.frame.estimated_size() for b in self.spine.batches))

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
        """Return what was added to the entries, which are lists, since they were read."""
        # To take back all rows and add them again would add up 0.0 and -0.0.
        asked, rows = self.spine.probe(self._key_columns(list(self._entries)))
        (copies,) = self.spine.layout.sums
        known = np.bincount(asked, rows[copies].to_numpy(), minlength=len(self._entries)).astype(np.int64)
        each = zip(self._entries.items(), known.tolist(), strict=True)
        return {key: entry[n:] for (key, entry), n in each if len(entry) > n}

    def _add(self, *rows: pl.DataFrame) -> None:
        """Add rows to the arrangement. Raises `ColumnarDeclined`."""
        try:
            self.spine.add(stacked(rows))
        except SumOverflow as error:
            raise ColumnarDeclined from error

    def _before(self) -> pl.DataFrame:
        """Return the rows of the arrangement that entries replace, or that are dropped."""
        dropped, group = self._dropped, self._form.group
        if not dropped or group is None:
            return self.spine.probe(self._key_columns(list(self._entries))).rows
        for key in [key for key in self._entries if key[1] in dropped]:
            self._entries[key] = None
        kept = [key for key in self._entries if key[1] not in dropped]
        rows = [self.spine.probe(self._key_columns(kept)).rows]
        numbers = np.array(sorted(dropped))
        for batch in self.spine.batches:
            at = np.flatnonzero(np.isin(batch.frame[group].to_numpy(), numbers))
            rows.append(take(batch.frame, at).select(rows[0].columns))
        return stacked(rows)

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
        """Return the rows at places of a code. key: the one that is meant; None if no other has the code."""
        rows = reader.rows(places)
        if key is not None:
            rows = [
                row[: self._width]
                for row in rows
                if self._convert_key(tuple([row[at] for at in self._key_places])) == key
            ]
        return rows if self._convert is tuple else list(map(self._convert, rows))


def key_columns(form: SlotForm, keys: list[Any]) -> list[pl.Series]:
    """Return the columns of some keys, as the arrangement is probed by them. Raises `ColumnarDeclined`."""
    if not form.keys:
        return [one_key(len(keys))]
    parts = list(zip(*map(form.parts, keys), strict=True)) or [()] * len(form.keys)
    try:
        return [to_series(type, list(part)) for type, part in zip(form.keys, parts, strict=True)]
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise ColumnarDeclined from error


def keys_with_sums(form: SlotForm, keys: list[Any], sums: Sequence[list[int]]) -> pl.DataFrame:
    """Return the rows of some keys with their sums, of a layout without other columns.

    Raises `ColumnarDeclined` for a number beyond 64 bits.
    """
    try:
        columns = [pl.Series(values, dtype=pl.Int64) for values in sums]
    except (OverflowError, TypeError) as error:
        raise ColumnarDeclined from error
    named = zip([*key_columns(form, keys), *columns], form.layout.types, strict=True)
    return pl.DataFrame([column.alias(name) for column, name in named])


def one_key(rows: int) -> pl.Series:
    """Return the key of all rows, where they have no keys."""
    return pl.Series(np.zeros(rows, np.int64))


def column_of(expr: Expr, schema: Schema) -> str | None:
    """Return the column of rows that an expression is; None if it is none, or has several zeros."""
    if not isinstance(expr, Column):
        return None
    at = schema.position(expr.name)
    return None if at is None or is_float(schema.fields[at].type) else str(at)


def key_names(keys: Sequence[Expr], schema: Schema) -> tuple[str, ...]:
    """Return the columns with keys: of the rows, or "k0", ... beside them if they are computed."""
    names: list[str] = []
    for at, expr in enumerate(keys):
        name = column_of(expr, schema)
        names.append(f"k{at}" if name is None or name in names else name)
    return tuple(names) or names_of_keys(0)


def names_of_keys(count: int) -> tuple[str, ...]:
    """Return names for computed keys. Where there are none, all rows have one and the same."""
    return tuple(f"k{at}" for at in range(max(count, 1)))


COLUMNS, RECORDS, KEY, ROW = 1_500, 4_500, 10, 5
"""Microseconds, about: of a tick in columns, of one that sorts records by key and sequence, of a key that is
fetched, and of each of its rows."""


@dataclass(slots=True)
class ArrangedSlots:
    """Slots of one operator that large ticks need as arrangements, and those beside them.

    forms: by the name of the slot; none if the operator has few values, which stay in rows.
    slot:  returns a slot's mapping as it is at the time. replace: replaces it.
    alone: the operator may do something in a tick that has no rows for it.
    limit: on the rows that a tick makes; None for no limit.
    setup: microseconds of a tick in columns, about, whatever its size.
    rows_met: rows of the ticks for which the state was no arrangement yet, since it last became one in vain.
    """

    forms: Mapping[str, SlotForm]
    slot: Callable[[str], SlotMapping]
    replace: Callable[[str, SlotMapping], None]
    alone: bool = False
    limit: TickBudget | None = None
    setup: int = COLUMNS
    rows_met: int = 0
    _new: dict[str, Batch] = field(default_factory=dict["str", "Batch"], init=False)
    _left: dict[str, Sequence[Batch]] = field(default_factory=dict["str", "Sequence[Batch]"], init=False)
    _effects: dict[Any, Callable[[], None]] = field(
        default_factory=dict["Any", "Callable[[], None]"], init=False
    )
    _arranging: dict[str, ArrangedSlot] = field(default_factory=dict["str", ArrangedSlot], init=False)

    @property
    def least(self) -> int:
        """Number of rows whose keys cost as much one by one as in columns, where the state lies there."""
        arranged = (self.arranged(name) for name in self.forms)
        rows = max((slot.rows_per_key for slot in arranged if slot is not None), default=1.0)
        return max(1, int(self.setup / (KEY + ROW * rows)))

    @property
    def are_arranged(self) -> bool:
        """Return whether the state lies in arrangements already."""
        return all(isinstance(self.slot(name), ArrangedSlot | SharedSide) for name in self.forms)

    @property
    def are_new(self) -> bool:
        """Return whether the state comes into arrangements in this tick, unless it is declined."""
        return bool(self._arranging)

    def arranged(self, name: str) -> ArrangedSlot | None:
        """Return a slot that is an arrangement, in this tick at least; None if it is none."""
        if name in self._arranging:
            return self._arranging[name]
        slot = self.slot(name)
        if isinstance(slot, SharedSide):
            return slot.arranged
        return slot if isinstance(slot, ArrangedSlot) else None

    def pays(self, rows: int) -> bool:
        """Return whether arrangements pay, now that there is a tick with this many rows."""
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
        """Bring the state into arrangements. Only if it `pays`.

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
        """Return the limit on the rows that a tick makes."""
        return None if self.limit is None else self.limit.rows

    def spine(self, name: str) -> Spine:
        """Return the arrangement of a slot."""
        slot = self.arranged(name)
        assert slot is not None
        return slot.spine

    def prepare(self, name: str, frame: pl.DataFrame) -> Batch:
        """Make new rows of a slot into a batch, which has no effect until `add`, or another one is made.

        Raises `ColumnarDeclined` if sums might leave 64 bits.
        """
        try:
            batch = self._new[name] = self.spine(name).prepare(frame)
        except SumOverflow as error:
            raise ColumnarDeclined from error
        return batch

    def prepare_batch(self, name: str, batch: Batch, left: Sequence[Batch] | None = None) -> None:
        """Note new rows of a slot, as `prepare` does. left: of its batches, if some are replaced."""
        self._new[name] = batch
        if left is not None:
            self._left[name] = left

    def value(self, name: str) -> Any:
        """Return the one value of a slot that holds no more; None without any."""
        return self.slot(name).get(())

    def prepare_value(self, name: str, value: Any) -> None:
        """Note the next value of such a slot, which has no effect until `add`."""

        def keep() -> None:
            self.slot(name)[()] = value

        self.prepare_effect(name, keep)

    def prepare_effect(self, key: Any, effect: Callable[[], None]) -> None:
        """Note what `add` does at the end. Of one key the last effect counts."""
        self._effects[key] = effect

    def undo(self) -> None:
        """Leave the state as it was before a tick that is declined."""
        if self._arranging:
            # It became arrangements in vain: as many rows as before must pay for the next time.
            self.rows_met = 0
        self.forget()

    def forget(self) -> None:
        """Forget what was prepared."""
        self._new, self._left, self._effects, self._arranging = {}, {}, {}, {}

    def bind(self) -> None:
        """Put arrangements in the places of slots that were none before this tick."""
        arranging, self._arranging = self._arranging, {}
        for name, slot in arranging.items():
            self.replace(name, slot)

    def add(self) -> None:
        """Add a successful tick's new rows to the state, and do what else was prepared."""
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
