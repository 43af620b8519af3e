"""connect: both ways at the pace of the slower side, half by half to its end, and against bad peers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.errors import BadOption
from headrace.pull import (
    collect,
    concat,
    connect,
    drain,
    infinite,
    lines,
    map,
    pull,
    take,
    together,
    values,
)
from headrace.pull.errors import ConnectionFailed, ConnectionLost, LineTooLong, WrongValue
from headrace.pull.io import sockets
from tests.pull.core.modules import Hand, Manual
from tests.pull.io.network import certificate, in_loop, reset, serving, turns, until

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


class Failure(Exception):
    pass


async def echo(reader: Reader, writer: Writer) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def answer_at_the_end(reader: Reader, writer: Writer) -> None:
    writer.write(b"got " + await reader.read())


async def silent(reader: Reader, _writer: Writer) -> None:
    await reader.read()


async def flood(_reader: Reader, writer: Writer) -> None:
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def break_off(reader: Reader, writer: Writer) -> None:
    await reader.read(1)
    reset(writer)


# --- how it goes well --------------------------------------------------------------------------------


@in_loop
async def test_what_is_sent_comes_back() -> None:
    async with serving(echo) as server:
        sent = [b"a" * 100_000, b"", b"b"]
        assert await pull(values(sent), connect(*server.address), concat(b"")) == b"".join(sent)


@in_loop
async def test_a_sink_that_is_done_says_so_and_the_source_reads_on() -> None:
    async with serving(answer_at_the_end) as server:
        assert await pull(values([b"a", b"b"]), connect(*server.address), concat(b"")) == b"got ab"


@in_loop
async def test_a_source_that_has_ended_leaves_the_sink_to_send_on() -> None:
    got: list[bytes] = []

    async def bye(reader: Reader, writer: Writer) -> None:
        writer.write(b"bye")
        writer.write_eof()
        got.append(await reader.read())

    async with serving(bye) as server:
        source, connection = Manual(), connect(*server.address)
        run = together(pull(connection.source, collect()), pull(source.source, connection.sink)).start()
        await until(lambda: source.requests)
        await turns(50)
        source.answer(0, None, b"still here")
        await until(lambda: len(source.requests) == 2)
        source.answer(1, True)
        assert await run == ([b"bye"], 10)
    assert got == [b"still here"]


@in_loop
async def test_each_half_may_be_used_alone() -> None:
    got: list[bytes] = []

    async def listen_only(reader: Reader, _writer: Writer) -> None:
        got.append(await reader.read())

    async def speak_only(_reader: Reader, writer: Writer) -> None:
        writer.write(b"hello")

    async with serving(listen_only) as server:
        assert await pull(values([b"a", b"bc"]), connect(*server.address).sink) == 3
    async with serving(speak_only) as server:
        assert await pull(connect(*server.address).source, collect()) == [b"hello"]
    assert got == [b"abc"]


@in_loop
async def test_each_run_makes_a_connection_and_none_is_made_before() -> None:
    async with serving(echo) as server:
        hand, connection = Hand(), connect(*server.address)
        pull(connection.source, hand.sink).start()
        await turns()
        assert not server.ended.is_set()
        hand.request("abort", True)
        await turns()
        assert hand.heard == [("abort", True)]
        for _ in range(2):
            assert await pull(values([b"a"]), connection, collect()) == [b"a"]


def test_a_pipeline_with_a_connection_runs_in_a_loop_of_its_own() -> None:
    @in_loop
    async def main() -> None:
        async with serving(echo) as server:
            pipeline = pull(values([b"a"]), connect(*server.address), collect())
            assert await asyncio.to_thread(pipeline.run) == [b"a"]

    main()


@in_loop
async def test_tls() -> None:
    for_server, for_client = certificate()

    async def count(reader: Reader, writer: Writer) -> None:
        writer.write(await reader.readexactly(200_000))

    async with serving(count, ssl=for_server) as server:
        connection = connect(*server.address, ssl=for_client)
        assert await pull(values([b"x" * 100_000] * 2), connection, concat(b"")) == b"x" * 200_000


# --- the pace ------------------------------------------------------------------------------------


MOST = 256 * 1024
"""Bytes that the event loop takes from the system at once."""


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes a reader of this process held, each time that it got some."""
    sizes: list[int] = []
    feed_data = Reader.feed_data

    def noted(reader: Reader, data: bytes) -> None:
        feed_data(reader, data)
        sizes.append(len(reader._buffer))  # type: ignore[attr-defined]

    monkeypatch.setattr(Reader, "feed_data", noted)
    return sizes


@in_loop
async def test_what_a_flood_leaves_in_memory_is_bounded(held: list[int]) -> None:
    async with serving(flood) as server:
        hand = Hand()
        pull(connect(*server.address, chunk=4096).source, hand.sink).start()
        hand.request("1")
        await until(lambda: hand.heard)
        await turns(1000)
        assert 0 < max(held) <= 2 * 4096 + MOST
        assert len(hand.heard[0][1]) <= 4096
        hand.request("2", True)
        await until(lambda: len(hand.heard) == 2)
    assert isinstance(server.error, ConnectionError)


@in_loop
async def test_no_more_is_asked_for_than_the_other_side_takes() -> None:
    stop = asyncio.Event()

    async def takes_nothing(_reader: Reader, _writer: Writer) -> None:
        await stop.wait()

    async with serving(takes_nothing) as server:
        asked: list[int] = []
        source = pull(infinite(lambda: b"x" * 65536), map(lambda value: asked.append(1) or value))
        run = pull(source, connect(*server.address).sink).start()
        quiet = 0
        while quiet < 200:
            before = len(asked)
            await asyncio.sleep(0)
            quiet = quiet + 1 if asked and len(asked) == before else 0
        assert len(asked) < 500  # some megabytes, which the system holds
        run.stop()
        await run
        stop.set()


# --- ends that come early --------------------------------------------------------------------------------


@in_loop
async def test_an_abort_is_confirmed_when_the_connection_is_closed() -> None:
    async with serving(flood) as server:
        assert await pull(connect(*server.address).source, take(1), map(len), collect()) != []
        await server.ended.wait()
    assert isinstance(server.error, ConnectionError)


@in_loop
async def test_an_abort_while_a_read_waits_answers_that_first() -> None:
    async with serving(silent) as server:
        hand = Hand()
        pull(connect(*server.address).source, hand.sink).start()
        hand.request("ask")
        await turns(50)
        hand.request("abort", True)
        assert hand.heard == []
        await until(lambda: len(hand.heard) == 2)
        assert hand.heard == [("ask", True), ("abort", True)]


@in_loop
async def test_an_aborted_source_aborts_what_is_sent() -> None:
    async with serving(echo) as server:
        source = Manual()
        run = pull(source.source, connect(*server.address), take(1), collect()).start()
        await until(lambda: source.requests)
        source.answer(0, None, b"a")
        await until(lambda: len(source.requests) == 3)
        assert (source.requests[2], run.finished) == (True, False)
        source.answer(2, True)
        assert await run == [b"a"]


@in_loop
async def test_a_failure_upstream_breaks_the_connection_and_is_what_the_source_fails_with() -> None:
    got: list[bytes] = []

    async def hears(reader: Reader, _writer: Writer) -> None:
        got.append(await reader.readexactly(1))
        await reader.read()

    async with serving(hears) as server:
        source, hand, connection = Manual(), Hand(), connect(*server.address)
        run = together(pull(connection.source, hand.sink), pull(source.source, connection.sink)).start()
        hand.request("ask")
        await until(lambda: source.requests)
        source.answer(0, None, b"a")
        await until(lambda: got)
        failure = Failure("upstream")
        source.answer(1, failure)
        await until(lambda: hand.heard and run.error)
        assert hand.heard == [("ask", failure)]
        assert run.error is failure
    assert isinstance(server.error, ConnectionResetError)


@in_loop
async def test_a_value_that_is_no_bytes_breaks_the_connection_too() -> None:
    async with serving(silent) as server:
        with pytest.raises(WrongValue, match=r"connect\(\) takes bytes, got str"):
            await pull(values([b"a", "b"]), connect(*server.address), collect())
    assert isinstance(server.error, ConnectionResetError)


@in_loop
async def test_a_pipeline_whose_await_is_cancelled_closes_its_connection() -> None:
    async with serving(silent) as server:
        source = Manual()

        async def main() -> None:
            await pull(source.source, connect(*server.address), collect())

        task = asyncio.ensure_future(main())
        await until(lambda: source.requests)
        task.cancel()
        await until(lambda: len(source.requests) == 2)
        assert not task.done()
        source.answer(1, True)
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.ended.wait()


@in_loop
async def test_a_pipeline_that_is_cancelled_while_it_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = asyncio.Event()

    async def never(*_args: Any, **_options: Any) -> Any:
        waits.set()
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(asyncio, "open_connection", never)
    task = asyncio.ensure_future(awaited(pull(values([b"a"]), connect("127.0.0.1", 1), collect())))
    await waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def awaited(pipeline: Any) -> Any:
    return await pipeline


# --- bad peers -----------------------------------------------------------------------------------


@in_loop
async def test_nobody_listens() -> None:
    async with serving(silent) as server:
        gone = server.address
        server.ended.set()
    heard: list[Any] = []
    with pytest.raises(ConnectionFailed, match="cannot reach") as raised:
        await pull(values([b"a"], on_stop=heard.append), connect(*gone), collect())
    assert heard == [raised.value]
    assert "connect(*gone)" in raised.value.where[0].location.text


@in_loop
async def test_a_peer_that_breaks_off_fails_both_halves_with_the_same_error() -> None:
    async with serving(break_off) as server:
        source = Manual()
        run = pull(source.source, connect(*server.address), collect()).start()
        await until(lambda: source.requests)
        source.answer(0, None, b"a")
        await until(lambda: len(source.requests) == 3)
        assert isinstance(source.requests[2], ConnectionLost)
        source.answer(2, True)
        with pytest.raises(ConnectionLost, match="broke") as raised:
            await run
    assert (raised.value, getattr(raised.value, "__notes__", [])) == (source.requests[2], [])
    assert "connect(" in raised.value.where[0].location.text


@in_loop
async def test_a_sink_alone_learns_that_its_peer_broke_off_while_it_has_nothing_to_send() -> None:
    async with serving(break_off) as server:
        source = Manual()
        run = pull(source.source, connect(*server.address).sink).start()
        await until(lambda: source.requests)
        source.answer(0, None, b"a")
        await until(lambda: len(source.requests) == 3)
        source.answer(2, True)
        with pytest.raises(ConnectionLost):
            await run
        assert run.partial == 1


@in_loop
async def test_a_peer_that_goes_while_it_is_sent_to_is_an_error() -> None:
    async def goes(reader: Reader, _writer: Writer) -> None:
        await reader.read(1)

    async with serving(goes) as server:
        with pytest.raises(ConnectionLost):
            await pull(infinite(lambda: b"x" * 65536), connect(*server.address), drain())


@in_loop
async def test_a_line_without_an_end_is_cut_off(held: list[int]) -> None:
    async with serving(flood) as server:
        with pytest.raises(LineTooLong):
            await pull(connect(*server.address).source, lines(longest=1_000_000), collect())
    assert max(held) <= 2 * 65536 + MOST
    assert isinstance(server.error, ConnectionError)


@in_loop
async def test_a_peer_with_tls_that_never_says_goodbye_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sockets, "TLS_CLOSE_WITHIN", 0.01)
    stop = asyncio.Event()

    async def deaf(reader: Reader, writer: Writer) -> None:
        await reader.read(1)
        writer.transport.pause_reading()
        await stop.wait()
        writer.transport.abort()

    async with serving(deaf, ssl=certificate()[0]) as server:
        assert await pull(values([b"a"]), connect(*server.address, ssl=certificate()[1]).sink) == 1
        stop.set()


@in_loop
async def test_a_peer_without_tls() -> None:
    async with serving(flood) as server:
        with pytest.raises(ConnectionFailed):
            await pull(connect(*server.address, ssl=certificate()[1]).source, collect())


def test_chunks_have_a_size() -> None:
    with pytest.raises(BadOption):
        connect("localhost", 1, chunk=0)
    assert sockets.CHUNK == 65536
