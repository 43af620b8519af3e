"""Link: a controller's connection to one replica, from the connection attempt to the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

import grpc

from headrace.compute import channels
from headrace.compute.channels import (
    ConnectionLimits,
    Greeting,
    Wakeup,
    Welcome,
    error_from_rpc,
    metadata_mapping,
    to_compute_error,
    version_metadata,
)
from headrace.compute.credentials import Security, needs_lookup
from headrace.compute.errors import ComputeError, ConnectionBroken
from headrace.compute.protocol import serialization
from headrace.compute.protocol.codec_derivation import parse
from headrace.compute.protocol.commands import CancelPeek, Command, Epoch
from headrace.compute.protocol.generated import compute_pb2 as pb
from headrace.compute.protocol.responses import Response, StashToken
from headrace.compute.protocol.serialization import STASH_TOKEN
from headrace.compute.protocol.stages import ControllerStages

_grpc: Any = grpc
_aio: Any = _grpc.aio
_PATIENCE = 0.005
"""Seconds for which a `CancelPeek` waits to be sent together with later commands."""


class LinkConnection(Protocol):
    """Controller's side of a connection (`headrace.compute.controller.replica_connection`)."""

    wake: Callable[[], None]

    @property
    def epoch(self) -> Epoch: ...
    @property
    def nonce(self) -> bytes: ...
    @property
    def is_over(self) -> bool: ...
    def take_commands(self, most: int = 100) -> Sequence[Command]: ...
    def handle_response(self, response: Response) -> None: ...
    def record_stream_end(self, error: ComputeError | None) -> None: ...


class LinkController(Protocol):
    """Interface of the controller for links (`headrace.compute.controller.controller`)."""

    def accept_connection(self, name: str) -> LinkConnection: ...
    def record_unreachable(self, name: str, error: ComputeError) -> None: ...


class ReplicaLink:
    """Single connection to one replica. The controller decides when to connect again.

    error:   the first error, with which the connection ended; None if it ended normally, or has not ended.
    welcome: the replica's reply to the greeting; None before it arrives.
    """

    def __init__(
        self,
        controller: LinkController,
        name: str,
        address: str,
        security: Security = Security(),
        limits: ConnectionLimits = ConnectionLimits(),
    ) -> None:
        self.name = name
        self.address = address
        self.error: ComputeError | None = None
        self.welcome: Welcome | None = None
        self._controller = controller
        self._security = security
        self._limits = limits
        self._channel: Any = None
        self._bell = Wakeup()
        self._stages = ControllerStages()

    async def run(self) -> ComputeError | None:
        """Connect, carry commands and responses until the end, and report the end to the controller.

        Returns the final error. A cancellation also ends the connection, without an error.
        """
        try:
            self._channel = await self._reached()
            connection = self._controller.accept_connection(self.name)
        except Exception as error:
            await self._close()
            self.error = to_compute_error(error)
            self._controller.record_unreachable(self.name, self.error)
            return self.error
        try:
            await self._converse(connection)
        finally:
            connection.wake = _nothing
            connection.record_stream_end(self.error)
            await self._close()
        return self.error

    async def fetch(self, token: bytes) -> AsyncIterator[bytes]:
        """Fetch stashed rows from the replica as encoded chunks, to be decoded by the recipient.

        Raises `ResultGone`, `ConnectionBroken`.
        """
        if self._channel is None:
            raise ConnectionBroken(f"there is no connection to {self.address}", address=self.address)
        call = self._channel.unary_stream(channels.FETCH)(
            STASH_TOKEN.to_bytes(StashToken(token)),
            metadata=(*version_metadata(), *self._security.metadata()),
        )
        try:
            while (data := await call.read()) is not _aio.EOF:
                yield parse(pb.RowsChunk, data).rows
        except _aio.AioRpcError as error:
            raise error_from_rpc(error, self.address) from error
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise ConnectionBroken(f"the connection to {self.address} ended", address=self.address) from None
        finally:
            call.cancel()

    async def _reached(self) -> Any:
        """Return a connected channel. Raises `ConnectionBroken`, `NotAuthorized`, `InsecureAddress`."""
        if needs_lookup(self.address):
            target = await asyncio.to_thread(self._security.target, self.address)
        else:
            target = self._security.target(self.address)
        channel = channels.channel_to(target, self._security, self._limits)
        try:
            await asyncio.wait_for(self._ready(channel), self._limits.connect)
        except TimeoutError:
            await channel.close()
            raise ConnectionBroken(
                f"{self.address} does not answer",
                why=f"There was no connection within {self._limits.connect:g} seconds.",
                fix="check that the replica runs, and that both sides use TLS or neither",
                address=self.address,
            ) from None
        except BaseException:
            await channel.close()
            raise
        return channel

    async def _ready(self, channel: Any) -> None:
        state = channel.get_state(try_to_connect=True)
        while state != _grpc.ChannelConnectivity.READY:
            if state == _grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                await self._ask_why(channel)
            await channel.wait_for_state_change(state)
            state = channel.get_state(try_to_connect=True)

    async def _ask_why(self, channel: Any) -> None:
        """Make a call to raise the channel's error, since only a call reveals its details."""
        try:
            await channel.unary_unary(channels.FETCH)(b"")
        except _aio.AioRpcError as error:
            if error.code() == _grpc.StatusCode.UNAVAILABLE:
                raise error_from_rpc(error, self.address) from error

    async def _converse(self, connection: LinkConnection) -> None:
        greeting = Greeting(connection.epoch, connection.nonce, self.name)
        metadata = (*greeting.metadata(), *self._security.metadata())
        call = self._channel.stream_stream(channels.STREAM)(metadata=metadata)
        self._bell.attach_to_loop()
        connection.wake = self._bell.ring
        sending = asyncio.ensure_future(self._send(call, connection))
        try:
            async with asyncio.timeout(self._limits.connect):
                self.welcome = await self._welcomed(call)
            await self._receive(call, connection)
        except _aio.AioRpcError as error:
            self._first(error_from_rpc(error, self.address))
        except TimeoutError:
            self._first(ConnectionBroken(f"{self.address} does not answer", address=self.address))
        except asyncio.CancelledError:
            # If `_send` has cancelled the call, it looks as if this task had been cancelled.
            if self.error is None or _is_cancelled():
                raise
        except Exception as error:
            self._first(error)
        finally:
            sending.cancel()
            call.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _welcomed(self, call: Any) -> Welcome:
        metadata = metadata_mapping(await call.initial_metadata())
        if not metadata:
            await call.read()  # a refused call has no metadata, and raises the reason here
        return Welcome.read(metadata)

    async def _receive(self, call: Any, connection: LinkConnection) -> None:
        reader = serialization.ResponseReader(self._limits.message, self._limits.batch)
        while (data := await call.read()) is not _aio.EOF:
            for response in reader.read(data):
                self._stages.check_response(response)
                connection.handle_response(response)
        if connection.is_over:
            return
        raise ConnectionBroken(
            f"replica {self.name!r} unexpectedly ended the connection", address=self.address
        )

    async def _send(self, call: Any, connection: LinkConnection) -> None:
        try:
            while not connection.is_over:
                commands = connection.take_commands()
                if commands and all(isinstance(command, CancelPeek) for command in commands):
                    # Usually for answered peeks, and another peek to send along with them follows soon.
                    await self._bell.wait_for_ring(_PATIENCE)
                    commands = [*commands, *connection.take_commands()]
                for command in commands:
                    self._stages.check_sent(command)
                for message in serialization.commands_to_messages(commands, self._limits.message):
                    await call.write(message)
                if not commands:
                    await self._bell.wait_for_ring()
            await call.done_writing()
        except (_aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the receiving task gets the status and reports it
        except Exception as error:
            self._first(error)
            call.cancel()

    def _first(self, error: Exception) -> None:
        if self.error is None:
            self.error = to_compute_error(error)

    async def _close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _nothing() -> None:
    pass
