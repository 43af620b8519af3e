"""gRPC service for clients, around `ClientSession` and `SubscriptionBuffer`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator, Iterator
from typing import Any

import grpc

from headrace.compute.client.connection_options import SERVICE
from headrace.compute.client.generated import client_pb2 as pb
from headrace.compute.errors import ComputeError, StaleEpoch, UnknownName
from headrace.compute.problem_conversion import problem_of, problem_of_any
from headrace.compute.protocol.responses import Batch, DroppedAt, EncodedUpdates, Problem
from headrace.compute.protocol.serialization import problem_to_bytes
from headrace.compute.serve.chunks import encode_chunks
from headrace.compute.serve.client_session import ClientSession, SessionHost, encode_description
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
                    self.converse, pb.Request.FromString, pb.Answer.SerializeToString
                ),
                "Subscribe": _grpc.unary_stream_rpc_method_handler(
                    self.subscribe, pb.Subscription.FromString, pb.Event.SerializeToString
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

    async def subscribe(self, asked: pb.Subscription, call: Any) -> None:
        """Serve one client's subscription; gRPC blocks while the client does not read."""
        await self._admit(call)
        with self._remembered():
            try:
                async with contextlib.aclosing(self._events(asked)) as events:
                    async for event in events:
                        await call.write(event)
            except Exception as error:
                if isinstance(error, StaleEpoch):
                    self._around.end_fenced(error)
                await call.write(pb.Event(problem=problem_to_bytes(problem_of_any(error))))

    async def _events(self, asked: pb.Subscription) -> AsyncGenerator[pb.Event, None]:
        controller = self._around.controller
        yield pb.Event(description=encode_description(controller.describe(asked.view)))
        outlet = SubscriptionBuffer(
            controller,
            asked.view,
            as_of=asked.as_of if asked.HasField("as_of") else None,
            snapshot=asked.snapshot,
            replica=asked.replica or None,
            patience=asked.patience if asked.HasField("patience") else None,
        )
        try:
            while (event := await outlet.next()) is not None:
                match event:
                    case Batch(updates=Problem() as problem):
                        yield pb.Event(problem=problem_to_bytes(problem))
                    case Batch():
                        for message in _messages(event):
                            yield pb.Event(batch=message)
                    case DroppedAt():
                        dropped = UnknownName(
                            f"the view {asked.view!r} was dropped",
                            fix="create it again, and subscribe with a snapshot",
                            name=asked.view,
                        )
                        yield pb.Event(problem=problem_to_bytes(problem_of(dropped)))
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


def _messages(batch: Batch) -> Iterator[pb.Batch]:
    updates, bounds = batch.updates, {"lower": batch.lower.time, "upper": batch.upper.time}
    assert not isinstance(updates, Problem)
    if isinstance(updates, EncodedUpdates):
        for left, chunk in zip(range(len(updates.chunks) - 1, -1, -1), updates.chunks, strict=True):
            yield pb.Batch(**bounds, updates=chunk, more=left > 0, time=updates.time)
        return
    for chunk, more in encode_chunks(updates):
        yield pb.Batch(**bounds, updates=chunk, more=more)
