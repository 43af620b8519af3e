"""What users see when a tick fails, and what the engine does afterwards."""

from __future__ import annotations

from typing import NamedTuple

import pytest

import headrace as hr
from headrace import Engine, col
from headrace.errors import (
    BadInput,
    BadRow,
    EngineStopped,
    EvaluationError,
    NoFixpoint,
    UserFunctionFailed,
)
from headrace.expr.compile_python import RUNTIME
from tests.golden import MESSAGES, assert_golden


class Item(NamedTuple):
    name: str
    price: int


def broken(item: Item) -> int:
    return 100 // item.price


def test_a_function_that_raises_is_named_with_its_row_and_place() -> None:
    flow = hr.Flow("broken")
    flow.sink("out", flow.source("items", Item).map(broken))
    with pytest.raises(UserFunctionFailed) as caught:
        Engine(flow).tick(items=[Item("a", 1), Item("b", 0)])
    error = caught.value
    assert error.row == ("b", 0)
    assert error.operator == "map_1"
    assert "ZeroDivisionError" in str(error)
    assert 'flow.source("items", Item).map(broken)' in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)


def test_an_expression_that_fails_is_named_with_its_row_and_place() -> None:
    flow = hr.Flow("overflow")
    flow.sink("out", flow.source("items", Item).select(square=col.price * col.price))
    with pytest.raises(EvaluationError) as caught:
        Engine(flow).tick(items=[Item("big", 2**40)])
    assert caught.value.row == ("big", 2**40)
    assert "test_failures.py" in str(caught.value)


def test_a_mistake_of_ours_is_raised_as_it_is_and_is_not_its_own_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flow = hr.Flow("rounded")
    flow.sink("out", flow.source("items", Item).select(rounded=(col.price / 3).round(1)))
    monkeypatch.setitem(RUNTIME, "x_round_float", lambda value, digits: [value][digits])
    engine = Engine(flow)
    with pytest.raises(IndexError) as caught:
        engine.tick(items=[Item("a", 1)])
    assert caught.value.__cause__ is None


def test_a_sum_beyond_int64_is_an_error() -> None:
    flow = hr.Flow("sum")
    flow.sink("out", flow.source("items", Item).group_by().agg(total=hr.sum(col.price)))
    engine = Engine(flow)
    engine.tick(items=[Item("a", 2**62)])
    with pytest.raises(EvaluationError, match="int64"):
        engine.tick(items=[Item("b", 2**62)])


def test_a_failed_engine_takes_no_further_tick() -> None:
    flow = hr.Flow("broken")
    flow.sink("out", flow.source("items", Item).map(broken))
    engine = Engine(flow)
    with pytest.raises(UserFunctionFailed):
        engine.tick(items=[Item("b", 0)])
    with pytest.raises(EngineStopped) as error:
        engine.tick(items=[Item("a", 1)])
    assert_golden(MESSAGES / "engine_stopped.txt", f"{error.value}\n")


def test_a_bad_row_is_refused_before_anything_changed() -> None:
    flow = hr.Flow("count")
    flow.sink("out", flow.source("items", Item).group_by().agg(n=hr.count()))
    engine = Engine(flow)
    with pytest.raises(BadRow):
        engine.tick(items=[Item("a", 1), Item("b", "not a number")])  # type: ignore[arg-type]
    assert list(engine.tick(items=[Item("a", 1)])["out"]) == [((1,), 1)]


def test_an_unknown_source_is_refused_with_the_known_ones() -> None:
    flow = hr.Flow("names")
    flow.sink("out", flow.source("items", Item))
    with pytest.raises(BadInput, match="'items'"):
        Engine(flow).tick(item=[Item("a", 1)])


def test_a_bounded_source_is_closed_after_the_first_tick() -> None:
    flow = hr.Flow("bounded")
    flow.sink("out", flow.source("items", Item, bounded=True))
    engine = Engine(flow)
    engine.tick(items=[Item("a", 1)])
    with pytest.raises(BadInput, match="bounded"):
        engine.tick(items=[Item("b", 1)])
    assert list(engine.tick(items=[])["out"]) == [], "and stays usable"


def test_a_loop_that_makes_new_rows_for_ever_ends_in_an_error() -> None:
    flow = hr.Flow("for ever")
    seed = flow.source("seed", int)
    up = flow.fixpoint(lambda n: n.select(value=col.value + 1, into=int), seed, max_iterations=50)
    flow.sink("out", up)
    with pytest.raises(NoFixpoint) as caught:
        Engine(flow).tick(seed=[0])
    assert caught.value.rounds == 50
    assert "feedback" in str(caught.value)
    assert "flow.fixpoint" in str(caught.value), "the user's line"
