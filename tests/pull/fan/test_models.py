"""Streams of streams against models of a few lines, in random orders, with random errors and aborts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pull import (
    Pipeline,
    PullSink,
    PullSource,
    Run,
    collect,
    flat_map,
    flatten,
    fork,
    many,
    merge,
    pair,
    pull,
    sorted_merge,
    take,
    tee,
    together,
    values,
)
from headrace.pull.fan_in import Equal
from headrace.testing import RandomRuntime
from tests.pull.fan.scripts import Broken, Script, scripts

SEEDS = st.integers(0, 10_000)
WINDOWS = st.sampled_from([None, 1, 2, 5])
BATCHES = st.sampled_from([1, 2, 7])
TAKEN = st.none() | st.integers(0, 6)


def finished(pipeline: Pipeline, seed: int, window: int | None, *involved: Script) -> Run:
    """The run of a pipeline in a random order; every end was confirmed, everything opened has ended once."""
    runtime = RandomRuntime(seed)
    run = pipeline.start(runtime, window=window)
    assert run.finished, run.unfinished_error()
    assert all(script.is_quiet() for script in involved), [vars(script) for script in involved]
    assert not runtime.left
    run.abandon()
    runtime.close()
    return run


def ended_by(taken: int | None, batch: int) -> PullSink:
    return collect(batch=batch) if taken is None else pull(take(taken), collect(batch=batch))


def result_of(run: Run) -> tuple[list[Any], Exception | None]:
    if run.error is not None:
        return run.partial, run.error
    return run.result(), None


# --- one after the other -----------------------------------------------------------------------


Inner = Script | list[int] | int
INNER = scripts() | st.lists(st.integers(0, 9), max_size=4) | st.integers(0, 9)


def flat_model(outer: Script, inners: list[Inner]) -> tuple[list[int], bool]:
    """What comes, and whether it ends with an error."""
    found: list[int] = []
    for inner in inners:
        if isinstance(inner, Script):
            found += inner.items
            if inner.end is not True:
                return found, True
        else:
            found += inner if isinstance(inner, list) else [inner]
    return found, outer.end is not True


@settings(max_examples=300, deadline=None)
@given(scripts(), st.lists(INNER, min_size=5, max_size=5), TAKEN, BATCHES, WINDOWS, SEEDS)
def test_flat_streams_are_what_they_contain_one_after_the_other(
    outer: Script, inners: list[Inner], taken: int | None, batch: int, window: int | None, seed: int
) -> None:
    inners = inners[: len(outer.values)]
    involved = [inner for inner in inners if isinstance(inner, Script)]
    if len({id(inner) for inner in involved}) < len(involved):
        return
    outer.values = [
        (seconds, inner.source() if isinstance(inner, Script) else inner)
        for (seconds, _), inner in zip(outer.values, inners, strict=True)
    ]
    expected, fails = flat_model(outer, inners)
    run = finished(pull(outer.source(), flatten(), ended_by(taken, batch)), seed, window, outer, *involved)
    found, error = result_of(run)
    if taken is None:
        assert found == expected
        assert (error is not None) == fails
    else:
        assert found == expected[:taken][: len(found)]
        assert len(found) == min(taken, len(expected)) or error is not None


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(), max_size=6), max_size=6), BATCHES, TAKEN, WINDOWS, SEEDS)
def test_flat_map_is_a_nested_loop(
    lists: list[list[int]], batch: int, taken: int | None, window: int | None, seed: int
) -> None:
    pipeline = pull(values(range(len(lists))), flat_map(lambda at: lists[at]), ended_by(taken, batch))
    run = finished(pipeline, seed, window)
    assert run.result() == [item for items in lists for item in items][:taken]


# --- beside each other -------------------------------------------------------------------------


def tagged(name: int) -> Callable[[Script], Script]:
    def tag(script: Script) -> Script:
        script.values = [(seconds, (name, at)) for at, (seconds, _value) in enumerate(script.values)]
        return script

    return tag


THREE = st.tuples(*(scripts().map(tagged(name)) for name in range(3))).map(list)


@settings(max_examples=300, deadline=None)
@given(THREE, st.booleans(), TAKEN, BATCHES, WINDOWS, SEEDS)
def test_merged_streams_keep_their_own_order_and_lose_nothing(
    inputs: list[Script], fixed: bool, taken: int | None, batch: int, window: int | None, seed: int
) -> None:
    sources = [script.source() for script in inputs]
    merged = merge(*sources) if fixed else many(sources)
    run = finished(pull(merged, ended_by(taken, batch)), seed, window, *inputs)
    found, error = result_of(run)
    for name, script in enumerate(inputs):
        mine = [item for item in found if item[0] == name]
        assert mine == script.items[: len(mine)]
    all_items = sum(len(script.items) for script in inputs)
    if error is None:
        assert len(found) == (all_items if taken is None else min(taken, all_items))
    else:
        assert isinstance(error, Broken)
        assert any(script.end is error or script.closes_with is error for script in inputs)
    if taken is None:
        assert (error is not None) == any(script.end is not True for script in inputs)


def sorted_model(inputs: list[list[int]], equal: Equal) -> list[tuple[int, int]]:
    """(value, number of its input), for every value that goes on."""
    found = [(value, number) for number, items in enumerate(inputs) for value in items]
    if equal != "both":
        first = min if equal == "left" else max
        winners = {value: first(n for v, n in found if v == value) for value, _ in found}
        found = [(value, number) for value, number in found if winners[value] == number]
    return sorted(found)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(scripts(st.integers(0, 4), sort=True, may_fail=False), max_size=4, unique_by=id),
    st.sampled_from(["both", "left", "right"]),
    TAKEN,
    BATCHES,
    WINDOWS,
    SEEDS,
)
def test_sorted_streams_are_merged_as_sorting_does(
    inputs: list[Script], equal: Equal, taken: int | None, batch: int, window: int | None, seed: int
) -> None:
    expected = sorted_model([script.items for script in inputs], equal)
    for number, script in enumerate(inputs):
        script.values = [(seconds, (value, number)) for seconds, value in script.values]
    merged = sorted_merge(*(script.source() for script in inputs), key=lambda item: item[0], equal=equal)
    run = finished(pull(merged, ended_by(taken, batch)), seed, window, *inputs)
    assert run.result() == expected[:taken]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(scripts(st.integers(0, 4), sort=True), max_size=4, unique_by=id), TAKEN, BATCHES, WINDOWS, SEEDS
)
def test_errors_of_sorted_streams_are_not_swallowed(
    inputs: list[Script], taken: int | None, batch: int, window: int | None, seed: int
) -> None:
    merged = sorted_merge(*(script.source() for script in inputs))
    run = finished(pull(merged, ended_by(taken, batch)), seed, window, *inputs)
    found, error = result_of(run)
    assert found == sorted(item for script in inputs for item in script.items)[: len(found)]
    if taken is None:
        assert (error is not None) == any(script.end is not True for script in inputs)


# --- one for several ---------------------------------------------------------------------------


BRANCHES = st.lists(st.tuples(TAKEN, BATCHES), min_size=1, max_size=3)
AHEAD = st.sampled_from([0, 1, 3, None])


def branches_end(
    upstream: Script,
    branches: Sequence[PullSource],
    ends: list[tuple[int | None, int]],
    seed: int,
    window: int | None,
) -> tuple[Run, list[list[Any]]]:
    """The run of all branches together, and what each of them collected."""
    kept: list[list[Any]] = [[] for _ in branches]

    def keeping(at: int) -> Callable[[Any], list[Any]]:
        def keep(value: Any) -> list[Any]:
            kept[at].append(value)
            return [value]

        return keep

    pipelines = [
        pull(branch, *([] if taken is None else [take(taken)]), flat_map(keeping(at)), collect(batch=batch))
        for at, (branch, (taken, batch)) in enumerate(zip(branches, ends, strict=True))
    ]
    return finished(together(*pipelines), seed, window, upstream), kept


@settings(max_examples=300, deadline=None)
@given(scripts(), BRANCHES, AHEAD, WINDOWS, SEEDS)
def test_each_branch_of_tee_is_the_whole_stream(
    upstream: Script, ends: list[tuple[int | None, int]], ahead: int | None, window: int | None, seed: int
) -> None:
    branches = tee(upstream.source(), len(ends), ahead=ahead)
    run, kept = branches_end(upstream, branches, ends, seed, window)
    for (taken, _), found in zip(ends, kept, strict=True):
        assert found == upstream.items[:taken]
    if any(taken is None for taken, _ in ends):
        assert (run.error is not None) == (upstream.end is not True)


@settings(max_examples=300, deadline=None)
@given(scripts(), st.lists(st.tuples(TAKEN, BATCHES), min_size=2, max_size=2), AHEAD, WINDOWS, SEEDS)
def test_each_branch_of_fork_is_its_part_of_the_stream(
    upstream: Script, ends: list[tuple[int | None, int]], ahead: int | None, window: int | None, seed: int
) -> None:
    branches = fork(upstream.source(), lambda value: value % 2 == 0, ahead=ahead)
    _run, kept = branches_end(upstream, branches, ends, seed, window)
    for even, (taken, _), found in zip((False, True), ends, kept, strict=True):
        part = [value for value in upstream.items if (value % 2 == 0) == even]
        assert found == part[:taken]


@settings(max_examples=100, deadline=None)
@given(scripts(), TAKEN, BATCHES, WINDOWS, SEEDS)
def test_a_pair_changes_nothing(
    upstream: Script, taken: int | None, batch: int, window: int | None, seed: int
) -> None:
    run = finished(pull(upstream.source(), pair(), ended_by(taken, batch)), seed, window, upstream)
    found, error = result_of(run)
    assert found == upstream.items[:taken]
    if taken is None:
        assert error is (None if upstream.end is True else upstream.end)


@settings(max_examples=100, deadline=None)
@given(THREE, BATCHES, WINDOWS, SEEDS)
def test_a_fork_that_is_merged_again_loses_nothing(
    inputs: list[Script], batch: int, window: int | None, seed: int
) -> None:
    for script in inputs:
        script.end = True
    merged = merge(*(script.source() for script in inputs))
    back = merge(*fork(merged, lambda item: item[0], keys=(0, 1, 2)))
    run = finished(pull(back, collect(batch=batch)), seed, window, *inputs)
    assert Counter(run.result()) == Counter(item for script in inputs for item in script.items)
