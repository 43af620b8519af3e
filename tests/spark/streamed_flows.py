"""Flows that Spark alone refuses, with input in ticks: what streaming tests run."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import headrace as hr
from headrace import Flow, col


class Auction(NamedTuple):
    id: int
    category: int


class Bid(NamedTuple):
    auction: int
    price: int


class Edge(NamedTuple):
    start: int
    end: int


class Order(NamedTuple):
    id: int
    customer: str | None
    amount: float


@dataclass(frozen=True)
class Example:
    flow: Callable[[], Flow]
    ticks: Callable[[], list[dict[str, list[Any]]]]

    def batches(self) -> dict[str, list[list[Any]]]:
        """Per source its rows, tick by tick."""
        ticks = self.ticks()
        return {name: [tick.get(name, []) for tick in ticks] for name in self.flow().graph().sources}


def closing_prices() -> Flow:
    flow = Flow("closing prices")
    bids, auctions = flow.source("bids", Bid), flow.source("auctions", Auction)
    final = (
        bids.join(auctions, on=col.auction == col.id)
        .group_by(col.id, col.category)
        .agg(final=hr.max(col.price))
    )
    flow.sink("averages", final.group_by(col.category).agg(average=hr.mean(col.final)))
    flow.sink("high", bids.filter(col.price > 60))
    return flow


def bids_and_auctions() -> list[dict[str, list[Any]]]:
    choice = random.Random(7)
    return [
        {
            "auctions": [Auction(10 * tick + n, n % 4) for n in range(10)],
            "bids": [Bid(choice.randrange(10 * tick + 15), choice.randrange(100)) for _ in range(30)],
        }
        for tick in range(3)
    ]


def corrected_orders() -> Flow:
    flow = Flow("corrected orders")
    orders = flow.table("orders", Order)
    totals = orders.group_by(col.customer).agg(total=hr.sum(col.amount), n=hr.count())
    flow.sink("totals", totals)
    flow.sink("best", totals.top_k(2, by=col.total.desc()))
    blocked = flow.source("blocked", Order).select(col.customer)
    flow.sink("open", orders.select(col.customer).difference(blocked))
    return flow


def orders_and_corrections() -> list[dict[str, list[Any]]]:
    orders = [
        Order(n, None if n % 7 == 0 else f"c{n % 5}", float("nan") if n == 3 else n / 4) for n in range(20)
    ]
    return [
        {"orders": [hr.insert(o) for o in orders]},
        {"orders": [hr.delete(orders[3]), hr.delete(orders[8])], "blocked": [Order(0, "c1", 0.0)]},
        {},
        {"orders": [hr.Change(orders[5], 2), hr.delete(orders[19])], "blocked": [Order(0, None, 0.0)]},
    ]


def doubled(edge: Edge) -> list[Edge]:
    return [edge, Edge(edge.end, edge.start)]


def reachable() -> Flow:
    flow = Flow("reachable")
    edges = flow.source("edges", Edge).flat_map(doubled)
    seed = edges.filter(lambda edge: edge.start == 0).select(node=col.end)
    reached = flow.fixpoint(lambda r: r.join(edges, on=col.node == col.start).select(node=col.end), seed)
    flow.sink("reached", reached)
    flow.sink("count", reached.group_by().agg(n=hr.count()))
    return flow


def edges_in_ticks() -> list[dict[str, list[Any]]]:
    return [
        {"edges": [Edge(0, 1), Edge(1, 2), Edge(5, 6)]},
        {"edges": [Edge(6, 7)]},
        {"edges": [Edge(2, 5), Edge(9, 10)]},
    ]


def deferred() -> Flow:
    flow = Flow("deferred")
    bids = flow.source("bids", Bid)
    late = bids.defer_tick().defer_tick()
    flow.sink("late", late.group_by(col.auction).agg(n=hr.count()))
    return flow


EXAMPLES = {
    "closing prices": Example(closing_prices, bids_and_auctions),
    "corrected orders": Example(corrected_orders, orders_and_corrections),
    "reachable": Example(reachable, edges_in_ticks),
    "deferred": Example(deferred, lambda: [{"bids": [Bid(n % 3, n)] * 2} for n in range(3)]),
}
