"""Lowering of joins, distinct, difference and top-k to native columns."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from headrace.errors import NotOnSpark
from headrace.expr.types import Schema
from headrace.lowering.forms import lower_operator
from headrace.operators.difference import Difference
from headrace.operators.distinct import Distinct
from headrace.operators.distinct_on_time import DistinctOnTime
from headrace.operators.expiring_join import JoinOnTime
from headrace.operators.join import How, Join
from headrace.operators.unique import Unique
from headrace.spark.batch.operators import Site, exact_column, renamed
from headrace.spark.lowering.expressions import to_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from headrace.expr.tree import Expr
    from headrace.graph.node import Operator


_SPARK = {How.INNER: "inner", How.LEFT: "left", How.SEMI: "left_semi", How.ANTI: "left_anti"}


@lower_operator.register(Join)
def _(operator: Join, site: Site) -> DataFrame:
    if operator.how not in _SPARK:
        raise NotOnSpark(f"no {operator.how.value} join as a batch on Spark", where=[site.node.location])
    names = operator.pair_names
    width = len(site.schemas[0].fields)
    left = _with_keys(site, 0, names[:width], operator.left_keys, "left key")
    right = _with_keys(site, 1, names[width:], operator.right_keys, "right key")
    # `=`, not `<=>`: null equals nothing. NaN equals NaN on Spark as it does here.
    tests = [
        exact_column(f"left key {at}") == exact_column(f"right key {at}")
        for at in range(len(operator.left_keys))
    ]
    if operator.residual is not None:
        tests.append(to_column(operator.residual, _pair_schema(operator, site)))
    if tests:
        joined = left.join(right, reduce(_and, tests), _SPARK[operator.how])
    else:
        joined = left.crossJoin(right)
    kept = [*names[:width], *(names[width + at] for at in operator.kept_right)]
    return renamed(joined.select(*(exact_column(name) for name in kept)), site.node.schema.names)


@lower_operator.register(JoinOnTime)
def _(operator: JoinOnTime, site: Site) -> DataFrame:
    # Time tells it what to forget, and a batch forgets nothing.
    return lower_operator(operator.join, site)


def _and(one: Column, other: Column) -> Column:
    return one & other


def _with_keys(site: Site, port: int, names: Sequence[str], keys: Sequence[Expr], label: str) -> DataFrame:
    """Rename an input's columns as in the pair, and add its keys as extra columns."""
    columns = [exact_column(old).alias(new) for old, new in zip(site.schemas[port].names, names, strict=True)]
    computed = [site.column(key, port).alias(f"{label} {at}") for at, key in enumerate(keys)]
    return site.inputs[port].select(*columns, *computed)


def _pair_schema(operator: Join, site: Site) -> Schema:
    fields = (*site.schemas[0].fields, *site.schemas[1].fields)
    return Schema(
        tuple(replace(field, name=name) for field, name in zip(fields, operator.pair_names, strict=True))
    )


@lower_operator.register(Distinct)
@lower_operator.register(DistinctOnTime)
@lower_operator.register(Unique)
def _(operator: Operator, site: Site) -> DataFrame:
    return site.inputs[0].distinct()


@lower_operator.register(Difference)
def _(operator: Difference, site: Site) -> DataFrame:
    pos, neg = site.inputs
    names = site.schemas[0].names
    # Null is equal to null here, and duplicates of `pos` stay: neither EXCEPT nor EXCEPT ALL is this.
    other = renamed(neg, [f"neg.{at}" for at in range(len(names))])
    same = (exact_column(name).eqNullSafe(exact_column(f"neg.{at}")) for at, name in enumerate(names))
    return pos.join(other, reduce(lambda a, b: a & b, same), "left_anti")
