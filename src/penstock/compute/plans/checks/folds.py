"""Checks of operators that fold rows, that group them, and that put them in order."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.compute.plans.checks.context import Claimed, output_of
from penstock.expr.check import check
from penstock.expr.tree import Expr
from penstock.expr.types import INT64, AnyType, Field
from penstock.flow.aggregates import Aggregation
from penstock.flow.operators.aggregate import Aggregate
from penstock.flow.operators.at_least import AtLeast
from penstock.flow.operators.distinct import Distinct
from penstock.flow.operators.enumerate import Enumerate
from penstock.flow.operators.fold import Fold
from penstock.flow.operators.fold_keyed import FoldKeyed
from penstock.flow.operators.fold_tick import FoldTick
from penstock.flow.operators.lattice_fold import LatticeFold
from penstock.flow.operators.lattice_reduce import LatticeReduce
from penstock.flow.operators.reduce import Reduce
from penstock.flow.operators.reduce_keyed import ReduceKeyed
from penstock.flow.operators.scan import Scan
from penstock.flow.operators.sort import Sort
from penstock.flow.operators.state import State
from penstock.flow.operators.top_k import TopK
from penstock.flow.operators.unique import Unique
from penstock.flow.thresholds import threshold

Fields = tuple[Field, ...] | None


@output_of.register(Aggregate)
def _aggregate(operator: Aggregate, claimed: Claimed) -> Fields:
    claimed.reason(operator.nondet)
    return aggregated(operator.keys, (), operator.aggregations, claimed)


def aggregated(
    keys: Sequence[tuple[str, Expr]],
    more: Sequence[Field],
    aggregations: Sequence[tuple[str, Aggregation]],
    claimed: Claimed,
) -> tuple[Field, ...]:
    """The columns of groups: the keys, `more`, the aggregates."""
    claimed.need(bool(aggregations), "there is no aggregate")
    answers = (aggregation.field(name, claimed.input) for name, aggregation in aggregations)
    return (*claimed.computed(keys), *more, *answers)


@output_of.register(Distinct)
def _distinct(operator: Distinct, claimed: Claimed) -> Fields:
    claimed.reason(operator.nondet)
    claimed.all_columns(operator.columns)
    return claimed.input.fields


@output_of.register(Unique)
def _unique(operator: Unique, claimed: Claimed) -> Fields:
    claimed.reason(operator.nondet)
    claimed.all_columns(operator.columns)
    return claimed.input.fields


@output_of.register(TopK)
def _top_k(operator: TopK, claimed: Claimed) -> Fields:
    claimed.reason(operator.nondet)
    claimed.need(operator.count >= 1, "a count is below one")
    claimed.orderings(operator.by)
    claimed.keys(operator.per)
    return claimed.input.fields


@output_of.register(Sort)
def _sort(operator: Sort, claimed: Claimed) -> Fields:
    claimed.reason(operator.nondet)
    claimed.orderings(operator.by)
    return claimed.input.fields


@output_of.register(Enumerate)
def _enumerate(operator: Enumerate, claimed: Claimed) -> Fields:
    claimed.reason(operator.nondet)
    claimed.need(-(2**63) <= operator.start < 2**63, "numbers begin beyond 64 bits")
    claimed.keys(operator.per)
    return (Field(claimed.schema.names[0], INT64), *claimed.input.fields)


# -- folds by functions ------------------------------------------------------------------------------


@output_of.register(Fold)
def _fold(operator: Fold, claimed: Claimed) -> Fields:
    return operator.accumulated.fields


@output_of.register(FoldTick)
def _fold_tick(operator: FoldTick, claimed: Claimed) -> Fields:
    claimed.reason(operator.nondet)
    if operator.item is not None:
        claimed.keys([operator.item])
    return operator.accumulated.fields


@output_of.register(Reduce)
def _reduce(operator: Reduce, claimed: Claimed) -> Fields:
    claimed.reason(operator.nondet)
    column = claimed.input.names[0] if claimed.input.scalar else None
    claimed.need(operator.scalar_column == column, "the column of single values is another")
    return claimed.input.fields


@output_of.register(FoldKeyed)
def _fold_keyed(operator: FoldKeyed, claimed: Claimed) -> Fields:
    claimed.reason(operator.nondet)
    if operator.item is not None:
        claimed.keys([operator.item])
    keys = claimed.computed(operator.keys)
    claimed.need(len(claimed.schema.fields) == len(keys) + 1, "a fold per key has one value")
    # Of what type it is, the function decides.
    value = claimed.schema.fields[-1]
    return (*keys, Field(operator.into, value.type, value.nullable))


@output_of.register(ReduceKeyed)
def _reduce_keyed(operator: ReduceKeyed, claimed: Claimed) -> Fields:
    claimed.reason(operator.nondet)
    claimed.need(bool(operator.keys), "a fold per key has no key")
    return (*claimed.computed(operator.keys), *claimed.computed(((operator.into, operator.item),)))


@output_of.register(Scan)
def _scan(operator: Scan, claimed: Claimed) -> Fields:
    claimed.reason(operator.nondet)
    claimed.keys(operator.per)
    return None


# -- lattices ------------------------------------------------------------------------------------------


@output_of.register(LatticeFold)
@output_of.register(LatticeReduce)
def _lattice_fold(operator: LatticeFold, claimed: Claimed) -> Fields:
    claimed.reason(operator.nondet)
    typed = check(operator.item, claimed.input)
    merged = operator.lattice.column(Field(operator.into, typed.type, typed.nullable))
    if operator.keys or not operator.runs_first_tick:
        merged = Field(operator.into, merged.type, typed.nullable or isinstance(merged.type, AnyType))
    return (*claimed.computed(operator.keys), merged)


@output_of.register(State)
def _state(operator: State, claimed: Claimed) -> Fields:
    claimed.reason(operator.nondet)
    typed = check(operator.item, claimed.input)
    operator.lattice.column(Field("item", typed.type, typed.nullable))
    claimed.keys(operator.per)
    return claimed.input.fields


@output_of.register(AtLeast)
def _at_least(operator: AtLeast, claimed: Claimed) -> Fields:
    # Whether the column only grows can be told from what is upstream alone.
    made, schema = threshold(claimed.streams[0], operator.threshold, operator.column, claimed.location)
    claimed.need(repr(made) == repr(operator), "what grows, and by which keys, is something else")
    return schema.fields
