"""The described cases about sinks, and about streams of the system that are read and written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.pull import (
    cat,
    collect,
    concat,
    connect,
    count,
    drain,
    error,
    find,
    infinite,
    map,
    pull,
    reduce,
    values,
)
from tests.pull.core.modules import Hand, Manual
from tests.pull.described import case
from tests.pull.io.network import in_loop, serving, turns, until


class Failure(Exception):
    pass


@case("drain: done(null) on normal end, done(err) on error")
def test_drain_ends_as_its_stream_does() -> None:
    assert pull(values([1]), drain()).run() is None
    cause = Failure("upstream")
    with pytest.raises(Failure) as raised:
        pull(error(cause), drain()).run()
    assert raised.value is cause


@case("drain: op returning false aborts; done gets true")
def test_drain_that_has_enough_ends_normally_and_not_with_true() -> None:
    heard: list[Any] = []
    assert pull(values([1, 2], on_stop=heard.append), drain(lambda _value: False)).run() is None
    assert heard == [None]


@case("drain.abort(err) before being connected")
def test_the_error_of_an_abort_before_the_run_is_kept_and_told() -> None:
    heard: list[Any] = []
    cause, sink = Failure("A"), drain()
    sink.abort(cause)
    with pytest.raises(Failure) as raised:
        pull(values([1], on_stop=heard.append), sink).run()
    assert raised.value is cause
    assert heard == [cause]


@case("drain.abort out of band aborts with its error")
def test_an_abort_from_outside_fails_the_run_after_upstream_has_confirmed() -> None:
    source, seen = Manual(), []
    sink = drain(seen.append)
    run = pull(source.source, sink).start()
    source.answer(0, None, 1)
    cause = Failure("enough")
    sink.abort(cause)
    assert (source.requests, seen, run.finished) == ([None, None, cause], [1], False)
    source.answer(2, cause)
    with pytest.raises(Failure) as raised:
        run.result()
    assert raised.value is cause


@case("drain is stack safe on synchronous sources")
def test_a_million_values_need_no_stack() -> None:
    seen = 0

    def note(_value: int) -> None:
        nonlocal seen
        seen += 1

    pull(count(1_000_000), drain(note)).run()
    assert seen == 1_000_001


@case("collect gives the partial array with the error")
def test_collect_keeps_what_came_before_an_error() -> None:
    cause = Failure("upstream")
    run = pull(cat([values([0, 1]), error(cause)]), collect()).start()
    with pytest.raises(Failure) as raised:
        run.result()
    assert raised.value is cause
    assert run.partial == [0, 1]


@case("collectAsPromise resolves with the array / rejects with the error")
def test_a_pipeline_that_collects_can_be_awaited() -> None:
    async def awaited(source: Any) -> Any:
        return await pull(source, collect())

    assert asyncio.run(awaited(values([10, 20, 30]))) == [10, 20, 30]
    with pytest.raises(Failure):
        asyncio.run(awaited(error(Failure("upstream"))))


@case('concat joins strings; empty gives ""')
def test_concat_joins_texts_and_gives_an_empty_one_for_nothing() -> None:
    assert pull(values(["a", 1, "b"]), concat()).run() == "a1b"
    assert pull(values([]), concat()).run() == ""


@case("reduce with and without initial value")
def test_reduce_with_and_without_an_initial_value() -> None:
    def add(total: int, value: int) -> int:
        return total + value

    assert pull(values([1, 2, 3]), reduce(add)).run() == pull(values([1, 2, 3]), reduce(add, 0)).run() == 6
    assert pull(values([]), reduce(add, 7)).run() == 7
    with pytest.raises(
        Exception, match="reduce\\(\\) of an empty stream"
    ):  # the original: no value, no error
        pull(values([]), reduce(add)).run()


@case("find: first match, aborts the source, null when missing")
def test_find_stops_at_the_first_match() -> None:
    heard: list[Any] = []
    assert pull(values(range(1, 11), on_stop=heard.append), find(lambda value: value == 7)).run() == 7
    assert heard == [None]
    assert pull(values([1, 2]), find(lambda value: value > 5)).run() is None


# --- streams of the system -------------------------------------------------------------------------


@case("stream-to-pull-stream.source: node data buffered, stream paused while buffer non-empty")
@in_loop
async def test_a_connection_that_is_not_read_is_paused_and_goes_on_when_it_is() -> None:
    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(300):
            writer.write(b"x" * 65536)
            await writer.drain()

    async with serving(flood) as server:
        hand = Hand()
        run = pull(connect(*server.address).source, hand.sink).start()
        hand.request("first")
        await until(lambda: hand.heard)
        await turns(200)
        assert not server.ended.is_set()
        got = len(hand.heard[0][1])
        while hand.heard[-1][1] is not True:
            count = len(hand.heard)
            hand.request("next")
            await until(lambda count=count: len(hand.heard) > count)
            got += len(hand.heard[-1][1]) if hand.heard[-1][1] is not True else 0
        assert got == 300 * 65536
        assert run.error is None


@case(
    "stream-to-pull-stream abort: destroy, wait for close, flush waiting callbacks with the abort value, "
    "then confirm; already ended: confirm at once"
)
@in_loop
async def test_an_abort_closes_then_answers_what_waits_then_confirms() -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(silent) as server:
        hand = Hand()
        pull(connect(*server.address).source, hand.sink).start()
        hand.request("waits")
        await turns(50)
        hand.request("abort", True)
        assert hand.heard == []
        await until(lambda: hand.heard)
        assert hand.heard == [("waits", True), ("abort", True)]
        hand.request("again", True)
        assert hand.heard[2:] == [("again", True)]


@case("pull-ws sink: waits for socket open, sends, next tick reads again; no backpressure from the socket")
@in_loop
async def test_a_connection_asks_when_it_is_open_and_no_faster_than_it_can_send() -> None:
    stop = asyncio.Event()

    async def takes_nothing(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await stop.wait()

    async with serving(takes_nothing) as server:
        asked: list[int] = []
        source = pull(infinite(lambda: b"x" * 65536), map(lambda value: asked.append(1) or value))
        run = pull(source, connect(*server.address).sink).start()
        assert asked == []
        quiet = 0
        while quiet < 200:
            before = len(asked)
            await asyncio.sleep(0)
            quiet = quiet + 1 if asked and len(asked) == before else 0
        run.stop()
        await run
        stop.set()
