"""Programs as users write them: a flow that is run, served and asked, and the errors of all that."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple, assert_type

import headrace as hr
import headrace.spark
from headrace import col
from headrace.compute import AsyncClient, Client, Security
from headrace.errors import HeadraceError
from headrace.io import (
    Changelog,
    CsvFiles,
    DeltaTable,
    JsonFiles,
    Memory,
    TableFiles,
    parse_sink,
    parse_source,
)
from headrace.pull import for_each, map, pull, values


class Sale(NamedTuple):
    shop: str
    price: int


class Total(NamedTuple):
    shop: str
    total: int


flow = hr.Flow("totals")
sales = flow.table("sales", Sale)
flow.sink("totals", sales.group_by(col.shop).agg(total=hr.sum(col.price), into=Total))

signals = hr.Flow("signals")
bid = signals.signal("bid", float)
signals.sink("mid", (bid + signals.signal("ask", float)) / 2)


def rows() -> Iterator[Sale]:
    yield Sale("a", 1)


def run_here() -> None:
    result = hr.run(flow, sources={"sales": rows()}, sinks={"totals": Memory()})
    assert_type(result.last_tick, int)
    hr.run(flow, {"sales": JsonFiles("in")}, {"totals": TableFiles("out", key="shop")}, checkpoint="state")
    hr.run(flow, {"sales": parse_source("json:in")}, {"totals": parse_sink("-")})
    pull(values([1, 2, 3]), map(lambda x: x + 1), for_each(print)).run()


def run_on_spark() -> None:
    sinks = {"totals": Changelog("out"), "shops": DeltaTable("shops", "shop")}
    headrace.spark.run(flow, sources={"sales": CsvFiles("in")}, sinks=sinks)


def ask() -> None:
    with Client(security=Security.load(token_file="token")) as client:
        client.create_view("totals", flow, key="shop")
        client.insert("sales", [Sale("a", 1), Sale("b", 2)])
        assert_type(client.peek("totals", where=col.total > 3, order_by=col.total.desc()), list[Any])
        for batch in client.subscribe("totals"):
            for row, time, weight in batch.updates:
                print(row, time + weight)


async def ask_later() -> None:
    async with AsyncClient("127.0.0.1:7411") as client:
        async for batch in client.subscribe("totals"):
            print(batch.upper)


def explain() -> str:
    try:
        return hr.explain(flow)
    except HeadraceError as error:
        return f"{error.code} {error.what} {error.fix} {error.facts}"


asyncio.run(ask_later())
