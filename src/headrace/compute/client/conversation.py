"""Requests of a client over one long-lived stream to the controller, reopened when it breaks.

Source: on an open stream a request costs a third of a separate call (measured with grpc.aio).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from headrace.compute.client.connection_options import CONVERSE, SUBSCRIBE, Endpoint
from headrace.compute.client.patience import AS_CLIENT, Patience, UseClientPatience, Wait, patience_seconds
from headrace.compute.errors import ComputeError, ConnectionBroken, ResultGone, Unconfirmed
from headrace.compute.problem_conversion import error_of
from headrace.compute.protocol.client_messages import (
    ANSWER,
    EVENT,
    REQUEST,
    SUBSCRIPTION,
    CancelPeekRequest,
    ClientAnswer,
    ClientRequest,
    CopyRequest,
    PeekMessage,
    RowsPart,
    SubscriptionRequest,
)
from headrace.compute.protocol.responses import Problem
from headrace.compute.transport.grpc_errors import END_OF_CALL, raising_compute_errors
from headrace.errors import HeadraceError

T = TypeVar("T")
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between attempts to connect: initial and maximum."""
GOODBYE = 0.5
"""Seconds to wait for the controller to end the stream when the client closes it."""
_SMALLER = {
    "write": "write fewer rows at a time, or smaller ones",
    "peek": "ask for fewer keys at a time, or by a shorter condition",
}
"""Fix to suggest for a request that is too large, by its kind."""


class Conversation:
    """Requests of one client, matched with their answers. Used by one event loop.

    patience: seconds for which requests are retried while the controller is unavailable; None: forever.
    """

    def __init__(self, endpoint: Endpoint, patience: float | None) -> None:
        self._endpoint = endpoint
        self.address = endpoint.address
        self.patience = patience
        self.closed = False
        self._channel: Any = None
        self._line: _Line | None = None
        self._connecting = asyncio.Lock()

    def subscribe(self, asked: SubscriptionRequest) -> Any:
        """Open a separate call that streams messages of `EVENT`."""
        make = self._opened().unary_stream(SUBSCRIBE, SUBSCRIPTION.serialize, EVENT.parse)
        return make(SUBSCRIPTION.to_message(asked), metadata=self._endpoint.metadata())

    def _opened(self) -> Any:
        if self.closed:
            raise ConnectionBroken("the client is closed", fix="make a new client", address=self.address)
        if self._channel is None:
            self._channel = self._endpoint.channel()
        return self._channel

    def wait(self, patience: Patience = AS_CLIENT) -> Wait:
        """Start the wait of a read, with its own patience or the client's."""
        return Wait(self.patience if isinstance(patience, UseClientPatience) else patience_seconds(patience))

    async def send_read(
        self, request: ClientRequest, what: str, wait: Wait, *, again: bool = True
    ) -> list[ClientAnswer]:
        """Send a read-only request as `ask` does, within the patience of `wait`. what: a noun for the read.

        Raises `ReadTimeout` if there is no answer by then, `ConnectionBroken` if there is no controller.
        """
        async with wait.enforce_limit(what, self.address):
            return await self.ask(request, repeatable=again, wait=wait)

    async def ask(
        self, request: ClientRequest, *, repeatable: bool = True, wait: Wait | None = None
    ) -> list[ClientAnswer]:
        """Send a request, and return all its answers.

        repeatable: the request may be resent if its answer was lost; otherwise `Unconfirmed` is raised.
        wait:       of a read; passed to the controller.
        Raises the error that the controller answers with, `ConnectionBroken` if no controller can be reached
        within the client's patience, and `MessageTooLarge`, `NotAuthorized` and the like at once.
        """
        message = REQUEST.to_message(request)
        kind = message.WhichOneof("kind") or ""
        self._endpoint.limits.check_message(
            kind.replace("_", " "), message.ByteSize(), _SMALLER.get(kind, "")
        )
        wait = wait or self.wait()
        progress = wait.restart

        async def once() -> list[ClientAnswer]:
            line = await self._connected()
            wait.disconnected = None
            left = wait.remaining_milliseconds()
            if left is not None and isinstance(request, PeekMessage | CopyRequest):
                getattr(message, kind).patience = left
            try:
                return await line.ask(message, progress)
            except ConnectionBroken as error:
                if repeatable:
                    raise
                raise Unconfirmed(
                    "the connection broke before the controller answered",
                    why="The request may or may not have been carried out.",
                    fix="check whether it was carried out before repeating it",
                    address=self.address,
                ) from error

        return await retry_with_patience(once, self, wait)

    async def _connected(self) -> _Line:
        async with self._connecting:
            if self._line is None or self._line.broken:
                self._line = await _Line.open(self._opened(), self._endpoint)
            return self._line

    async def close(self) -> None:
        """Close the stream and the channel; pending requests fail with `ConnectionBroken`."""
        self.closed = True
        if self._line is not None:
            await self._line.close()
        if self._channel is not None:
            await self._channel.close()


async def retry_with_patience(
    attempt: Callable[[], Awaitable[T]], conversation: Conversation, wait: Wait
) -> T:
    """Retry `attempt` while it raises `ConnectionBroken`, or `ResultGone` because a replica died with the
    rows, until the wait is over or the conversation is closed."""
    loop = asyncio.get_running_loop()
    pause = FIRST_PAUSE
    while True:
        try:
            return await attempt()
        except (ConnectionBroken, ResultGone) as error:
            wait.disconnected = error if isinstance(error, ConnectionBroken) else None
            if conversation.closed or (wait.deadline is not None and loop.time() + pause > wait.deadline):
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


class _Line:
    """Single stream of requests and answers, used until it breaks."""

    def __init__(self, call: Any, address: str) -> None:
        self._call = call
        self._address = address
        self._number = 0
        self._waiting: dict[int, _Waiting] = {}
        self._sending = asyncio.Lock()
        self._cancelling: set[asyncio.Task[None]] = set()
        self._reading = asyncio.create_task(self._read())
        self.broken: Exception | None = None

    @classmethod
    async def open(cls, channel: Any, endpoint: Endpoint) -> _Line:
        """Open a stream. Raises the controller's error if it refuses."""
        call = channel.stream_stream(CONVERSE, REQUEST.serialize, ANSWER.parse)(metadata=endpoint.metadata())
        try:
            with raising_compute_errors(endpoint.address):
                await call.wait_for_connection()
        except asyncio.CancelledError:
            call.cancel()
            raise
        return cls(call, endpoint.address)

    async def ask(self, request: Any, progress: Callable[[], None]) -> list[ClientAnswer]:
        """Send a request, and return all its answers. progress: called after each part but the last."""
        self._number += 1
        number = request.number = self._number
        waiting = self._waiting[number] = _Waiting(progress)
        try:
            await self._send(request)
            return await waiting.whole
        except asyncio.CancelledError:
            if request.WhichOneof("kind") == "peek" and self.broken is None:
                # Not awaited: if nothing can be sent, a caller that gave up would wait forever.
                cancelling = asyncio.create_task(self._cancel_peek(number))
                self._cancelling.add(cancelling)
                cancelling.add_done_callback(self._cancelling.discard)
            raise
        finally:
            del self._waiting[number]

    async def _cancel_peek(self, number: int) -> None:
        with contextlib.suppress(ComputeError):
            await self._send(REQUEST.to_message(CancelPeekRequest(number)))

    async def _send(self, request: Any) -> None:
        async with self._sending:
            if self.broken is not None:
                raise self.broken
            with raising_compute_errors(self._address):
                await self._call.write(request)

    async def _read(self) -> None:
        error: Exception = ConnectionBroken(
            f"the controller at {self._address} has ended the connection", address=self._address
        )
        try:
            with raising_compute_errors(self._address):
                while (answer := await self._call.read()) is not END_OF_CALL:
                    if (waiting := self._waiting.get(answer.number)) is not None:
                        waiting.take(answer)
                await self._call.code()
        except asyncio.CancelledError:
            pass  # `grpc.aio` raises this after our own cancellation of the call
        except Exception as met:
            error = met
        self.broken = error
        for waiting in self._waiting.values():
            waiting.fail(error)

    async def close(self) -> None:
        # Cancel only as a last resort: gRPC's pending events for a cancelled call may find its event loop
        # closed, which disturbs other event loops.
        with contextlib.suppress(Exception):
            async with asyncio.timeout(GOODBYE):
                await self._call.done_writing()
                await asyncio.wait([self._reading])
        self._call.cancel()
        await asyncio.wait([self._reading])


class _Waiting:
    """Answers received so far for one request. progress: called after each part but the last."""

    def __init__(self, progress: Callable[[], None]) -> None:
        self._progress = progress
        self._answers: list[ClientAnswer] = []
        self.whole: asyncio.Future[list[ClientAnswer]] = asyncio.get_running_loop().create_future()

    def take(self, message: Any) -> None:
        if self.whole.done():
            return
        try:
            answer = ANSWER.from_message(message)
        except HeadraceError as error:
            self._set_error(error)
            return
        if isinstance(answer, Problem):
            self._set_error(error_of(answer))
            return
        self._answers.append(answer)
        if isinstance(answer, RowsPart) and answer.more:
            self._progress()
        else:
            self.whole.set_result(self._answers)

    def fail(self, error: Exception) -> None:
        if not self.whole.done():
            self._set_error(error)

    def _set_error(self, error: Exception) -> None:
        self.whole.set_exception(error)
        # Nobody may be waiting: whoever still sends the request gets its error from that. Without this,
        # asyncio would log each such error with its stack.
        self.whole.exception()
