"""Bridges: pieces of this form under everything that modules of the callback form may do, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import pull as callback
from headrace.pull import Recorder, dataflow
from headrace.pull.dataflow import as_callback, as_dataflow
from headrace.pull.errors import NeverAnswered
from headrace.testing.pull import RandomRuntime, check_sink, check_source, check_transformer
from tests.pull.dataflow.both_forms import LOWER, UPPER, Happened, Made, Recipe, run, violations
from tests.pull.dataflow.recipes import linear_scripts, recipes, scripts
from tests.pull.dataflow.test_equivalence import in_form, values_of

SEEDS = 40


def double(xs: list[int]) -> list[int]:
    return [2 * x for x in xs]


def test_sources_of_this_form_keep_every_rule() -> None:
    sources: list[tuple[dataflow.DataflowSource, list[Any]]] = [
        (dataflow.values([1, 2, 3]), [1, 2, 3]),
        (dataflow.count(2), [0, 1, 2]),
        (dataflow.once("a"), ["a"]),
        (dataflow.empty(), []),
        (dataflow.cat([dataflow.once(1), dataflow.empty(), dataflow.once(2)]), [1, 2]),
    ]
    for source, expected in sources:
        check_source(lambda source=source: as_callback(source), expected=expected, seeds=SEEDS)


def test_merge_of_this_form_keeps_every_rule() -> None:
    merged = dataflow.merge(dataflow.values([1, 3]), dataflow.values([2]))
    check_source(lambda: as_callback(merged), expected=[1, 2, 3], ordered=False, seeds=SEEDS)


def test_transformers_of_this_form_keep_every_rule() -> None:
    check_transformer(lambda: as_callback(dataflow.map(lambda x: 2 * x)), expected=double, seeds=SEEDS)
    check_transformer(
        lambda: as_callback(dataflow.filter(lambda x: x % 2)),
        one_to_one=False,
        expected=lambda xs: [x for x in xs if x % 2],
        seeds=SEEDS,
    )
    check_transformer(
        lambda: as_callback(dataflow.take(2)), one_to_one=False, expected=lambda xs: xs[:2], seeds=SEEDS
    )
    check_transformer(
        lambda: as_callback(dataflow.pull(dataflow.map(lambda x: [x, x]), dataflow.flatten())),
        one_to_one=False,
        expected=lambda xs: [x for x in xs for _ in range(2)],
        seeds=SEEDS,
    )


def test_async_map_of_this_form_keeps_every_rule() -> None:
    async def call(value: int) -> int:
        return 2 * value

    check_transformer(lambda: as_callback(dataflow.async_map(call, 2)), expected=double, seeds=SEEDS)


def test_sinks_of_this_form_keep_every_rule() -> None:
    check_sink(lambda: as_callback(dataflow.collect()), result=list, partial=list, seeds=SEEDS)
    check_sink(lambda: as_callback(dataflow.drain()), result=lambda _xs: None, seeds=SEEDS)
    check_sink(
        lambda: as_callback(dataflow.find(lambda value: value == 1)),
        result=lambda xs: 1 if xs else None,
        seeds=SEEDS,
    )


def twice(piece: Any, form: Any) -> Any:
    """A piece of a form as one of the other and back again."""
    if form is callback:
        return as_callback(as_dataflow(piece))
    return as_dataflow(as_callback(piece))


def bridged_twice(recipe: Recipe, form: Any) -> Recipe:
    return Recipe(
        Made("bridged", lambda _form: twice(recipe.source.of(form), form)),
        tuple(
            Made("bridged", lambda _form, module=module: twice(module.of(form), form))
            for module in recipe.through
        ),
        recipe.sink,
    )


def both(recipe: Recipe, form: Any, seed: int, other: int) -> tuple[Happened, Happened]:
    forms = (form,) * (len(recipe.through) + 2)
    bridged = run(bridged_twice(recipe, form), forms, runtime=RandomRuntime(other))
    assert violations(bridged) == []
    return in_form(form, recipe, RandomRuntime(seed)), bridged


forms = st.sampled_from([callback, dataflow])
seeds = st.integers(0, 10_000)


@given(recipes(linear_scripts), forms, seeds, seeds)
def test_bridging_there_and_back_changes_no_event(recipe: Recipe, form: Any, seed: int, other: int) -> None:
    one, bridged = both(recipe, form, seed, other)
    for ports in (UPPER, LOWER):
        assert list(map(str, one.of_end(ports))) == list(map(str, bridged.of_end(ports)))
    assert (one.result, one.error) == (bridged.result, bridged.error)


@given(recipes(scripts), forms, seeds, seeds)
def test_bridging_there_and_back_changes_no_value_of_concurrent_requests(
    recipe: Recipe, form: Any, seed: int, other: int
) -> None:
    one, bridged = both(recipe, form, seed, other)
    assert values_of(one) == values_of(bridged)


def test_a_sink_bridged_there_and_back_gives_its_result() -> None:
    sink = as_callback(as_dataflow(callback.collect()))
    assert callback.pull(callback.values([1]), sink).run() == [1]
    begun = as_callback(dataflow.pull(dataflow.map(str), as_dataflow(callback.collect())))
    assert callback.pull(callback.values([1]), begun).run() == ["1"]
    own = as_dataflow(as_callback(dataflow.collect()))
    assert dataflow.pull(dataflow.values([1]), own).run() == [1]


def test_a_bridged_sink_that_fails_has_its_partial_result() -> None:
    failing = callback.pull(
        callback.values([1, 2, 0]), callback.map(lambda x: 1 / x), as_callback(dataflow.collect())
    )
    run = failing.start()
    with pytest.raises(ZeroDivisionError):
        run.wait()
    assert run.partial == [1.0, 0.5]


def test_a_run_that_is_stopped_stops_a_bridged_sink() -> None:
    recorder = Recorder()
    values = callback.pushable()
    pipeline = callback.pull(values, callback.probe(recorder), as_callback(dataflow.collect()))
    run = pipeline.start()
    values.push(1)
    run.stop()
    assert run.finished
    assert str(recorder.trace()).endswith("D:abort3 U:ans2=done U:ans3=done")


def test_several_sinks_of_one_run_keep_their_results_when_one_is_bridged() -> None:
    first = callback.pull(callback.values([1]), as_callback(dataflow.collect()))
    second = callback.pull(callback.values([2]), callback.collect())
    assert callback.together(first, second).run() == ([1], [2])


def test_a_bridge_tells_how_many_requests_are_useful() -> None:
    async def call(value: int) -> int:
        return value

    seen: list[int] = []

    def notes(module: Any, edge: Any) -> None:
        seen.append(edge.window)
        module.done()

    chain = [as_callback(dataflow.async_map(call, 3)), callback.async_map(call, 2)]
    callback.pull(callback.values([1]), *chain, callback.PullSink.of("notes", notes)).run()
    assert seen == [5]


def test_a_bridge_in_the_other_direction_tells_it_too() -> None:
    async def call(value: int) -> int:
        return value

    seen: list[int] = []

    async def notes(module: dataflow.ModuleContext, upstream: dataflow.DataflowEdge) -> None:
        seen.append(upstream.window)
        module.done()

    def notes_in_callbacks(module: Any, edge: Any) -> None:
        seen.append(edge.window)
        module.done()

    chain = [as_dataflow(callback.async_map(call, 3)), dataflow.async_map(call, 2)]
    dataflow.pull(dataflow.values([1]), *chain, dataflow.DataflowSink.of("notes", notes)).run()
    sink = dataflow.pull(
        dataflow.async_map(call, 4), as_dataflow(callback.PullSink.of("notes", notes_in_callbacks))
    )
    callback.pull(callback.values([1]), as_callback(sink)).run()
    assert seen == [5, 4]


def test_what_hangs_beyond_a_bridge_is_named() -> None:
    def never(_abort: Any, _answer: Any) -> None:
        """Answers nothing."""

    async def silent(_module: dataflow.ModuleContext, requests: dataflow.Requests) -> None:
        await requests.next()

    above = as_callback(dataflow.pull(dataflow.DataflowSource.of("silent", silent), dataflow.map(str)))
    hanging = [
        (callback.pull(above, callback.collect()), "silent"),
        (dataflow.pull(as_dataflow(callback.source(never)), dataflow.collect()), "never"),
    ]
    for pipeline, name in hanging:
        with pytest.raises(NeverAnswered, match=f"from '{name}'") as stuck:
            pipeline.start().result()
        assert stuck.value.facts["modules"] == (name,)
