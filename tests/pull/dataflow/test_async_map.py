"""async_map: calls beside the pipeline, in both forms."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import pull as callback
from headrace.pull import dataflow
from headrace.testing.pull import RandomRuntime, VirtualRuntime
from tests.pull.dataflow.both_forms import Made, Recipe, Wrong
from tests.pull.dataflow.recipes import endless, merged, relays, scripts, sinks, sources
from tests.pull.dataflow.test_equivalence import assert_same, in_form


def _calls(delays: list[int], failing: int | None) -> Callable[[int], Coroutine[Any, Any, int]]:
    async def function(value: int) -> int:
        await asyncio.sleep(delays[value % len(delays)])
        if value == failing:
            raise Wrong("call")
        return value

    return function


calling = st.builds(
    lambda delays, width, failing: Made(
        f"async_map({delays}, {width}, fails at {failing})",
        lambda form: form.async_map(_calls(delays, failing), width),
    ),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.integers(1, 3),
    st.none() | st.integers(0, 4),
)
some_values = st.lists(st.integers(0, 4), max_size=6).map(
    lambda items: Made(f"values({items})", lambda form: form.values(items))
)
recipes = st.builds(
    Recipe, some_values, st.lists(calling, min_size=1, max_size=2).map(tuple), scripts | sinks
)
merges = merged(some_values | merged(some_values, calling), calling)
around_merges = st.builds(Recipe, merges, st.lists(relays | calling, max_size=2).map(tuple), scripts | sinks)


@given(recipes | around_merges, st.integers(0, 10_000) | st.none())
def test_calls_make_the_same_events_in_any_order(recipe: Recipe, seed: int | None) -> None:
    def runtime() -> VirtualRuntime:
        return VirtualRuntime() if seed is None else RandomRuntime(seed)

    assert_same(in_form(callback, recipe, runtime()), in_form(dataflow, recipe, runtime()))


def _stores(delays: list[int], failing: int | None) -> Callable[[int], object]:
    """A function that answers at once or is awaited, by its value."""
    calls = _calls([delay - 1 for delay in delays], failing)
    return lambda value: None if delays[value % len(delays)] == 0 else calls(value)


for_eachs = st.builds(
    lambda delays, failing: Made(
        f"for_each({delays}, fails at {failing})", lambda form: form.for_each(_stores(delays, failing))
    ),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.none() | st.integers(0, 4),
)
stored = st.builds(
    Recipe, sources | merges, st.lists(relays | calling, max_size=2).map(tuple), for_eachs
).filter(lambda recipe: not endless(recipe))


@given(stored, st.integers(0, 10_000) | st.none(), st.integers(1, 4) | st.none())
def test_a_sink_that_awaits_calls_meets_the_same_events_in_any_order(
    recipe: Recipe, seed: int | None, window: int | None
) -> None:
    def runtime() -> VirtualRuntime:
        return VirtualRuntime() if seed is None else RandomRuntime(seed)

    one = in_form(callback, recipe, runtime(), window)
    assert_same(one, in_form(dataflow, recipe, runtime(), window))


@pytest.mark.parametrize("bridged", [False, True])
def test_a_run_that_is_stopped_waits_for_the_call_of_a_sink(bridged: bool) -> None:
    over: list[str] = []

    async def store(value: str) -> None:
        await asyncio.sleep(5)
        over.append(value)

    values = callback.pushable()
    sink = dataflow.for_each(store)
    piece = (
        callback.pull(values, dataflow.as_callback(sink))
        if bridged
        else dataflow.pull(dataflow.as_dataflow(values), sink)
    )
    with VirtualRuntime(passing=False) as runtime:
        run = piece.start(runtime)
        values.push("a")
        values.push("b")
        run.stop()
        assert not run.finished
        runtime.advance(5.0)
        assert run.finished
        assert run.result() is None
    assert over == ["a"]


def test_as_many_calls_are_under_way_as_there_are_places_in_the_pipeline() -> None:
    under_way: list[int] = []
    most = 0

    async def call(value: int) -> int:
        nonlocal most
        under_way.append(value)
        most = max(most, len(under_way))
        await asyncio.sleep(1)
        under_way.remove(value)
        return value

    runtime = VirtualRuntime()
    stages = [dataflow.async_map(call) for _ in range(3)]
    run = dataflow.pull(dataflow.count(9), *stages, dataflow.collect()).start(runtime)
    assert run.wait() == list(range(10))
    assert most == 3


def test_no_call_is_made_after_one_has_failed_or_the_stream_was_stopped() -> None:
    made: list[int] = []

    async def call(value: int) -> int:
        made.append(value)
        await asyncio.sleep(1)
        if value == 0:
            raise Wrong("call")
        return value

    def run(items: list[int], sink: dataflow.DataflowSink) -> Any:
        pieces = dataflow.values(items), dataflow.async_map(call), sink
        return dataflow.pull(*pieces).start(VirtualRuntime(), window=3).wait()

    with pytest.raises(Wrong):
        run([0, 7, 8], dataflow.collect())
    assert made == [0]
    made.clear()
    assert run([5, 6, 7], dataflow.find(lambda value: value == 5)) == 5
    assert made == [5, 6]  # the call of 6 began when that of 5 was over


def test_an_abort_is_confirmed_when_no_call_runs_any_more() -> None:
    ended: list[int] = []

    async def call(value: int) -> int:
        await asyncio.sleep(value)
        ended.append(value)
        return value

    runtime = VirtualRuntime()
    source = dataflow.values([1, 5])
    found = dataflow.pull(source, dataflow.async_map(call, width=2), dataflow.find(lambda value: value == 1))
    assert found.start(runtime).wait() == 1
    assert ended == [1, 5]
