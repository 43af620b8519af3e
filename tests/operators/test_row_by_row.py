"""Operators that look at one row at a time: each change goes through with its weight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.errors import BadRow, UserFunctionFailed
from headrace.testing import Backend, check_ticks
from tests.operators.conftest import ENGINES

AnyStream = hr.Stream[Any, Any, Any, Any]


class Order(NamedTuple):
    item: str
    count: int | None


class Line(NamedTuple):
    text: str
    length: int


def test_a_select_computes_columns_and_keeps_every_row(backend: Backend) -> None:
    def halves(flow: hr.Flow) -> AnyStream:
        return flow.table("orders", Order).select(even=col.count % 2 == 0)

    check_ticks(
        backend,
        halves,
        """
        tick | orders              | out
        1    | tea 2; pot 4; cup 1 | +2 true; + false
        2    | - tea 2             | - true
        3    | jug null            | + null
        4    |                     |
    """,
    )


def test_a_deletion_may_overtake_its_insertion(backend: Backend) -> None:
    def items(flow: hr.Flow) -> AnyStream:
        return flow.table("orders", Order).filter(col.count > 1).select("item")

    check_ticks(
        backend,
        items,
        """
        tick | orders         | out
        1    | - tea 2        | - tea
        2    | tea 3          | + tea
        3    | tea 2; - pot 1 | + tea
    """,
    )


def test_changes_that_a_select_makes_equal_cancel_within_a_tick(backend: Backend) -> None:
    def items(flow: hr.Flow) -> AnyStream:
        return flow.table("orders", Order).select("item")

    check_ticks(
        backend,
        items,
        """
        tick | orders         | out
        1    | tea 2          | + tea
        2    | - tea 2; tea 3 |
        3    | tea 3; - tea 3 |
    """,
    )


def test_with_columns_replaces_in_place_and_adds_at_the_end(backend: Backend) -> None:
    def swapped(flow: hr.Flow) -> AnyStream:
        orders = flow.table("orders", Order)
        return orders.with_columns(count=hr.coalesce(col.count, 0) + 1, before=col.count)

    check_ticks(
        backend,
        swapped,
        """
        tick | orders        | out
        1    | tea 2; cup null | + tea 3 2; + cup 1 null
        2    | - tea 2       | - tea 3 2
    """,
    )


def test_a_filter_drops_false_and_null(backend: Backend) -> None:
    def large(flow: hr.Flow) -> AnyStream:
        return flow.table("orders", Order).filter(col.count > 1)

    check_ticks(
        backend,
        large,
        """
        tick | orders                 | out
        1    | tea 2; cup 1; jug null | + tea 2
        2    | - tea 2; - cup 1       | - tea 2
    """,
    )


def test_a_filter_by_a_function_sees_the_row_class(backend: Backend) -> None:
    def short(flow: hr.Flow) -> AnyStream:
        return flow.table("orders", Order).filter(lambda order: len(order.item) == 3)

    check_ticks(
        backend,
        short,
        """
        tick | orders         | out
        1    | tea 2; kettle 1 | + tea 2
        2    | - tea 2        | - tea 2
    """,
    )


def test_a_map_takes_the_image_of_a_taken_back_row_back(backend: Backend) -> None:
    def line(order: Order) -> Line:
        return Line(order.item * 2, len(order.item))

    def lines(flow: hr.Flow) -> AnyStream:
        return flow.table("orders", Order).map(line)

    check_ticks(
        backend,
        lines,
        """
        tick | orders          | out
        1    | +2 tea 2; cup 1 | +2 teatea 3; + cupcup 3
        2    | - tea 2         | - teatea 3
    """,
    )


def test_a_flat_map_gives_every_item_the_weight_of_its_row(backend: Backend) -> None:
    def letters(order: Order) -> Iterator[str]:
        yield from order.item

    def all_letters(flow: hr.Flow) -> AnyStream:
        return flow.table("orders", Order).flat_map(letters)

    check_ticks(
        backend,
        all_letters,
        """
        tick | orders    | out
        1    | +2 tea 1  | +2 t; +2 e; +2 a
        2    | '' 1      |
        3    | pap 1     | +2 p; + a
        4    | - tea 1   | - t; - e; - a
    """,
    )


def test_a_union_keeps_copies_of_all_its_inputs(backend: Backend) -> None:
    def both(flow: hr.Flow) -> AnyStream:
        a, b = flow.table("a", int), flow.table("b", int)
        return a.union(b, a)

    check_ticks(
        backend,
        both,
        """
        tick | a     | b     | out
        1    | 1     | 1; 2  | +3 1; + 2
        2    | - 1   | 1     | - 1
        3    | 5     | 5     | +3 5
        4    | - 5   | - 5   | -3 5
    """,
    )


def test_a_stream_may_leave_by_several_sinks(backend: Backend) -> None:
    def twice(flow: hr.Flow) -> None:
        numbers = flow.table("numbers", int)
        flow.sink("all", numbers)
        flow.sink("large", numbers.filter(col.value > 1))

    check_ticks(
        backend,
        twice,
        """
        tick | numbers  | all       | large
        1    | 1; 2     | + 1; + 2  | + 2
        2    | - 2; 2   |           |
        3    | - 1      | - 1       |
    """,
    )


def test_a_function_that_raises_is_an_error_that_shows_operator_and_row() -> None:
    def inverse(n: int) -> float:
        return 1 / n

    flow = hr.Flow("inverses")
    flow.sink("out", flow.source("numbers", int).map(inverse, name="inverted"))
    with pytest.raises(UserFunctionFailed, match="inverted") as raised:
        hr.Engine(flow).tick(numbers=[1, 0])
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_a_function_that_answers_with_another_type_is_an_error() -> None:
    def text(n: int) -> int:
        return str(n)  # type: ignore[return-value]

    flow = hr.Flow("texts")
    flow.sink("out", flow.source("numbers", int).map(text, name="texts"))
    with pytest.raises(BadRow, match="texts"):
        hr.Engine(flow).tick(numbers=[1])


def test_a_change_of_weight_0_is_none() -> None:
    flow = hr.Flow("nothing")
    numbers = flow.table("numbers", int)
    flow.sink("out", numbers.join(numbers, on="value"))
    engine = hr.Engine(flow, state=(state := {s.name: {} for s in hr.Engine(flow).program.slots}))
    assert engine.tick(numbers=[hr.Change(1, 0)])["out"] == []
    assert not any(state.values())


@pytest.mark.parametrize("weight", [1.0, "1", None, True])
def test_a_weight_that_is_no_integer_is_an_error(weight: object) -> None:
    flow = hr.Flow("weights")
    flow.sink("out", flow.table("numbers", int))
    with pytest.raises(BadRow, match="row 1: the weight must be int"):
        hr.Engine(flow).tick(numbers=[hr.insert(1), hr.Change(2, weight)])


def test_a_function_may_say_the_width_of_its_result() -> None:
    def narrow(number: int) -> hr.Int32:
        return number

    flow = hr.Flow("narrow")
    assert str(flow.source("numbers", int).map(narrow).schema) == "(value: int32)"


@pytest.mark.parametrize("engine", ["in process", "in shards"])
def test_a_column_that_nobody_reads_is_not_computed_and_cannot_fail(engine: str) -> None:
    def shares(flow: hr.Flow) -> AnyStream:
        return flow.table("orders", Order).select("item", share=1 // col.count).select("item")

    check_ticks(
        ENGINES[engine](),
        shares,
        """
        tick | orders       | out
        1    | tea 0; pot 4 | + tea; + pot
    """,
    )
