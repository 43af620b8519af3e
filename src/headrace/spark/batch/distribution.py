"""Distribution of a subplan's rows: unchanged, by keys, or all in one task.

Rows are distributed by keys if each operator of the subplan either works row by row, or needs only rows
together that are equal in certain columns, and these columns can be computed from the rows that enter
the subplan. Then every task runs the subplan for its keys.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from headrace.expr.tree import Call, Column, Expr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.graph.node import Operator
    from headrace.spark.batch.batch_plan import BatchPlan, Subplan


@dataclass(frozen=True, slots=True)
class Anywhere:
    """No distribution: each row is processed on its own."""

    def __str__(self) -> str:
        return "row by row, wherever rows are"


@dataclass(frozen=True)
class ByKeys:
    """Distribution by keys.

    keys: key expressions of each node that enters the subplan, the same number for each.
    """

    keys: Mapping[int, tuple[Expr, ...]]

    def __str__(self) -> str:
        return " and ".join(f"by {', '.join(map(str, k))}" for k in dict.fromkeys(self.keys.values()))


@dataclass(frozen=True, slots=True)
class InOneTask:
    def __str__(self) -> str:
        return "in one task"


Distribution: TypeAlias = Anywhere | ByKeys | InOneTask


def distribution_of(plan: BatchPlan, subplan: Subplan) -> Distribution:
    """Choose the distribution of a subplan's rows."""
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
        if node.operator.linear or node.operator.unites:
            continue
        found = [
            _in_entry_terms(plan, inside, i, key)
            for i in plan.reads[node.id]
            if i is not None
            for key in keys
        ]
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
    """Return the keys that co-locate an operator's input: empty for none, None if all rows must meet."""
    placement = operator.placement()
    if operator.linear or (operator.unites and not placement.whole):
        return ()
    if placement.keys is None:
        return None
    ports = zip(operator.ports(), placement.keys, strict=True)
    keys = [key for port, key in ports if not port.completeness]
    return keys[0] if len(keys) == 1 and isinstance(keys[0], tuple) else None


# --- keys in terms of the rows that enter ---------------------------------------------------


def _in_entry_terms(plan: BatchPlan, inside: set[int], n: int, expr: Expr) -> dict[int, Expr] | None:
    """Rewrite an expression over a node's rows in terms of the rows that enter the subplan."""
    if n not in inside:
        return {n: expr}
    node = plan.graph.nodes[n]
    schemas = [plan.graph.nodes[source].schema for source in node.inputs]
    lineage = node.operator.lineage(schemas, node.schema)
    before = _in_terms_of(expr, lineage[0].get) if lineage else None
    if before is None:
        return None
    terms: dict[int, Expr] = {}
    for i in plan.reads[n]:
        entry_terms = None if i is None else _in_entry_terms(plan, inside, i, before)
        if entry_terms is None or any(e in terms and not terms[e].same(x) for e, x in entry_terms.items()):
            return None
        terms |= entry_terms
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
