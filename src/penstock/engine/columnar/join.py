"""Inner joins in large ticks, with their state.

With L, R before a tick of new rows l, r the answer is  l x R  +  (L + l) x r.
Between large ticks both sides stand in frames as they came. A small tick looks
keys up in dicts; before one comes, the frames are poured into the dicts of the
operator's slots, and there is one state again. That costs as much as the row
path would have paid for the large ticks, so it is paid once and only if it must.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import polars as pl

from penstock.engine.columnar.column_types import NotLowered, from_series
from penstock.engine.columnar.columns import FAILS, WEIGHT, ColumnarDeclined, Columns, rows_to_columns
from penstock.engine.columnar.expressions import reads_columns
from penstock.engine.columnar.lowered_expression import LoweredExpression
from penstock.engine.columnar.stream import (
    Stream,
    build_stream,
    decline_weight_overflow,
    empty_stream,
    greatest_weight,
)
from penstock.engine.retractions_first import pair_schema
from penstock.expr.check import check
from penstock.expr.tree import Expr
from penstock.expr.types import DataType, Schema
from penstock.expr.widening import is_float
from penstock.flow.lifetime import Lifetime
from penstock.flow.operators.join import How, Join

if TYPE_CHECKING:
    from penstock.engine.slot import SlotMapping
    from penstock.graph.node import FlowGraph, Node

Rows = list[tuple[Any, ...]]

# Polars looks at every row that is held, where rows look up their keys: so many of the
# former take as long as one of the latter.
_SCANNED_PER_ROW = 16


@dataclass(frozen=True)
class JoinPlan:
    """Plan for a join over frames.

    schemas, appends: of the two inputs. pairs: the columns of both, under the residual's names.
    schema, append: of the output.
    """

    node: int
    operator: Join
    schemas: tuple[Schema, Schema]
    appends: tuple[bool, bool]
    pairs: Schema
    schema: Schema
    append: bool

    @property
    def keys(self) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        return self.operator.left_keys, self.operator.right_keys

    def add_keys(self, port: int, stream: Stream) -> Stream:
        """Add a side's keys as "k0", ..., dropping rows with a null key."""
        lowered = [stream.lower(expr) for expr in self.keys[port]]
        noted = stream.noting(*(one.fails for one in lowered))
        keyed = noted.frame.with_columns(*(one.value.alias(f"k{at}") for at, one in enumerate(lowered)))
        nullable = [at for at, expr in enumerate(self.keys[port]) if check(expr, self.schemas[port]).nullable]
        if nullable:
            present = pl.all_horizontal(*(pl.col(f"k{at}").is_not_null() for at in nullable))
            keyed = keyed.filter(present | pl.col(FAILS) if noted.checked else present)
        return replace(noted, frame=keyed)

    def key_types(self, port: int) -> tuple[DataType, ...]:
        return tuple(check(expr, self.schemas[port]).type for expr in self.keys[port])

    def pair_rows(self, left: pl.DataFrame, right: pl.DataFrame, driver: int) -> pl.DataFrame:
        """Pair the rows of two sides. driver: the side that determines the order."""
        width = len(self.schemas[0].fields)
        moved = {str(at): str(width + at) for at in range(len(self.schemas[1].fields))}
        right = right.rename({**moved, **({} if self.appends[1] else {WEIGHT: "w2"})})
        on = [f"k{at}" for at in range(len(self.keys[0]))]
        few, many = (left.height, right.height)[:: 1 if driver == 0 else -1]
        pairs = (
            _pairs_of_few(left, right, on, driver) if few < many else _pairs_of_many(left, right, on, driver)
        )
        weights = [pl.col(w) for w, append in zip((WEIGHT, "w2"), self.appends, strict=True) if not append]
        own = [pl.col(str(at)) for at in range(len(self.pairs.fields))]
        if not weights:
            return pairs.select(*own)
        return pairs.select(
            *own, (weights[0] if len(weights) == 1 else weights[0] * weights[1]).alias(WEIGHT)
        )

    def output(self, pairs: Stream) -> Stream:
        """Convert pairs to output rows."""
        residual = self.operator.residual
        if residual is not None:
            lowered = pairs.lower(residual)
            pairs = pairs.noting(lowered.fails)
            passes = lowered.value
            if pairs.checked:
                passes = passes.fill_null(False) | pl.col(FAILS)
            pairs = replace(pairs, frame=pairs.frame.filter(passes))
        width = len(self.schemas[0].fields)
        taken = [*range(width), *(width + at for at in self.operator.kept_right)]
        columns = [pl.col(str(at)).alias(str(to)) for to, at in enumerate(taken)]
        beside = [*([] if self.append else [WEIGHT]), *([FAILS] if pairs.checked else [])]
        known = tuple(
            LoweredExpression(pl.col(str(to)), pairs.columns[at].bounds) for to, at in enumerate(taken)
        )
        frame = pairs.frame.select(*columns, *beside)
        return Stream(self.schema, self.append, frame, known, pairs.most, pairs.checked)


def plan_join(graph: FlowGraph, node: Node, appends: tuple[bool, bool], append: bool) -> JoinPlan:
    """Plan a join on frames. Raises `NotLowered`."""
    operator = node.operator
    assert isinstance(operator, Join)
    if operator.how is not How.INNER:
        raise NotLowered(f"{operator.how.value} joins work on rows")
    if Lifetime.TICK in operator.lifetimes:
        raise NotLowered("it answers each tick for itself")
    if not operator.left_keys:
        raise NotLowered("a join without keys works on rows")
    one, other = (graph.nodes[source].schema for source in node.inputs)
    plan = JoinPlan(
        node.id, operator, (one, other), appends, pair_schema(graph, node, operator), node.schema, append
    )
    for port in (0, 1):
        if any(map(is_float, plan.key_types(port))):
            raise NotLowered("a join on floats works on rows")
        if not all(map(reads_columns, plan.keys[port])):
            raise NotLowered("a join on a constant works on rows")
        plan.add_keys(port, empty_stream(plan.schemas[port], appends[port]))
    plan.output(empty_stream(plan.pairs, append))
    return plan


class ColumnarJoinState:
    """State of a join during large ticks: both sides in frames, with their keys.

    slot: returns the current mapping of a side's slot.
    """

    def __init__(self, plan: JoinPlan, slot: Callable[[int], SlotMapping]) -> None:
        self.plan = plan
        self._slot = slot
        self._held: list[list[pl.DataFrame]] | None = None

    @property
    def is_in_frames(self) -> bool:
        """Return whether the state is in frames rather than in slots."""
        return self._held is not None

    def move_to_frames(self, rows: int, *, lazily: bool) -> bool:
        """Move the state into frames, for a tick with this many rows; return False if that does not pay.

        lazily: the state may stay in frames; else none is brought there that is in the slots.
        """
        if self._held is not None:
            held = sum(frame.height for frames in self._held for frame in frames)
            return held <= rows * _SCANNED_PER_ROW
        slots = [self._slot(port) for port in (0, 1)]
        if not all(type(slot) is dict for slot in slots):
            return False
        taken = cast("list[dict[Any, Any]]", slots)
        # More state than the tick has rows is not worth its way into frames and back.
        if sum(len(own) for slot in taken for own in slot.values()) > (rows if lazily else 0):
            return False
        frames = [self._frames(port, slot) for port, slot in enumerate(taken)]
        for slot in taken:
            slot.clear()
        self._held = frames
        return True

    def _frames(self, port: int, slot: dict[Any, Any]) -> list[pl.DataFrame]:
        if not slot:
            return []
        append, schema = self.plan.appends[port], self.plan.schemas[port]
        if append:
            rows = [row for own in slot.values() for row in own]
        else:
            rows = [(*row, weight) for own in slot.values() for row, weight in own.items()]
        columns = rows_to_columns(schema, append, rows)
        return [self.plan.add_keys(port, build_stream(columns)).frame.drop(FAILS, strict=False).collect()]

    def answer(self, news: Sequence[pl.DataFrame | None], *, computed_on: bool) -> Stream:
        """Return the output caused by new rows on either side. Must be called before `add`.

        computed_on: whether later expressions need the bounds of integers.
        """
        assert self._held is not None
        plan = self.plan
        left = list(self._held[0])
        pairs: list[pl.DataFrame] = []
        if news[0] is not None:
            if self._held[1]:
                pairs.append(plan.pair_rows(news[0], pl.concat(self._held[1]), 0))
            left.append(news[0])
        if not any(plan.appends):
            right = [*self._held[1], *([] if news[1] is None else [news[1]])]
            most = [max(map(greatest_weight, side), default=0) for side in (left, right)]
            if most[0] * most[1] >= 2**63:
                raise ColumnarDeclined
        if news[1] is not None and left:
            pairs.append(plan.pair_rows(pl.concat(left), news[1], 1))
        if not pairs:
            empty = empty_stream(plan.pairs, plan.append)
            return plan.output(empty)
        frame = pl.concat(pairs)
        if not plan.append:
            decline_weight_overflow(frame)
        if computed_on or plan.operator.residual is not None:
            return plan.output(build_stream(Columns(plan.pairs, plan.append, frame)))
        unknown = empty_stream(plan.pairs, plan.append)
        return plan.output(replace(unknown, frame=frame.lazy(), most=frame.height))

    def add(self, news: Sequence[pl.DataFrame | None]) -> None:
        """Add a successful tick's new rows to the state."""
        assert self._held is not None
        for held, frame in zip(self._held, news, strict=True):
            if frame is None:
                continue
            held.append(frame)
            # Sizes fall by half at least, so a row is copied few times, and what is held lies in few places.
            while len(held) > 1 and held[-2].height < 2 * held[-1].height:
                held[-2:] = [pl.concat(held[-2:], rechunk=True)]

    def move_to_slots(self) -> None:
        """Move the state from frames into slots."""
        held, self._held = self._held, None
        if held is None:
            return
        for port, frames in enumerate(held):
            add = _add_rows if self.plan.appends[port] else _add_changes
            for frame in frames:
                types = self.plan.key_types(port)
                keys = [from_series(t, frame[f"k{at}"]) for at, t in enumerate(types)]
                key = keys[0] if len(keys) == 1 else list(zip(*keys, strict=True))
                rows = Columns(self.plan.schemas[port], True, frame).rows()
                weights = None if self.plan.appends[port] else frame[WEIGHT].to_list()
                add(self._slot(port), key, rows, weights)


def _pairs_of_many(left: pl.DataFrame, right: pl.DataFrame, on: list[str], driver: int) -> pl.DataFrame:
    order = "left_right" if driver == 0 else "right_left"
    return left.join(right, on=on, how="inner", maintain_order=order)


def _pairs_of_few(left: pl.DataFrame, right: pl.DataFrame, on: list[str], driver: int) -> pl.DataFrame:
    """Pair a side of few rows, which determines the order, with the keys of one of many."""
    places = ("l", "r")
    left_keys, right_keys = (
        side.lazy().select(on).with_row_index(place) for side, place in zip((left, right), places)
    )
    found = left_keys.join(right_keys, on=on, how="inner").sort(places[driver], places[1 - driver]).collect()
    own = right.drop(on)
    return pl.concat([left[found["l"]], own[found["r"]]], how="horizontal")


def _add_rows(slot: SlotMapping, keys: list[Any], rows: Rows, weights: list[int] | None) -> None:
    get = slot.get
    for key, row in zip(keys, rows, strict=True):
        own = get(key)
        if own is None:
            slot[key] = [row]
        else:
            own.append(row)


def _add_changes(slot: SlotMapping, keys: list[Any], rows: Rows, weights: list[int] | None) -> None:
    get = slot.get
    assert weights is not None
    for key, row, weight in zip(keys, rows, weights, strict=True):
        own = get(key)
        if own is None:
            slot[key] = {row: weight}
            continue
        total = own.get(row, 0) + weight
        if total:
            own[row] = total
        else:
            del own[row]
            if not own:
                del slot[key]
