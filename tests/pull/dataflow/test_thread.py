"""Dataflow threads in a module: what they wait for, how they fail, what becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from headrace.pull import Run
from headrace.pull.dataflow import (
    Abort,
    Ask,
    DataflowEdge,
    DataflowSink,
    DataflowSource,
    DataflowTransformer,
    DataflowVariable,
    Failed,
    ModuleContext,
    Requests,
    Value,
    collect,
    drain,
    find,
    infinite,
    pull,
    values,
)
from headrace.pull.errors import AlreadyBound, EndNotConfirmed, ForeignAwait, NeverAnswered
from headrace.testing.pull import VirtualRuntime

FOR_EVER: DataflowVariable[None] = DataflowVariable()


class _Foreign:
    def __await__(self) -> Generator[object, None, None]:
        yield self


async def silent(_module: ModuleContext, requests: Requests) -> None:
    async for _request in requests:
        await FOR_EVER


async def deaf(_module: ModuleContext, requests: Requests) -> None:
    await requests.next()


def test_a_thread_that_waits_for_ever_is_named() -> None:
    run: Run = pull(DataflowSource.of("silent", silent), collect()).start()
    with pytest.raises(NeverAnswered, match="'silent'") as stuck:
        run.result()
    assert stuck.value.facts["modules"] == ("silent",)
    assert stuck.value.where[0].location.file == __file__


def test_a_thread_that_does_not_confirm_is_named() -> None:
    run: Run = pull(
        values([1, 2]), DataflowTransformer.of("deaf", lambda m, r, _up: deaf(m, r)), collect()
    ).start()
    run.stop()
    with pytest.raises((EndNotConfirmed, NeverAnswered), match="'deaf'"):
        run.result()


def test_a_thread_awaits_nothing_but_variables() -> None:
    async def thread(module: ModuleContext, requests: Requests) -> None:
        async for _request in requests:
            await _Foreign()

    with pytest.raises(ForeignAwait, match="'thread'") as error:
        pull(DataflowSource.of("foreign", thread), collect()).run()
    assert error.value.where[0].location.text == "await _Foreign()"


def test_a_thread_awaits_a_task_as_a_variable() -> None:
    async def fetch(value: int) -> int:
        await asyncio.sleep(3600)
        if value == 2:
            raise ValueError("not found")
        return value * 10

    async def fetching(module: ModuleContext, requests: Requests, upstream: DataflowEdge) -> None:
        async for request in requests:
            if isinstance(request, Ask):
                answer: Any = await upstream.ask()
                result = await module.task(fetch(answer.value))
                request.answer.bind(type(answer)(result))
            else:
                request.answer.bind(await upstream.stop(request.cause))

    fetched = pull(values([1, 2, 3]), DataflowTransformer.of("fetching", fetching), collect())
    run: Run = fetched.start(VirtualRuntime())
    with pytest.raises(ValueError, match="not found"):
        run.wait()
    assert run.partial == [10]


def test_an_exception_in_a_thread_fails_upstream_and_then_downstream() -> None:
    told: list[str] = []

    async def noting(_module: ModuleContext, requests: Requests, upstream: DataflowEdge) -> None:
        async for request in requests:
            if isinstance(request, Ask):
                request.answer.bind(await upstream.ask())
            else:
                told.append(f"upstream {request.cause}")
                request.answer.bind(await upstream.stop(request.cause))

    async def breaking(module: ModuleContext, requests: Requests, upstream: DataflowEdge) -> None:
        async for request in requests:
            assert isinstance(request, Ask)
            answer = await upstream.ask()
            told.append("raises")
            raise ValueError(f"no {answer}")

    broken = pull(
        values("ab"),
        DataflowTransformer.of("noting", noting),
        DataflowTransformer.of("breaking", breaking),
        collect(),
    )
    with pytest.raises(ValueError, match="no Value"):
        broken.run()
    assert told == ["raises", "upstream Failed(error=ValueError(\"no Value(value='a')\"))"]


def test_what_upstream_fails_with_while_it_closes_is_attached_to_the_first_cause() -> None:
    async def closing_badly(_module: ModuleContext, requests: Requests) -> None:
        request = await requests.next()
        request.answer.bind(Value(1))
        request = await requests.next()
        request.answer.bind(Failed(OSError("cannot close")))

    def refuse(_value: Any) -> None:
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused") as error:
        pull(DataflowSource.of("closing badly", closing_badly), drain(refuse)).run()
    assert any("cannot close" in note for note in error.value.__notes__)


def test_a_function_that_raises_when_a_variable_is_bound_fails_its_module() -> None:
    def refuse(_bound: object) -> None:
        raise ValueError("refused")

    async def by_function(_module: ModuleContext, upstream: DataflowEdge) -> None:
        upstream.ask().when_bound(refuse)

    async def at_the_stream(_module: ModuleContext, requests: Requests) -> None:
        requests.rest.when_bound(refuse)

    for pipeline in (
        pull(values([1]), DataflowSink.of("by function", by_function)),
        pull(DataflowSource.of("at the stream", at_the_stream), collect()),
    ):
        with pytest.raises(ValueError, match="refused"):
            pipeline.run()


def test_a_module_that_binds_what_it_asked_for_fails() -> None:
    async def guesses(module: ModuleContext, upstream: DataflowEdge) -> None:
        upstream.ask().bind(Value(8))

    with pytest.raises(AlreadyBound):
        pull(values([7]), DataflowSink.of("guesses", guesses)).run()


def test_threads_of_a_module_that_has_ended_are_closed() -> None:
    closed: list[str] = []

    async def beside() -> None:
        try:
            await FOR_EVER
        finally:
            closed.append("beside")

    async def thread(module: ModuleContext, requests: Requests) -> None:
        module.thread(beside())
        try:
            async for request in requests:
                if isinstance(request, Abort):
                    request.answer.bind(request.cause)
                else:
                    request.answer.bind(Value(1))
        finally:
            closed.append("thread")

    assert pull(DataflowSource.of("two threads", thread), find(lambda value: value == 1)).run() == 1
    assert sorted(closed) == ["beside", "thread"]


def test_synchronous_values_take_no_stack() -> None:
    total = 0

    def add(value: int) -> bool:
        nonlocal total
        total += value
        return total < 20_000

    assert pull(infinite(lambda: 1), drain(add)).run() is None
    assert total == 20_000


def test_a_run_may_be_stopped_from_outside() -> None:
    run: Run = pull(DataflowSource.of("silent until stopped", _until_stopped), collect()).start()
    run.stop()
    assert run.finished


async def _until_stopped(_module: ModuleContext, requests: Requests) -> None:
    async for request in requests:
        if not isinstance(request, Ask):
            request.answer.bind(request.cause)
