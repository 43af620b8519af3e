"""Session: the replica's side of one stream, receiving commands and sending responses until it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import grpc

from headrace.compute.errors import ConnectionBroken, ProtocolViolation, TooManyPeeks
from headrace.compute.problem_conversion import problem_of
from headrace.compute.protocol import serialization
from headrace.compute.protocol.commands import CancelPeek, Command, CreateTimely, Peek
from headrace.compute.protocol.responses import PeekResponse, Response
from headrace.compute.transport.grpc_errors import abort_call
from headrace.compute.transport.handshake import Greeting, Welcome
from headrace.compute.transport.limits import Limits

_grpc: Any = grpc
MOST_REFUSED = 100_000
"""Limit on refused peeks that are not cancelled yet: beyond it, the controller is ignoring the refusals."""


class Receiver(Protocol):
    """Receiver of the commands."""

    def receive(self, command: Command, /) -> None: ...


class ReplicaSession:
    """Stream of one controller. Used by one event loop.

    Writing blocks until gRPC accepts the message, and so until the other side reads. The replica is not
    stepped meanwhile, so at most the responses of one step are unsent.
    """

    def __init__(self, context: Any, greeting: Greeting, limits: Limits) -> None:
        self.greeting = greeting
        self._context = context
        self._limits = limits
        self._task = asyncio.current_task()
        self._writing = asyncio.Lock()
        self._error: Exception | None = None
        self._pending: set[bytes] = set()
        self._refused: set[bytes] = set()
        self._own: list[Response] = []

    @property
    def is_over(self) -> bool:
        """Whether the stream has ended."""
        return self._error is not None

    def end(self, error: Exception) -> None:
        """End the stream with an error; the controller gets the first one."""
        if self._error is None:
            self._error = error
            assert self._task is not None
            self._task.cancel()

    async def run(self, receiver: Receiver, received: Callable[[], Any], welcome: Welcome) -> None:
        """Welcome the controller, then pass its commands to `receiver` until the stream ends.

        `received` is called and awaited after each message. Any error ends the stream, and only the stream.
        """
        try:
            await self._context.send_initial_metadata(welcome.metadata())
            while (data := await self._context.read()) is not _grpc.aio.EOF:
                for command in serialization.commands_from_message(data, self._limits.message):
                    self._receive(receiver, command)
                await received()
        except asyncio.CancelledError:
            if self._error is None:
                raise
            # Cancelled by `end`, and handled here.
            assert self._task is not None
            self._task.uncancel()
        except Exception as error:
            self._error = self._error or error
        if self._error is not None:
            await abort_call(self._context, self._error)

    async def send(self, responses: Iterable[Response]) -> None:
        """Send responses after those of earlier calls. Does nothing once the stream is over."""
        if self._own:
            responses, self._own = [*self._own, *responses], []
        if not responses or self.is_over:
            return
        try:
            for response in responses:
                if isinstance(response, PeekResponse):
                    self._pending.discard(response.uuid)
            async with self._writing:
                for message in serialization.responses_to_messages(responses, self._limits.message):
                    await self._context.write(message)
        except asyncio.CancelledError:
            raise
        except _BROKEN as error:
            broken = ConnectionBroken("the controller is gone", why=str(error))
            self.end(broken)
        except Exception as error:
            self.end(error)

    def _receive(self, receiver: Receiver, command: Command) -> None:
        self._limits.check(command)
        match command:
            case CreateTimely(epoch=epoch, nonce=nonce) if (epoch, nonce) != (
                self.greeting.epoch,
                self.greeting.nonce,
            ):
                raise ProtocolViolation(
                    "CreateTimely has another epoch or nonce than the stream",
                    stage="creation",
                    message="CreateTimely",
                )
            case Peek(uuid) if len(self._pending) >= self._limits.peeks:
                if len(self._refused) >= MOST_REFUSED:
                    raise self._too_many()
                self._refused.add(uuid)
                self._own.append(PeekResponse(uuid, problem_of(self._too_many())))
                return
            case Peek(uuid):
                self._pending.add(uuid)
            case CancelPeek(uuid) if uuid in self._refused:
                self._refused.remove(uuid)
                return
            case _:
                pass
        receiver.receive(command)

    def _too_many(self) -> TooManyPeeks:
        return TooManyPeeks(
            f"{self._limits.peeks:,} peeks wait for their answer already",
            fix="wait for some of them to finish, or raise the limit",
            limit=self._limits.peeks,
        )


_BROKEN = (_grpc.aio.UsageError, _grpc.aio.InternalError, _grpc.aio.AioRpcError, asyncio.InvalidStateError)
