"""The reference modules in dataflow variables: the same cases, for pipelines of that form."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.pull.dataflow.edge import (
    DONE,
    Abort,
    Answer,
    Ask,
    DataflowEdge,
    Fail,
    FailIndication,
    Request,
    Requests,
    Stop,
    Value,
    from_callback_end,
    to_callback_end,
)
from headrace.pull.dataflow.module_threads import ModuleContext
from headrace.pull.dataflow.modules import DataflowSink, DataflowSource, DataflowTransformer
from headrace.pull.dataflow.variable import DataflowVariable
from headrace.pull.protocol import End
from headrace.testing.pull.neighbour_modules import Seen, SinkCase, SourceCase, TransformerCase


def source_of(case: SourceCase) -> DataflowSource:
    """1 to `case.count`, and then its end for ever. See `headrace.testing.pull.neighbour_modules`."""

    async def thread(module: ModuleContext, requests: Requests) -> None:
        values = iter(range(1, case.count + 1))
        pending: deque[Ask] = deque()

        def answer(request: Ask) -> None:
            value = next(values, None)
            request.answer.bind(from_callback_end(case.end) if value is None else Value(value))

        async def answer_oldest() -> None:
            await _due(module, case.sync)
            if pending:  # else it was stopped meanwhile
                answer(pending.popleft())

        async def stop(request: Stop, asked: tuple[Ask, ...]) -> None:
            await _due(module, case.sync)
            confirmation = DONE if case.confirms_done else request.cause
            for waiting in asked:
                if case.pending == "ends":
                    waiting.answer.bind(confirmation)
                elif case.pending == "values":
                    answer(waiting)
            request.answer.bind(confirmation)

        async for request in requests:
            if isinstance(request, Ask):
                pending.append(request)
                module.thread(answer_oldest())
            else:
                module.thread(stop(request, tuple(pending)))
                pending.clear()

    return DataflowSource.of("reference source", thread)


def transformer_of(case: TransformerCase) -> DataflowTransformer:
    """Passes on what comes, or stops upstream. See `headrace.testing.pull.neighbour_modules`."""

    async def thread(module: ModuleContext, requests: Requests, upstream: DataflowEdge) -> None:
        asked = 0

        async def pass_on(reply: DataflowVariable[Answer], answer: DataflowVariable[Answer]) -> None:
            found = await reply
            await _due(module, case.sync)
            answer.bind(found)

        async for request in requests:
            asked += 1
            if not isinstance(request, Ask):
                module.thread(pass_on(upstream.stop(request.cause), request.answer))
            elif case.stops_at is None or asked < case.stops_at:
                module.thread(pass_on(upstream.ask(), request.answer))
            elif case.indicates and asked == case.stops_at:
                upstream.send(_indication(case.by))
                module.thread(pass_on(_known(from_callback_end(case.by)), request.answer))
            else:
                module.thread(pass_on(upstream.stop(from_callback_end(case.by)), request.answer))

    return DataflowTransformer.of("reference transformer", thread)


def sink_of(case: SinkCase, seen: Seen | None = None) -> DataflowSink:
    """Asks, stops when its case says so, and remembers. See `headrace.testing.pull.neighbour_modules`."""

    async def thread(module: ModuleContext, upstream: DataflowEdge) -> None:
        sees = seen or Seen()
        requests = _Requests(upstream, sees)
        most = case.stops_after
        while sees.end is None:
            while requests.open < case.concurrency and (
                most is None or len(sees.values) + requests.open < most
            ):
                requests.make(Ask)
            if most is not None and len(sees.values) >= most:
                if not case.waits:
                    requests.make(Ask)
                sees.stopped = True
                if case.indicates:
                    requests.indicate(case.by)
                else:
                    requests.make(partial(_stop, case.by))
                await requests.answers(while_open=case.indicates)
                break
            await requests.next()
        for more in case.afterwards:
            if sees.end is not None:
                requests.make(Ask if more is None else lambda more=more: _stop(more))
                await requests.next()
        await requests.answers(while_open=True)
        module.done(sees)

    return DataflowSink.of("reference sink", thread)


class _Requests:
    """The requests that a sink has made and that are not answered."""

    def __init__(self, upstream: DataflowEdge, seen: Seen) -> None:
        self._upstream = upstream
        self._seen = seen
        self._count = 0
        self._waiting: deque[tuple[int, DataflowVariable[Answer]]] = deque()

    @property
    def open(self) -> int:
        return len(self._waiting)

    def make(self, new: Callable[[], Ask | Abort | Fail]) -> None:
        request = new()
        self._count += 1
        self._seen.answers[self._count] = []
        self._waiting.append((self._count, request.answer))
        self._upstream.send(request)

    def indicate(self, cause: End) -> None:
        self._count += 1
        self._upstream.send(_indication(cause))

    async def next(self) -> None:
        """Hear the next answer."""
        index, variable = self._waiting[0]
        answer: Any = await variable
        self._waiting.popleft()
        if isinstance(answer, Value):
            self._seen.values.append(answer.value)
            heard: tuple[End | None, Any] = (None, answer.value)
        else:
            heard = (to_callback_end(answer), None)
            self._seen.end = self._seen.end or heard[0]
        self._seen.answers[index].append(heard)
        self._seen.order.append(index)

    async def answers(self, *, while_open: bool) -> None:
        """Hear answers until the stream has ended; or until none is open."""
        while self._waiting and (while_open or self._seen.end is None):
            await self.next()


async def _due(module: ModuleContext, sync: bool) -> None:
    if not sync:
        await module.after(1.0)


def _known(answer: Answer) -> DataflowVariable[Answer]:
    variable: DataflowVariable[Answer] = DataflowVariable()
    variable.bind(answer)
    return variable


def _stop(cause: End) -> Stop:
    return Fail(cause) if isinstance(cause, Exception) else Abort()


def _indication(cause: End) -> Request:
    return FailIndication(cause) if isinstance(cause, Exception) else DONE
