"""Random pipelines for both forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.pull.dataflow.both_forms import STOPS, Made, Recipe, Script, Sends, Waits, Wrong

small = st.integers(0, 4)


def _failing(at: int) -> Callable[[], tuple[Any, ...]]:
    """A function of one value that raises at its nth call, counted anew in each run."""

    def make() -> tuple[Any, ...]:
        calls = iter(range(at))

        def function(value: Any) -> Any:
            if next(calls, None) is None:
                raise Wrong(f"call {at}")
            return value

        return (function,)

    return make


def _making(at: int) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        function = _failing(at)()[0]
        return (lambda: function(5),)

    return make


sources = st.one_of(
    st.lists(small, max_size=5).map(lambda items: Made("values", lambda: (items,), str(items))),
    small.map(lambda last: Made("count", lambda: (last,), str(last))),
    st.just(Made("count")),
    small.map(lambda at: Made("infinite", _making(at), f"fails at {at}")),
    small.map(lambda value: Made("once", lambda: (value,), str(value))),
    st.just(Made("empty")),
    st.just(Made("error", lambda: (Wrong("source"),), "source")),
)

mapped = st.sampled_from(
    [
        Made("map", lambda: (lambda value: value + 1,), "+1"),
        Made("map", lambda: (lambda value: value * 10,), "*10"),
    ]
)
failing = st.builds(
    lambda name, at: Made(name, _failing(at), f"fails at {at}"), st.sampled_from(["map", "filter"]), small
)
filtered = small.map(
    lambda by: Made("filter", lambda: (lambda value: value % (by + 1) == 0,), f"divisible by {by + 1}")
)
transformers = st.one_of(
    mapped,
    failing,
    filtered,
    small.map(lambda count: Made("take", lambda: (count,), str(count))),
    small.map(lambda count: Made("skip", lambda: (count,), str(count))),
    st.just(Made("unique")),
    st.just(Made("unique", lambda: (lambda value: value % 3,), "by % 3")),
)

asks = st.integers(1, 4).map(lambda count: Sends("ask", count))
one_ask = st.just((Sends("ask"), Waits()))
stop = st.sampled_from(STOPS).map(Sends)
waits = st.integers(0, 2).map(Waits)

linear_steps = st.one_of(one_ask, one_ask, stop.map(lambda step: (step, Waits())))
linear_scripts = st.lists(linear_steps, max_size=10).map(lambda parts: sum(parts, ()))
"""Scripts that make each request when the last one is answered."""

scripts: st.SearchStrategy[Script] = st.lists(st.one_of(asks, asks, waits, stop), max_size=8).map(tuple)

sinks = st.one_of(
    st.integers(0, 4).map(lambda at: Made("find", lambda: (lambda value: value == at,), f"== {at}")),
    small.map(lambda at: Made("drain", lambda: (_until(at),), f"until value {at}")),
    small.map(lambda at: Made("for_each", _failing(at), f"fails at {at}")),
)
"""Sinks that end although the source does not, as long as it has values for them."""

whole_sinks = st.one_of(
    st.just(Made("collect")),
    st.just(Made("reduce", lambda: (lambda so_far, value: so_far + value, 0), "+")),
    st.just(Made("drain")),
)


def _until(at: int) -> Callable[[Any], bool]:
    calls = iter(range(at))
    return lambda _value: next(calls, None) is not None


def recipes(sink: st.SearchStrategy[Any]) -> st.SearchStrategy[Recipe]:
    return st.builds(Recipe, sources, st.lists(transformers, max_size=4).map(tuple), sink)


def endless(recipe: Recipe) -> bool:
    """Whether its source has no end, and a transformer may look for ever for a value that it lets through."""
    return recipe.source == Made("count")
