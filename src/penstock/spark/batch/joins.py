"""Joins: on equal keys, with the residual as a part of the condition."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from penstock.errors import NotOnSpark
from penstock.expr.types import Schema
from penstock.flow.operators.join import How, Join
from penstock.flow.operators.join_on_time import JoinOnTime
from penstock.spark.batch.operators import Site, lower, named, renamed
from penstock.spark.lowering.columns import to_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from penstock.expr.tree import Expr

_SPARK = {How.INNER: "inner", How.LEFT: "left", How.SEMI: "left_semi", How.ANTI: "left_anti"}


@lower.register(Join)
def _(operator: Join, site: Site) -> DataFrame:
    if operator.how not in _SPARK:
        raise NotOnSpark(f"no {operator.how.value} join as a batch on Spark", where=[site.node.location])
    names = operator.pair_names
    width = len(site.schemas[0].fields)
    left = _with_keys(site, 0, names[:width], operator.left_keys, "left key")
    right = _with_keys(site, 1, names[width:], operator.right_keys, "right key")
    # `=`, not `<=>`: null equals nothing. NaN equals NaN on Spark as it does here.
    tests = [named(f"left key {at}") == named(f"right key {at}") for at in range(len(operator.left_keys))]
    if operator.residual is not None:
        tests.append(to_column(operator.residual, _pair_schema(operator, site)))
    if tests:
        joined = left.join(right, reduce(_and, tests), _SPARK[operator.how])
    else:
        joined = left.crossJoin(right)
    kept = [*names[:width], *(names[width + at] for at in operator.kept_right)]
    return renamed(joined.select(*(named(name) for name in kept)), site.node.schema.names)


@lower.register(JoinOnTime)
def _(operator: JoinOnTime, site: Site) -> DataFrame:
    # Time tells it what to forget, and a batch forgets nothing.
    return lower(operator.join, site)


def _and(one: Column, other: Column) -> Column:
    return one & other


def _with_keys(site: Site, port: int, names: Sequence[str], keys: Sequence[Expr], label: str) -> DataFrame:
    """An input with its columns under their names in the pair, and its keys as further columns."""
    columns = [named(old).alias(new) for old, new in zip(site.schemas[port].names, names, strict=True)]
    computed = [site.column(key, port).alias(f"{label} {at}") for at, key in enumerate(keys)]
    return site.inputs[port].select(*columns, *computed)


def _pair_schema(operator: Join, site: Site) -> Schema:
    fields = (*site.schemas[0].fields, *site.schemas[1].fields)
    return Schema(
        tuple(replace(field, name=name) for field, name in zip(fields, operator.pair_names, strict=True))
    )
