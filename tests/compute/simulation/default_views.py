"""Views of simulations: joins, nested aggregates, recursion, views of views, and views that fail."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

import headrace as hr
from headrace import col
from headrace.flow.flow import Flow
from headrace.testing.compute.workload import Recipe, Workload


class Item(NamedTuple):
    """Row of a table, inserted and deleted."""

    key: int
    value: int


class Edge(NamedTuple):
    """Row of an append-only collection."""

    source: int
    target: int


class Total(NamedTuple):
    """Row of the view "totals"."""

    key: int
    total: int


class Share(NamedTuple):
    """Row of the view "shares"."""

    key: int
    share: int


def _totals() -> Flow:
    flow = hr.Flow("totals")
    flow.sink("out", flow.table("items", Item).group_by(col.key).agg(total=hr.sum(col.value)))
    return flow


def _joined() -> Flow:
    flow = hr.Flow("joined")
    prices = flow.table("prices", Item).select(item=col.key, price=col.value)
    flow.sink("out", flow.table("items", Item).join(prices, on=col.key == col.item))
    return flow


def _best() -> Flow:
    flow = hr.Flow("best")
    best = flow.table("items", Item).group_by(col.key).agg(best=hr.max(col.value))
    flow.sink("out", best.group_by(col.best).agg(keys=hr.count()))
    return flow


def _reached() -> Flow:
    flow = hr.Flow("reached")
    edges = flow.source("edges", Edge)
    reached = flow.feedback(Edge)
    hops = edges.select(middle=col.source, end=col.target)
    further = reached.join(hops, on=col.target == col.middle).select(source=col.source, target=col.end)
    reached.close(edges.union(further).distinct())
    flow.sink("out", reached)
    return flow


def _high() -> Flow:
    flow = hr.Flow("high")
    flow.sink("out", flow.table("totals", Total).filter(col.total > 2))
    return flow


def _priced() -> Flow:
    flow = hr.Flow("priced")
    prices = flow.table("prices", Item).select(item=col.key, price=col.value)
    flow.sink("out", flow.table("totals", Total).join(prices, on=col.key == col.item).distinct())
    return flow


def _shares() -> Flow:
    flow = hr.Flow("shares")
    # One row in sixteen fails by dividing by zero.
    flow.sink("out", flow.table("prices", Item).select(key=col.key, share=12 // (6 - col.key - col.value)))
    return flow


def _shared() -> Flow:
    flow = hr.Flow("shared")
    flow.sink("out", flow.table("shares", Share).group_by(col.share).agg(keys=hr.count()))
    return flow


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "totals": Recipe(_totals, ("key",)),
        "joined": Recipe(_joined, ("key",)),
        "best": Recipe(_best, ("best",)),
        "reached": Recipe(_reached, ("source",)),
        "high": Recipe(_high, ("key",)),
        "priced": Recipe(_priced, ("item",)),
        "shares": Recipe(_shares, ("key",)),
        "shared": Recipe(_shared, ("share",)),
    }
)


@cache
def default_workload() -> Workload:
    """Return the views of `RECIPES`, built once because most simulations use them."""
    return Workload.of(RECIPES)
