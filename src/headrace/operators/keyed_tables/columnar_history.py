"""Histories in large ticks, over an arrangement of each key's moments: the row or deletion at a sequence.

The keys that a tick has records of are fetched by one probe, with all their moments, and answered as they
were and as they are; versions that differ are the output. Keys with several records of one sequence are
looked at one by one, as in rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from headrace.arrangement.batch import (
    Order,
    batch_of,
    concat_frames,
    differing,
    distinct_keys,
    select,
    take,
    values_at,
)
from headrace.columns.column_stream import ColumnStream, build_stream
from headrace.columns.columns import WEIGHT, ColumnarDeclined, Columns, constant_weights, rows_to_columns
from headrace.columns.slot_forms import consolidated
from headrace.expr.polars_columns import from_series
from headrace.expr.types import BYTES, INT8
from headrace.lowering.forms import ArrangedState, ColumnarContext, register_arranged
from headrace.operators.keyed_tables.history import History, KeyHistory, Moment, Version, tracked_values
from headrace.operators.keyed_tables.keyed_records import (
    KIND,
    SEQUENCE,
    TIES,
    OwnRecord,
    RecordKind,
    RecordsPlan,
    TiedForm,
    columns_of_tied,
    decode_tied,
    present_rows,
    record_columns,
    rows_as_columns,
    unlike_next,
    weighted,
)
from headrace.requirements import np, pl

if TYPE_CHECKING:
    from headrace.expr.types import DataType
    from headrace.lowering.forms import ArrangedOperator

_BEFORE, _NEW = WEIGHT, "n"
"""Columns with how often a moment was there before a tick, and how often the tick's records tell it."""


@register_arranged(History)
@dataclass(frozen=True)
class HistoryPlan(RecordsPlan):
    """Plan for a history over frames.

    track: columns of which a change starts a version. tracked: the same of a row.
    """

    track: tuple[str, ...]
    tracked: Callable[[Any], Any]

    @classmethod
    def of(cls, context: ColumnarContext) -> HistoryPlan:
        node, operator = context.node, context.node.operator
        assert isinstance(operator, History)
        columns = record_columns(node, context.schemas[0])
        track = tuple(str(node.schema.names.index(name)) for name in operator.track)
        return cls(node.id, columns, node.schema, track, tracked_values(operator, node.schema))

    @cached_property
    def read(self) -> tuple[tuple[str, DataType], ...]:
        """Columns of a moment, without the key."""
        sequence = (SEQUENCE, self.records.sequence_type)
        return (sequence, (KIND, INT8), *self.records.row, (TIES, BYTES))

    @cached_property
    def form(self) -> HistoryForm:
        types = self.records.key_types
        return HistoryForm(self.layout, types, len(types) == 1, self.read, self.records.row_names)

    def start(self, state: ArrangedState) -> ArrangedOperator:
        return ColumnarHistory(self, state)


@dataclass(frozen=True)
class HistoryForm(TiedForm):
    """Form of a history's slot: key -> its moments in order (see `KeyHistory`).

    In rows, a record looks at its neighbours alone; columns read all moments of the key again.
    """

    reused: ClassVar[int] = 10

    def entry(self, key: Any, found: Sequence[tuple[Any, ...]]) -> Any:
        moments = [_moment(row) for row in consolidated(found)]
        return sorted(moments, key=lambda moment: moment[0]) or None

    def frame(self, entries: Mapping[Any, Any]) -> pl.DataFrame:
        keys = [key for key, moments in entries.items() for _ in moments]
        width = len(self.row)
        rows = [
            (moment[0], *columns_of_tied((*moment[1:], (), ()) if len(moment) == 2 else moment[1:], width))
            for moments in entries.values()
            for moment in moments
        ]
        return rows_as_columns(self, keys, rows)

    def changes(self, before: Mapping[Any, Any], after: Mapping[Any, Any]) -> pl.DataFrame:
        # Of the moments of a key, a tick changes few.
        gone, come = dict[Any, list[Moment]](), dict[Any, list[Moment]]()
        for key in dict.fromkeys((*before, *after)):
            old, new = before.get(key) or (), after.get(key) or ()
            was, is_now = set(old), set(new)
            gone[key] = [moment for moment in old if moment not in is_now]
            come[key] = [moment for moment in new if moment not in was]
        return super().changes(gone, come)


def _moment(row: tuple[Any, ...]) -> Moment:
    sequence, kind, *values, ties = row
    shown, rows, deletions = decode_tied(kind, tuple(values), ties)
    return (sequence, shown, rows, deletions) if rows or deletions else (sequence, shown)


class _Versions(NamedTuple):
    """Versions as positions of moments: the first, the last, and the one that ends the version (-1: none)."""

    start: Any
    last: Any
    end: Any


@dataclass(slots=True)
class ColumnarHistory:
    """History in large ticks."""

    plan: HistoryPlan
    slots: ArrangedState

    def answer(self, inputs: Sequence[ColumnStream]) -> ColumnStream:
        """Return the changes of the keys' versions, key by key, retractions first."""
        plan, layout = self.plan, self.plan.layout
        records = plan.records.computed(inputs[0]).collected()
        moments = self._touched(plan.records.moments(records))
        starts = np.ones(moments.height, np.bool_)
        starts[1:] = unlike_next(moments, layout.keys)
        key = np.cumsum(starts) - 1
        odd = np.isin(key, key[self._odd(moments, starts)])
        if odd.any():
            plain, others = np.flatnonzero(~odd), np.flatnonzero(odd)
            parts = (
                self._plain(take(moments, plain), key[plain]),
                self._one_by_one(take(moments, others), key[others], records),
            )
            delta, changes = map(concat_frames, zip(*parts, strict=True))
        else:
            delta, changes = self._plain(moments, key)
        self.slots.prepare(plan.slot, delta)
        return build_stream(Columns(plan.schema, False, changes))

    def _touched(self, new: pl.DataFrame) -> pl.DataFrame:
        """Return all moments of the keys with new moments, in order within each key."""
        layout = self.plan.layout
        keys = distinct_keys(layout, new)
        held = present_rows(layout, self.slots.spine(self.plan.slot).probe(keys)).rows
        types = {**layout.types, _NEW: pl.Int64()}
        numbers = [
            constant_weights(count, frame.height).alias(name)
            for frame, name, count in ((held, _NEW, 0), (new, _BEFORE, 0), (new, _NEW, 1))
        ]
        both = [held.hstack(numbers[:1]), select(new.hstack(numbers[1:]), types)]
        # Of one sequence, equal moments may not lie side by side. Then others lie between them.
        by = (Order(SEQUENCE, False),)
        return batch_of(
            replace(layout, types=types, sums=(_BEFORE, _NEW), order=by), concat_frames(both)
        ).frame

    def _odd(self, moments: pl.DataFrame, starts: Any) -> Any:
        """Return the positions of moments that require their keys to be processed one by one."""
        kinds = moments[KIND].to_numpy()
        again = ~unlike_next(moments, (SEQUENCE,)) & ~starts[1:]
        times = moments[_BEFORE].to_numpy() + moments[_NEW].to_numpy()
        odd = (kinds > RecordKind.ROW) | self.plan.records.told_again(moments, times)
        odd[1:] |= again
        return np.flatnonzero(odd)

    def _plain(self, moments: pl.DataFrame, key: Any) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the state update and the output changes of keys with one record per sequence."""
        layout = self.plan.layout
        was = moments[_BEFORE].to_numpy() > 0
        old, new = (self._versions(moments, key, at) for at in (np.flatnonzero(was), np.arange(len(was))))
        _, in_old, in_new = np.intersect1d(old.start, new.start, assume_unique=True, return_indices=True)
        alike = old.end[in_old] == new.end[in_new]
        in_old, in_new = in_old[alike], in_new[alike]
        rows = select(moments, self.plan.records.row_names)
        shown = (take(rows, each).get_columns() for each in (old.last[in_old], new.last[in_new]))
        stays = ~differing(*shown)
        gone, come = np.ones(len(old.start), np.bool_), np.ones(len(new.start), np.bool_)
        gone[in_old[stays]] = come[in_new[stays]] = False
        parts = [_Versions(*(each[there] for each in of)) for of, there in ((old, gone), (new, come))]
        changes = concat_frames(
            [self._shown(moments, part, sign) for part, sign in zip(parts, (-1, 1), strict=True)]
        )
        of = [2 * key[part.start] + sign for sign, part in enumerate(parts)]
        order = np.argsort(np.concatenate(of), kind="stable")
        fresh = take(moments, np.flatnonzero(~was))
        return weighted(layout, fresh, 1), take(changes, order)

    def _versions(self, moments: pl.DataFrame, key: Any, places: Any) -> _Versions:
        """Return the versions formed by the moments at `places`, as if there were no others."""
        count = len(places)
        rows = (moments[KIND].to_numpy() == RecordKind.ROW)[places]
        goes_on = np.zeros(count, np.bool_)
        if count:
            own = key[places]
            goes_on[1:] = rows[1:] & rows[:-1] & (own[1:] == own[:-1])
            if self.plan.track:
                tracked = select(moments, self.plan.track)
                whole = tracked if count == moments.height else take(tracked, places)
                goes_on[1:] &= ~unlike_next(whole, self.plan.track)
        first = np.flatnonzero(~goes_on)
        after = np.append(first[1:], count)
        of_rows = rows[first]
        first, after = first[of_rows], after[of_rows]
        there = after < count
        following = np.where(there, after, 0)
        there &= key[places[following]] == key[places[first]]
        return _Versions(places[first], places[after - 1], np.where(there, places[following], -1))

    def _shown(self, moments: pl.DataFrame, versions: _Versions, sign: int) -> pl.DataFrame:
        """Return versions as rows of the output."""
        sequences = moments[SEQUENCE]
        start = take(select(moments, (SEQUENCE,)), versions.start)[SEQUENCE]
        end = values_at(sequences, versions.end, versions.end >= 0)
        rows = take(select(moments, self.plan.records.row_names), versions.last)
        width, signs = rows.width, constant_weights(sign, rows.height)
        return rows.hstack([start.alias(str(width)), end.alias(str(width + 1)), signs])

    def _one_by_one(
        self, moments: pl.DataFrame, key: Any, records: pl.DataFrame
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the same as `_plain` for the other keys. Raises `ColumnarDeclined` for a misfit."""
        plan, form = self.plan, self.plan.form
        _, first, numbers = np.unique(key, return_index=True, return_inverse=True)
        keys = take(select(moments, plan.layout.keys), first)
        there = np.flatnonzero(moments[_BEFORE].to_numpy() > 0)
        held = take(moments, there)
        stored: dict[int, list[Moment]] = {}
        columns = (from_series(type, held[name]) for name, type in plan.read)
        for number, row in zip(numbers[there].tolist(), zip(*columns, strict=True), strict=True):
            stored.setdefault(number, []).append(_moment(row))
        old, new = dict[Any, list[Moment]](), dict[Any, list[Moment]]()
        changes: list[tuple[Any, ...]] = []
        own = plan.records.by_key(records, keys)
        for number, name in enumerate(plan.records.keys_of(keys)):
            old[name] = stored.get(number, [])
            new[name], versions = self._applied(old[name], own[number])
            changes += [(*version, n) for version, n in versions]
        return form.changes(old, new), rows_to_columns(plan.schema, False, changes).frame

    def _applied(
        self, before: list[Moment], records: Sequence[OwnRecord]
    ) -> tuple[list[Moment], list[tuple[Version, int]]]:
        """Apply records to a key; return its moments, and the changes of its versions."""
        ties, texts = self.plan.records.ties, self.plan.records.texts
        history = KeyHistory(before)
        for row, sequence, image in records:
            if history.apply(row, sequence, image, None, ties, texts) is not None:
                raise ColumnarDeclined
        changes = history.changes(ties, self.plan.tracked)
        return history.moments, changes
