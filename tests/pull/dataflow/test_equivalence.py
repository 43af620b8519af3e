"""The two forms are the same protocol: the same pipeline makes the same events at every edge.

Where modules ask as their neighbours ask, the sameness is complete: whatever the order in which things
happen, in the same order the same events happen at both ends of every edge, requests under way at once,
stops, failures and requests after the end included. So it is for everything, also across bridges, where
a sink makes each request when the last one is answered. What is left is compared by what cannot depend
on the order: values, ends, the rules.
"""

from __future__ import annotations

from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from headrace import pull as callback
from headrace.pull import dataflow
from headrace.pull.pipeline_runtime import Runtime
from headrace.testing.pull import RandomRuntime
from tests.pull.dataflow.both_forms import (
    LOWER,
    UPPER,
    Happened,
    Joined,
    Made,
    Recipe,
    Sends,
    Waits,
    Wrong,
    failing,
    run,
    violations,
)
from tests.pull.dataflow.recipes import (
    cats,
    joins,
    linear_scripts,
    may_fail,
    merges,
    recipes,
    relays,
    scripts,
    sinks,
    sources,
    unstopped,
    workers,
)

seeds = st.integers(0, 10_000)
windows = st.integers(1, 4)
modules = st.one_of(relays, workers)
all_sources = st.one_of(sources, cats)


def in_form(form: Any, recipe: Recipe, runtime: Runtime, window: int | None = None) -> Happened:
    happened = run(recipe, (form,) * (len(recipe.through) + 2), runtime=runtime, window=window)
    assert violations(happened) == []
    return happened


def assert_same(one: Happened, other: Happened) -> None:
    for first, second in zip(one.edges, other.edges, strict=True):
        assert " ".join(first) == " ".join(second)
    assert (one.result, one.error) == (other.result, other.error)


def assert_same_at_each_end(one: Happened, other: Happened) -> None:
    for ports in (UPPER, LOWER):
        assert list(map(str, one.of_end(ports))) == list(map(str, other.of_end(ports)))
    assert (one.result, one.error) == (other.result, other.error)


def values_of(happened: Happened) -> list[str]:
    return [heard for heard in happened.result or () if heard.startswith("value")]


# --- the same order, the same events -------------------------------------------------------


EARLY_END = Recipe(
    Made("count()", lambda form: form.count()),
    (Made("take(0)", lambda form: form.take(0)),),
    (Sends("ask"), Sends("ask"), Sends("error")),
)


FAILS_WHILE_NOBODY_ASKS = Recipe(
    Joined(
        "merge",
        (
            (Made("values([1])", lambda form: form.values([1])), ()),
            (Made("error()", lambda form: form.error(Wrong("source"))), ()),
        ),
    ),
    (Made("map(fails)", lambda form: form.map(failing("test"))),),
    (Sends("ask"), Waits(), Sends("ask"), Waits()),
)
"""A source fails by itself when it has answered, and before it hears that downstream fails the stream."""


@given(recipes(scripts, source=sources | merges))
def test_any_sink_meets_the_same_events_in_the_usual_order(recipe: Recipe) -> None:
    assert_same(in_form(callback, recipe, Runtime()), in_form(dataflow, recipe, Runtime()))


@given(recipes(scripts, source=sources | merges), seeds)
@example(EARLY_END, 0)
@example(FAILS_WHILE_NOBODY_ASKS, 0)
def test_any_sink_meets_the_same_events_in_any_order(recipe: Recipe, seed: int) -> None:
    one = in_form(callback, recipe, RandomRuntime(seed))
    assert_same(one, in_form(dataflow, recipe, RandomRuntime(seed)))


@given(recipes(sinks, source=sources | merges), seeds, windows)
def test_sinks_that_ask_ahead_meet_the_same_events_in_any_order(
    recipe: Recipe, seed: int, window: int
) -> None:
    one = in_form(callback, recipe, RandomRuntime(seed), window)
    assert_same(one, in_form(dataflow, recipe, RandomRuntime(seed), window))


@given(recipes(linear_scripts, modules, all_sources | joins), seeds)
@example(FAILS_WHILE_NOBODY_ASKS, 0)
def test_one_request_at_a_time_makes_the_same_events_through_any_module(recipe: Recipe, seed: int) -> None:
    one = in_form(callback, recipe, RandomRuntime(seed))
    assert_same(one, in_form(dataflow, recipe, RandomRuntime(seed)))


@given(recipes(linear_scripts, modules, all_sources | joins))
@example(FAILS_WHILE_NOBODY_ASKS)
def test_one_request_at_a_time_makes_the_same_events_in_the_usual_order(recipe: Recipe) -> None:
    assert_same(in_form(callback, recipe, Runtime()), in_form(dataflow, recipe, Runtime()))


@given(recipes(linear_scripts, modules, joins), seeds, st.data())
def test_one_request_at_a_time_keeps_the_rules_across_bridges(
    recipe: Recipe, seed: int, data: st.DataObject
) -> None:
    assert violations(run(recipe, mixture(data, recipe), runtime=RandomRuntime(seed))) == []


# --- one pipeline of both forms ------------------------------------------------------------


def mixture(data: st.DataObject, recipe: Recipe) -> tuple[Any, ...]:
    form = st.sampled_from([callback, dataflow])
    return tuple(data.draw(form) for _ in range(len(recipe.through) + 2))


@given(recipes(linear_scripts, modules, all_sources), seeds, seeds, st.data())
def test_one_request_at_a_time_makes_the_same_events_across_bridges_in_any_two_orders(
    recipe: Recipe, seed: int, other: int, data: st.DataObject
) -> None:
    mixed = run(recipe, mixture(data, recipe), runtime=RandomRuntime(other))
    assert violations(mixed) == []
    assert_same_at_each_end(in_form(callback, recipe, RandomRuntime(seed)), mixed)


@given(recipes(unstopped, modules, all_sources), seeds, seeds, st.data())
def test_a_stream_that_is_not_stopped_gives_the_same_in_any_two_orders(
    recipe: Recipe, seed: int, other: int, data: st.DataObject
) -> None:
    # Where several values are asked for at once, `flatten` may ask upstream for more than are needed.
    assume(not (may_fail(recipe) and any(part.name.startswith("flatten") for part in recipe.through)))
    mixed = run(recipe, mixture(data, recipe), runtime=RandomRuntime(other))
    assert violations(mixed) == []
    one = in_form(callback, recipe, RandomRuntime(seed))
    assert (one.result, one.error) == (mixed.result, mixed.error)
    two = in_form(dataflow, recipe, RandomRuntime(other))
    assert (one.result, one.error) == (two.result, two.error)


@given(recipes(scripts, modules, all_sources), seeds, seeds, st.data())
def test_a_stream_that_is_stopped_gives_the_same_values_in_any_two_orders(
    recipe: Recipe, seed: int, other: int, data: st.DataObject
) -> None:
    # Where several values are asked for at once, `flatten` may meet a failure that nobody asked for.
    assume(not (may_fail(recipe) and any(part.name.startswith("flatten") for part in recipe.through)))
    mixed = run(recipe, mixture(data, recipe), runtime=RandomRuntime(other))
    assert violations(mixed) == []
    one = in_form(callback, recipe, RandomRuntime(seed))
    assert values_of(one) == values_of(mixed)
    assert values_of(one) == values_of(in_form(dataflow, recipe, RandomRuntime(other)))


@given(recipes(sinks, modules, all_sources), seeds, seeds, windows, st.data())
def test_sinks_have_the_same_result_in_any_two_orders(
    recipe: Recipe, seed: int, other: int, window: int, data: st.DataObject
) -> None:
    if may_fail(recipe):
        window = 1  # else it depends on the order whether a failure beyond the last value is met
    mixed = run(recipe, mixture(data, recipe), runtime=RandomRuntime(other), window=window)
    assert violations(mixed) == []
    one = in_form(callback, recipe, RandomRuntime(seed), window)
    assert (one.result, one.error) == (mixed.result, mixed.error)
    two = in_form(dataflow, recipe, RandomRuntime(other), window)
    assert (one.result, one.error) == (two.result, two.error)
