"""gRPC service for clients, around `ClientSession` and `SubscriptionBuffer`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator, Iterator
from typing import Any

import grpc

from headrace.compute.client.connection_options import SERVICE
from headrace.compute.errors import ComputeError, StaleEpoch, UnknownName
from headrace.compute.problem_conversion import problem_of, problem_of_any
from headrace.compute.protocol.client_messages import (
    ANSWER,
    EVENT,
    REQUEST,
    SUBSCRIPTION,
    BatchPart,
    SubscriptionEvent,
    SubscriptionRequest,
)
from headrace.compute.protocol.responses import Batch, DroppedAt, EncodedUpdates, Problem
from headrace.compute.serve.chunks import encode_chunks
from headrace.compute.serve.client_session import ClientSession, SessionHost
from headrace.compute.serve.subscription_buffer import SubscriptionBuffer
from headrace.compute.transport.channels import names_of_peer
from headrace.compute.transport.credentials import Security
from headrace.compute.transport.grpc_errors import END_OF_CALL, abort_call
from headrace.compute.transport.handshake import check_version, metadata_mapping

_grpc: Any = grpc


class ClientService:
    """Service of a controller for its clients."""

    def __init__(self, around: SessionHost) -> None:
        self._around = around
        self._calls: set[asyncio.Task[Any]] = set()
        self._security = Security()

    def handlers(self, security: Security = Security()) -> Any:
        """Return the handlers for a `grpc.aio` server. security: the credentials required of clients."""
        self._security = security
        return _grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Converse": _grpc.stream_stream_rpc_method_handler(
                    self.converse, REQUEST.parse, ANSWER.serialize
                ),
                "Subscribe": _grpc.unary_stream_rpc_method_handler(
                    self.subscribe, SUBSCRIPTION.parse, EVENT.serialize
                ),
            },
        )

    async def converse(self, requests: object, call: Any) -> None:
        """Serve one client's requests."""
        operator = await self._admit(call)
        # Tells the client at once that it is admitted.
        await call.send_initial_metadata(())
        talk = ClientSession(self._around, operator=operator)
        writing = asyncio.create_task(talk.send_answers(call))
        with self._remembered():
            try:
                await talk.read(call, END_OF_CALL)
            finally:
                talk.end()
                writing.cancel()
                await asyncio.wait([writing])

    async def subscribe(self, message: Any, call: Any) -> None:
        """Serve one client's subscription; gRPC blocks while the client does not read."""
        await self._admit(call)
        with self._remembered():
            try:
                asked = SUBSCRIPTION.from_message(message)
                async with contextlib.aclosing(self._events(asked)) as events:
                    async for event in events:
                        await call.write(EVENT.to_message(event))
            except Exception as error:
                if isinstance(error, StaleEpoch):
                    self._around.end_fenced(error)
                await call.write(EVENT.to_message(problem_of_any(error)))

    async def _events(self, asked: SubscriptionRequest) -> AsyncGenerator[SubscriptionEvent, None]:
        controller = self._around.controller
        yield controller.describe(asked.view)
        outlet = SubscriptionBuffer(
            controller,
            asked.view,
            as_of=asked.as_of,
            snapshot=asked.snapshot,
            replica=asked.replica,
            patience=asked.patience,
        )
        try:
            while (event := await outlet.next()) is not None:
                match event:
                    case Batch(updates=Problem() as problem):
                        yield problem
                    case Batch():
                        for part in _parts(event):
                            yield part
                    case DroppedAt():
                        dropped = UnknownName(
                            f"the view {asked.view!r} was dropped",
                            fix="create it again, and subscribe with a snapshot",
                            name=asked.view,
                        )
                        yield problem_of(dropped)
        finally:
            outlet.close()

    async def _admit(self, call: Any) -> bool:
        """Refuse a call with wrong credentials or another version. Returns whether it is an operator's."""
        try:
            metadata = metadata_mapping(call.invocation_metadata())
            operator = self._security.admit(metadata, names_of_peer(call))
            check_version(metadata)
            return operator
        except ComputeError as error:
            await abort_call(call, error)

    def end(self) -> None:
        """End all streams with an error, because the process is ending."""
        for task in self._calls:
            task.cancel()

    @contextlib.contextmanager
    def _remembered(self) -> Generator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            yield
        finally:
            self._calls.discard(task)


def _parts(batch: Batch) -> Iterator[BatchPart]:
    updates, lower, upper = batch.updates, batch.lower.time, batch.upper.time
    assert not isinstance(updates, Problem)
    if isinstance(updates, EncodedUpdates):
        for left, chunk in zip(range(len(updates.chunks) - 1, -1, -1), updates.chunks, strict=True):
            yield BatchPart(lower, upper, chunk, left > 0, updates.time)
        return
    for chunk, more in encode_chunks(updates):
        yield BatchPart(lower, upper, chunk, more)
