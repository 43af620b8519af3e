"""Requests of a client over one long-lived stream to the controller, reopened when it breaks.

Source: on an open stream a request costs a third of a separate call (measured with grpc.aio).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any, TypeAlias, TypeVar

from headrace.compute.channels import (
    END_OF_CALL,
    ConnectionLimits,
    Pairs,
    raising_compute_errors,
    version_metadata,
)
from headrace.compute.credentials import Security
from headrace.compute.errors import (
    ComputeError,
    ConnectionBroken,
    Missing,
    ReadTimeout,
    ResultGone,
    Unconfirmed,
    error_of,
)
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
from headrace.errors import HeadraceError
from headrace.expr.time_texts import duration

DEFAULT_ADDRESS = "127.0.0.1:7411"
"""Default address of `headrace controller`."""
ADDRESS_VARIABLE = "HEADRACE_CONTROLLER"
"""Environment variable that holds the controller's address."""
SERVICE = "headrace.client.v1.Front"
"""Name of the service in `client.proto`, with its version."""
CONVERSE = f"/{SERVICE}/Converse"
SUBSCRIBE = f"/{SERVICE}/Subscribe"


@dataclass(frozen=True)
class Endpoint:
    """Address of a controller (HOST:PORT) with the credentials to connect."""

    address: str
    security: Security = Security()  # noqa: RUF009
    limits: ConnectionLimits = ConnectionLimits()  # noqa: RUF009

    def channel(self) -> Any:
        """Create a `grpc.aio` channel, which connects at the first call. Raises `InsecureAddress`."""
        from headrace.compute.channels import open_channel

        return open_channel(self.address, self.security, self.limits)

    def metadata(self) -> Pairs:
        """Return the metadata to send with each call."""
        return (*version_metadata(), *self.security.metadata())


class UseClientPatience(Enum):
    """Marker for a read that uses the patience of its client."""

    DEFAULT = "as the client"


Patience: TypeAlias = timedelta | str | UseClientPatience | None
"""Time span such as "30s", or None to wait forever."""
AS_CLIENT = UseClientPatience.DEFAULT

_ROUND_TRIP = 10.0
"""Seconds allowed for an answer with a patience of zero: nothing is retried or waited for."""


def patience_seconds(patience: timedelta | str | None) -> float | None:
    """Convert a patience to seconds. Raises as `duration` does."""
    return None if patience is None else duration(patience).total_seconds()


@dataclass(slots=True)
class Wait:
    """Wait for the answer to one read.

    seconds:      its patience; None: forever.
    disconnected: the failure since which there was no connection to the controller.
    """

    seconds: float | None
    disconnected: ConnectionBroken | None = field(init=False, default=None)
    _until: float | None = field(init=False)
    _scope: asyncio.Timeout | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        now = asyncio.get_running_loop().time()
        self._until = None if self.seconds is None else now + self.seconds

    @property
    def deadline(self) -> float | None:
        """End of the wait in event-loop time, or None if the wait is unlimited."""
        return self._until

    def remaining_milliseconds(self) -> int | None:
        """Return the time limit for the controller: slightly less than is left, so that it responds first."""
        if self._until is None:
            return None
        left = max(self._until - asyncio.get_running_loop().time(), 0.0)
        return int(1000 * (left - min(left / 10, 0.5)))

    def restart(self) -> None:
        """Restart the wait, because part of the answer has arrived."""
        if self.seconds is not None:
            self._until = asyncio.get_running_loop().time() + self.seconds
        if self._scope is not None and self.seconds:
            self._scope.reschedule(self._until)

    @asynccontextmanager
    async def enforce_limit(self, what: str, address: str) -> AsyncGenerator[None]:
        """Raise `ReadTimeout` if the body takes longer, or `ConnectionBroken` if it is still trying to
        connect again. what: a noun for the read."""
        end = self._until if self.seconds else None
        if self.seconds == 0:
            end = asyncio.get_running_loop().time() + _ROUND_TRIP
        scope = self._scope = asyncio.timeout_at(end)
        try:
            async with scope:
                yield
        except TimeoutError as error:
            if not scope.expired():
                raise
            if self.disconnected is not None:
                raise self.disconnected from error
            waited = self.seconds or _ROUND_TRIP
            raise ReadTimeout(
                f"{what} was not answered within {waited:g} s: the controller at {address} does not answer",
                fix="check the controller, or raise the timeout: Client(patience=...)",
                missing=Missing.CONTROLLER.value,
                replicas=(),
            ) from error
        finally:
            self._scope = None


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
        """Start waiting for a read, for `patience` or by default for the client's."""
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
