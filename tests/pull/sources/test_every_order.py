"""Sources, deferred pieces and bridges keep the rules, whatever their neighbours do and in every order."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from headrace.pull import (
    Pipeline,
    PullSink,
    PullSource,
    PullTransformer,
    async_map,
    cat,
    collect,
    count,
    defer,
    drain,
    empty,
    error,
    from_queue,
    infinite,
    iterate,
    keys,
    map,
    once,
    pull,
    pushable,
    to_queue,
    values,
)
from headrace.testing.pull import check_sink, check_source, check_transformer

SEEDS = 300


class Torn(Exception):
    pass


def generated(count: int, fails: bool = False) -> Iterator[int]:
    yield from range(count)
    if fails:
        raise Torn


async def awaited(count: int, fails: bool = False) -> AsyncIterator[int]:
    for number in range(count):
        await asyncio.sleep(number % 2)
        yield number
    if fails:
        raise Torn


async def later(value: Any) -> Any:
    await asyncio.sleep(0.1)
    return value


def beside(source: PullSource, pipeline: Pipeline) -> PullSource:
    """The source, with a pipeline that runs beside it and brings it what it gives."""
    return PullSource(source.part, source.then, (*source.beside, pipeline))


def pushed_beside(fails: bool = False) -> PullSource:
    numbers = pushable(bound=2)

    def push(number: int) -> None:
        if number < 3:
            numbers.push(number)
        else:
            numbers.end(Torn() if fails else None)

    return beside(numbers, pull(count(3), async_map(later), drain(push)))


def waited_for_room() -> PullSource:
    numbers = pushable(bound=1)

    async def push(number: int) -> None:
        await (numbers.pushed(number) if number < 3 else later(numbers.end()))

    return beside(numbers, pull(count(3), async_map(push), drain()))


def threads_in_turn() -> PullSource:
    numbers = pushable(bound=1, thread_safe=True)

    def push(number: int) -> None:
        numbers.put(number) if number < 3 else numbers.end()

    async def in_thread(number: int) -> None:
        await asyncio.to_thread(push, number)

    return beside(numbers, pull(count(3), async_map(in_thread), drain()))


def resolved_beside(piece: PullSource) -> PullSource:
    deferred = defer(PullSource)
    return beside(deferred, pull(once(piece), async_map(later), drain(deferred.resolve)))


def aborted_beside(cause: Exception | None) -> PullSource:
    deferred = defer(PullSource)
    return beside(deferred, pull(once(cause), async_map(later), drain(deferred.abort)))


def queued(make: Callable[..., Any]) -> PullSource:
    items = make()
    return beside(from_queue(items, end=None), pull(count(2), async_map(later), to_queue(items, end=None)))


SOURCES: dict[str, tuple[Callable[[], PullSource], list[Any], Any]] = {
    "values": (lambda: values([1, 2, 3]), [1, 2, 3], True),
    "values of a mapping": (lambda: values({"a": 1}), [1], True),
    "keys": (lambda: keys({"a": 1, "b": 2}), ["a", "b"], True),
    "count": (lambda: count(2), [0, 1, 2], True),
    "count of nothing": (lambda: count(1, 2), [], True),
    "once": (lambda: once(None), [None], True),
    "empty": (empty, [], True),
    "error": (lambda: error(Torn()), [], Torn),
    "iterate": (lambda: iterate(generated(3)), [0, 1, 2], True),
    "iterate, failing": (lambda: iterate(generated(2, True)), [0, 1], Torn),
    "iterate, asynchronous": (lambda: iterate(awaited(3)), [0, 1, 2], True),
    "iterate, asynchronous, failing": (lambda: iterate(awaited(2, True)), [0, 1], Torn),
    "cat": (lambda: cat([empty(), count(1), None, once(2), empty()]), [0, 1, 2], True),
    "cat, asynchronous": (lambda: cat(iterate(awaited(2)) for _ in range(3)), [0, 1] * 3, True),
    "cat of several at once": (
        lambda: cat([pull(count(2), async_map(later, width=2)), count(1)], width=3),
        [0, 1, 2, 0, 1],
        True,
    ),
    "cat, failing": (lambda: cat([count(1), error(Torn()), once(2)]), [0, 1], Torn),
    "cat, failing later": (lambda: cat([iterate(awaited(2, True)), once(2)], width=2), [0, 1], Torn),
    "pushable": (pushed_beside, [0, 1, 2], True),
    "pushable, failing": (lambda: pushed_beside(fails=True), [0, 1, 2], Torn),
    "pushable, waiting for room": (waited_for_room, [0, 1, 2], True),
    "defer": (lambda: resolved_beside(count(2)), [0, 1, 2], True),
    "defer, failing": (lambda: resolved_beside(iterate(awaited(2, True))), [0, 1], Torn),
    "defer, aborted": (lambda: aborted_beside(None), [], True),
    "defer, failed": (lambda: aborted_beside(Torn()), [], Torn),
    "from_queue of tasks": (lambda: queued(asyncio.Queue), [0, 1, 2], True),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_keeps_the_rules_in_every_order(name: str) -> None:
    make, expected, end = SOURCES[name]
    assert check_source(make, expected=expected, end=end, seeds=SEEDS) > SEEDS


@pytest.mark.parametrize("make", [threads_in_turn, lambda: queued(queue.Queue)])
def test_a_source_with_threads_keeps_the_rules(make: Callable[[], PullSource]) -> None:
    assert check_source(make, expected=[0, 1, 2], seeds=20) > 20


@pytest.mark.parametrize("make", [count, lambda: infinite(lambda: 0)])
def test_an_endless_source_keeps_the_rules_in_every_order(make: Callable[[], PullSource]) -> None:
    assert check_source(make, endless=True, seeds=SEEDS) > SEEDS


def test_a_deferred_transformer_keeps_the_rules_in_every_order() -> None:
    def make(piece: PullTransformer) -> PullTransformer:
        deferred = defer(PullTransformer)
        resolving = pull(once(piece), async_map(later), drain(deferred.resolve))
        return PullTransformer(deferred.then, (*deferred.beside, resolving))

    negative = map(lambda value: -value)
    found = check_transformer(lambda: make(negative), expected=lambda items: [-x for x in items], seeds=SEEDS)
    assert found > SEEDS
    assert check_transformer(lambda: make(async_map(later, width=2)), expected=list, seeds=SEEDS) > SEEDS


def test_a_deferred_sink_keeps_the_rules_in_every_order() -> None:
    def make() -> PullSink:
        deferred = defer(PullSink)
        resolving = pull(once(collect()), async_map(later), drain(deferred.resolve))
        return PullSink(deferred.part, deferred.before, (*deferred.beside, resolving))

    assert check_sink(make, result=list, partial=list, seeds=SEEDS) > SEEDS


@pytest.mark.parametrize("make", [queue.Queue, asyncio.Queue])
def test_to_queue_keeps_the_rules_in_every_order(make: Callable[[], Any]) -> None:
    assert check_sink(lambda: to_queue(make(), end=None), result=len, partial=len, seeds=SEEDS) > SEEDS


def test_to_queue_keeps_the_rules_where_the_queue_is_full() -> None:
    def make() -> PullSink:
        items: asyncio.Queue[Any] = asyncio.Queue(maxsize=1)
        sink = to_queue(items, end=None)
        emptying = pull(from_queue(items, end=None), async_map(later), drain())
        return PullSink(sink.part, sink.before, (*sink.beside, emptying))

    assert check_sink(make, result=len, partial=len, seeds=SEEDS) > SEEDS
