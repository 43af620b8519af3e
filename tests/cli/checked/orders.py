from decimal import Decimal
from typing import Any, NamedTuple

import headrace as hr
from headrace import col


class Order(NamedTuple):
    id: int
    country: str
    price: float
    note: Any


def revenue() -> hr.Flow:
    flow = hr.Flow("revenue")
    orders = flow.source("orders", Order)
    flow.source("customers", Order)
    orders.filter(col.price > 100).select("id")
    orders.filter(lambda order: order.price > 100, name="large")
    flow.sink("revenue", orders.group_by("country").agg(revenue=hr.sum(col.price)))
    return flow


def unknown_column() -> hr.Flow:
    flow = hr.Flow("german")
    flow.sink("german", flow.source("orders", Order).filter(col.contry == "DE"))
    return flow


def wrong_type() -> hr.Flow:
    flow = hr.Flow("sums")
    flow.sink("sums", flow.source("orders", Order).select(sum=col.id + col.country))
    return flow


def two_mistakes() -> hr.Flow:
    flow = hr.Flow("totals")
    both = flow.source("a", int).union(flow.source("b", int)).distinct()
    flow.sink("sum", both.fold(0, lambda total, n: total + n))
    flow.sink("difference", both.fold(0, lambda total, n: total - n))
    return flow


def no_sink() -> hr.Flow:
    flow = hr.Flow("empty")
    flow.source("orders", Order)
    return flow


def unvouched() -> hr.Flow:
    flow = hr.Flow("batches")
    flow.sink("batches", flow.source("orders", Order).every_tick())
    return flow


def untyped() -> hr.Flow:
    flow = hr.Flow("notes")
    flow.sink("notes", flow.source("orders", Order).select("note").distinct())
    return flow


def rounded() -> hr.Flow:
    flow = hr.Flow("rounded")
    prices = flow.source("prices", Decimal)
    flow.sink(
        "shares",
        prices.select(third=col.value / 3, share=col.value / col.value, square=col.value * col.value),
    )
    return flow


def failing() -> hr.Flow:
    return {}["nothing"]


def of_country(country: str) -> hr.Flow:
    return hr.Flow(country)


flow = revenue()
