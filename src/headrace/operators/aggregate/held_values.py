"""Values that groups hold in columns, each with its copies: for extremes with retractions, for aggregates of
distinct values, and the codes of sketches.

They are rows of the groups' arrangement beside those with the sums: under the group's key and a part of their
own, in the order of the values, or of the values' codes where they are only looked up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.arrangement.batch import Numbers, differing, select, take
from headrace.arrangement.codes import codes_of
from headrace.arrangement.spine import Probe, Spine, together
from headrace.columns.column_stream import ColumnStream, decline_marked
from headrace.columns.columns import FAILS, WEIGHT, ColumnarDeclined
from headrace.columns.slot_forms import consolidated, names_of_keys
from headrace.expr.check import check
from headrace.expr.polars_columns import LoweredExpression, bounds_in, repeated, replace_negative_zero
from headrace.expr.types import INT64, DataType, IntegerType
from headrace.expr.typing_rules import is_float
from headrace.operators.aggregate.aggregation import Accumulator, accumulator_for
from headrace.operators.aggregate.counts import CountValues, DistinctAccumulator, DistinctValues
from headrace.operators.aggregate.extremes import AppendExtreme, Extreme, ExtremeBy, ends_of
from headrace.operators.aggregate.partial_forms import PartialForm, partial_form
from headrace.operators.aggregate.sketches import CodeCounts
from headrace.operators.aggregate.sum_columns import WINDOW, sum_widths
from headrace.requirements import np, pl

if TYPE_CHECKING:
    from headrace.arrangement.batch import Layout
    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.operators.aggregate.aggregation import Aggregation


Values = tuple[Any, ...]

PART, CODE, COPIES = "part", "code", "rows"
"""Columns of a group's rows: of which part they are, the code of their value where a part has one, and their
copies. Part 0 is one row with the sums of the group."""


@dataclass(frozen=True)
class HeldValues:
    """Values that an accumulator keeps per group.

    part: number of the part of the rows. exprs: of which the values are made.
    types: of the values' columns, as ordered.
    skips: whether rows are passed over that have a null in a column.
    descending: whether the last value comes first.
    inner: sums over the distinct values; None for extremes and sketches.
    """

    part: int
    accumulator: Accumulator
    exprs: tuple[Expr, ...]
    types: tuple[DataType, ...]
    skips: tuple[bool, ...]
    descending: bool
    inner: PartialForm | None

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of the values: the part's own columns, or only the code."""
        if self.is_code:
            return (CODE,)
        return tuple(f"h{self.part}.{at}" for at in range(len(self.types)))

    @property
    def is_code(self) -> bool:
        """Return whether the code of a value is the value itself."""
        return self.has_codes and len(self.types) == 1 and isinstance(self.types[0], IntegerType)

    @property
    def has_codes(self) -> bool:
        """Return whether values are looked up by a code, rather than in their order."""
        return self.inner is not None or isinstance(self.accumulator, CodeCounts)

    @property
    def widths(self) -> tuple[int, ...]:
        """Return, per field of the sums over distinct values, the number of sums that represent it."""
        return () if self.inner is None else sum_widths(self.inner.accumulator) or ()

    def changes(self, stream: ColumnStream, keys: Sequence[Expr]) -> pl.DataFrame:
        """Return the groups and values that rows insert or retract, with the number of copies.

        Raises `ColumnarDeclined`.
        """
        lowered = [stream.lower(expr) for expr in (*keys, *self.exprs)]
        noted = stream.noting(*(one.fails for one in lowered))
        of_keys, of_values = names_of_keys(len(keys)), tuple(f"v{at}" for at in range(len(self.types)))
        made = [
            replace_negative_zero(one.value) if is_float(check(expr, stream.schema).type) else one.value
            for one, expr in zip(lowered, (*keys, *self.exprs), strict=True)
        ]
        if isinstance(self.accumulator, CodeCounts):
            made[len(keys) :] = [self.accumulator.code_column(made[len(keys) :])]
        columns = dict(zip((*of_keys[: len(keys)], *of_values), made, strict=True))
        if not keys:
            columns[of_keys[0]] = pl.lit(0, pl.Int64())
        if stream.append:
            columns[WEIGHT] = pl.lit(1, pl.Int64())
        wanted = [*of_keys, *of_values, WEIGHT]
        frame = noted.frame.with_columns(**columns).select(*wanted, *[FAILS] * noted.checked)
        if noted.checked:
            whole = frame.collect()
            decline_marked(whole)
            frame = whole.drop(FAILS).lazy()
        skipped = [name for name, skips in zip(of_values, self.skips, strict=True) if skips]
        if skipped:
            frame = frame.drop_nulls(skipped)
        return self._grouped(frame, of_keys, of_values).collect()

    def _grouped(self, rows: pl.LazyFrame, keys: Sequence[str], values: Sequence[str]) -> pl.LazyFrame:
        """Count each group's values; if values are never retracted, keep only the first in order."""
        if not isinstance(self.accumulator, AppendExtreme):
            return rows.group_by(*keys, *values).agg(pl.col(WEIGHT).sum()).filter(pl.col(WEIGHT) != 0)
        one = pl.lit(1, pl.Int64()).alias(WEIGHT)
        least = partial_form(self.accumulator)
        if least is not None:
            (best,) = least.values(LoweredExpression(pl.col(values[0])), None, 0)
            return rows.group_by(keys).agg(best.alias(values[0]), one)
        ordered = rows.sort(values, descending=self.descending, nulls_last=self.descending)
        firsts = [pl.col(name).first() for name in values]
        return ordered.group_by(keys, maintain_order=True).agg(*firsts, one)

    def rows(self, layout: Layout, changes: pl.DataFrame) -> pl.DataFrame:
        """Return changes as rows of the groups' arrangement."""
        count, made = changes.height, dict[str, pl.Series]()
        of_keys, of_values = (
            changes.columns[: -len(self.types) - 1],
            changes.columns[-len(self.types) - 1 : -1],
        )
        made.update((name, changes[name]) for name in of_keys)
        made[PART] = of_part(self.part, count)
        made[COPIES] = changes[WEIGHT]
        values = [changes[name] for name in of_values]
        if self.is_code:
            made[CODE] = values[0].cast(pl.Int64)
        else:
            made.update(zip(self.columns, values, strict=True))
            if self.inner is not None:
                made[CODE] = pl.Series(codes_of(values, exact=False))
        return filled(layout, made, count)

    def gone_or_come(self, spine: Spine, rows: pl.DataFrame) -> Numbers:
        """Return, per row, 1 if its value appears, -1 if it disappears, else 0."""
        layout = spine.layout
        probe = Probe.of(layout, layout.keys_of(rows), within=(CODE, rows[CODE].to_numpy()))
        asked, found = together(layout, [probe.find(batch) for batch in spine.batches])
        copies = found[COPIES].to_numpy()
        if not self.is_code and len(asked):
            own = select(take(rows, asked), self.columns).get_columns()
            copies = np.where(differing(own, select(found, self.columns).get_columns()), 0, copies)
        before = np.zeros(rows.height, np.int64)
        np.add.at(before, asked, copies)
        after = before + rows[COPIES].to_numpy()
        return (after > 0).astype(np.int64) - (before > 0)

    def inner_sums(self, keys: Sequence[str], rows: pl.DataFrame, crossed: Numbers) -> pl.DataFrame:
        """Return, per group, the sums over the values that appear or disappear.

        Raises `ColumnarDeclined`.
        """
        inner = self.inner
        assert inner is not None
        at = np.flatnonzero(crossed)
        taken = take(rows, at)
        value, weight = taken[self.columns[0]], pl.col(WEIGHT)
        prepared = inner.prepared(pl.col(self.columns[0]))
        taken = taken.with_columns(pl.Series(WEIGHT, crossed[at]), prepared.alias(self.columns[0]))
        argument = LoweredExpression(pl.col(self.columns[0]), bounds_in(self.types[0], value))
        fails = inner.fails(argument, weight, taken.height)
        if fails is not None and taken.select(fails.any()).item():
            raise ColumnarDeclined
        sums = [each.alias(f"s{n}") for n, each in enumerate(inner.values(argument, weight, taken.height))]
        return taken.lazy().group_by(keys).agg(*sums).collect()

    def entries(self, group: list[Any], at: int) -> list[tuple[Values, int]]:
        """Return the values in a group's list from position `at` on, as ordered, with their copies."""
        if isinstance(self.accumulator, AppendExtreme):
            best = tuple(group[at : at + len(self.exprs)])
            return [(best, 1)] if best[0] is not None else []
        copies: dict[Any, int] = group[at if self.has_codes else at + 1]
        bare = len(self.types) == 1
        return [((value,) if bare else value, count) for value, count in copies.items()]

    def fields(self, found: Sequence[Values], inner: Sequence[Any]) -> list[Any]:
        """Return the fields of a group's list.

        found: values, their copies last. inner: the fields of the sums over distinct values.
        """
        accumulator, counted = self.accumulator, consolidated(found)
        if isinstance(accumulator, AppendExtreme):
            return list(next(iter(counted), (None,) * len(self.exprs)))
        bare = len(self.types) == 1
        copies: dict[Any, int] = {value[0] if bare else value: count for value, count in counted.items()}
        if self.has_codes:
            return [copies, *inner]
        assert isinstance(accumulator, Extreme)
        return [ends_of(copies, accumulator.key(), accumulator.end), copies, {}]


def of_part(part: int, count: int) -> pl.Series:
    """Return a column of `count` rows with the number of a part."""
    return pl.Series(np.full(count, part, np.int8))


def of_copies(copies: int, count: int) -> pl.Series:
    """Return a column of `count` rows with this number of copies."""
    return pl.Series(COPIES, np.full(count, copies, np.int64))


def filled(layout: Layout, columns: Mapping[str, pl.Series], count: int) -> pl.DataFrame:
    """Return rows of a layout, with nulls and zeros in the columns that are not given."""
    made: list[pl.Series] = []
    for name, dtype in layout.types.items():
        column = columns.get(name)
        if column is None:
            number = name in layout.sums or name in (CODE, WINDOW)
            column = repeated(0 if number else None, dtype, count)
        elif column.dtype != dtype:
            column = column.cast(dtype)
        made.append(column.alias(name))
    return pl.DataFrame(made)


def held_values(aggregation: Aggregation, schema: Schema, appends: bool, part: int) -> HeldValues | None:
    """Return the values that an aggregate function keeps; None if none can be kept in columns."""
    accumulator = accumulator_for(aggregation, schema, appends)
    exprs, skips = aggregation.arguments(), aggregation.skips_null()
    types = tuple(typed.type for typed in accumulator.types)
    inner: PartialForm | None = None
    match accumulator:
        case AppendExtreme(sign=sign):
            descending = sign == ">"
        case Extreme(end=end) if type(accumulator) in (Extreme, ExtremeBy):
            descending = end == -1
        case DistinctValues():
            descending, inner = False, partial_form(CountValues(accumulator.types, appends))
        case DistinctAccumulator(of=of):
            descending, inner = False, partial_form(of)
            if inner is None or sum_widths(of) is None:
                return None
        case CodeCounts():
            return HeldValues(part, accumulator, exprs, (INT64,), (True,), False, None)
        case _:
            return None
    if inner is None:
        # The value comes after what it is chosen by.
        exprs, types, skips = exprs[::-1], types[::-1], skips[::-1]
    return HeldValues(part, accumulator, exprs, types, skips, descending, inner)
