from decimal import Decimal
from typing import Any, NamedTuple

import penstock as ps
from penstock import col


class Order(NamedTuple):
    id: int
    country: str
    price: float
    note: Any


def revenue() -> ps.Flow:
    flow = ps.Flow("revenue")
    orders = flow.source("orders", Order)
    flow.source("customers", Order)
    orders.filter(col.price > 100).select("id")
    orders.filter(lambda order: order.price > 100, name="large")
    flow.sink("revenue", orders.group_by("country").agg(revenue=ps.sum(col.price)))
    return flow


def unknown_column() -> ps.Flow:
    flow = ps.Flow("german")
    flow.sink("german", flow.source("orders", Order).filter(col.contry == "DE"))
    return flow


def wrong_type() -> ps.Flow:
    flow = ps.Flow("sums")
    flow.sink("sums", flow.source("orders", Order).select(sum=col.id + col.country))
    return flow


def two_mistakes() -> ps.Flow:
    flow = ps.Flow("totals")
    both = flow.source("a", int).union(flow.source("b", int)).distinct()
    flow.sink("sum", both.fold(0, lambda total, n: total + n))
    flow.sink("difference", both.fold(0, lambda total, n: total - n))
    return flow


def no_sink() -> ps.Flow:
    flow = ps.Flow("empty")
    flow.source("orders", Order)
    return flow


def unvouched() -> ps.Flow:
    flow = ps.Flow("batches")
    flow.sink("batches", flow.source("orders", Order).every_tick())
    return flow


def untyped() -> ps.Flow:
    flow = ps.Flow("notes")
    flow.sink("notes", flow.source("orders", Order).select("note").distinct())
    return flow


def rounded() -> ps.Flow:
    flow = ps.Flow("rounded")
    prices = flow.source("prices", Decimal)
    flow.sink(
        "shares",
        prices.select(third=col.value / 3, share=col.value / col.value, square=col.value * col.value),
    )
    return flow


def failing() -> ps.Flow:
    return {}["nothing"]


def of_country(country: str) -> ps.Flow:
    return ps.Flow(country)


flow = revenue()
