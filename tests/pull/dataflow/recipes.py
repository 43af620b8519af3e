"""Random pipelines for both forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.pull.dataflow.both_forms import STOPS, Joined, Made, Recipe, Script, Sends, Waits, Wrong

small = st.integers(0, 4)


def _failing(at: int) -> Callable[[Any], Any]:
    """A function that raises when it is called after `at` calls."""
    calls = iter(range(at))

    def function(value: Any = 5) -> Any:
        if next(calls, None) is None:
            raise Wrong(f"call {at + 1}")
        return value

    return function


def _until(at: int) -> Callable[[Any], bool]:
    calls = iter(range(at))
    return lambda _value: next(calls, None) is not None


ENDLESS = Made("count()", lambda form: form.count())

sources = st.one_of(
    st.lists(small, max_size=5).map(lambda items: Made(f"values({items})", lambda form: form.values(items))),
    small.map(lambda last: Made(f"count({last})", lambda form: form.count(last))),
    st.just(ENDLESS),
    small.map(lambda at: Made(f"infinite(fails after {at})", lambda form: form.infinite(_failing(at)))),
    small.map(lambda value: Made(f"once({value})", lambda form: form.once(value))),
    st.just(Made("empty()", lambda form: form.empty())),
    st.just(Made("error()", lambda form: form.error(Wrong("source")))),
)

FAILING = ("infinite", "error", "map(fails", "filter(fails")
"""How the names of modules begin that fail by themselves."""

SEARCHING = ("filter", "unique", "skip")
"""How the names of transformers begin that may ask for ever for one value."""

sure = st.one_of(
    st.just(Made("map(+1)", lambda form: form.map(lambda value: value + 1))),
    st.just(Made("map(*10)", lambda form: form.map(lambda value: value * 10))),
    st.sampled_from([2, 3]).map(
        lambda by: Made(f"filter(by {by})", lambda form: form.filter(lambda value: value % by == 0))
    ),
    small.map(lambda count: Made(f"take({count})", lambda form: form.take(count))),
    small.map(lambda count: Made(f"skip({count})", lambda form: form.skip(count))),
    st.just(Made("unique()", lambda form: form.unique())),
    st.just(Made("unique(% 3)", lambda form: form.unique(lambda value: value % 3))),
)
failing = st.builds(
    lambda name, at: Made(f"{name}(fails after {at})", lambda form: getattr(form, name)(_failing(at))),
    st.sampled_from(["map", "filter"]),
    small,
)
relays = st.one_of(sure, sure, failing)
"""Transformers that ask as their neighbour asks: the two forms do the same under every schedule."""


def _inner(form: Any, value: Any) -> Any:
    """What a value of a stream of streams is: a list, a source, a source that fails."""
    kind = value % 4
    if kind == 0:
        return [value] * (value % 3)
    if kind == 1:
        return form.values([value, value + 1])
    return form.empty() if kind == 2 else form.pull(form.count(1), form.map(lambda v: v + value))


bursts = st.just(
    Made(
        "flatten(lists)",
        lambda form: form.pull(form.map(lambda value: [value] * (value % 3)), form.flatten()),
    )
)
inner_sources = st.just(
    Made(
        "flatten(sources)",
        lambda form: form.pull(form.map(lambda value: _inner(form, value)), form.flatten()),
    )
)
inner_errors = st.just(
    Made(
        "flatten(errors)",
        lambda form: form.pull(
            form.map(lambda value: form.error(Wrong("inner")) if value > 1 else [value]), form.flatten()
        ),
    )
)
workers = st.one_of(bursts, inner_sources, inner_errors)
"""Transformers that are one thread of work in dataflow variables."""

cats = st.lists(st.lists(small, max_size=3), max_size=3).map(
    lambda lists: Made(f"cat({lists})", lambda form: form.cat([form.values(items) for items in lists]))
)


def joined(
    inner: st.SearchStrategy[Made | Joined],
    through: st.SearchStrategy[Made] = relays,
    how: tuple[str, ...] = ("merge", "merge", "cat"),
) -> st.SearchStrategy[Made | Joined]:
    """Sources of up to three others, each with transformers behind it."""
    inputs = st.lists(st.tuples(inner, st.lists(through, max_size=2).map(tuple)), max_size=3).map(tuple)
    return st.builds(Joined, st.sampled_from(how), inputs)


joins = joined(st.recursive(sources, joined, max_leaves=4))
"""`merge` and `cat` of pipelines, also within each other."""


def merged(
    inner: st.SearchStrategy[Made | Joined], through: st.SearchStrategy[Made] = relays
) -> st.SearchStrategy[Made | Joined]:
    return joined(inner, through, ("merge",))


merges = merged(st.recursive(sources, merged, max_leaves=4))

stop = st.sampled_from(STOPS).map(Sends)
linear_steps = st.one_of(
    st.just((Sends("ask"), Waits())), st.just((Sends("ask"), Waits())), stop.map(lambda step: (step, Waits()))
)
linear_scripts = st.lists(linear_steps, max_size=10).map(lambda parts: sum(parts, ()))
"""Scripts that make each request when the last one is answered."""

steps = st.one_of(st.integers(1, 4).map(lambda count: Sends("ask", count)), st.integers(0, 2).map(Waits))
scripts: st.SearchStrategy[Script] = st.lists(st.one_of(steps, steps, stop), max_size=8).map(tuple)
unstopped: st.SearchStrategy[Script] = st.lists(steps, max_size=8).map(tuple)

sinks = st.one_of(
    st.just(Made("collect()", lambda form: form.collect())),
    st.just(Made("reduce(+)", lambda form: form.reduce(lambda total, value: total + value, 0))),
    st.just(Made("drain()", lambda form: form.drain())),
    small.map(lambda at: Made(f"find({at})", lambda form: form.find(lambda value: value == at))),
    small.map(lambda at: Made(f"drain({at})", lambda form: form.drain(_until(at)))),
)


def recipes(
    sink: st.SearchStrategy[Any],
    through: st.SearchStrategy[Made] = relays,
    source: st.SearchStrategy[Made | Joined] = sources,
) -> st.SearchStrategy[Recipe]:
    found = st.builds(Recipe, source, st.lists(through, max_size=4).map(tuple), sink)
    return found.filter(lambda recipe: not endless(recipe))


def endless(recipe: Recipe) -> bool:
    """Whether it would never end: its source has no end, and it reads on for what never comes."""
    if ENDLESS not in recipe.made:
        return False
    return isinstance(recipe.sink, Made) or any(
        module.name.startswith((*SEARCHING, "flatten")) for module in recipe.made
    )


def may_fail(recipe: Recipe) -> bool:
    return any(module.name.startswith((*FAILING, "flatten(err")) for module in recipe.made)
