"""Upserts in large ticks, over an arrangement of each key's held row.

Without sequences, the last record of a key decides. With sequences, a tick's records are sorted by key and
sequence; the last one of a key is compared with what is held, and where records may delete, the row before it
leaves a digest. Keys with several records of one sequence are looked at one by one, as in rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from headrace.arrangement.batch import (
    Order,
    batch_of,
    concat_frames,
    differing,
    select,
    take,
    values_at,
)
from headrace.arrangement.spine import FoundRows
from headrace.columns.column_stream import ColumnStream, build_stream
from headrace.columns.columns import WEIGHT, ColumnarDeclined, Columns, constant_weights, rows_to_columns
from headrace.columns.slot_forms import SlotForm, consolidated
from headrace.expr.polars_columns import from_series, repeated
from headrace.expr.types import BYTES, INT8
from headrace.lowering.forms import ArrangedState, ColumnarContext, register_arranged
from headrace.operators.event_time.due_calendar import pop_due, schedule_entry
from headrace.operators.keyed_tables.keyed_records import (
    KIND,
    PRESENT,
    SEQUENCE,
    TIES,
    RecordKind,
    RecordsPlan,
    TiedForm,
    columns_of_tied,
    decode_tied,
    divided,
    record_columns,
    rows_as_columns,
    unlike_next,
    weighted,
)
from headrace.operators.keyed_tables.upsert import Upsert, oldest_tombstone
from headrace.operators.keyed_tables.upsert_rule import OnMisfit, Sequenced, shown_row
from headrace.requirements import np, pl

if TYPE_CHECKING:
    from headrace.expr.types import DataType
    from headrace.lowering.forms import ArrangedOperator


OLDER, BEFORE = "older", "before"
"""Columns of the next older sequence with a row, and of the digests of its rows, joined."""

_NEW = "n"


@register_arranged(Upsert)
@dataclass(frozen=True)
class UpsertPlan(RecordsPlan):
    """Plan for an upsert over frames."""

    @classmethod
    def of(cls, context: ColumnarContext) -> UpsertPlan:
        return cls(context.node.id, record_columns(context.node, context.schemas[0]), context.node.schema)

    def beside(self, what: str) -> str:
        """Return the name of a slot."""
        return f"{self.node}.{what}"

    @property
    def sequenced(self) -> bool:
        return self.records.rule.sequence is not None

    @property
    def may_delete(self) -> bool:
        """Return whether held keys may lack a row, or need older sequences and digests."""
        return self.sequenced and self.records.ties.may_delete

    @cached_property
    def read(self) -> tuple[tuple[str, DataType], ...]:
        """Columns held per key."""
        rows = self.records.row
        if not self.sequenced:
            return rows
        sequence = (SEQUENCE, self.records.sequence_type)
        if not self.may_delete:
            return (*rows, sequence)
        older = ((OLDER, self.records.sequence_type), (BEFORE, BYTES))
        return (sequence, (KIND, INT8), *older, *rows, (TIES, BYTES))

    @cached_property
    def form(self) -> SlotForm:
        types = self.records.key_types
        bare = len(types) == 1
        if self.may_delete:
            return SequencedForm(self.layout, types, bare, self.read, self.records.row_names)
        return RowForm(self.layout, types, bare, self.read, self.sequenced)

    def start(self, state: ArrangedState) -> ArrangedOperator:
        return ColumnarUpsert(self, state)


@dataclass(frozen=True)
class RowForm(SlotForm):
    """Form of the slot of an upsert that keeps no deletions: key -> row, or (sequence, row)."""

    sequenced: bool

    def entry(self, key: Any, found: Sequence[tuple[Any, ...]]) -> Any:
        row = next(iter(consolidated(found)), None)
        return (row[-1], row[:-1]) if self.sequenced and row is not None else row

    def frame(self, entries: Mapping[Any, Any]) -> pl.DataFrame:
        held = (
            [(*row, sequence) for sequence, row in entries.values()] if self.sequenced else entries.values()
        )
        return rows_as_columns(self, list(entries), list(held))


@dataclass(frozen=True)
class SequencedForm(TiedForm):
    """Form of the slot of an upsert by sequence, with records that may delete (see `Sequenced`)."""

    def entry(self, key: Any, found: Sequence[tuple[Any, ...]]) -> Any:
        row = next(iter(consolidated(found)), None)
        if row is None:
            return None
        sequence, kind, older_at, before, *values, ties = row
        tied = decode_tied(kind, tuple(values), ties)
        older = None if older_at is None else (older_at, divided(before))
        if tied[1] or tied[2]:
            return sequence, shown_row(tied), older, *tied
        return (sequence, tied[0]) if older is None else (sequence, tied[0], older)

    def frame(self, entries: Mapping[Any, Any]) -> pl.DataFrame:
        rows: list[tuple[Any, ...]] = []
        for sequence, shown, *more in entries.values():
            older, *tied = more or [None]
            kind, *others = columns_of_tied(tuple(tied) if tied else (shown, (), ()), len(self.row))  # type: ignore[arg-type]
            digests = (None, None) if older is None else (older[0], b"".join(older[1]))
            rows.append((sequence, kind, *digests, *others))
        return rows_as_columns(self, list(entries), rows)


@dataclass(slots=True)
class ColumnarUpsert:
    """Upsert in large ticks."""

    plan: UpsertPlan
    slots: ArrangedState

    def answer(self, inputs: Sequence[ColumnStream]) -> ColumnStream:
        """Return the changes to the table's rows made by this tick's records."""
        plan = self.plan
        records = plan.records.computed(inputs[0]).collected()
        delta, changes = self._sequenced(records) if plan.sequenced else self._in_order(records)
        self.slots.prepare(plan.slot, delta)
        if plan.records.rule.tombstones is not None:
            highest = self._highest(inputs[1].collected()["0"])
            self.slots.prepare_effect("tombstones", partial(self._forget, highest, self._deleted(delta)))
        return build_stream(Columns(plan.schema, False, changes))

    def _in_order(self, records: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the changes of the state and of the rows, keys in the order of their records."""
        plan, layout = self.plan, self.plan.layout
        last = records.group_by(list(layout.keys), maintain_order=True).last()
        held_of, held = _last_rows(self.slots.spine(plan.slot).probe(layout.keys_of(last)))
        known = np.full(last.height, -1, np.int64)  # of each key, the place of what is held
        known[held_of] = np.arange(len(held_of))
        both = np.flatnonzero(known >= 0)
        names = plan.records.row_names
        pairs = (select(take(*of), names).get_columns() for of in ((last, both), (held, known[both])))
        stays = ~differing(*pairs)
        sets = np.ones(last.height, np.bool_)
        if PRESENT in last.columns:
            sets = last[PRESENT].to_numpy().copy()
            stays &= sets[both]
        sets[both[stays]] = False
        gone, come = both[~stays], np.flatnonzero(sets)
        delta = concat_frames(
            [weighted(layout, take(held, known[gone]), -1), weighted(layout, take(last, come), 1)]
        )
        order = np.argsort(np.concatenate((2 * gone, 2 * come + 1)), kind="stable")
        return delta, take(select(delta, (*names, WEIGHT)), order)

    def _sequenced(self, records: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the changes of the state and of the rows. Raises `ColumnarDeclined`."""
        plan, layout = self.plan, self.plan.layout
        tick = self._sorted(plan.records.moments(records))
        starts = np.ones(tick.height, np.bool_)
        starts[1:] = unlike_next(tick, layout.keys)
        first = np.flatnonzero(starts)
        last = np.append(first[1:], tick.height)[: len(first)] - 1
        keys = take(select(tick, layout.keys), first)
        held_of, held = _last_rows(self.slots.spine(plan.slot).probe(keys.get_columns()))
        known = np.full(keys.height, -1, np.int64)
        known[held_of] = np.arange(len(held_of))
        of = _Keys(plan, tick, first, last, self._whole(held), known)
        odd = of.odd()
        delta, changes = of.plain(np.flatnonzero(~odd))
        if odd.any():
            places = np.flatnonzero(odd)
            own_held = take(held, known[places[known[places] >= 0]])
            own, shown = self._one_by_one(take(keys, places), own_held, records)
            delta, changes = concat_frames([delta, own]), concat_frames([changes, shown])
        return delta, changes

    def _sorted(self, moments: pl.DataFrame) -> pl.DataFrame:
        """Return the moments of a tick, sorted by key and sequence, with most equal moments merged."""
        moments = moments.hstack([constant_weights(1, moments.height).alias(_NEW)])
        types = {name: moments.schema[name] for name in moments.columns}
        by = (Order(SEQUENCE, False),)
        layout = replace(self.plan.layout, types=types, sums=(_NEW,), order=by)
        return batch_of(layout, moments).frame

    def _whole(self, held: pl.DataFrame) -> pl.DataFrame:
        """Add the columns that are not stored if no record deletes."""
        if self.plan.may_delete:
            return held
        kinds = repeated(RecordKind.ROW, pl.Int8(), held.height).alias(KIND)
        nulls = ((OLDER, held.schema[SEQUENCE]), (BEFORE, pl.Binary()), (TIES, pl.Binary()))
        return held.hstack([kinds, *(repeated(None, type, held.height).alias(n) for n, type in nulls)])

    def _one_by_one(
        self, keys: pl.DataFrame, held: pl.DataFrame, records: pl.DataFrame
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the changes of some keys, computed row by row. Raises `ColumnarDeclined` for a misfit."""
        plan, form = self.plan, self.plan.form
        rule, ties, texts = plan.records.rule, plan.records.ties, plan.records.texts
        columns = zip(*(from_series(type, held[name]) for name, type in plan.read), strict=True)
        names = plan.records.keys_of(held)
        stored = {name: form.entry(name, [(*row, 1)]) for name, row in zip(names, columns, strict=True)}
        gone, come = dict[Any, Any](), dict[Any, Any]()
        changes: list[tuple[Any, ...]] = []
        own = plan.records.by_key(records, keys)
        for number, name in enumerate(plan.records.keys_of(keys)):
            key = Sequenced(stored.get(name))
            for row, sequence, image in own[number]:
                misfit = key.apply(row, sequence, image, None, ties, texts)
                if misfit is not None and rule.on_misfit is not OnMisfit.DEAD_LETTER:
                    raise ColumnarDeclined
            kept = key.to_stored(ties)
            if kept != key.stored:
                come[name] = kept
                if key.stored is not None:
                    gone[name] = key.stored
            if key.before != key.shown:
                both = ((key.before, -1), (key.shown, 1))
                changes += [(*row, weight) for row, weight in both if row is not None]
        return form.changes(gone, come), rows_to_columns(plan.schema, False, changes).frame

    # -- tombstones --------------------------------------------------------------------------------

    def _highest(self, sequences: pl.Series) -> Any:
        """Return the highest sequence of all keys after a tick."""
        before = self.slots.value(self.plan.beside("highest"))
        found = sequences.drop_nulls()
        if not len(found):
            return before
        (latest,) = from_series(self.plan.records.sequence_type, found.sort().tail(1))
        return latest if before is None or latest > before else before

    def _deleted(self, delta: pl.DataFrame) -> list[tuple[Any, Any]]:
        """Return sequence and key of each key that a tick leaves without a visible row."""
        if not self.plan.may_delete:
            return []
        kinds = delta[KIND].to_numpy()
        shown = (kinds == RecordKind.ROW) | (kinds == RecordKind.AMONG)
        rows = take(delta, np.flatnonzero((delta[WEIGHT].to_numpy() > 0) & ~shown))
        sequences = from_series(self.plan.records.sequence_type, rows[SEQUENCE])
        return list(zip(sequences, self.plan.records.keys_of(rows), strict=True))

    def _forget(self, highest: Any, deleted: list[tuple[Any, Any]]) -> None:
        """Schedule tombstones in the calendar, and drop tombstones too far below the highest sequence."""
        plan, slot = self.plan, self.slots.slot
        calendar, counts, due = (slot(plan.beside(what)) for what in ("calendar", "counts", "due"))
        for sequence, key in deleted:
            schedule_entry(calendar, counts, due, sequence, key)
        if highest is None:
            return
        slot(plan.beside("highest"))[()] = highest
        oldest = oldest_tombstone(plan.records.rule, plan.records.records)(highest)
        rows: Any = slot(plan.slot)
        for at, key in pop_due(calendar, counts, due, oldest, before=True):
            stored = rows.get(key)
            if stored is not None and stored[1] is None and stored[0] == at:
                del rows[key]


@dataclass(slots=True)
class _Keys:
    """The keys of a tick's records that have sequences.

    tick: the records by key and sequence. first, last: of each key the places of its records. held: what is
    held of keys, and `known` of each key its place, or -1.
    """

    plan: UpsertPlan
    tick: pl.DataFrame
    first: Any
    last: Any
    held: pl.DataFrame
    known: Any

    def odd(self) -> Any:
        """Return which keys must be processed one by one."""
        odd = np.zeros(len(self.first), np.bool_)
        if not self.tick.height:
            return odd
        kinds = self.tick[KIND].to_numpy()
        of = np.repeat(np.arange(len(self.first)), self.last - self.first + 1)
        again = np.flatnonzero(~unlike_next(self.tick, (SEQUENCE,)) & (of[1:] == of[:-1]))
        odd[of[again]] = True
        odd[of[self.plan.records.told_again(self.tick, self.tick[_NEW].to_numpy())]] = True
        held_of = np.flatnonzero(self.known >= 0)
        odd[held_of] |= self.held[KIND].to_numpy()[self.known[held_of]] > RecordKind.ROW
        at = np.flatnonzero(self.known[of] >= 0)
        of_held = self.known[of[at]]
        own = take(select(self.tick, (SEQUENCE,)), at)[SEQUENCE]
        held = take(select(self.held, (SEQUENCE, OLDER)), of_held)
        both = np.flatnonzero(_holds(own == held[SEQUENCE]))
        if len(both):
            names = (KIND, *self.plan.records.row_names)
            places = ((self.tick, at[both]), (self.held, of_held[both]))
            pairs = (take(select(frame, names), each).get_columns() for frame, each in places)
            differs = differing(*pairs) | (kinds[at[both]] != RecordKind.ROW)
            odd[of[at[both[differs]]]] = True
        odd[of[at[_holds(own == held[OLDER])]]] = True
        return odd

    def plain(self, keys: Any) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the changes of the state and of the rows of keys with one record per sequence."""
        plan, layout = self.plan, self.plan.layout
        rows = plan.records.row_names
        top, known = take(self.tick, self.last[keys]), self.known[keys]
        has_held = known >= 0
        if has_held.all():
            held = take(self.held, known)
        else:
            held = pl.DataFrame([values_at(each, known, has_held) for each in self.held])
        takes = ~has_held | _holds(top[SEQUENCE] > held[SEQUENCE])
        was, is_row = (_holds(each[KIND] == RecordKind.ROW) for each in (held, top))
        now = {name: _either(top[name], held[name], takes) for name in (SEQUENCE, KIND, *rows, TIES)}
        changes = takes
        if plan.records.digests:
            now[OLDER], now[BEFORE], renewed = self._older(keys, held, takes, was & takes)
            changes = takes | renewed
        else:
            now |= {name: held[name] for name in (OLDER, BEFORE)}
        changed = np.flatnonzero(changes)
        new = select(top, layout.keys).hstack([now[name].alias(name) for name, _ in plan.read])
        gone = take(self.held, known[changed[has_held[changed]]])
        delta = concat_frames([weighted(layout, gone, -1), weighted(layout, take(new, changed), 1)])
        both = np.flatnonzero(takes & was & is_row)
        pairs = (select(take(frame, both), rows).get_columns() for frame in (held, top))
        shows = takes.copy()
        shows[both[~differing(*pairs)]] = False
        goes, comes = np.flatnonzero(shows & was), np.flatnonzero(shows & is_row)
        parts = [
            select(take(frame, at), rows).hstack([constant_weights(sign, len(at))])
            for frame, at, sign in ((held, goes, -1), (top, comes, 1))
        ]
        order = np.argsort(np.concatenate((2 * goes, 2 * comes + 1)), kind="stable")
        return delta, take(concat_frames(parts), order)

    def _older(
        self, keys: Any, held: pl.DataFrame, takes: Any, leaves: Any
    ) -> tuple[pl.Series, pl.Series, Any]:
        """Return the next older sequence of keys and its digest, and which keys have a new older record.

        takes: of which keys a record of the tick is the last one. leaves: of which a row that was held gives
        way to it.
        """
        places = np.arange(self.tick.height)
        latest = np.maximum.accumulate(np.where(self.tick[KIND].to_numpy() == RecordKind.ROW, places, -1))
        # The last record of a key is older only than a held one.
        top = take(select(self.tick, (SEQUENCE,)), self.last[keys])[SEQUENCE]
        decides = takes | _holds(top == held[SEQUENCE])
        first, until = self.first[keys], self.last[keys] - decides
        found = np.where(until >= first, latest[until], -1)
        there = found >= first
        sequence = values_at(self.tick[SEQUENCE], found, there)
        older = _either(held[SEQUENCE], held[OLDER], leaves)
        wins = there & (older.is_null().to_numpy() | _holds(sequence > older))
        before = held[BEFORE]
        for frame, of, at in ((self.tick, found, wins), (held, np.arange(len(keys)), leaves & ~wins)):
            numbers = np.flatnonzero(at)
            if len(numbers):
                rows = select(frame, self.plan.records.row_names)
                digests = self.plan.records.digests_of(take(rows, of[numbers]))
                before = before.scatter(numbers, pl.Series(digests, dtype=pl.Binary()))
        return _either(sequence, older, wins), before, wins & ~takes


def _last_rows(found: FoundRows) -> FoundRows:
    """Return each key's current row among the rows found, which are in the order of the batches.

    A row is taken back before another one takes its place. So the last one that was set is there, if any is.
    """
    asked, rows = found
    weights = rows[WEIGHT].to_numpy()
    if not rows.height or weights.min() > 0:
        return found
    total = np.bincount(asked, weights)
    last = np.full(len(total), -1)
    came = np.flatnonzero(weights > 0)
    last[asked[came]] = came
    keys = np.flatnonzero(total > 0)
    return FoundRows(keys, take(rows, last[keys]))


def _holds(condition: pl.Series) -> Any:
    """Return the mask of a condition; null counts as false."""
    # A null is filled by a plan, which takes longer.
    return condition.cast(pl.Int8).to_numpy() == 1 if condition.null_count() else condition.to_numpy()


def _either(ones: pl.Series, others: pl.Series, first: Any) -> pl.Series:
    """Choose one value of each pair: the one of `ones` if `first`."""
    return ones if first.all() else ones.zip_with(pl.Series(first), others)
