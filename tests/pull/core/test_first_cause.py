"""What fails while closing is a note of what had the stream closed, however late the source closes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pull import (
    PullSource,
    Run,
    cat,
    catch,
    collect,
    concat,
    dataflow,
    drain,
    eager,
    find,
    flatten,
    for_each,
    iterate,
    last,
    log,
    map,
    merge,
    on_end,
    pull,
    pushable,
    reduce,
    take,
    values,
)
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End
from headrace.testing.pull import RandomRuntime

ITEMS = range(10)
CLOSING = "then, while closing: OSError: close failed"


class Cause(Exception):
    pass


def close_fails(_error: Exception | None = None) -> None:
    raise OSError("close failed")


def raises(*_values: Any) -> Any:
    raise Cause


async def raises_later(_value: Any) -> None:
    raise Cause


def badly_closed() -> Iterator[int]:
    try:
        yield from ITEMS
    finally:
        close_fails()


def pushed() -> PullSource:
    handle = pushable(on_close=close_fails)
    for item in ITEMS:
        handle.push(item)
    return handle


class Resource:
    def cancel(self) -> None:
        close_fails()


def holding() -> PullSource:
    def open(module: Module) -> Callable[..., None]:
        module.cancel_at_end(Resource())

        def read(abort: End | None, answer: AnswerTo) -> None:
            answer(abort, 1)

        return read

    return PullSource.of("holding", open)


def listed() -> PullSource:
    return values(ITEMS, on_stop=close_fails)


SOURCES: dict[str, Callable[[], PullSource]] = {
    "values": listed,
    "iterate": lambda: iterate(badly_closed()),
    "pushable": pushed,
    "holding": holding,
    "cat": lambda: cat([listed(), values(ITEMS)]),
    "merge": lambda: merge(values(ITEMS), listed()),
    "flatten": lambda: pull(values([listed()]), flatten()),
    "flatten, the outer": lambda: pull(listed(), map(lambda x: values([x])), flatten()),
    "eager": lambda: pull(listed(), eager(3)),
    "mapped": lambda: pull(listed(), map(lambda x: x)),
    "dataflow and back": lambda: dataflow.as_callback(dataflow.as_dataflow(listed())),
}

SINKS: dict[str, Callable[[], Any]] = {
    "drain": lambda: drain(raises),
    "find": lambda: find(raises),
    "for_each": lambda: for_each(raises),
    "for_each of coroutines": lambda: for_each(raises_later),
    "log": lambda: log(to=raises),
    "reduce": lambda: reduce(raises, 0),
}
"""Sinks whose function raises at the first value."""

DATAFLOW_SINKS: dict[str, Callable[[], Any]] = {
    "drain": lambda: dataflow.drain(raises),
    "find": lambda: dataflow.find(raises),
    "for_each": lambda: dataflow.for_each(raises),
    "for_each of coroutines": lambda: dataflow.for_each(raises_later),
    "reduce": lambda: dataflow.reduce(raises, 0),
}

WHOLE_SINKS: dict[str, Callable[[], Any]] = {
    "collect": collect,
    "concat": concat,
    "drain": drain,
    "last": last,
    "on_end": lambda: on_end(lambda _error: None),
}

PIPELINES: dict[str, Callable[[PullSource], Any]] = {
    **{name: lambda source, sink=sink: pull(source, sink()) for name, sink in SINKS.items()},
    **{
        f"dataflow {name}": lambda source, sink=sink: dataflow.pull(dataflow.as_dataflow(source), sink())
        for name, sink in DATAFLOW_SINKS.items()
    },
    **{
        f"map, {name}": lambda source, sink=sink: pull(source, map(raises), sink())
        for name, sink in WHOLE_SINKS.items()
    },
    "dataflow map, collect": lambda source: dataflow.pull(
        dataflow.as_dataflow(source), dataflow.map(raises), dataflow.collect()
    ),
}

sources = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)


def assert_cause_first(run: Run) -> None:
    with pytest.raises(Cause) as raised:
        run.wait()
    assert raised.value.__notes__ == [CLOSING]


@sources
@pytest.mark.parametrize("pipeline", PIPELINES.values(), ids=PIPELINES)
@pytest.mark.parametrize("window", [None, 3])
def test_a_function_that_raises(
    source: Callable[[], PullSource], pipeline: Callable[[PullSource], Any], window: int | None
) -> None:
    assert_cause_first(pipeline(source()).start(window=window))


@given(
    st.sampled_from([*SOURCES.values()]),
    st.sampled_from([*PIPELINES.values()]),
    st.sampled_from([None, 1, 2, 3]),
    st.integers(0, 10_000),
)
def test_a_function_that_raises_in_any_order_of_events(
    source: Callable[[], PullSource], pipeline: Callable[[PullSource], Any], window: int | None, seed: int
) -> None:
    with RandomRuntime(seed) as runtime:
        assert_cause_first(pipeline(source()).start(runtime, window=window))


@sources
def test_a_sink_that_is_aborted_with_an_error(source: Callable[[], PullSource]) -> None:
    sink = drain(lambda _value: sink.abort(Cause()))
    assert_cause_first(pull(source(), sink).start())


@sources
def test_what_closing_fails_with_is_the_error_where_nothing_failed_before(
    source: Callable[[], PullSource],
) -> None:
    with pytest.raises(OSError, match="close failed") as raised:
        pull(source(), take(1), collect()).run()
    assert not hasattr(raised.value, "__notes__")


def test_what_closing_fails_with_is_not_lost_where_its_cause_is_caught() -> None:
    """`values` closes when its stop was confirmed already: nothing downstream can hear of it."""
    with pytest.raises(OSError, match="close failed"):
        pull(listed(), map(raises), catch(), collect()).run()
