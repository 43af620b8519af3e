"""Oracle for folds, lattices and thresholds, recomputed from scratch.

A bag does not determine the result of a fold without `commutative=True`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from headrace.expr.check import check
from headrace.expr.row_classes import from_user, to_user
from headrace.expr.tree import Expr
from headrace.expr.types import Field, Schema
from headrace.graph.node import Node
from headrace.lowering.reference import (
    Bag,
    Bags,
    NotOfBags,
    OperatorInput,
    Row,
    answer_of_bags,
    function_of,
    output_of_tick,
)
from headrace.operators.at_least import AtLeast
from headrace.operators.fold import Fold, FoldTick, Reduce
from headrace.operators.function_claims import Claims
from headrace.operators.keyed_fold import FoldKeyed, ReduceKeyed
from headrace.operators.lattice_fold import LatticeFold, LatticeReduce
from headrace.operators.lifetime import Lifetime
from headrace.operators.sort import Sort
from headrace.operators.unique import Unique

Keys = tuple[tuple[str, Expr], ...]


def items_by_key(schema: Schema, bag: Bag, keys: Keys, item: Expr | None) -> Iterator[tuple[Row, list[Any]]]:
    """Group the items passed to functions by key, as users see them."""
    seen = to_user(schema) if item is None else item_of(item, schema)
    parts = [function_of(expr, schema) for _, expr in keys]
    groups: dict[Row, list[Any]] = {}
    for row in bag.elements():
        groups.setdefault(tuple(part(row) for part in parts), []).append(seen(row))
    yield from groups.items()


def item_of(item: Expr, schema: Schema) -> Callable[[Row], Any]:
    """Return the function from a row to the value of an expression, as users see it."""
    typed, value = check(item, schema), function_of(item, schema)
    seen = to_user(Schema((Field("value", typed.type, typed.nullable),), scalar=True))
    return lambda row: seen((value(row),))


def fold_items(
    function: Callable[..., Any], claims: Claims, accumulated: Schema, init: object, items: list[Any]
) -> Row:
    """Fold items to the accumulated value in its form in rows. Raises `NotOfBags` if the order may matter."""
    if not claims.commutative:
        raise NotOfBags("the function may read the order of rows")
    inside = from_user(accumulated, what="values")
    value = init() if callable(init) else init
    if value is not None:
        (value,) = map(to_user(accumulated), inside([value]))
    for item in items:
        value = function(value, item)
    (row,) = inside([value])
    return row


def reduce_items(function: Callable[..., Any], claims: Claims, accumulated: Schema, items: list[Any]) -> Row:
    """Fold items like `fold_items`, starting with the first item."""
    first, *rest = items
    return fold_items(function, claims, accumulated, lambda: first, rest)


@answer_of_bags.register
def _fold(operator: Fold, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    items = list(map(to_user(schema), bag.elements()))
    return Counter(
        [fold_items(operator.function, operator.claims, operator.accumulated, operator.init, items)]
    )


@answer_of_bags.register
def _reduce(operator: Reduce, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    items = list(map(to_user(schema), bag.elements()))
    return Counter([reduce_items(operator.function, operator.claims, schema, items)] if items else [])


@answer_of_bags.register
def _fold_keyed(operator: FoldKeyed, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    value = Schema(node.schema.fields[-1:], scalar=True)
    return Counter(
        (*key, *fold_items(operator.function, operator.claims, value, operator.init, items))
        for key, items in items_by_key(schema, bag, operator.keys, operator.item)
    )


@answer_of_bags.register
def _reduce_keyed(operator: ReduceKeyed, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    value = Schema(node.schema.fields[-1:], scalar=True)
    return Counter(
        (*key, *reduce_items(operator.function, operator.claims, value, items))
        for key, items in items_by_key(schema, bag, operator.keys, operator.item)
    )


@answer_of_bags.register
def _lattice_fold(operator: LatticeFold, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    lattice = operator.lattice
    groups = dict(items_by_key(schema, bag, operator.keys, operator.item))
    if not operator.keys and not isinstance(operator, LatticeReduce):
        groups.setdefault((), [])
    out: Bag = Counter()
    for key, items in groups.items():
        merged = lattice.bottom
        for item in items:
            merged = lattice.merge(merged, lattice.value(item))
        out[(*key, merged)] += 1
    return out


@answer_of_bags.register
def _at_least(operator: AtLeast, node: Node, inputs: Bags) -> Bag:
    # All previous rows are still present, because the input only grows.
    [(schema, bag)] = inputs
    value = schema.position(operator.column)
    assert value is not None
    parts = [function_of(expr, schema) for expr in operator.keys]
    return Counter(
        {
            (*(part(row) for part in parts), operator.threshold): 1
            for row in bag
            if operator.lattice.leq(operator.threshold, row[value])
        }
    )


@answer_of_bags.register
def _unique(operator: Unique, node: Node, inputs: Bags) -> Bag:
    return Counter(set(inputs[0][1]))


@answer_of_bags.register
def _sort(operator: Sort, node: Node, inputs: Bags) -> Bag:
    return inputs[0][1]


@output_of_tick.register
def _fold_tick(operator: FoldTick, node: Node, inputs: Sequence[OperatorInput]) -> Bag:
    schema, bag = inputs[0].rows(of_tick=True)
    items = dict(items_by_key(schema, bag, (), operator.item)).get((), [])
    return Counter([fold_items(operator.function, operator.claims, node.schema, operator.init, items)])


@output_of_tick.register(Reduce)
@output_of_tick.register(FoldKeyed)
@output_of_tick.register(ReduceKeyed)
@output_of_tick.register(Unique)
@output_of_tick.register(Sort)
def _of_a_tick(
    operator: Reduce | FoldKeyed | ReduceKeyed | Unique | Sort, node: Node, inputs: Sequence[OperatorInput]
) -> Bag:
    static = replace(operator, lifetime=Lifetime.STATIC)
    return answer_of_bags(static, node, [inputs[0].rows(of_tick=True)])
