"""The requests of a client: one stream to the controller that carries all of them, made again when it breaks.

Source: a stream that stays open costs a third of a call per request (measured with grpc.aio).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from penstock.compute.client.endpoint import CONVERSE, SUBSCRIBE, Endpoint
from penstock.compute.client.generated import client_pb2 as pb
from penstock.compute.client.refusals import END_OF_CALL, refusal
from penstock.compute.errors import ConnectionBroken, Unconfirmed
from penstock.compute.problems import error_of
from penstock.compute.protocol.wire import problem_from_bytes

T = TypeVar("T")
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two attempts to connect: at first, and at most."""
GOODBYE = 0.5
"""Seconds that the controller has to end the stream, when the client does."""


class Conversation:
    """Asks, and matches answers with what was asked. Used by one event loop.

    patience: seconds for which a request tries again where the controller is away.
    """

    def __init__(self, endpoint: Endpoint, patience: float) -> None:
        self._endpoint = endpoint
        self.address = endpoint.address
        self.patience = patience
        self.closed = False
        self._channel: Any = None
        self._line: _Line | None = None
        self._connecting = asyncio.Lock()

    def subscribe(self, asked: pb.Subscription) -> Any:
        """A call of its own, of `Event`s."""
        make = self._opened().unary_stream(SUBSCRIBE, pb.Subscription.SerializeToString, pb.Event.FromString)
        return make(asked, metadata=self._endpoint.metadata())

    def _opened(self) -> Any:
        if self.closed:
            raise ConnectionBroken("the client is closed", fix="make another one", address=self.address)
        if self._channel is None:
            self._channel = self._endpoint.channel()
        return self._channel

    async def ask(self, request: pb.Request, *, repeatable: bool) -> list[pb.Answer]:
        """The answers to a request, the last of which ends it.

        repeatable: it may be sent again where an answer was lost; else `Unconfirmed` is raised.
        Raises the error that the controller answers, `ConnectionBroken` where there is none for as long as
        the client is patient, `NotAuthorized` and the like at once.
        """

        async def once() -> list[pb.Answer]:
            line = await self._connected()
            try:
                return await line.ask(request)
            except ConnectionBroken as error:
                if repeatable:
                    raise
                raise Unconfirmed(
                    "the connection broke before the controller answered",
                    why="It may have been done, or not.",
                    fix="look whether it was done before you ask for it again",
                    address=self.address,
                ) from error

        return await patiently(once, self)

    async def _connected(self) -> _Line:
        async with self._connecting:
            if self._line is None or self._line.broken:
                self._line = await _Line.open(self._opened(), self._endpoint)
            return self._line

    async def close(self) -> None:
        """End the stream and the channel; what is being asked fails with `ConnectionBroken`."""
        self.closed = True
        if self._line is not None:
            await self._line.close()
        if self._channel is not None:
            await self._channel.close()


async def patiently(attempt: Callable[[], Awaitable[T]], conversation: Conversation) -> T:
    """What `attempt` gives, tried again while it raises `ConnectionBroken`, for as long as the conversation
    is patient, and open."""
    loop = asyncio.get_running_loop()
    until, pause = loop.time() + conversation.patience, FIRST_PAUSE
    while True:
        try:
            return await attempt()
        except ConnectionBroken:
            if conversation.closed or loop.time() + pause > until:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


class _Line:
    """One stream of requests and answers, until it breaks."""

    def __init__(self, call: Any, address: str) -> None:
        self._call = call
        self._address = address
        self._number = 0
        self._waiting: dict[int, _Waiting] = {}
        self._sending = asyncio.Lock()
        self._reading = asyncio.create_task(self._read())
        self.broken: Exception | None = None

    @classmethod
    async def open(cls, channel: Any, endpoint: Endpoint) -> _Line:
        """A stream that the other side has accepted. Raises what it says where it does not."""
        call = channel.stream_stream(CONVERSE, pb.Request.SerializeToString, pb.Answer.FromString)(
            metadata=endpoint.metadata()
        )
        with refusal(endpoint.address):
            await call.wait_for_connection()
        return cls(call, endpoint.address)

    async def ask(self, request: pb.Request) -> list[pb.Answer]:
        self._number += 1
        number = request.number = self._number
        waiting = self._waiting[number] = _Waiting()
        try:
            await self._send(request)
            return await waiting.whole
        except asyncio.CancelledError:
            if request.WhichOneof("kind") == "peek" and self.broken is None:
                with contextlib.suppress(ConnectionBroken):
                    await self._send(pb.Request(cancel_peek=pb.CancelPeek(peek=number)))
            raise
        finally:
            del self._waiting[number]

    async def _send(self, request: pb.Request) -> None:
        async with self._sending:
            if self.broken is not None:
                raise self.broken
            with refusal(self._address):
                await self._call.write(request)

    async def _read(self) -> None:
        error: Exception = ConnectionBroken(
            f"the controller at {self._address} has ended the connection", address=self._address
        )
        try:
            with refusal(self._address):
                while (answer := await self._call.read()) is not END_OF_CALL:
                    if (waiting := self._waiting.get(answer.number)) is not None:
                        waiting.take(answer)
                await self._call.code()
        except asyncio.CancelledError:
            pass  # what `grpc.aio` raises where the call was cancelled by ourselves
        except Exception as met:
            error = met
        self.broken = error
        for waiting in self._waiting.values():
            waiting.fail(error)

    async def close(self) -> None:
        # Not by a cancellation, if it can be helped: what gRPC has still to tell of a cancelled call may find
        # its event loop closed, and disturbs those of others.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(GOODBYE):
                await self._call.done_writing()
                await asyncio.wait([self._reading])
        self._call.cancel()
        await asyncio.wait([self._reading])


class _Waiting:
    """The answers to one request, as far as they have come."""

    def __init__(self) -> None:
        self._answers: list[pb.Answer] = []
        self.whole: asyncio.Future[list[pb.Answer]] = asyncio.get_running_loop().create_future()

    def take(self, answer: pb.Answer) -> None:
        if self.whole.done():
            return
        if answer.WhichOneof("kind") == "problem":
            self.whole.set_exception(error_of(problem_from_bytes(answer.problem)))
            return
        self._answers.append(answer)
        if not answer.rows.more:
            self.whole.set_result(self._answers)

    def fail(self, error: Exception) -> None:
        if not self.whole.done():
            self.whole.set_exception(error)
