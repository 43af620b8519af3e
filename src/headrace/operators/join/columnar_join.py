"""Joins in large ticks, over the arrangements of both sides.

With L, R before a tick of new rows l, r the answer of an inner join is  l x R  +  (L + l) x r. Left, semi and
anti joins depend on whether a left row has matches: with R' after the tick, their answer changes by what l
meets in R', and by the rows of L whose matches begin or end with r. Small ticks read and write the same state
in rows (`ArrangedSlot`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from headrace.arrangement.batch import (
    Layout,
    SortedBatch,
    batch_of,
    concat_frames,
    distinct_keys,
    negated,
    select,
    sorted_codes,
    take,
)
from headrace.arrangement.spine import FoundRows, Probe, Spine, together
from headrace.columns.column_stream import (
    ColumnStream,
    build_stream,
    copies_in,
    decline_marked,
    each_copy,
    empty_stream,
)
from headrace.columns.columns import (
    FAILS,
    WEIGHT,
    ColumnarDeclined,
    Columns,
    constant_weights,
    rows_to_columns,
)
from headrace.columns.expressions import reads_columns
from headrace.columns.slot_forms import BagForm, CountForm, SlotForm, Values, consolidated, key_names
from headrace.expr.check import TypeAndNullability, check
from headrace.expr.polars_columns import LoweredExpression, NotLowered, dtype_of
from headrace.expr.tree import Expr
from headrace.expr.types import DataType, Schema
from headrace.expr.typing_rules import is_float
from headrace.lowering.forms import ArrangedPlan, ArrangedState, ColumnarContext, register_arranged
from headrace.operators.join.join import SIDES, How, Join
from headrace.operators.join.steps import JoinConditionWriter
from headrace.operators.lifetime import Lifetime
from headrace.requirements import np, pl

if TYPE_CHECKING:
    from headrace.arrangement.batch import Numbers
    from headrace.graph.node import Node
    from headrace.lowering.forms import ArrangedOperator
    from headrace.lowering.slot import SlotMapping
    from headrace.lowering.step_writer import StepWriter


@register_arranged(Join)
@dataclass(frozen=True)
class JoinPlan(ArrangedPlan):
    """Plan for a join over frames.

    schemas, appends: of the two inputs. pairs: the columns of both, under the residual's names.
    schema, append: of the output.
    """

    runs_in_loops = True
    pairs_rows = True
    node: int
    operator: Join
    schemas: tuple[Schema, Schema]
    appends: tuple[bool, bool]
    pairs: Schema
    schema: Schema
    append: bool

    @classmethod
    def of(cls, context: ColumnarContext) -> JoinPlan:
        operator, (left, right) = context.node.operator, context.schemas
        assert isinstance(operator, Join)
        if Lifetime.TICK in operator.lifetimes:
            raise NotLowered("it answers each tick for itself")
        appends, output = (context.appends[0], context.appends[1]), context.node.schema
        of_pairs = operator.pair_schema([left, right])
        plan = cls(context.node.id, operator, (left, right), appends, of_pairs, output, context.append)
        for port in (0, 1):
            if any(map(is_float, plan.key_types(port))):
                raise NotLowered("a join on floats works on rows")
            if not all(map(reads_columns, plan.keys[port])):
                raise NotLowered("a join on a constant works on rows")
            plan.add_keys(port, empty_stream(plan.schemas[port], plan.appends[port]))
            # Lists are carried on, but not held.
            plan.layout(port)
        pairs = empty_stream(plan.pairs, plan.append)
        if operator.how is How.INNER:
            plan.output(pairs)
        elif operator.residual is not None:
            pairs.lower(operator.residual)
        return plan

    def slots(self) -> tuple[str, str]:
        """Return the names of the sides' slots."""
        return f"{self.node}.{SIDES[0]}", f"{self.node}.{SIDES[1]}"

    def write_reader(self, node: Node, writer: StepWriter, name: str) -> None:
        if self.operator.how is How.INNER:
            return
        rows, code = JoinConditionWriter(node, writer, self.operator), writer.code
        with code.block(f"def {name}(row, others):"):
            code.line("matches = 0")
            columns = writer.unpack(rows.schemas[0], "row")
            with code.block("for other, n in others.items():"):
                pair = columns + writer.unpack(rows.schemas[1], "other")
                with rows.where_residual(pair):
                    code.line("matches += n")
            code.line("return matches")

    def slot_forms(
        self, read: Callable[..., Any] | None, slot: Callable[[str], SlotMapping]
    ) -> dict[str, SlotForm]:
        left, right = self.slots()
        if self.operator.how is How.INNER:
            one, other = (self._side_form(port, append=self.appends[port]) for port in (0, 1))
            return {left: one, right: other}
        rows = self._side_form(0, append=False)
        if not self.counts_matches:
            keys = self.key_types(1)
            return {left: rows, right: CountForm(self.counts_layout(1), keys, len(keys) == 1, ())}
        assert read is not None

        def others(key: Any) -> Any:
            return slot(right).get(key)

        form = MatchedForm(rows.layout, rows.keys, rows.bare, rows.read, self, 0, False, others, read)
        return {left: form, right: self._side_form(1, append=False)}

    def _side_form(self, port: int, *, append: bool) -> JoinSideForm:
        """Return the form of a side's slot. append: its entries are lists."""
        keys = self.key_types(port)
        read = tuple((str(at), field.type) for at, field in enumerate(self.schemas[port].fields))
        return JoinSideForm(self.layout(port), keys, len(keys) == 1, read, self, port, append)

    @property
    def counts_matches(self) -> bool:
        """Return whether the slots count each left row's matches, instead of only rows by key."""
        return self.operator.how is How.LEFT or self.operator.residual is not None

    def start(self, state: ArrangedState) -> ArrangedOperator:
        inner = self.operator.how is How.INNER
        return ColumnarJoin(self, state) if inner else ColumnarMatchedJoin(self, state)

    @property
    def keys(self) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        return self.operator.left_keys, self.operator.right_keys

    def key_names(self, port: int) -> tuple[str, ...]:
        """Return a side's key columns: row columns, or extra ones for computed keys."""
        return self._key_names[port]

    @cached_property
    def _key_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self._names_of(0), self._names_of(1)

    def _names_of(self, port: int) -> tuple[str, ...]:
        return key_names(self.keys[port], self.schemas[port])

    def layout(self, port: int) -> Layout:
        """Return the layout of a side's arrangement. Rows without a key are not stored."""
        rows = {str(at): dtype_of(field.type) for at, field in enumerate(self.schemas[port].fields)}
        keys = self._keys_of(port)
        return Layout({**rows, **keys, WEIGHT: pl.Int64()}, tuple(keys), (WEIGHT,), nullable=False)

    def counts_layout(self, port: int) -> Layout:
        """Return the layout of a side's row counts by key."""
        keys = self._keys_of(port)
        return Layout({**keys, WEIGHT: pl.Int64()}, tuple(keys), (WEIGHT,), nullable=False)

    def _keys_of(self, port: int) -> dict[str, pl.DataType]:
        types = list(map(dtype_of, self.key_types(port))) or [pl.Int64()]
        return dict(zip(self.key_names(port), types, strict=True))

    def add_keys(self, port: int, stream: ColumnStream, *, nulls: bool = False) -> ColumnStream:
        """Add a side's computed keys and missing weights. nulls: keep rows with a null in a key."""
        whole = stream.at_hand
        if whole is not None and self.keys[port] and not any(n.startswith("k") for n in self.key_names(port)):
            nullable = () if nulls else self.nullable_keys(port)
            if not any(whole[name].null_count() for name in nullable):
                return self._weighted(stream, whole)
        lowered = [stream.lower(expr) for expr in self.keys[port]]
        noted = stream.noting(*(one.fails for one in lowered))
        names = self.key_names(port)
        computed = [
            one.value.alias(name) for name, one in zip(names, lowered, strict=False) if name.startswith("k")
        ]
        if not self.keys[port]:
            computed.append(pl.lit(0, pl.Int64()).alias(names[0]))
        if stream.append:
            computed.append(pl.lit(1, pl.Int64()).alias(WEIGHT))
        keyed = noted.frame.with_columns(computed)
        nullable = self.nullable_keys(port)
        if nullable and not nulls:
            present = pl.all_horizontal(*(pl.col(name).is_not_null() for name in nullable))
            keyed = keyed.filter(present | pl.col(FAILS) if noted.checked else present)
        return replace(noted, frame=keyed)

    @staticmethod
    def _weighted(stream: ColumnStream, whole: pl.DataFrame) -> ColumnStream:
        """Add missing weights to rows that are computed already."""
        if not stream.append:
            return stream
        ones = constant_weights(1, whole.height)
        return ColumnStream.of_frame(
            stream.schema, stream.append, whole.hstack([ones]), stream.columns, stream.copies
        )

    def nullable_keys(self, port: int) -> tuple[str, ...]:
        """Return the columns of a side's keys that may be null."""
        return self._nullable_keys[port]

    @cached_property
    def _nullable_keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        one, other = (
            tuple(name for name, of in zip(names, checked, strict=False) if of.nullable)
            for names, checked in zip(self._key_names, self._checked, strict=True)
        )
        return one, other

    def key_types(self, port: int) -> tuple[DataType, ...]:
        """Return the types of a side's keys."""
        return tuple(of.type for of in self._checked[port])

    @cached_property
    def _checked(self) -> tuple[tuple[TypeAndNullability, ...], ...]:
        sides = zip(self.keys, self.schemas, strict=True)
        return tuple(tuple(check(expr, schema) for expr in keys) for keys, schema in sides)

    def columns_of_pairs(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Put the columns of two sides side by side."""
        width = len(self.schemas[0].fields)
        columns = [left[str(at)] for at in range(width)]
        columns += [right[str(at)].alias(str(width + at)) for at in range(len(self.schemas[1].fields))]
        return pl.DataFrame(columns)

    @cached_property
    def taken(self) -> tuple[int, ...]:
        """Positions of the output's columns in a pair."""
        width = len(self.schemas[0].fields)
        return (*range(width), *(width + at for at in self.operator.kept_right))

    def pair_rows(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Put the rows of two sides side by side, with their weights."""
        pairs = self.columns_of_pairs(left, right)
        weights = left[WEIGHT] * right[WEIGHT]
        weighted = pairs.hstack([weights])
        return each_copy(weighted) if self.append else weighted

    def output(self, pairs: ColumnStream) -> ColumnStream:
        """Convert pairs to output rows."""
        residual = self.operator.residual
        if residual is not None:
            lowered = pairs.lower(residual)
            pairs = pairs.noting(lowered.fails)
            passes = lowered.value
            if pairs.checked:
                passes = passes.fill_null(False) | pl.col(FAILS)
            pairs = replace(pairs, frame=pairs.frame.filter(passes))
        taken = pairs.taking(self.schema, self.append, self.taken)
        if taken is not None:
            return taken
        known = tuple(
            LoweredExpression(pl.col(str(to)), pairs.columns[at].bounds) for to, at in enumerate(self.taken)
        )
        columns = [pl.col(str(at)).alias(str(to)) for to, at in enumerate(self.taken)]
        beside = [*([] if self.append else [WEIGHT]), *([FAILS] if pairs.checked else [])]
        frame = pairs.frame.select(*columns, *beside)
        return ColumnStream(self.schema, self.append, frame, known, pairs.most, pairs.copies, pairs.checked)


@dataclass(frozen=True)
class JoinSideForm(BagForm):
    """Form of a join side's slot: key -> rows, a list if they are never retracted, else with weights."""

    plan: JoinPlan
    port: int
    append: bool

    @property
    def grows(self) -> bool:
        return self.append

    def entry(self, key: Any, found: Sequence[tuple[Any, ...]]) -> Any:
        if self.append:
            # Rows that are all key are there once, with the number of their copies.
            return [row[:-1] for row in found for _ in range(row[-1])] or None
        return consolidated(found) or None

    def rows_of(self, entry: Any) -> Iterable[tuple[Values, int]]:
        return cast("dict[Values, int]", entry).items() if isinstance(entry, dict) else zip(entry, repeat(1))

    def weighted(self, rows: list[Values]) -> pl.DataFrame:
        stream = build_stream(rows_to_columns(self.plan.schemas[self.port], False, rows))
        return self.plan.add_keys(self.port, stream).unmarked()


class ColumnarJoin:
    """Join in large ticks, over an arrangement of each side, which small ticks read as slots.

    slots: of the sides, in order.
    """

    def __init__(self, plan: JoinPlan, slots: ArrangedState) -> None:
        self.plan = plan
        self.slots = slots

    def answer(self, inputs: Sequence[ColumnStream]) -> ColumnStream:
        """Return the output caused by new rows on either side.

        Raises `ColumnarDeclined` if weights are too large to add or to multiply.
        """
        plan = self.plan
        news = [plan.add_keys(port, side).collected() for port, side in enumerate(inputs)]
        left, right = spines = list(map(self.slots.spine, self.slots.forms))
        new = [self.slots.prepare(name, rows) for name, rows in zip(self.slots.forms, news, strict=True)]
        totals = [s.bounds[0] + batch.bounds[0] for s, batch in zip(spines, new, strict=True)]
        if totals[0] * totals[1] >= 2**62:
            raise ColumnarDeclined
        pairs: list[pl.DataFrame] = []
        if len(new[0]) and right.batches:
            pairs.append(self._pairs(new[0], right.batches, spines, 0))
        if len(new[1]) and (held := [batch for batch in (*left.batches, new[0]) if len(batch)]):
            pairs.append(self._pairs(new[1], held, spines, 1))
        frame = concat_frames(pairs) if pairs else empty_stream(plan.pairs, plan.append).frame.collect()
        return plan.output(build_stream(Columns(plan.pairs, plan.append, frame)))

    def _pairs(
        self, asking: SortedBatch, held: Sequence[SortedBatch], spines: Sequence[Spine], port: int
    ) -> pl.DataFrame:
        """Pair new rows of a side with those of the other. spines: of both sides."""
        own, layout = spines[port].layout, spines[1 - port].layout
        keys = select(asking.frame, self.plan.key_names(port)).get_columns()
        if own.exact == layout.exact:
            # Rows that are sorted already are found fastest.
            probe = Probe(layout, keys, asking.codes, None, self.slots.most)
        else:
            # An index that is shared may hold keys that are null.
            probe = Probe.of(layout, keys, self.slots.most)
        found = together(self.plan.layout(1 - port), [probe.find(batch) for batch in held])
        order, asked = sorted_codes(found.asked)
        rows = take(asking.frame, asked)
        others = found.rows if order is None else take(found.rows, order)
        return self.plan.pair_rows(rows, others) if port == 0 else self.plan.pair_rows(others, rows)


Matches: TypeAlias = Callable[[Any, Mapping[Any, int]], int]
"""Function from a left row and the right rows of its key to the number of those it matches."""


@dataclass(frozen=True)
class MatchedForm(JoinSideForm):
    """Form of the left slot: key -> {row: [copies, matches]}.

    right: returns the right rows of a key. matches: counts those that match a row.
    """

    right: Callable[[Any], Any]
    matches: Matches

    def entry(self, key: Any, found: Sequence[tuple[Any, ...]]) -> Any:
        rows = super().entry(key, found)
        if rows is None:
            return None
        others: Mapping[Any, int] = self.right(key) or {}
        return {row: [copies, self.matches(row, others)] for row, copies in rows.items()}

    def rows_of(self, entry: Any) -> Iterable[tuple[Values, int]]:
        return ((row, copies) for row, (copies, _) in entry.items())


@dataclass(slots=True)
class ColumnarMatchedJoin:
    """Left, semi or anti join in large ticks. slots: of the sides, in order."""

    plan: JoinPlan
    slots: ArrangedState

    def answer(self, inputs: Sequence[ColumnStream]) -> ColumnStream:
        """Return the output caused by new rows on either side. Raises `ColumnarDeclined`."""
        plan = self.plan
        unkeyed, lefts = self._left_rows(inputs[0])
        rights = plan.add_keys(1, inputs[1]).collected()
        left, right = map(self.slots.spine, self.slots.forms)
        one, other = self.slots.forms
        new_left = self.slots.prepare(one, lefts)
        new = self.slots.prepare(other, select(rights, right.layout.types))
        parts = [] if unkeyed is None else [self._alone(unkeyed)]
        first = not left.batches
        if rights.height and not first:
            # Left rows that go in the same tick are passed over.
            held = (*left.batches, new_left)
            parts += self._crossings(left.layout, held, right.layout, right.batches, new)
        if lefts.height:
            found = self._found(lefts, right.layout, (*right.batches, new) if first else right.batches)
            parts += self._pairs(lefts, found)
            matched = self._counts(lefts, found) > 0
            parts.append(self._alone(take(lefts, np.flatnonzero(matched == (plan.operator.how is How.SEMI)))))
        return self._output([part for part in parts if part.height])

    def _left_rows(self, stream: ColumnStream) -> tuple[pl.DataFrame | None, pl.DataFrame]:
        """Return the left rows without a key, None if they have no output, and the rows with a key."""
        plan = self.plan
        nullable = plan.nullable_keys(0)
        if plan.operator.how is How.SEMI or not nullable:
            return None, plan.add_keys(0, stream).collected()
        rows = plan.add_keys(0, stream, nulls=True).collected()
        null = np.zeros(rows.height, np.bool_)
        for name in nullable:
            null |= rows[name].is_null().to_numpy()
        return take(rows, np.flatnonzero(null)), take(rows, np.flatnonzero(~null))

    def _crossings(
        self,
        left: Layout,
        lefts: Sequence[SortedBatch],
        right: Layout,
        rights: Sequence[SortedBatch],
        new: SortedBatch,
    ) -> list[pl.DataFrame]:
        """Return the changes to existing left rows that gain their first or lose their last match."""
        probe = Probe.of(left, distinct_keys(right, new.frame), self.slots.most)
        rows = batch_of(left, together(left, [probe.find(batch) for batch in lefts]).rows).frame
        if not rows.height:
            return []
        changed = self._found(rows, right, [new])
        change = self._counts(rows, changed)
        before = self._counts(rows, self._found(rows, right, rights))
        gained, lost = (before <= 0) & (before + change > 0), (before > 0) & (before + change <= 0)
        arrives, goes = (gained, lost) if self.plan.operator.how is How.SEMI else (lost, gained)
        going = take(rows, np.flatnonzero(goes))
        return [
            *self._pairs(rows, changed),
            self._alone(take(rows, np.flatnonzero(arrives))),
            self._alone(negated(left, going)),
        ]

    def _found(self, asking: pl.DataFrame, layout: Layout, batches: Sequence[SortedBatch]) -> FoundRows:
        """Return the right rows that match the left rows, in the order of the left rows."""
        probe = Probe.of(layout, [asking[name] for name in self.plan.key_names(0)], self.slots.most)
        found = together(layout, [probe.find(batch) for batch in batches])
        if self.plan.operator.residual is not None and len(found.asked):
            passing = self._passing(take(asking, found.asked), found.rows)
            found = FoundRows(found.asked[passing], take(found.rows, passing))
        return found

    def _passing(self, lefts: pl.DataFrame, rights: pl.DataFrame) -> Numbers:
        """Return the positions of the pairs that satisfy the residual. Raises `ColumnarDeclined`."""
        plan, residual = self.plan, self.plan.operator.residual
        assert residual is not None
        pairs = build_stream(Columns(plan.pairs, True, plan.columns_of_pairs(lefts, rights)))
        lowered = pairs.lower(residual)
        noted = pairs.noting(lowered.fails)
        marks = [pl.col(FAILS)] if noted.checked else []
        made = noted.frame.select(lowered.value.fill_null(False).alias("passes"), *marks).collect()
        if noted.checked:
            decline_marked(made)
        return np.flatnonzero(made["passes"].to_numpy())

    def _counts(self, asking: pl.DataFrame, found: FoundRows) -> Numbers:
        counts = np.zeros(asking.height, np.int64)
        np.add.at(counts, found.asked, found.rows[WEIGHT].to_numpy())
        return counts

    def _pairs(self, lefts: pl.DataFrame, found: FoundRows) -> list[pl.DataFrame]:
        """Return the matched pairs of a left join; nothing for other joins."""
        plan = self.plan
        if plan.operator.how is not How.LEFT or not len(found.asked):
            return []
        own = take(lefts, found.asked)
        columns = plan.columns_of_pairs(own, found.rows)
        named = [columns[str(at)].alias(str(to)) for to, at in enumerate(plan.taken)]
        bounds = [float(np.abs(each[WEIGHT].to_numpy().astype(float)).max()) for each in (own, found.rows)]
        if bounds[0] * bounds[1] >= 2**62:
            raise ColumnarDeclined
        return [pl.DataFrame([*named, own[WEIGHT] * found.rows[WEIGHT]])]

    def _alone(self, lefts: pl.DataFrame) -> pl.DataFrame:
        """Return unmatched left rows as output rows: for a left join, with nulls on the right."""
        plan = self.plan
        columns = [lefts[str(at)] for at in range(len(plan.schemas[0].fields))]
        if plan.operator.how is How.LEFT:
            types = plan.layout(1).types
            for at in plan.operator.kept_right:
                nulls = pl.Series(str(len(columns)), [None], dtype=types[str(at)])
                columns.append(nulls.new_from_index(0, lefts.height))
        return pl.DataFrame([*columns, lefts[WEIGHT]])

    def _output(self, parts: Sequence[pl.DataFrame]) -> ColumnStream:
        plan = self.plan
        whole = concat_frames(parts) if parts else self._alone(pl.DataFrame(schema=plan.layout(0).types))
        if plan.append:
            copies_in(whole)  # declines what would be too many rows
            whole = each_copy(whole)
        return build_stream(Columns(plan.schema, plan.append, whole))
