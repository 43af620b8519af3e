"""from_stream, to_stream: streams of asyncio that belong to somebody."""

from __future__ import annotations

import asyncio

import pytest

from headrace.errors import BadOption
from headrace.pull import collect, concat, from_stream, infinite, pull, take, to_stream, values
from headrace.pull.errors import ConnectionLost
from tests.pull.core.modules import Hand, Manual
from tests.pull.io.network import in_loop, reset, serving, turns, until

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


class Failure(Exception):
    pass


def reader_of(*chunks: bytes, end: bool = True) -> Reader:
    reader = Reader()
    for chunk in chunks:
        reader.feed_data(chunk)
    if end:
        reader.feed_eof()
    return reader


@in_loop
async def test_a_stream_is_read_to_its_end() -> None:
    assert await pull(from_stream(reader_of(b"abc", b"d"), chunk=3), collect()) == [b"abc", b"d"]


@in_loop
async def test_an_abort_leaves_the_stream_with_what_was_not_read() -> None:
    reader = reader_of(b"abcd", end=False)
    assert await pull(from_stream(reader, chunk=2), take(1), collect()) == [b"ab"]
    reader.feed_eof()
    assert await pull(from_stream(reader), collect()) == [b"cd"]


@in_loop
async def test_an_abort_while_a_read_waits_answers_that_first_and_loses_nothing() -> None:
    reader, hand = reader_of(end=False), Hand()
    pull(from_stream(reader), hand.sink).start()
    hand.request("ask")
    await turns()
    hand.request("abort", True)
    await until(lambda: len(hand.heard) == 2)
    assert hand.heard == [("ask", True), ("abort", True)]
    reader.feed_data(b"a")
    reader.feed_eof()
    assert await reader.read() == b"a"


@in_loop
async def test_a_stream_that_breaks_is_named() -> None:
    reader = Reader()
    reader.set_exception(ConnectionResetError("by peer"))
    with pytest.raises(ConnectionLost, match=r"from_stream\(\) broke") as raised:
        await pull(from_stream(reader), collect())
    assert "from_stream(reader)" in raised.value.where[0].location.text


@in_loop
async def test_a_stream_is_written_and_closed() -> None:
    got: list[bytes] = []

    async def hears(reader: Reader, _writer: Writer) -> None:
        got.append(await reader.read())

    async with serving(hears) as server:
        _reader, writer = await asyncio.open_connection(*server.address)
        sent = [b"a" * 500_000, b"b"]
        assert await pull(values(sent), to_stream(writer)) == 500_001
        assert writer.transport.is_closing()
    assert got == [b"".join(sent)]


@in_loop
async def test_a_stream_is_left_open_where_that_is_said() -> None:
    async def echo(reader: Reader, writer: Writer) -> None:
        writer.write(await reader.read())

    async with serving(echo) as server:
        reader, writer = await asyncio.open_connection(*server.address)
        assert await pull(values([b"a"]), to_stream(writer, close=False)) == 1
        assert await pull(values([b"b"]), to_stream(writer, close=False)) == 1
        writer.write_eof()
        assert await pull(from_stream(reader), concat(b"")) == b"ab"
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("close", [True, False])
@in_loop
async def test_a_failure_upstream_cuts_the_stream_off_if_it_is_to_be_closed(close: bool) -> None:
    got: list[bytes] = []

    async def hears(reader: Reader, _writer: Writer) -> None:
        got.append(await reader.read())

    async with serving(hears) as server:
        _reader, writer = await asyncio.open_connection(*server.address)
        source = Manual()
        run = pull(source.source, to_stream(writer, close=close)).start()
        await until(lambda: source.requests)
        source.answer(0, Failure("upstream"))
        with pytest.raises(Failure):
            await run
        assert writer.transport.is_closing() is close
        writer.close()
        await writer.wait_closed()
    assert isinstance(server.error, ConnectionResetError) is close
    assert got == ([] if close else [b""])


@in_loop
async def test_a_run_that_is_stopped_cuts_the_stream_off() -> None:
    async def hears(reader: Reader, _writer: Writer) -> None:
        await reader.read()

    async with serving(hears) as server:
        _reader, writer = await asyncio.open_connection(*server.address)
        source = Manual()
        run = pull(source.source, to_stream(writer)).start()
        await until(lambda: source.requests)
        run.stop()
        assert not writer.transport.is_closing()
        source.answer(1, True)
        await run
        assert writer.transport.is_closing()
    assert isinstance(server.error, ConnectionResetError)


@in_loop
async def test_a_cancelled_await_does_not_wait_for_a_peer_that_takes_nothing() -> None:
    stop = asyncio.Event()

    async def takes_nothing(_reader: Reader, writer: Writer) -> None:
        writer.transport.pause_reading()
        await stop.wait()

    async with serving(takes_nothing) as server:
        _reader, writer = await asyncio.open_connection(*server.address)
        writer.transport.set_write_buffer_limits(2**30)

        async def main() -> None:
            await pull(values([b"x" * 2**25]), to_stream(writer))

        task = asyncio.ensure_future(main())
        await until(writer.transport.is_closing)
        await turns(50)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stop.set()


@pytest.mark.parametrize("close", [True, False])
@in_loop
async def test_a_peer_that_breaks_off_fails_upstream(close: bool) -> None:
    async def breaks_off(reader: Reader, writer: Writer) -> None:
        await reader.read(1)
        reset(writer)

    async with serving(breaks_off) as server:
        _reader, writer = await asyncio.open_connection(*server.address)
        with pytest.raises(ConnectionLost, match=r"to_stream\(\) broke"):
            await pull(infinite(lambda: b"x" * 1000), to_stream(writer, close=close))
        writer.close()


def test_chunks_have_a_size() -> None:
    with pytest.raises(BadOption):
        from_stream(None, chunk=0)  # type: ignore[arg-type]
