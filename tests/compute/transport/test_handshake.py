"""Before the first command: versions, names, epochs; and what is no greeting at all."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import grpc
import pytest

from headrace.compute import channels
from headrace.compute.channels import VERSION, ConnectionLimits, Greeting, Wakeup, Welcome
from headrace.compute.errors import (
    BadMessage,
    ComputeError,
    ConnectionBroken,
    ProtocolViolation,
    StaleEpoch,
    UnknownName,
    VersionMismatch,
)
from headrace.compute.protocol.commands import CreateTimely, Epoch, IndexTarget, Peek, TimelyConfig
from headrace.compute.serve.replica_link import ReplicaLink
from headrace.compute.serve.replica_server import ReplicaSession
from tests.compute.transport.fakes import (
    PATIENCE,
    FakeController,
    FakeReplica,
    Served,
    answered,
    linked,
    raw_stream,
    run_link,
    served,
    until,
)

NONCE = b"n" * 16
GOOD = Greeting(Epoch(1, 1), NONCE).metadata()
_grpc: Any = grpc


async def refusal(server: Served, metadata: Any) -> tuple[str, ComputeError]:
    """The status and the error that a stream with such metadata ends with."""
    async with raw_stream(server, metadata) as call:
        with pytest.raises(_grpc.aio.AioRpcError) as refused:
            await asyncio.wait_for(call.read(), PATIENCE)
    error: Any = refused.value
    return error.code().name, channels.error_from_rpc(error, server.address)


def without(name: str) -> list[tuple[str, str | bytes]]:
    return [pair for pair in GOOD if pair[0] != name]


def test_a_request_without_a_version_is_denied() -> None:
    async def story() -> None:
        async with served() as server:
            status, error = await refusal(server, without("x-headrace-protocol"))
            assert status == "PERMISSION_DENIED"
            assert isinstance(error, VersionMismatch)
            assert error.what == "request missing version metadata"
            await server.check_alive()

    asyncio.run(story())


def test_the_version_must_match_exactly_and_no_command_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with served() as server:
            theirs = [*without("x-headrace-protocol"), ("x-headrace-protocol", f"{VERSION}.0")]
            status, error = await refusal(server, theirs)
            assert status == "PERMISSION_DENIED"
            assert isinstance(error, VersionMismatch)
            assert error.what == f"version {VERSION}.0 but {VERSION} required"
            assert server.replica.events == []
            assert server.replica.received == []

    asyncio.run(story())


def test_a_controller_refuses_a_replica_of_another_version() -> None:
    async def stream(_requests: Any, context: Any) -> None:
        await context.send_initial_metadata((("x-headrace-protocol", f"{VERSION}0"),))
        await context.read()

    async def story() -> None:
        async with rogue(stream) as address:
            controller, link = await run_link(address)
            assert isinstance(link.error, VersionMismatch)
            assert controller.failures == [link.error]

    asyncio.run(story())


def test_a_replica_refuses_a_controller_that_means_another_one() -> None:
    async def story() -> None:
        async with served(name="größe 1") as server:
            _, link = await run_link(server, name="r2")
            assert isinstance(link.error, UnknownName)
            assert link.error.facts["name"] == "r2"
            async with linked(server, name="größe 1", controller_epoch=2) as (controller, _):
                assert await controller.peek() == answered(1)

    asyncio.run(story())


@pytest.mark.parametrize(
    "metadata",
    [
        without("x-headrace-nonce-bin"),
        [*without("x-headrace-nonce-bin"), ("x-headrace-nonce-bin", b"short")],
        without("x-headrace-epoch"),
        [*without("x-headrace-epoch"), ("x-headrace-epoch", "one.two")],
        [*without("x-headrace-epoch"), ("x-headrace-epoch", "1" * 5000 + ".1")],
        [*without("x-headrace-epoch"), ("x-headrace-epoch", f"{2**63}.1")],
        [*without("x-headrace-epoch"), ("x-headrace-epoch", f"1.{2**63}")],
        [*GOOD, ("x-headrace-replica", "no hexadecimal")],
        [*GOOD, ("x-headrace-replica", "ff")],
    ],
)
def test_a_greeting_that_is_none_is_refused(metadata: Any) -> None:
    async def story() -> None:
        async with served(name="r1") as server:
            status, error = await refusal(server, metadata)
            assert status == "INVALID_ARGUMENT"
            assert isinstance(error, BadMessage)
            assert server.replica.events == []
            await server.check_alive()

    asyncio.run(story())


@pytest.mark.parametrize(("epoch", "nonce"), [(Epoch(1, 2), NONCE), (Epoch(1, 1), b"m" * 16)])
def test_the_first_command_must_tell_the_epoch_and_nonce_of_its_stream(epoch: Epoch, nonce: bytes) -> None:
    async def story() -> None:
        async with served() as server:
            other: Any = [CreateTimely(TimelyConfig(), epoch, nonce)]
            controller = FakeController()
            controller.prepared = other
            link = ReplicaLink(controller, "r1", server.address)
            monkey = controller.accept_connection

            def connected(name: str) -> Any:
                connection = monkey(name)
                connection.epoch, connection.nonce = Epoch(1, 1), NONCE
                return connection

            controller.accept_connection = connected  # type: ignore[method-assign]
            await asyncio.wait_for(link.run(), PATIENCE)
            assert isinstance(link.error, ProtocolViolation)
            assert server.replica.received == []
            await server.check_alive()

    asyncio.run(story())


def test_a_replica_says_what_it_is_and_what_it_has_seen() -> None:
    async def story() -> None:
        async with served() as server:
            async with linked(server) as (controller, link):
                await controller.peek()
                assert link.welcome is not None
                assert (link.welcome.runtime, link.welcome.epoch) == ("", None)
                boot = link.welcome.boot
            async with linked(server, controller_epoch=2) as (controller, link):
                await controller.peek()
                assert link.welcome == channels.Welcome(boot, "here", Epoch(1, 1))

    asyncio.run(story())


def test_an_address_where_something_else_listens_is_no_replica() -> None:
    async def story() -> None:
        async with rogue(None) as address:
            _, link = await run_link(address)
            assert isinstance(link.error, VersionMismatch)
            assert "no replica" in link.error.what

    asyncio.run(story())


def test_a_controller_is_told_when_nobody_listens_and_connects_once_somebody_does() -> None:
    async def story() -> None:
        async with served() as server:
            address = server.address
        controller, link = await run_link(address)
        assert controller.connections == []
        assert controller.unreached == [link.error]
        assert isinstance(link.error, ConnectionBroken)
        assert link.error.retryable
        async with served(address=address) as server:
            await server.check_alive()

    asyncio.run(story())


def test_a_peer_that_never_answers_is_given_up() -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            controller, link = await run_link(address, limits=ConnectionLimits(connect=0.2))
        assert isinstance(link.error, ConnectionBroken)
        assert controller.unreached == [link.error]

    asyncio.run(story())


# --- rogue replicas ----------------------------------------------------------------


class rogue:
    """A server whose stream does what a test says."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aenter__(self) -> str:
        stream = self._stream

        class Handler(_grpc.GenericRpcHandler):
            def service(self, handler_call_details: Any) -> Any:
                if stream is None or handler_call_details.method != channels.STREAM:
                    return None
                return _grpc.stream_stream_rpc_method_handler(stream)

        self._server = _grpc.aio.server()
        self._server.add_generic_rpc_handlers((Handler(),))
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return f"127.0.0.1:{port}"

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(0)


def test_a_replica_that_ends_the_stream_gracefully_is_a_failure() -> None:
    async def stream(_requests: Any, context: Any) -> None:
        await context.send_initial_metadata(channels.version_metadata())

    async def story() -> None:
        async with rogue(stream) as address:
            controller, link = await run_link(address)
            assert isinstance(link.error, ConnectionBroken)
            assert "unexpectedly ended" in link.error.what
            assert controller.failures == [link.error]

    asyncio.run(story())


def test_a_replica_that_talks_rubbish_is_left() -> None:
    async def stream(_requests: Any, context: Any) -> None:
        await context.send_initial_metadata(channels.version_metadata())
        await context.write(b"\xff\xff\xff")
        await context.read()

    async def story() -> None:
        async with rogue(stream) as address:
            controller, link = await run_link(address)
            assert isinstance(link.error, BadMessage)
            assert controller.failures == [link.error]

    asyncio.run(story())


def test_an_error_stays_and_is_the_first_one() -> None:
    async def story() -> None:
        async with served() as server:
            server.replica.refuses[CreateTimely] = BadMessage("first", field="x")
            controller, link = await run_link(server)
            await until(lambda: "disconnected" in server.replica.events)
            server.task.cancel()
            for _ in range(2):
                assert isinstance(link.error, BadMessage)
                assert link.error.what == "first"
                with pytest.raises(ConnectionBroken):
                    await anext(link.fetch(NONCE))
            assert controller.failures == [link.error]

    asyncio.run(story())


@pytest.mark.parametrize("address", ["nowhere", "host:port", ""])
def test_an_address_that_is_none_is_told_to_the_controller(address: str) -> None:
    async def story() -> None:
        controller, link = await run_link(address)
        assert controller.unreached == [link.error]
        assert link.error is not None
        assert "is no address" in link.error.what
        assert link.error.fix

    asyncio.run(story())


@pytest.mark.parametrize("name", ["take_commands", "handle_response"])
def test_a_mistake_of_the_controller_ends_the_connection(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistake(*_: object) -> Any:
        raise ZeroDivisionError("mistake")

    async def story() -> None:
        async with served() as server, linked(server) as (controller, link):
            assert await controller.peek() == answered(1)
            connection = controller.connections[0]
            monkeypatch.setattr(connection, name, mistake)
            connection.send(Peek(NONCE, IndexTarget("u1"), 1))
            await until(lambda: bool(controller.failures))
            assert controller.failures == [link.error]
            assert link.error is not None
            assert link.error.what == "ZeroDivisionError: mistake"
            await server.check_alive()

    asyncio.run(story())


def test_a_stream_that_is_superseded_while_it_is_welcomed_learns_it() -> None:
    class Context:
        """Of a controller that reads nothing."""

        def __init__(self) -> None:
            self.refused: list[str] = []

        async def send_initial_metadata(self, _: object) -> None:
            session.end(stale)
            await asyncio.sleep(PATIENCE)

        async def abort(self, code: Any, _: str, __: object) -> None:
            self.refused.append(code.name)

    async def received() -> None:
        raise AssertionError("nothing was received")

    async def story() -> None:
        nonlocal session
        session = ReplicaSession(context, Greeting(Epoch(1, 1), NONCE), ConnectionLimits())
        with pytest.raises(AssertionError, match="abort has raised"):
            await session.run(FakeReplica(Wakeup()), received, Welcome("boot", "here", None))
        assert context.refused == ["FAILED_PRECONDITION"]

    context, stale = Context(), StaleEpoch("superseded")
    session: ReplicaSession
    asyncio.run(story())
