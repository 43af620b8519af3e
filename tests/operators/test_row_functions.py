"""Row by row: at most one row, any number from a list, one of several ways, a look in passing."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.errors import (
    BadRow,
    EvaluationError,
    UnknownColumn,
    UnknownPort,
    UserFunctionFailed,
    WrongType,
)
from headrace.operators.map import VectorisedFunction
from headrace.testing import Backend, check_ticks
from tests.operators.test_sequences import in_order

AnyStream = hr.Stream[Any, Any, Any, Any]


class Shape(Enum):
    SQUARE = "square"
    CIRCLE = "circle"


class Drawn(NamedTuple):
    shape: str
    size: int | None


class Basket(NamedTuple):
    owner: str
    items: list[str]


class Unsure(NamedTuple):
    owner: str
    items: list[str] | None


def size(number: int) -> str:
    return "low" if number < 5 else "high"


def parsed(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def test_a_function_may_give_no_row(backend: Backend) -> None:
    check_ticks(
        backend,
        lambda flow: flow.table("texts", str).filter_map(parsed),
        """
        tick | texts   | out
        1    | 1; x; 1 | +2 1
        2    | - 1; 3  | - 1; + 3
        3    | - x     |
    """,
    )


def test_the_row_type_of_a_function_is_that_without_none() -> None:
    texts = hr.Flow("texts").source("texts", str)
    assert not texts.filter_map(parsed).schema.fields[0].nullable
    assert texts.filter_map(lambda text: None, returns=Drawn).schema.row_class is Drawn


def test_a_list_becomes_rows(backend: Backend) -> None:
    check_ticks(
        backend,
        lambda flow: flow.table("baskets", Basket).flatten("items"),
        """
        tick | baskets                 | out
        1    | ann [tea,ink]; bob []   | + ann tea; + ann ink
        2    | - ann [tea,ink]; ann [ink,ink] | - ann tea; + ann ink
    """,
    )


def test_each_element_has_its_position(backend: Backend) -> None:
    check_ticks(
        backend,
        lambda flow: flow.table("baskets", Basket).explode("items", into="item", position="at"),
        """
        tick | baskets                       | out
        1    | ann [tea,ink,tea]; bob []     | + ann 0 tea; + ann 1 ink; + ann 2 tea
        2    | - ann [tea,ink,tea]; cy [ink] | - ann 0 tea; - ann 1 ink; - ann 2 tea; + cy 0 ink
    """,
    )


def test_a_row_with_an_empty_list_stays_where_it_is_asked_for(backend: Backend) -> None:
    check_ticks(
        backend,
        lambda flow: flow.table("baskets", Basket).explode("items", outer=True),
        """
        tick | baskets                   | out
        1    | ann [tea,ink]; +2 bob []  | + ann tea; + ann ink; +2 bob null
        2    | - bob []                  | - bob null
    """,
    )
    check_ticks(
        backend,
        lambda flow: flow.source("baskets", Unsure).explode("items", position="at", outer=True),
        """
        tick | baskets                     | out
        1    | ann [tea]; bob null; cy []  | + ann 0 tea; + bob null null; + cy null null
    """,
    )


def test_explode_names_what_it_makes() -> None:
    baskets = hr.Flow("baskets").source("baskets", Basket)
    assert str(baskets.explode("items", into="item", position="at").schema) == (
        "(owner: str, at: int32, item: str)"
    )
    assert str(baskets.explode("items", position="at", outer=True).schema) == (
        "(owner: str, at: int32?, items: str?)"
    )
    for names in ({"into": "owner"}, {"position": "owner"}, {"into": "x", "position": "x"}):
        with pytest.raises(WrongType, match="two columns"):
            baskets.explode("items", **names)
    with pytest.raises(WrongType, match="needs a list, and owner is str"):
        baskets.explode("owner")


def test_a_list_of_any_values_becomes_rows_in_its_order() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("any", object).flatten()

    assert in_order(build, [{"any": [(3, "a"), (), None, ((1, 2),)]}]) == [[3, "a", (1, 2)]]
    # Members of a set have another place in each process; in the order of values everybody agrees.
    letters = frozenset("headrace")
    assert in_order(build, [{"any": [letters]}]) == [sorted(letters)]
    for wrong in (5, "text"):
        with pytest.raises(EvaluationError, match="is no list") as failed:
            in_order(build, [{"any": [wrong]}])
        assert failed.value.facts["row"] == (wrong,)


def test_only_lists_become_rows() -> None:
    baskets = hr.Flow("baskets").source("baskets", Basket)
    with pytest.raises(WrongType, match="which column"):
        baskets.flatten()
    with pytest.raises(WrongType, match="needs a list, and owner is str"):
        baskets.flatten("owner")
    with pytest.raises(UnknownColumn):
        baskets.flatten("item")


def test_a_list_is_named_as_every_column_is() -> None:
    baskets = hr.Flow("lists").source("baskets", Basket)
    assert baskets.flatten(col.items).schema == baskets.flatten("items").schema
    with pytest.raises(WrongType, match="flatten needs a column, got"):
        baskets.flatten(col.items == "tea")  # type: ignore[arg-type]


def test_who_inspects_sees_every_change_and_changes_nothing() -> None:
    seen: list[int] = []
    ticks: list[Any] = [{"n": [2, 1]}, {"n": [hr.delete(2)]}, {}]
    assert in_order(lambda flow: flow.table("n", int).inspect(seen.append), ticks) == [[2, 1], [2], []]
    assert seen == [2, 1, 2]


def test_a_row_goes_to_exactly_one_port(backend: Backend) -> None:
    def build(flow: hr.Flow) -> None:
        n = flow.table("n", int)
        even, odd = n.partition(lambda number: number % 2, 2)
        flow.sink("even", even)
        flow.sink("odd", odd)
        flow.sink("large", n.partition(size, ["low", "high"])["high"])

    check_ticks(
        backend,
        build,
        """
        tick | n          | even | odd        | large
        1    | 1; 2; 7; 7 | + 2  | + 1; +2 7  | +2 7
        2    | - 7; 4     | + 4  | - 7        | - 7
    """,
    )


def test_a_condition_tells_one_of_two_ports(backend: Backend) -> None:
    def build(flow: hr.Flow) -> None:
        low, high = flow.source("n", int).partition(col.value > 1, 2)
        flow.sink("low", low)
        flow.sink("high", high)

    check_ticks(
        backend,
        build,
        """
        tick | n       | low      | high
        1    | 1; 2; 0 | + 1; + 0 | + 2
    """,
    )
    with pytest.raises(WrongType, match="is not a"):
        hr.Flow("three").source("n", int).partition(col.value > 1, 3)


def test_tags_choose_streams(backend: Backend) -> None:
    def build(flow: hr.Flow) -> None:
        drawn = flow.table("drawn", Drawn)
        by_value = drawn.demux(col.shape, Shape)
        by_member = drawn.demux(lambda row: Shape(row.shape), Shape)
        flow.sink("squares", by_value[Shape.SQUARE])
        flow.sink("circles", by_member[Shape.CIRCLE])

    check_ticks(
        backend,
        build,
        """
        tick | drawn                         | squares           | circles
        1    | square 3; circle 5; square 3  | +2 square 3       | + circle 5
        2    | - square 3; circle null       | - square 3        | + circle null
    """,
    )


def test_a_port_that_is_none_is_named_with_the_row() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("n", int).partition(lambda number: number % 3, 2, name="halves")[0]

    with pytest.raises(UnknownPort, match="2 is not a port") as failed:
        in_order(build, [{"n": [0, 5]}])
    assert failed.value.facts["row"] == (5,)
    assert failed.value.facts["operator"] == "halves"
    assert failed.value.facts["port"] == 2


def test_ports_are_checked_when_the_flow_is_built() -> None:
    drawn = hr.Flow("drawn").source("drawn", Drawn)
    with pytest.raises(WrongType, match="is not a"):
        drawn.demux(col.shape, [1, 2])
    with pytest.raises(WrongType, match="different ports"):
        drawn.demux(col.shape, [])
    with pytest.raises(WrongType, match="different ports"):
        drawn.partition(lambda row: "a", ["a", "a"])
    with pytest.raises(WrongType, match="needs an expression or a function"):
        drawn.partition("shape", ["a"])  # type: ignore[call-overload]


@pytest.mark.parametrize("ports", [None, "open", [["a"]], 0, True])
def test_ports_that_are_no_ports_are_named(ports: Any) -> None:
    numbers = hr.Flow("ports").source("n", int)
    with pytest.raises(WrongType, match="partition needs different ports, got"):
        numbers.partition(lambda n: "a", ports)


def test_a_port_may_be_null() -> None:
    drawn = hr.Flow("drawn").source("drawn", Drawn)
    assert drawn.demux(col.size, [1, None])[None].schema == drawn.schema


def test_the_column_of_ports_clashes_with_no_other() -> None:
    class Ship(NamedTuple):
        port: str

    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("ships", Ship).demux(col.port, ["rome", "oslo"])["oslo"]

    assert in_order(build, [{"ships": [Ship("oslo"), Ship("rome")]}]) == [[("oslo",)]]


def test_pairs_come_apart(backend: Backend) -> None:
    def build(flow: hr.Flow) -> None:
        first, second = flow.table("drawn", Drawn).unzip()
        flow.sink("first", first)
        flow.sink("second", second)

    check_ticks(
        backend,
        build,
        """
        tick | drawn                  | first             | second
        1    | square 3; circle null  | + square; + circle | + 3; + null
        2    | - circle null          | - circle          | - null
    """,
    )


def test_only_pairs_come_apart() -> None:
    assert in_order(lambda flow: flow.source("any", object).unzip()[1], [{"any": [(1, "a")]}]) == [["a"]]
    for wrong in ((1, 2, 3), 7, "ab", None):
        with pytest.raises(BadRow, match="unzip needs pairs, got") as refused:
            in_order(lambda flow: flow.source("any", object).unzip()[1], [{"any": [wrong]}])
        assert refused.value.facts["row"] == (wrong,)
    with pytest.raises(WrongType, match="unzip needs pairs"):
        hr.Flow("numbers").source("n", int).unzip()


def test_a_tee_gives_names_and_costs_nothing() -> None:
    flow = hr.Flow("numbers")
    n = flow.source("n", int)
    assert n.tee(3) == (n, n, n)
    assert len(flow.nodes) == 1
    with pytest.raises(WrongType):
        n.tee("two")  # type: ignore[arg-type]


class Route(NamedTuple):
    steps: tuple[int, ...]


class Lengths(NamedTuple):
    lengths: dict[Route, int]


def test_keys_of_maps_that_hold_lists_have_them_as_tuples() -> None:
    flow = hr.Flow("lengths")
    flow.sink("out", flow.source("lengths", Lengths))
    row = Lengths({Route((1, 2)): 2})
    assert [change.row for change in hr.Engine(flow).tick(lengths=[row])["out"]] == [row]


class Increment(VectorisedFunction):
    """Adds one, and notes how many rows each call gets. Fails on 7, and on several rows if `alone`."""

    def __init__(self, alone: bool = False) -> None:
        self.alone = alone
        self.calls: list[int] = []

    def __call__(self, row: int) -> object:
        return self.of_rows([row])[0]

    def of_rows(self, rows: list[int]) -> list[object]:
        self.calls.append(len(rows))
        if 7 in rows or (self.alone and len(rows) > 1):
            raise ValueError(f"no seven in {rows}")
        return [row + 1 for row in rows]


def test_a_vectorised_function_answers_row_by_row(backend: Backend) -> None:
    check_ticks(
        backend,
        lambda flow: flow.table("n", int).map(Increment(), returns=int),
        """
        tick | n           | out
        1    | 1; 2; +3 5  | + 2; + 3; +3 6
        2    | - 1; - 5; 9 | - 2; - 6; + 10
        3    | - 9         | - 10
    """,
    )


def test_a_vectorised_function_gets_the_rows_of_a_tick_in_their_order() -> None:
    function = Increment()

    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("n", int).filter(col.value > 0).map(function, returns=int).enumerate()

    ticks: list[Any] = [{"n": [3, 0, 1, 2]}, {"n": [0]}, {"n": [5]}]
    assert in_order(build, ticks) == [[(0, 4), (1, 2), (2, 3)], [], [(3, 6)]]
    assert function.calls == [3, 1]


@pytest.mark.parametrize("changes", [False, True])
def test_a_vectorised_function_may_stand_in_a_loop(changes: bool) -> None:
    function = Increment()
    flow = hr.Flow("numbers")
    start = flow.table("n", int) if changes else flow.source("n", int)
    back = flow.feedback(int, changes=changes)
    numbers = start.union(back).distinct()
    back.close(numbers.filter(col.value < 6).map(function, returns=int))
    flow.sink("out", numbers)
    engine = hr.Engine(flow)
    assert [change.row for change in engine.tick(n=[1, 4])["out"]] in ([1, 4, 2, 5, 3, 6], [1, 2, 3, 4, 5, 6])
    # A round has all its rows at once, unless rows may be taken back.
    assert function.calls == ([1] * 5 if changes else [2, 2, 1])
    if changes:
        assert sorted(engine.tick(n=[hr.delete(1)])["out"]) == [(1, -1), (2, -1), (3, -1)]


def test_a_row_on_which_a_vectorised_function_fails_is_named() -> None:
    for rows in ([7], [1, 7, 2], list(range(20))):
        with pytest.raises(UserFunctionFailed, match=r"ValueError: no seven in \[7\]") as failed:
            in_order(lambda flow: flow.table("n", int).map(Increment(), returns=int), [{"n": rows}])
        assert failed.value.facts["row"] == (7,)
        assert failed.value.why == "a function of 'map_1' raised. The row was (7,)."
    with pytest.raises(UserFunctionFailed, match=r"no seven in \[1, 2\]") as failed:
        in_order(lambda flow: flow.table("n", int).map(Increment(alone=True), returns=int), [{"n": [1, 2]}])
    assert failed.value.facts["row"] is None
    assert failed.value.facts["operator"] == "map_1"
