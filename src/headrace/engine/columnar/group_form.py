"""Form of an aggregate's slot: groups as rows of an arrangement, and as lists of rows' accumulators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.arrangement.batch import stacked
from headrace.columns.columns import WEIGHT, ColumnarDeclined
from headrace.engine.columnar.aggregate import AggregatePlan, summing
from headrace.engine.columnar.float_sums import WINDOW
from headrace.engine.columnar.held_values import (
    CODE,
    PART,
    HeldValues,
    filled,
    of_part,
)
from headrace.engine.columnar.slot_form import SlotForm, key_columns
from headrace.engine.columnar.sum_columns import (
    ReadFields,
    fields_reader,
    windows_of_fields,
)
from headrace.expr.polars_columns import to_series
from headrace.expr.types import INT64
from headrace.operators.aggregate.accumulator import FIRST_FIELD, ROWS

if TYPE_CHECKING:
    from headrace.expr.types import DataType

Answer = Callable[[Any, list[Any]], tuple[Any, ...]]
"""Function from a group's key and list, in rows, to its answer."""


@dataclass(frozen=True)
class GroupForm(SlotForm):
    """Form of an aggregate's slot: key -> [rows, last answer, fields...].

    answer: what a group's list, read from its columns, last answered.
    """

    plan: AggregatePlan
    answer: Answer

    @property
    def sections(self) -> tuple[int, ...]:
        return tuple(range(1 + len(self.plan.held))) if self.plan.held else ()

    @cached_property
    def _places(self) -> dict[int, list[int]]:
        """Return for each part where its values are in a row, and their copies."""
        read = [name for name, _ in self.read]
        return {held.part: [*map(read.index, held.columns), len(read)] for held in self.plan.held}

    @cached_property
    def _window_place(self) -> int | None:
        """Return where the window of a row is; None if all rows are in one."""
        return next((at for at, (name, _) in enumerate(self.read) if name == WINDOW), None)

    @cached_property
    def _of_windows_alone(self) -> bool:
        """Return whether nothing but the window is read of a row besides its sums."""
        return [name for name, _ in self.read] == [WINDOW]

    @cached_property
    def _readers(self) -> tuple[tuple[HeldValues | None, ReadFields | None], ...]:
        """Return of each accumulator the values that it holds, and how its fields are read from sums."""
        found: list[tuple[HeldValues | None, ReadFields | None]] = []
        for each, span in zip(self.plan.kept, self.plan.spans, strict=True):
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
        """Return a group's sums, those of further windows, and the values that it holds, by part."""
        before, window_at, has_parts = len(self.read), self._window_place, bool(self.plan.held)
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
        return windows.pop(0, None) or (0,) * len(self.plan.layout.sums), windows, values

    def frame(self, entries: Mapping[Any, Any]) -> pl.DataFrame:
        plan, count = self.plan, len(self.plan.layout.sums)
        sums: dict[tuple[Any, int], list[int]] = {}
        values: dict[int, list[tuple[Any, Any, int]]] = {held.part: [] for held in plan.held}
        for number, (key, group) in enumerate(entries.items()):
            sums[number, 0] = [group[ROWS], *[0] * (count - 1)]
            at = FIRST_FIELD
            for each, span in zip(plan.kept, plan.spans, strict=True):
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
        return stacked([made, *(_with_values(self, held, values[held.part]) for held in plan.held)])


def _added(rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the sums of rows."""
    return rows[0] if len(rows) == 1 else tuple(map(sum, zip(*rows, strict=True)))


def _with_sums(
    form: GroupForm, keys: list[Any], sums: Sequence[list[int]], windows: list[int]
) -> pl.DataFrame:
    """Return the rows of groups with their sums in some windows.

    Raises `ColumnarDeclined` for one beyond 64 bits.
    """
    layout = form.plan.layout
    try:
        columns = [pl.Series(values, dtype=pl.Int64) for values in sums]
    except (OverflowError, TypeError) as error:
        raise ColumnarDeclined from error
    named = {**_named(form, keys), **dict(zip(layout.sums, columns, strict=True))}
    if form.plan.has_windows:
        named[WINDOW] = pl.Series(windows, dtype=pl.Int8)
    if form.plan.held:
        named[PART] = of_part(0, len(keys))
    return filled(layout, named, len(keys))


def _with_values(form: GroupForm, held: HeldValues, values: list[tuple[Any, Any, int]]) -> pl.DataFrame:
    """Return the rows of groups with the values that they hold: key, value and copies of each."""
    columns = list(_named(form, [key for key, _, _ in values]).values())
    try:
        columns += [
            to_series(type, [value[at] for _, value, _ in values]) for at, type in enumerate(held.types)
        ]
        columns.append(pl.Series([copies for _, _, copies in values], dtype=pl.Int64))
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise ColumnarDeclined from error
    names = [*form.plan.key_names, *(f"v{at}" for at in range(len(held.types))), WEIGHT]
    changes = pl.DataFrame([c.alias(name) for c, name in zip(columns, names, strict=True)])
    return held.rows(form.plan.layout, changes)


def _named(form: GroupForm, keys: list[Any]) -> dict[str, pl.Series]:
    return dict(zip(form.plan.key_names, key_columns(form, keys), strict=True))


def group_form(plan: AggregatePlan, answer: Answer) -> GroupForm:
    """Return the form of an aggregate's slot."""
    types = plan.groups.key_types
    read: list[tuple[str, DataType]] = []
    if plan.held:
        read.append((PART, INT64))
        if CODE in plan.layout.types:
            read.append((CODE, INT64))
    if plan.has_windows:
        read.append((WINDOW, INT64))
    if plan.held:
        for held in plan.held:
            columns = zip(held.columns, held.types, strict=True)
            read += [(name, type) for name, type in columns if name != CODE]
    return GroupForm(plan.layout, types, len(types) == 1, tuple(read), plan, answer)
