"""Flows of users in the simulation: all that can be served, with their own rows and functions."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.compute.errors import CallableRefused
from headrace.compute.plans import encode
from headrace.errors import BadRow, HeadraceError, UnknownColumn
from headrace.flow.flow import Flow
from headrace.lattice import SetUnion
from headrace.testing.compute import ReaderViolation, Recipe, Simulation
from tests.compute.simulation.test_schedules import trace_in_a_process


class Place(NamedTuple):
    town: str
    floor: int | None


class Order(NamedTuple):
    customer: str
    price: Decimal
    at: datetime
    to: Place
    tags: list[str]
    weight: float | None


class Name(NamedTuple):
    customer: str
    name: str


class Total(NamedTuple):
    customer: str
    total: Decimal


class Spent(NamedTuple):
    name: str
    spent: float


def totals() -> Flow:
    flow = Flow("totals")
    orders = flow.table("orders", Order)
    flow.sink("totals", orders.group_by(col.customer).agg(total=hr.sum(col.price)))
    return flow


def named() -> Flow:
    flow = Flow("named")
    names = flow.source("names", Name).select(key=col.customer, name=col.name)
    totals = flow.table("totals", Total)
    flow.sink("named", totals.join(names, on=col.customer == col.key).distinct())
    return flow


def tagged() -> Flow:
    flow = Flow("tagged")
    orders = flow.table("orders", Order).flatten("tags")
    flow.sink("tags", orders.group_by(col.tags, col.weight).agg(count=hr.count(), last=hr.max(col.at)))
    return flow


def places() -> Flow:
    flow = Flow("places")
    flow.sink("places", flow.table("orders", Order).select(to=col.to, price=col.price))
    return flow


def words() -> Flow:
    flow = Flow("words")
    flow.sink("words", flow.source("words", str).distinct())
    return flow


def one_or_more(order: Order) -> list[Spent]:
    return [Spent(tag, float(order.price)) for tag in dict.fromkeys(["all", order.customer, *order.tags])]


def spent() -> Flow:
    flow = Flow("spent")
    flow.sink("spent", flow.table("orders", Order).flat_map(one_or_more))
    return flow


def letters() -> Flow:
    flow = Flow("letters")
    merged = flow.source("words", str).map(frozenset, returns=object).lattice_fold(SetUnion())
    flow.sink("letters", merged.flatten().map(str, returns=str))
    return flow


def draw_order(random: random.Random) -> Order:
    tags = random.sample(["new", "gift", "old"], random.randint(0, 3))
    place = Place(random.choice(["Bern", "Basel"]), random.choice([None, 1]))
    customer = random.choice(["ann", "bob", "cy"])
    return Order(
        customer,
        Decimal(random.randint(1, 9)),
        datetime(2024, 1, 1, tzinfo=UTC),
        place,
        tags,
        random.random(),
    )


PLAIN = {
    "totals": Recipe(totals, ("customer",)),
    "named": Recipe(named, ("customer", "name")),
    "tagged": Recipe(tagged, ("tags",)),
    "places": Recipe(places),
    "vocabulary": Recipe(words),
}
"""Views of views, and of all types that rows may have; rows and keys are drawn by these types."""
CALLED = {
    "totals": Recipe(totals(), ("customer",), {"orders": draw_order}),
    "spent": Recipe(spent, ("name",)),
    "letters": Recipe(letters, rows={"words": lambda random: random.choice(["dataflow", "stream"])}),
}
"""Functions in flows, and rows of the user's; and sets of texts, which each process orders in another way."""


def simulate(first: int, end: int, recipes: dict[str, Recipe], *, allow_callables: bool = False) -> None:
    for seed in range(first, end):
        Simulation(seed, steps=150, recipes=recipes, allow_callables=allow_callables).run()


def test_views_of_any_columns_are_right_whatever_dies() -> None:
    simulate(0, 15, PLAIN)


def test_functions_and_rows_of_the_user_are_simulated() -> None:
    simulate(0, 15, CALLED, allow_callables=True)


def test_a_plan_is_a_flow() -> None:
    simulate(0, 3, {"totals": Recipe(encode(totals()), ("customer",))})


def test_a_collection_that_one_view_needs_to_grow_may_be_a_table_for_another() -> None:
    grows = Flow("grows")
    grows.sink("out", grows.source("words", str).distinct())
    table = Flow("table")
    table.sink("out", table.table("words", str).group_by(col.value).agg(count=hr.count()))
    simulate(0, 5, {"table": Recipe(table), "grows": Recipe(grows)})


def test_a_function_that_fails_makes_its_view_fail_and_no_other() -> None:
    def root(number: int) -> int:
        if number == 3:
            raise ValueError("three has none")
        return number

    flow, other = Flow("roots"), Flow("other")
    flow.sink("out", flow.table("numbers", int).map(root))
    other.sink("out", other.table("numbers", int))
    simulate(0, 10, {"roots": Recipe(flow), "other": Recipe(other)}, allow_callables=True)


def test_a_fold_that_reads_the_order_after_all_is_found_out() -> None:
    def joined(words: str, word: str) -> str:
        return words + word

    flow = Flow("sentence")
    flow.sink("out", flow.source("words", str).fold("", joined, commutative=True))
    recipe = Recipe(flow, rows={"words": lambda random: random.choice(["a", "b"])})
    with pytest.raises(ReaderViolation, match=r"a (peek of|subscription to) sentence"):
        simulate(0, 20, {"sentence": recipe}, allow_callables=True)


@pytest.mark.parametrize(
    ("recipe", "error"),
    [
        (Recipe(spent), CallableRefused),
        (Recipe(totals, ("cust",)), UnknownColumn),
        (Recipe(totals, rows={"orders": lambda random: ("ann", "dear")}), BadRow),
    ],
)
def test_what_a_controller_refuses_is_refused_before_anything_is_simulated(
    recipe: Recipe, error: type[HeadraceError]
) -> None:
    with pytest.raises(error):
        Simulation(0, recipes={"view": recipe})


SAME = """
from headrace.testing.compute import Simulation
from tests.compute.simulation.test_recipes import CALLED, PLAIN

for recipes in (PLAIN, CALLED):
    for seed in range(4):
        simulation = Simulation(seed, steps=150, recipes=recipes, allow_callables=True)
        simulation.run()
        print(*simulation.trace, sep="\\n")
"""


@pytest.mark.verify
def test_a_seed_makes_the_same_schedule_of_the_users_flows_in_every_process() -> None:
    first, *others = (trace_in_a_process(salt, program=SAME).splitlines() for salt in (1, 2, 3))
    for other in others:
        assert other == first
