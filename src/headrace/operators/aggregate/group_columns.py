"""Groups of an aggregate in columns: as rows of an arrangement, and as lists of rows' accumulators.

A group is its key with sums: the number of its rows, then what its accumulators hold. Values that a group
holds besides are further rows of the arrangement (`held_values`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from headrace.arrangement.batch import Layout, Numbers, Order, concat_frames, group_sums, take
from headrace.arrangement.codes import is_exact
from headrace.columns.column_stream import FEW, ColumnStream, decline_marked
from headrace.columns.columns import FAILS, WEIGHT, ColumnarDeclined
from headrace.columns.slot_forms import SlotForm, key_columns, names_of_keys, one_key
from headrace.expr.polars_columns import dtype_of, repeated, to_series
from headrace.expr.types import INT64
from headrace.operators.aggregate.aggregation import FIRST_FIELD, ROWS, Accumulator
from headrace.operators.aggregate.held_values import CODE, COPIES, PART, HeldValues, filled, of_part
from headrace.operators.aggregate.partial_forms import GroupedRows
from headrace.operators.aggregate.sum_columns import (
    WINDOW,
    ReadFields,
    fields_reader,
    result_of,
    sum_widths,
    sums_of,
    windows_of_fields,
)
from headrace.operators.aggregate.sums import FloatTotals
from headrace.requirements import pl

if TYPE_CHECKING:
    from headrace.expr.types import DataType, Schema


@dataclass(frozen=True)
class GroupColumns:
    """Columns of an aggregate's groups.

    reduction: of a tick's rows to groups, by the accumulators that hold sums alone.
    kept: the accumulators, in order; of those that hold more than sums, the values.
    schema: of the output.
    alike: for the place of an accumulator that of an earlier one that holds the same sums.
    """

    reduction: GroupedRows
    kept: tuple[Accumulator | HeldValues, ...]
    schema: Schema
    alike: Mapping[int, int] = field(default_factory=dict["int", "int"])

    @cached_property
    def held(self) -> tuple[HeldValues, ...]:
        """Return the values that groups keep besides sums."""
        return tuple(each for each in self.kept if isinstance(each, HeldValues))

    @cached_property
    def spans(self) -> tuple[slice, ...]:
        """Return the column span of each accumulator's sums; sums over distinct values are last."""
        found: dict[int, slice] = {}
        at = 1
        for of_held in (False, True):
            for number, each in enumerate(self.kept):
                if number not in self.alike and isinstance(each, HeldValues) == of_held:
                    widths = each.widths if isinstance(each, HeldValues) else sum_widths(each) or ()
                    found[number] = slice(at, at + sum(widths))
                    at += sum(widths)
        return tuple(found[self.alike.get(number, number)] for number in range(len(self.kept)))

    @cached_property
    def sum_names(self) -> tuple[tuple[str, ...], ...]:
        """Return the names of the sums of each field, in their order."""
        own = [each for number, each in enumerate(self.kept) if number not in self.alike]
        plain = [each for each in own if not isinstance(each, HeldValues)]
        widths = [
            *chain.from_iterable(sum_widths(each) or () for each in plain),
            *chain.from_iterable(held.widths for held in self.held),
        ]
        return tuple(tuple(f"s{at}.{part}" for part in range(width)) for at, width in enumerate(widths))

    @cached_property
    def float_spans(self) -> tuple[slice, ...]:
        """Return the column spans of float sums, which may use several windows (see `float_sums`)."""
        own = zip(self.kept, self.spans, strict=True)
        return tuple(span for each, span in own if isinstance(summing(each), FloatTotals))

    @property
    def has_windows(self) -> bool:
        """Return whether sums may use several windows."""
        return bool(self.float_spans)

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        return names_of_keys(len(self.reduction.key_types))

    @cached_property
    def layout(self) -> Layout:
        types = self.reduction.key_types
        keys = dict(zip(self.key_names, map(dtype_of, types), strict=True)) if types else {}
        columns: dict[str, pl.DataType] = keys or {self.key_names[0]: pl.Int64()}
        names, order = self.key_names, list[Order]()
        if self.held:
            columns[PART] = pl.Int8()
            names = (*names, PART)
        if any(held.has_codes for held in self.held):
            columns[CODE] = pl.Int64()
            order.append(Order(CODE, False))
        if self.has_windows:
            columns[WINDOW] = pl.Int8()
            order.append(Order(WINDOW, False))
        for held in self.held:
            for name, type in zip(held.columns, held.types, strict=True):
                if name != CODE:
                    columns[name] = dtype_of(type)
                    order.append(Order(name, held.descending))
        sums = (COPIES, *(name for parts in self.sum_names for name in parts))
        columns |= dict.fromkeys(sums, pl.Int64())
        wide = tuple(parts for parts in self.sum_names if len(parts) > 1)
        return Layout(columns, names, sums, self._nullable, tuple(order), wide)

    @property
    def _nullable(self) -> bool:
        return any(f.nullable for f in self.schema.fields[: len(self.reduction.key_types)])

    def deltas(self, stream: ColumnStream) -> pl.DataFrame:
        """Return the keys and sums of a tick's rows by group, without sums over distinct values.

        Raises `ColumnarDeclined`.
        """
        frame = self._reduce_few(stream) if stream.most < FEW else None
        if frame is None:
            frame = self.reduction.reduce_lazily(stream).collect()
            if FAILS in frame.columns:
                decline_marked(frame)
            if not self.reduction.keys:
                # A group that no row reaches is not touched.
                frame = frame.head(min(1, int(frame.to_series(-1)[0])))
        count = len(self.reduction.keys)
        columns = [frame[name] for name in self.key_names] if count else [one_key(frame.height)]
        columns.append(frame.to_series(count))
        at = count + 1
        for _, partial in self.reduction.parts:
            values = [frame.to_series(at + n) for n in range(len(partial.types))]
            columns += sums_of(partial.accumulator, values)
            at += len(values)
        names = (*self.key_names, *self.layout.sums)
        made = [c.alias(name) for c, name in zip(columns, names, strict=False)]
        if self.has_windows:
            made.append(repeated(0, pl.Int8(), frame.height).alias(WINDOW))
        return pl.DataFrame(made)

    def _reduce_few(self, stream: ColumnStream) -> pl.DataFrame | None:
        """Aggregate few rows with NumPy, faster than by planning a query. None if 64 bits are too few."""
        found = self.reduction.terms(stream)
        if found is None or not len(found[1][0]):
            return None
        own, summands = found
        keys = own or [one_key(len(summands[0]))]
        types = [key.dtype for key in keys]
        made = group_sums(
            keys,
            summands,
            exact=is_exact(types, nullable=any(key.null_count() for key in keys)),
        )
        if made is None:
            return None
        firsts, sums = made
        groups = take(pl.DataFrame(own), firsts).get_columns() if own else []
        return pl.DataFrame([*groups, *(pl.Series(f"v{at}", each) for at, each in enumerate(sums))])

    def answers(
        self, keys: Sequence[pl.Series], sums: Sequence[Numbers], values: Mapping[int, pl.Series]
    ) -> list[pl.Series]:
        """Return the columns of the groups' answers. values: of extremes and sketches, by part.

        Raises `ColumnarDeclined`.
        """
        made = list(keys[: len(self.reduction.keys)])
        for each, span in zip(self.kept, self.spans, strict=True):
            accumulator = summing(each)
            if accumulator is not None:
                made.append(result_of(accumulator)(sums[0], sums[span]))
            elif isinstance(each, HeldValues):
                made.append(values[each.part])
        types = [dtype_of(field.type) for field in self.schema.fields]
        return [
            column.cast(type) if column.dtype != type else column
            for column, type in zip(made, types, strict=True)
        ]


def summing(kept: Accumulator | HeldValues) -> Accumulator | None:
    """Return the accumulator that holds sums; None for extremes and sketches."""
    if isinstance(kept, HeldValues):
        return None if kept.inner is None else kept.inner.accumulator
    return kept


Answer = Callable[[Any, list[Any]], tuple[Any, ...]]
"""Function from a group's key and list, in rows, to its answer."""


@dataclass(frozen=True)
class GroupForm(SlotForm):
    """Form of an aggregate's slot: key -> [rows, last answer, fields...].

    answer: what a group's list, read from its columns, last answered.
    """

    groups: GroupColumns
    answer: Answer

    @property
    def sections(self) -> tuple[int, ...]:
        return tuple(range(1 + len(self.groups.held))) if self.groups.held else ()

    @cached_property
    def _places(self) -> dict[int, list[int]]:
        """Return, per part, the positions of its values in a row, then of their copies."""
        read = [name for name, _ in self.read]
        return {held.part: [*map(read.index, held.columns), len(read)] for held in self.groups.held}

    @cached_property
    def _window_place(self) -> int | None:
        """Return the position of the window in a row; None if all rows are in one window."""
        return next((at for at, (name, _) in enumerate(self.read) if name == WINDOW), None)

    @cached_property
    def _of_windows_alone(self) -> bool:
        """Return whether the window is the only column read from a row besides its sums."""
        return [name for name, _ in self.read] == [WINDOW]

    @cached_property
    def _readers(self) -> tuple[tuple[HeldValues | None, ReadFields | None], ...]:
        """Return, per accumulator, the values it keeps and the reader of its fields from sums."""
        found: list[tuple[HeldValues | None, ReadFields | None]] = []
        for each, span in zip(self.groups.kept, self.groups.spans, strict=True):
            accumulator = summing(each)
            reads = None if accumulator is None else fields_reader(accumulator, span.start)
            found.append((each if isinstance(each, HeldValues) else None, reads))
        return tuple(found)

    def entry(self, key: Any, found: Sequence[tuple[Any, ...]]) -> Any:
        before = len(self.read)
        values: dict[int, list[tuple[Any, ...]]] = {}
        windows: dict[int, Sequence[int]] = {}
        if not before:
            sums = _added(found)
        elif self._of_windows_alone and len(found) == 1 and not found[0][0]:
            sums = found[0][1:]
        else:
            sums, windows, values = self._taken_apart(found)
        group: list[Any] = [sums[0], None]
        for held, reads in self._readers:
            fields = [] if reads is None else reads(sums, windows)
            group += fields if held is None else held.fields(values.get(held.part, ()), fields)
        if group[ROWS] > 0:
            group[1] = self.answer(key, group)
        elif not (
            any(sums) or any(map(any, windows.values())) or any(n for own in values.values() for *_, n in own)
        ):
            return None
        return group

    def _taken_apart(
        self, found: Sequence[tuple[Any, ...]]
    ) -> tuple[Sequence[int], dict[int, Sequence[int]], dict[int, list[tuple[Any, ...]]]]:
        """Split a group's rows into its sums, its sums in other windows, and its held values by part."""
        before, window_at, has_parts = len(self.read), self._window_place, bool(self.groups.held)
        of_windows: dict[int, list[tuple[Any, ...]]] = {}
        values: dict[int, list[tuple[Any, ...]]] = {}
        for row in found:
            if has_parts and row[0]:
                places = self._places[row[0]]
                values.setdefault(row[0], []).append(tuple([row[at] for at in places]))
            else:
                window = 0 if window_at is None else row[window_at]
                of_windows.setdefault(window, []).append(row[before:])
        windows: dict[int, Sequence[int]] = {window: _added(own) for window, own in of_windows.items()}
        return windows.pop(0, None) or (0,) * len(self.groups.layout.sums), windows, values

    def frame(self, entries: Mapping[Any, Any]) -> pl.DataFrame:
        groups, count = self.groups, len(self.groups.layout.sums)
        sums: dict[tuple[Any, int], list[int]] = {}
        values: dict[int, list[tuple[Any, Any, int]]] = {held.part: [] for held in groups.held}
        for number, (key, group) in enumerate(entries.items()):
            sums[number, 0] = [group[ROWS], *[0] * (count - 1)]
            at = FIRST_FIELD
            for each, span in zip(groups.kept, groups.spans, strict=True):
                accumulator, width = summing(each), 0
                if isinstance(each, HeldValues):
                    width = len(each.accumulator.fields()) if accumulator is None else 1
                    values[each.part] += [(key, *one) for one in each.entries(group, at)]
                at += width
                if accumulator is None:
                    continue
                fields = group[at : at + len(accumulator.fields())]
                for window, own in windows_of_fields(accumulator, fields).items():
                    sums.setdefault((number, window), [0] * count)[span] = own
                at += len(fields)
        columns = [[row[at] for row in sums.values()] for at in range(count)]
        keys = list(entries)
        made = _with_sums(self, [keys[number] for number, _ in sums], columns, [w for _, w in sums])
        return concat_frames([made, *(_with_values(self, held, values[held.part]) for held in groups.held)])


def _added(rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Add up rows column by column."""
    return rows[0] if len(rows) == 1 else tuple(map(sum, zip(*rows, strict=True)))


def _with_sums(
    form: GroupForm, keys: list[Any], sums: Sequence[list[int]], windows: list[int]
) -> pl.DataFrame:
    """Return the rows of groups with their sums in some windows.

    Raises `ColumnarDeclined` for one beyond 64 bits.
    """
    layout = form.groups.layout
    try:
        columns = [pl.Series(values, dtype=pl.Int64) for values in sums]
    except (OverflowError, TypeError) as error:
        raise ColumnarDeclined from error
    named = {**_named(form, keys), **dict(zip(layout.sums, columns, strict=True))}
    if form.groups.has_windows:
        named[WINDOW] = pl.Series(windows, dtype=pl.Int8)
    if form.groups.held:
        named[PART] = of_part(0, len(keys))
    return filled(layout, named, len(keys))


def _with_values(form: GroupForm, held: HeldValues, values: list[tuple[Any, Any, int]]) -> pl.DataFrame:
    """Return the rows for the values that groups keep. values: key, value and copies of each."""
    columns = list(_named(form, [key for key, _, _ in values]).values())
    try:
        columns += [
            to_series(type, [value[at] for _, value, _ in values]) for at, type in enumerate(held.types)
        ]
        columns.append(pl.Series([copies for _, _, copies in values], dtype=pl.Int64))
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise ColumnarDeclined from error
    names = [*form.groups.key_names, *(f"v{at}" for at in range(len(held.types))), WEIGHT]
    changes = pl.DataFrame([c.alias(name) for c, name in zip(columns, names, strict=True)])
    return held.rows(form.groups.layout, changes)


def _named(form: GroupForm, keys: list[Any]) -> dict[str, pl.Series]:
    return dict(zip(form.groups.key_names, key_columns(form, keys), strict=True))


def group_form(groups: GroupColumns, answer: Answer) -> GroupForm:
    """Return the form of an aggregate's slot."""
    types = groups.reduction.key_types
    read: list[tuple[str, DataType]] = []
    if groups.held:
        read.append((PART, INT64))
        if CODE in groups.layout.types:
            read.append((CODE, INT64))
    if groups.has_windows:
        read.append((WINDOW, INT64))
    if groups.held:
        for held in groups.held:
            columns = zip(held.columns, held.types, strict=True)
            read += [(name, type) for name, type in columns if name != CODE]
    return GroupForm(groups.layout, types, len(types) == 1, tuple(read), groups, answer)
