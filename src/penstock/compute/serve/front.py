"""The service that clients call: gRPC around `Talk` and `Outlet`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from penstock.compute.client.describing import description_of
from penstock.compute.client.endpoint import SERVICE
from penstock.compute.client.generated import client_pb2 as pb
from penstock.compute.errors import StaleEpoch, UnknownName
from penstock.compute.problems import problem_of, problem_of_any
from penstock.compute.protocol.responses import Batch, DroppedAt, Problem
from penstock.compute.protocol.wire import problem_to_bytes
from penstock.compute.serve.chunks import chunks
from penstock.compute.serve.outlet import Outlet
from penstock.compute.serve.talk import Surroundings, Talk


class Front:
    """Answers clients out of a controller."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._calls: set[asyncio.Task[Any]] = set()

    def handlers(self) -> Any:
        """What a `grpc.aio` server is given."""
        import grpc

        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Converse": grpc.stream_stream_rpc_method_handler(
                    self.converse, pb.Request.FromString, pb.Answer.SerializeToString
                ),
                "Subscribe": grpc.unary_stream_rpc_method_handler(
                    self.subscribe, pb.Subscription.FromString, pb.Event.SerializeToString
                ),
            },
        )

    async def converse(self, requests: object, call: Any) -> None:
        """One client's requests."""
        import grpc

        # So that the client knows at once that it is let in.
        await call.send_initial_metadata(())
        talk = Talk(self._around)
        writing = asyncio.create_task(talk.write(call))
        with self._remembered():
            try:
                await talk.read(call, grpc.aio.EOF)
            finally:
                talk.end()
                writing.cancel()
                await asyncio.wait([writing])

    async def subscribe(self, asked: pb.Subscription, call: Any) -> None:
        """One client's subscription; gRPC waits while the client does not read."""
        with self._remembered():
            try:
                async with contextlib.aclosing(self._events(asked)) as events:
                    async for event in events:
                        await call.write(event)
            except Exception as error:
                if isinstance(error, StaleEpoch):
                    self._around.fenced(error)
                await call.write(pb.Event(problem=problem_to_bytes(problem_of_any(error))))

    async def _events(self, asked: pb.Subscription) -> AsyncIterator[pb.Event]:
        controller = self._around.controller
        yield pb.Event(description=description_of(controller.describe(asked.view)))
        outlet = Outlet(
            controller,
            asked.view,
            as_of=asked.as_of if asked.HasField("as_of") else None,
            snapshot=asked.snapshot,
            replica=asked.replica or None,
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

    @contextlib.contextmanager
    def _remembered(self) -> Any:
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            yield
        finally:
            self._calls.discard(task)


def _messages(batch: Batch) -> AsyncIterator[pb.Batch] | Any:
    assert not isinstance(batch.updates, Problem)
    for piece, more in chunks(batch.updates):
        yield pb.Batch(lower=batch.lower.time, upper=batch.upper.time, updates=piece, more=more)
