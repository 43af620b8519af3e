"""listen: connections as a stream, one for each ask."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
from typing import Any

import pytest

from headrace.errors import BadOption
from headrace.pull import (
    PullDuplex,
    collect,
    concat,
    connect,
    for_each,
    lines,
    listen,
    map,
    pull,
    take,
    values,
)
from headrace.pull.errors import AlreadyUsed, ConnectionFailed, ConnectionLost, WrongValue
from headrace.pull.io import sockets
from tests.pull.core.modules import Hand, Manual
from tests.pull.io.network import certificate, in_loop, turns, until


class Listening:
    """A `listen` that a test reads by hand."""

    def __init__(self, **options: Any) -> None:
        self.address: tuple[str, int] | None = None
        self.hand = Hand()
        self.run = pull(listen(ready=self._ready, **options), self.hand.sink).start()

    def _ready(self, host: str, port: int) -> None:
        self.address = (host, port)

    async def begin(self) -> tuple[str, int]:
        self.hand.request("first")
        await until(lambda: self.address)
        assert self.address is not None
        return self.address

    async def accepted(self, count: int) -> PullDuplex:
        await until(lambda: len(self.hand.heard) >= count)
        return self.hand.heard[count - 1][1]

    async def stop(self) -> None:
        self.hand.request("stop", True)
        await until(lambda: self.hand.heard and self.hand.heard[-1][0] == "stop")


@in_loop
async def test_a_server_serves_several_connections_at_once() -> None:
    listening = asyncio.get_running_loop().create_future()

    async def serve(connection: PullDuplex) -> None:
        await pull(connection, map(bytes.upper), connection)

    server = pull(
        listen(ready=lambda *address: listening.set_result(address)), take(5), for_each(serve, width=5)
    ).start()
    address = await listening
    clients = [pull(values([b"a", b"b"]), connect(*address), concat(b"")) for _ in range(5)]
    assert await asyncio.gather(*(awaited(client) for client in clients)) == [b"AB"] * 5
    await server


async def awaited(pipeline: Any) -> Any:
    return await pipeline


@in_loop
async def test_it_listens_from_the_first_ask_on_and_accepts_one_for_each() -> None:
    server = Listening()
    await turns()
    assert server.address is None
    address = await server.begin()
    clients = [socket.create_connection(address) for _ in range(2)]
    await server.accepted(1)
    await turns(50)
    assert len(server.hand.heard) == 1
    server.hand.request("second")
    await server.accepted(2)
    await server.stop()
    for client in clients:
        client.close()
    server.hand.heard.clear()
    gc.collect()


@in_loop
async def test_an_abort_while_it_waits_stops_listening() -> None:
    server = Listening()
    address = await server.begin()
    await turns()
    await server.stop()
    assert server.hand.heard == [("first", True), ("stop", True)]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


@in_loop
async def test_connections_go_on_when_listening_has_stopped() -> None:
    server = Listening()
    address = await server.begin()
    client = asyncio.ensure_future(awaited(pull(values([b"a"]), connect(*address), collect())))
    connection = await server.accepted(1)
    await server.stop()
    await pull(connection, connection)
    assert await client == [b"a"]


@in_loop
async def test_a_connection_that_nobody_wants_is_closed() -> None:
    server = Listening()
    address = await server.begin()
    reader, writer = await asyncio.open_connection(*address)
    await server.accepted(1)
    server.hand.heard.clear()
    gc.collect()
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    await server.stop()


@in_loop
async def test_a_half_of_a_connection_is_used_once() -> None:
    server = Listening()
    address = await server.begin()
    client = asyncio.ensure_future(awaited(pull(values([b"a"]), connect(*address), collect())))
    connection = await server.accepted(1)
    assert await pull(connection.source, collect()) == [b"a"]
    with pytest.raises(AlreadyUsed, match="the source of the connection from") as raised:
        await pull(connection.source, collect())
    assert "listen(" in raised.value.where[0].location.text
    assert await client == []
    await server.stop()


@in_loop
async def test_a_source_is_not_whole_where_the_pipeline_of_its_sink_was_stopped() -> None:
    server = Listening()
    address = await server.begin()
    reader, writer = await asyncio.open_connection(*address)
    connection = await server.accepted(1)
    reading = asyncio.ensure_future(awaited(pull(connection.source, collect())))
    source = Manual()
    run = pull(source.source, connection.sink).start()
    await until(lambda: source.requests)
    run.stop()
    source.answer(1, True)
    await run
    with pytest.raises(ConnectionLost, match="its other half was stopped"):
        await reading
    assert await reader.read() == b""
    writer.close()
    await server.stop()


@in_loop
async def test_errors_of_a_connection_name_the_line_that_listens() -> None:
    server = Listening()
    address = await server.begin()
    client = socket.create_connection(address)
    connection = await server.accepted(1)
    with pytest.raises(WrongValue) as raised:
        await pull(values(["text"]), connection.sink)
    assert "listen(" in raised.value.where[0].location.text
    client.close()
    await server.stop()


@in_loop
async def test_a_server_with_tls_does_not_wait_for_a_client_without() -> None:
    for_server, for_client = certificate()
    server = Listening(ssl=for_server)
    address = await server.begin()
    plain = socket.create_connection(address)
    plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
    bad = await server.accepted(1)
    server.hand.request("second")
    client = asyncio.ensure_future(
        awaited(pull(values([b"a\n"]), connect(*address, ssl=for_client), lines(), take(1), collect()))
    )
    good = await server.accepted(2)
    serving = asyncio.ensure_future(awaited(pull(good, good)))
    assert await client == ["a"]
    with pytest.raises(ConnectionFailed, match="could not be begun"):
        await pull(bad.source, collect())
    await asyncio.wait({serving})
    serving.exception()
    plain.close()
    await server.stop()


@in_loop
async def test_an_address_that_is_taken_is_named() -> None:
    server = Listening()
    host, port = await server.begin()
    with pytest.raises(ConnectionFailed, match="cannot listen") as raised:
        await pull(listen(host, port), collect())
    assert "listen(host, port)" in raised.value.where[0].location.text
    await server.stop()


@in_loop
async def test_what_ready_raises_stops_listening() -> None:
    def ready(_host: str, _port: int) -> None:
        raise ValueError("not ready")

    with pytest.raises(ValueError, match="not ready"):
        await pull(listen(ready=ready), collect())


class Full:
    """A socket for which there is no room, the first time."""

    def __init__(self) -> None:
        self.calls = 0

    def accept(self) -> Any:
        self.calls += 1
        if self.calls == 1:
            raise OSError(errno.EMFILE, "too many open files")
        return "connection", ("host", 1)


def test_a_full_system_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "FULL", 0.0)
    full = Full()
    assert asyncio.run(sockets._accept(full)) == ("connection", ("host", 1))  # type: ignore[arg-type]
    assert full.calls == 2


def test_options_are_checked() -> None:
    with pytest.raises(BadOption):
        listen(pending=0)
    with pytest.raises(BadOption):
        listen(chunk=0)
