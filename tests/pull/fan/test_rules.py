"""The rules of the protocol hold for every module that has several streams on one of its sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import pytest

from headrace.pull import (
    PullDuplex,
    PullSource,
    PullTransformer,
    Recorder,
    closing_handshake,
    collect,
    flat_map,
    flatten,
    fork,
    many,
    map,
    merge,
    notify,
    pair,
    probe,
    pull,
    sorted_merge,
    take,
    tee,
    values,
)
from headrace.pull.rules.checker import check
from headrace.testing import RandomRuntime, check_source, check_transformer, reference_source


def slow(*numbers: int) -> PullSource:
    """Values that each take a second."""
    return pull(reference_source(len(numbers), sync=False), map(lambda at: numbers[at - 1]))


def twice(number: int) -> list[int]:
    return [number] * 2


def inner_streams(number: int) -> object:
    """A collection, a source that answers at once, one that takes its time, an empty one, in turn."""
    kinds = [[number] * 2, values([number] * 2), slow(number, number), values()]
    return kinds[number % 4]


def doubled(numbers: Sequence[int]) -> list[int]:
    return [*chain.from_iterable([number] * 2 for number in numbers if number % 4 != 3)]


def merged_branches(ahead: int | None) -> PullSource:
    return merge(*tee(slow(1, 2), ahead=ahead))


def forked_branches(ahead: int | None) -> PullSource:
    return merge(*fork(slow(1, 2, 3), lambda number: number % 2, keys=(0, 1), ahead=ahead))


def one_branch(source: PullSource) -> PullSource:
    return tee(source, 1)[0]


def heard_and_ended() -> PullSource:
    news = notify()
    news.end()
    return news.listen()


TRANSFORMERS: dict[str, tuple[Callable[[], PullTransformer], Callable[[Sequence[int]], Sequence[Any]]]] = {
    "flatten of scalars": (lambda: flatten(), lambda numbers: numbers),
    "flatten of lists": (lambda: pull(map(twice), flatten()), lambda ns: [n for n in ns for _ in twice(n)]),
    "flat_map to collections": (lambda: flat_map(twice), lambda ns: [n for n in ns for _ in twice(n)]),
    "flat_map to streams": (lambda: flat_map(inner_streams), doubled),
    "flat_map to wide streams": (lambda: flat_map(inner_streams, width=3), doubled),
    "flat_map to nothing": (lambda: flat_map(lambda _number: ()), lambda _numbers: []),
    "flatten within flatten": (
        lambda: pull(map(lambda n: pull(values([[n]]), flatten())), flatten()),
        lambda numbers: numbers,
    ),
}

SOURCES: dict[str, tuple[Callable[[], PullSource], Sequence[Any], bool]] = {
    "merge of nothing": (lambda: merge(), [], True),
    "merge of one": (lambda: merge(slow(1, 2)), [1, 2], True),
    "merge of three": (lambda: merge(slow(1, 2), values([3]), slow()), [1, 2, 3], False),
    "many": (lambda: many([slow(1, 2), values([3]), values()]), [1, 2, 3], False),
    "sorted_merge of nothing": (lambda: sorted_merge(), [], True),
    "sorted_merge": (lambda: sorted_merge(slow(1, 4), values([2, 2]), slow()), [1, 2, 2, 4], True),
    "sorted_merge, one of equals": (
        lambda: sorted_merge(slow(1, 2), values([2, 2]), equal="left"),
        [1, 2],
        True,
    ),
    "the only branch of tee": (lambda: one_branch(slow(1, 2)), [1, 2], True),
    "branches of tee, merged": (lambda: merged_branches(0), [1, 1, 2, 2], False),
    "branches of tee, ahead, merged": (lambda: merged_branches(1), [1, 1, 2, 2], False),
    "branches of fork, merged": (lambda: forked_branches(0), [1, 2, 3], False),
    "branches of fork, ahead, merged": (lambda: forked_branches(None), [1, 2, 3], False),
    "pair": (lambda: pull(slow(1, 2), pair()), [1, 2], True),
    "pair behind pair": (lambda: pull(slow(1, 2), pair(), map(abs), pair()), [1, 2], True),
    "closing_handshake": (
        lambda: pull(slow(7), closing_handshake(PullDuplex(slow(1, 2), collect()))),
        [1, 2, "GOODBYE"],
        True,
    ),
    "notify that has ended": (heard_and_ended, [], True),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers_keep_the_rules_in_every_order(name: str) -> None:
    make, expected = TRANSFORMERS[name]
    check_transformer(make, expected=expected, one_to_one=False)


@pytest.mark.parametrize("name", SOURCES)
def test_sources_keep_the_rules_in_every_order(name: str) -> None:
    make, expected, ordered = SOURCES[name]
    check_source(make, expected=expected, ordered=ordered)


def failing(error: Exception) -> PullSource:
    return reference_source(1, error, sync=False)


@pytest.mark.parametrize(
    "make",
    [
        lambda error: merge(slow(1, 2), failing(error)),
        lambda error: many([failing(error), slow(1, 2)]),
        lambda error: sorted_merge(slow(1, 2), failing(error)),
        lambda error: pull(values([values([1]), failing(error), values([9])]), flatten()),
        lambda error: one_branch(failing(error)),
        lambda error: merge(*tee(failing(error))),
        lambda error: pull(failing(error), pair()),
    ],
)
def test_errors_of_an_input_keep_the_rules_in_every_order(make: Callable[[Exception], PullSource]) -> None:
    error = ValueError("the input failed")
    check_source(lambda: make(error), end=error)


def either(number: int) -> int:
    return number % 2


WATCHED: dict[str, Callable[[PullSource, PullSource], PullSource]] = {
    "merge": lambda first, second: merge(first, second),
    "many": lambda first, second: many([first, second]),
    "sorted_merge": lambda first, second: sorted_merge(first, second),
    "flatten": lambda first, second: pull(values([first, [7, 8], second]), flatten()),
    "flat_map of a stream": lambda first, second: pull(first, flat_map(lambda _: second)),
    "tee": lambda first, second: merge(*tee(first, ahead=1), second),
    "fork": lambda first, second: merge(*fork(first, either, keys=(0, 1)), second),
    "pair": lambda first, second: merge(pull(first, pair()), second),
}


@pytest.mark.parametrize("name", WATCHED)
@pytest.mark.parametrize("taken", [None, 0, 1, 3])
@pytest.mark.parametrize("end", [True, ValueError("the input failed")])
@pytest.mark.seeds(40, together=40)
def test_what_is_asked_of_the_inputs_keeps_the_rules_too(
    name: str, taken: int | None, end: Any, seeds: range
) -> None:
    for seed in seeds:
        recorders: list[Recorder] = []

        def watched(count: int, end: Any, sync: bool, recorders: list[Recorder] = recorders) -> PullSource:
            recorders.append(Recorder())
            if name == "flat_map of a stream" and len(recorders) == 2:
                return reference_source(count, end, sync=sync)  # opened several times
            return pull(reference_source(count, end, sync=sync), probe(recorders[-1]))

        window = 1 + 2 * (seed % 2)
        joined = WATCHED[name](watched(3, True, seed % 3 != 0), watched(2, end, seed % 5 != 0))
        stages = [] if taken is None else [take(taken)]
        run = pull(joined, *stages, collect(batch=1 + seed % 4)).start(RandomRuntime(seed), window=window)
        assert run.finished
        for recorder in recorders:
            assert check(recorder.trace(), "spec") == ()
            if window == 1 and taken is None and end is True:  # else a stop may cross an end
                assert check(recorder.trace(), "docs") == ()


def test_a_stream_that_is_collected_again_and_again_is_the_same() -> None:
    pipeline = pull(merge(values("ace"), values("bd")), collect())
    assert pipeline.run() == pipeline.run() == ["a", "b", "c", "d", "e"]
