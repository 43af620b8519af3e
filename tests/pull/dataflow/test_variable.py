"""Dataflow variables: bound once, read by anybody."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pull.dataflow import DataflowPort, DataflowStream, DataflowVariable, ListCell
from headrace.pull.dataflow.module_threads import Thread
from headrace.pull.errors import AlreadyBound, NotBound


def failing(error: Exception) -> None:
    raise error


def start(coroutine: Any) -> Thread:
    thread = Thread(coroutine, failing)
    thread.start()
    return thread


def test_a_variable_keeps_its_value() -> None:
    price: DataflowVariable[int] = DataflowVariable()
    assert not price.is_bound
    price.bind(7)
    assert price.is_bound
    assert price.value == 7
    with pytest.raises(AlreadyBound):
        price.bind(8)
    assert price.value == 7


def test_an_equal_value_may_be_bound_again_and_wakes_nobody_twice() -> None:
    woken: list[list[int]] = []
    found: DataflowVariable[list[int]] = DataflowVariable()
    found.when_bound(woken.append)
    found.bind([1, 2])
    found.bind([1, 2])
    assert woken == [[1, 2]]


def test_a_value_that_cannot_be_compared_is_another_one() -> None:
    class Unclear:
        def __eq__(self, other: object) -> bool:
            raise ValueError("ambiguous")

        __hash__ = None  # type: ignore[assignment]

    variable: DataflowVariable[Unclear] = DataflowVariable()
    first = Unclear()
    variable.bind(first)
    variable.bind(first)
    with pytest.raises(AlreadyBound):
        variable.bind(Unclear())


def test_the_value_of_an_unbound_variable_is_an_error() -> None:
    with pytest.raises(NotBound):
        _ = DataflowVariable[int]().value


def test_those_who_wait_are_woken_in_the_order_in_which_they_came() -> None:
    order: list[str] = []
    variable: DataflowVariable[int] = DataflowVariable()

    async def waits(name: str) -> None:
        order.append(f"{name} {await variable}")

    start(waits("a"))
    variable.when_bound(lambda value: order.append(f"b {value}"))
    start(waits("c"))
    variable.bind(1)
    start(waits("d"))
    assert order == ["a 1", "b 1", "c 1", "d 1"]


def test_whoever_needs_a_variable_that_fails_gets_its_error() -> None:
    heard: list[str] = []
    variable: DataflowVariable[int] = DataflowVariable()

    async def waits() -> None:
        try:
            await variable
        except ValueError as error:
            heard.append(f"thread {error}")

    start(waits())
    variable.when_bound(lambda _value: heard.append("value"), lambda error: heard.append(f"f {error}"))
    error = ValueError("no price")
    variable.fail(error)
    variable.fail(error)
    variable.when_bound(lambda _value: heard.append("value"), lambda error: heard.append(f"late {error}"))
    assert heard == ["thread no price", "f no price", "late no price"]
    with pytest.raises(ValueError, match="no price"):
        _ = variable.value
    assert variable.failure is error
    assert not variable.is_bound
    for wrong in (lambda: variable.bind(1), lambda: variable.fail(ValueError("no price"))):
        with pytest.raises(AlreadyBound):
            wrong()


def test_a_bound_variable_does_not_fail() -> None:
    variable: DataflowVariable[int] = DataflowVariable()
    variable.bind(1)
    with pytest.raises(AlreadyBound):
        variable.fail(ValueError())
    assert variable.value == 1


def test_what_a_variable_is_can_be_seen() -> None:
    variable: DataflowVariable[str] = DataflowVariable()
    assert repr(variable) == "DataflowVariable(_)"
    variable.bind("x")
    assert repr(variable) == "DataflowVariable('x')"
    failed: DataflowVariable[str] = DataflowVariable()
    failed.fail(ValueError("no"))
    assert repr(failed) == "DataflowVariable(failed: ValueError('no'))"


def test_a_chain_of_a_hundred_thousand_variables_takes_no_stack() -> None:
    chain = [DataflowVariable[int]() for _ in range(100_000)]
    for one, other in itertools.pairwise(chain):
        one.when_bound(lambda value, other=other: other.bind(value + 1))
    chain[0].bind(0)
    assert chain[-1].value == 99_999


def test_what_is_woken_late_is_woken_in_order() -> None:
    order: list[int] = []
    chain = [DataflowVariable[int]() for _ in range(300)]
    for at, (one, other) in enumerate(itertools.pairwise(chain)):
        one.when_bound(lambda value, other=other: other.bind(value))
        one.when_bound(lambda _value, at=at: order.append(at))
    chain[0].bind(0)
    assert sorted(order) == list(range(299))
    assert [at for at in order if at >= 61] == list(range(61, 299))


def test_a_failure_while_waking_goes_to_whoever_binds_and_leaves_nothing_behind() -> None:
    first: DataflowVariable[int] = DataflowVariable()
    first.when_bound(lambda _value: failing(ValueError("woken")))
    with pytest.raises(ValueError, match="woken"):
        first.bind(1)
    chain = [DataflowVariable[int]() for _ in range(100)]
    for one, other in itertools.pairwise(chain):
        one.when_bound(other.bind)
    chain[0].bind(5)
    assert chain[-1].value == 5


def test_threads_that_share_variables_agree_whoever_begins() -> None:
    # A plan in Oz: each name is computed when what it needs is there.
    for order in itertools.permutations(range(3)):
        a, b, c = DataflowVariable[int](), DataflowVariable[int](), DataflowVariable[int]()

        async def total(a: Any = a, b: Any = b, c: Any = c) -> None:
            c.bind(await a + await b)

        async def second(a: Any = a, b: Any = b) -> None:
            b.bind(await a * 10)

        async def first(a: Any = a) -> None:
            a.bind(4)

        threads = [total, second, first]
        for at in order:
            start(threads[at]())
        assert c.value == 44


@given(st.lists(st.integers()), st.integers(0, 10))
def test_a_stream_is_read_from_wherever_one_stands(items: list[int], late: int) -> None:
    port: DataflowPort[int] = DataflowPort()
    beginning = port.tail

    async def read(into: list[int]) -> None:
        async for item in DataflowStream(beginning):
            into.append(item)

    early: list[int] = []
    later: list[int] = []
    start(read(early))
    for at, item in enumerate(items):
        if at == late:
            start(read(later))
        port.send(item)
    assert early == items
    assert later == (items if late < len(items) else [])


def test_a_stream_ends_in_an_unbound_tail() -> None:
    tail: DataflowVariable[ListCell[int]] = DataflowVariable()
    cell = ListCell(1, tail)
    assert (cell.head, cell.tail.is_bound) == (1, False)
