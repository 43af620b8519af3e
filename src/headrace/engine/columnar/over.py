"""Window functions in large ticks, over an arrangement of each partition's rows in order.

The partitions that a tick changes are fetched by one probe and answered as they were and as they are; rows
whose answers differ are the output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from headrace.arrangement.batch import batch_of, differing, select, stacked, take
from headrace.columns.column_stream import (
    ColumnStream,
    build_stream,
    decline_marked,
    empty_stream,
    sum_weights,
)
from headrace.columns.columns import WEIGHT, Columns, weights_of
from headrace.engine.columnar.partition_answers import Answer, Partitions, answer_of, spans
from headrace.engine.columnar.rows_in_order import RowsForm, RowsInOrder, rows_in_order
from headrace.expr.polars_columns import NotLowered, dtype_of
from headrace.lowering.forms import ArrangedPlan, ArrangedState, ColumnarSite, register_arranged
from headrace.operators.over.operator import ComputeOver, OverStep
from headrace.operators.over.partitions import NEGATIVE, ROWS

if TYPE_CHECKING:
    from headrace.columns.slot_forms import SlotForm
    from headrace.expr.types import Schema
    from headrace.graph.node import Node
    from headrace.lowering.forms import ArrangedOperator
    from headrace.lowering.slot import SlotMapping
    from headrace.lowering.step_writer import StepWriter

_BEFORE, _NEW = WEIGHT, "n"


@register_arranged(ComputeOver)
@dataclass(frozen=True)
class OverPlan(ArrangedPlan):
    """Plan for window functions over frames. answers: of the functions. schema: of the output."""

    node: int
    rows: RowsInOrder
    answers: tuple[Answer, ...]
    schema: Schema

    @classmethod
    def of(cls, site: ColumnarSite) -> OverPlan:
        node, operator, (schema,) = site.node, site.node.operator, site.schemas
        assert isinstance(operator, ComputeOver)
        if site.append:
            raise NotLowered("it answers once")
        if not operator.per:
            raise NotLowered("one partition of all rows is kept up to date in rows")
        rows = rows_in_order(operator.per, operator.by, schema, append=site.appends[0])
        answers = tuple(answer_of(over.function, over.frame, schema) for _, over in operator.functions)
        plan = cls(node.id, rows, answers, node.schema)
        empty = empty_stream(schema, True)
        for answer in answers:
            for expr in answer.exprs:
                empty.lower(expr)
        assert plan.answer_types
        return plan

    @property
    def slot(self) -> str:
        return f"{self.node}.partitions"

    @cached_property
    def answer_types(self) -> list[pl.DataType]:
        return [dtype_of(field.type) for field in self.schema.fields[len(self.rows.schema.fields) :]]

    def write_reader(self, node: Node, writer: StepWriter, name: str) -> None:
        rule, code = OverStep(node, writer).partition_rule(), writer.code
        with code.block(f"def {name}(copies):"):
            code.line("partition = [[], [], {}]")
            code.line(f"{rule}.update(partition, copies)")
            code.line("return partition")

    def slot_forms(
        self, read: Callable[..., Any] | None, slot: Callable[[str], SlotMapping]
    ) -> dict[str, SlotForm]:
        assert read is not None
        return {self.slot: RowsForm.of(self.rows, read, _copies)}

    def start(self, state: ArrangedState) -> ArrangedOperator:
        return ColumnarOver(self, state)


def _copies(partition: Any) -> Mapping[Any, int]:
    copies = Counter[Any](partition[ROWS])
    copies.update(partition[NEGATIVE])
    return copies


@dataclass(slots=True)
class ColumnarOver:
    """Window functions in large ticks."""

    plan: OverPlan
    slots: ArrangedState

    def answer(self, inputs: Sequence[ColumnStream]) -> ColumnStream:
        """Return the rows whose answers change, those that are taken back first."""
        plan, schema = self.plan, self.plan.rows.schema
        given = plan.rows.given(inputs[0])
        self.slots.prepare(plan.slot, given)
        rows = self._touched(given)
        before, after = rows[_BEFORE].to_numpy(), rows[_NEW].to_numpy()
        before, after = np.maximum(before, 0), np.maximum(before + after, 0)
        copies = np.maximum(before, after)
        number = np.zeros(len(copies), np.int64)
        alone = bool((copies == 1).all())
        if not alone:
            # Each copy is a row of its own.
            places = np.repeat(np.arange(len(copies)), copies)
            rows, before, after = take(rows, places), before[places], after[places]
            number = np.arange(len(places)) - np.repeat(np.cumsum(copies) - copies, copies)
        was, is_now = number < before, number < after
        values = self._values(rows)
        part, peer = self._numbered(rows)
        old, new = (self._answers(np.flatnonzero(there), part, peer, values) for there in (was, is_now))
        both = np.flatnonzero(was & is_now)
        in_old, in_new = (np.cumsum(there) - 1 for there in (was, is_now))
        stays = np.zeros(len(was), np.bool_)
        unlike = differing(take(old, in_old[both]).get_columns(), take(new, in_new[both]).get_columns())
        stays[both] = ~unlike
        goes, comes = np.flatnonzero(was & ~stays), np.flatnonzero(is_now & ~stays)
        own = [str(at) for at in range(len(schema.fields))]
        parts = [
            take(select(rows, own), at).hstack([*take(answers, places[at]), weights_of(sign, len(at))])
            for at, answers, places, sign in ((goes, old, in_old, -1), (comes, new, in_new, 1))
        ]
        made = build_stream(Columns(plan.schema, False, stacked(parts)))
        return made if alone else replace(sum_weights(made), whole=None)

    def _touched(self, given: pl.DataFrame) -> pl.DataFrame:
        """Return all rows of the partitions that new rows belong to, in order, with the copies of both."""
        spine, layout = self.slots.spine(self.plan.slot), self.plan.rows.layout
        keys = select(given, layout.keys).unique(maintain_order=True).get_columns()
        held = spine.probe(keys).rows
        zeros = [pl.Series(np.zeros(each.height, np.int64)) for each in (held, given)]
        both = stacked(
            [
                held.hstack([zeros[0].alias(_NEW)]),
                given.hstack([given[WEIGHT].alias(_NEW)]).with_columns(zeros[1].alias(_BEFORE)),
            ]
        )
        types = {**layout.types, _NEW: pl.Int64()}
        return batch_of(replace(layout, types=types, sums=(_BEFORE, _NEW)), both).frame

    def _values(self, rows: pl.DataFrame) -> list[tuple[pl.Series, ...]]:
        """Return for each function the values of what it is computed of. Raises `ColumnarDeclined`."""
        schema = self.plan.rows.schema
        exprs = [expr for answer in self.plan.answers for expr in answer.exprs]
        if not exprs:
            return [()] * len(self.plan.answers)
        own = select(rows, [str(at) for at in range(len(schema.fields))])
        stream = build_stream(Columns(schema, True, own))
        lowered = [stream.lower(expr) for expr in exprs]
        noted = stream.noting(*(one.fails for one in lowered))
        named = {f"v{at}": one.value for at, one in enumerate(lowered)}
        made = noted.frame.with_columns(**named).collect()
        if noted.checked:
            decline_marked(made)
        columns = iter([made[name] for name in named])
        return [tuple(next(columns) for _ in answer.exprs) for answer in self.plan.answers]

    def _numbered(self, rows: pl.DataFrame) -> tuple[Any, Any]:
        """Return for each row the number of its partition, and of its peers."""
        starts = np.ones(rows.height, np.bool_)
        peers = np.ones(rows.height, np.bool_)
        if rows.height:
            starts[1:] = _unlike_next(select(rows, self.plan.rows.layout.keys))
            peers[1:] = starts[1:]
            if self.plan.rows.by:
                peers[1:] |= _unlike_next(select(rows, self.plan.rows.by_names))
        return np.cumsum(starts), np.cumsum(peers)

    def _answers(
        self, places: Any, part: Any, peer: Any, values: Sequence[tuple[pl.Series, ...]]
    ) -> pl.DataFrame:
        """Return the answers to rows at some places, the only ones there are. Raises `ColumnarDeclined`."""
        partitions = Partitions(*spans(part[places]), *spans(peer[places]))
        at = pl.Series(places.astype(np.uint32))
        columns: list[pl.Series] = []
        first = len(self.plan.rows.schema.fields)
        for number, (answer, of, dtype) in enumerate(
            zip(self.plan.answers, values, self.plan.answer_types, strict=True), first
        ):
            made = answer.compute(partitions, [column.gather(at) for column in of])
            columns.append((made.cast(dtype) if made.dtype != dtype else made).alias(str(number)))
        return pl.DataFrame(columns)


def _unlike_next(rows: pl.DataFrame) -> Any:
    """Return for each row but the last whether it differs from the next one."""
    last = rows.height - 1
    return differing(rows.slice(0, last).get_columns(), rows.slice(1, last).get_columns())
