"""How the rows of a subplan meet: wherever they are, by keys, or all in one task.

By keys, where each operator of the subplan either answers row by row, or only
needs rows together that are equal in certain columns, and the rows that enter the
subplan tell these columns. Then every task runs the subplan for its keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING, TypeAlias

from penstock.expr.tree import Call, Column, Expr
from penstock.flow.operators.assume_ordered import AssumeOrdered
from penstock.flow.operators.chain import Chain
from penstock.flow.operators.distinct import Distinct
from penstock.flow.operators.enumerate import Enumerate
from penstock.flow.operators.filter import Filter
from penstock.flow.operators.fold_keyed import FoldKeyed
from penstock.flow.operators.inspect import Inspect
from penstock.flow.operators.lattice_fold import LatticeFold
from penstock.flow.operators.partition import Partition
from penstock.flow.operators.reduce_keyed import ReduceKeyed
from penstock.flow.operators.select import Select
from penstock.flow.operators.state import State
from penstock.flow.operators.union import Union
from penstock.flow.operators.unique import Unique
from penstock.flow.operators.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.expr.types import Schema
    from penstock.graph.node import Operator
    from penstock.spark.batch.plan import BatchPlan, Subplan


@dataclass(frozen=True, slots=True)
class Anywhere:
    """Every row is answered by itself."""

    def __str__(self) -> str:
        return "row by row, wherever rows are"


@dataclass(frozen=True)
class ByKeys:
    """keys: per node that enters the subplan, what its rows meet by; as many for each."""

    keys: Mapping[int, tuple[Expr, ...]]

    def __str__(self) -> str:
        return " and ".join(f"by {', '.join(map(str, k))}" for k in dict.fromkeys(self.keys.values()))


@dataclass(frozen=True, slots=True)
class InOneTask:
    def __str__(self) -> str:
        return "in one task"


Meeting: TypeAlias = Anywhere | ByKeys | InOneTask


def meeting(plan: BatchPlan, subplan: Subplan) -> Meeting:
    """How the rows of a subplan of a plan meet."""
    inside = set(subplan.nodes)
    nodes = [plan.graph.nodes[n] for n in subplan.nodes]
    entries = [i for node in nodes for i in plan.reads[node.id] if i is not None and i not in inside]
    if not entries or any(n in plan.order.arriving for n in entries) or _goes_round(plan, inside):
        return InOneTask()
    wanted: list[list[dict[int, Expr]]] = []
    for node in nodes:
        keys = _keys(node.operator)
        if keys is None:
            return InOneTask()
        if node.operator.linear or isinstance(node.operator, Chain):
            continue
        found = [_told_by(plan, inside, i, key) for i in plan.reads[node.id] if i is not None for key in keys]
        wanted.append([terms for terms in found if terms is not None and terms.keys() == set(entries)])
    if not wanted:
        return Anywhere()
    first, *others = wanted
    shared = [terms for terms in first if all(any(_same(terms, o) for o in other) for other in others)]
    if not shared:
        return InOneTask()
    return ByKeys({i: tuple(terms[i] for terms in shared) for i in dict.fromkeys(entries)})


def _goes_round(plan: BatchPlan, inside: set[int]) -> bool:
    return any(i is not None and i in inside and i >= n for n in inside for i in plan.reads[n])


def _same(one: Mapping[int, Expr], other: Mapping[int, Expr]) -> bool:
    return all(expr.same(other[i]) for i, expr in one.items())


def _keys(operator: Operator) -> tuple[Expr, ...] | None:
    """By what the rows of an operator's one input meet: by nothing; None where all of them do."""
    if operator.linear or isinstance(operator, Chain):
        return ()
    placement = operator.placement()
    if isinstance(operator, Window):
        return tuple(expr for _, expr in operator.keys) or None
    if placement.keys is None or len(operator.ports()) != 1:
        return None
    return placement.keys[0]


# --- keys in terms of the rows that enter ---------------------------------------------------


def _told_by(plan: BatchPlan, inside: set[int], n: int, expr: Expr) -> dict[int, Expr] | None:
    """What an expression over the rows of a node is over the rows that enter the subplan."""
    if n not in inside:
        return {n: expr}
    node = plan.graph.nodes[n]
    schema = plan.graph.nodes[node.inputs[0]].schema if node.inputs else node.schema
    before = _in_terms_of(expr, lambda name: column_before(node.operator, name, schema))
    if before is None:
        return None
    terms: dict[int, Expr] = {}
    for i in plan.reads[n]:
        told = None if i is None else _told_by(plan, inside, i, before)
        if told is None or any(e in terms and not terms[e].same(x) for e, x in told.items()):
            return None
        terms |= told
    return terms


def _in_terms_of(expr: Expr, column: Callable[[str], Expr | None]) -> Expr | None:
    if isinstance(expr, Column):
        return column(expr.name)
    if not isinstance(expr, Call):
        return expr
    arguments = [_in_terms_of(a, column) for a in expr.arguments]
    if any(a is None for a in arguments):
        return None
    return replace(expr, arguments=tuple(a for a in arguments if a is not None))


@singledispatch
def column_before(operator: Operator, name: str, schema: Schema) -> Expr | None:
    """What a column of an operator's output is over its input of `schema`; None where that is not known."""
    return None


@column_before.register(AssumeOrdered)
@column_before.register(Chain)
@column_before.register(Distinct)
@column_before.register(Enumerate)
@column_before.register(Filter)
@column_before.register(Inspect)
@column_before.register(Partition)
@column_before.register(State)
@column_before.register(Union)
@column_before.register(Unique)
def _(operator: Operator, name: str, schema: Schema) -> Expr | None:
    return Column(name) if name in schema.names else None


@column_before.register(Select)
def _(operator: Select, name: str, schema: Schema) -> Expr | None:
    return dict(operator.columns)[name]


@column_before.register(FoldKeyed)
@column_before.register(LatticeFold)
@column_before.register(ReduceKeyed)
def _(operator: FoldKeyed | LatticeFold | ReduceKeyed, name: str, schema: Schema) -> Expr | None:
    return dict(operator.keys).get(name)
