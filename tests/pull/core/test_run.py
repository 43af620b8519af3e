"""Runs: how they start, wait, are cancelled and interrupted, and what they say when they cannot end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace.pull import PullSink, PullSource, PullTransformer, collect, map, pull, take, values
from headrace.pull.edge import PullEdge
from headrace.pull.errors import CallCancelled, EndNotConfirmed, LoopRunsAlready, NeverAnswered
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End
from tests.pull.core.modules import Hand, Manual, delay


def slow(items: list[int], stopped: list[End | None], seconds: float = 0.001) -> PullSource:
    """Each item after some time; `stopped` gets what it was stopped by."""

    def open(module: Module) -> Callable[..., None]:
        left = iter(items)

        def read(abort: End | None, answer: AnswerTo) -> None:
            if abort is not None:
                stopped.append(abort)
                answer(abort)
                return
            item = next(left, None)
            module.later(seconds, answer, True if item is None else None, item)

        return read

    return PullSource.of("slow", open, linear=True, width=1)


# --- waiting -------------------------------------------------------------------------------------


def test_a_pipeline_that_waits_runs_in_an_event_loop_of_its_own() -> None:
    assert pull(slow([1, 2, 3], []), delay(0.001), collect()).run() == [1, 2, 3]


def test_a_pipeline_can_be_awaited_beside_other_tasks() -> None:
    async def both() -> list[Any]:
        first = pull(slow([1, 2], []), collect())
        second = pull(slow([3, 4], []), delay(0.001), collect())

        async def waited(pipeline: Any) -> Any:
            return await pipeline

        return list(await asyncio.gather(waited(first), waited(second)))

    assert asyncio.run(both()) == [[1, 2], [3, 4]]


def test_running_where_a_loop_runs_is_an_error_only_where_the_pipeline_must_wait() -> None:
    async def run() -> None:
        assert pull(values([1]), collect()).run() == [1]
        with pytest.raises(LoopRunsAlready):
            pull(slow([1], []), collect()).run()

    asyncio.run(run())


def test_other_tasks_have_their_turn_while_a_pipeline_works() -> None:
    async def run() -> bool:
        turns = 0
        task = asyncio.ensure_future(_awaited(pull(values(range(30_000)), map(lambda x: x), collect())))
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return turns > 1

    assert asyncio.run(run())


async def _awaited(pipeline: Any) -> Any:
    return await pipeline


# --- ending early --------------------------------------------------------------------------------


def test_a_cancelled_await_aborts_and_waits_for_the_confirmation() -> None:
    stopped: list[End | None] = []

    async def run() -> None:
        task = asyncio.ensure_future(_awaited(pull(slow([1], stopped, seconds=60), collect())))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert stopped == [True]


def test_an_interrupt_aborts_the_source_and_is_raised() -> None:
    stopped: list[Exception | None] = []

    def interrupted(value: int) -> int:
        if value == 3:
            raise KeyboardInterrupt
        return value

    with pytest.raises(KeyboardInterrupt):
        pull(values([1, 2, 3, 4], on_stop=stopped.append), map(interrupted), collect()).run()
    assert stopped == [None]


def test_a_run_can_be_stopped_from_outside() -> None:
    manual = Manual()
    run = pull(manual.source, collect()).start()
    manual.answer(0, None, 1)
    run.stop()
    assert manual.requests == [None, None, True]
    assert not run.finished
    manual.answer(2, True)
    assert run.finished
    assert run.result() == [1]


def test_a_run_stopped_with_a_cause_fails_with_it() -> None:
    manual = Manual()
    cause = ValueError("enough")
    run = pull(manual.source, collect()).start()
    run.stop(cause)
    assert manual.requests == [None, cause]
    manual.answer(1, True)
    with pytest.raises(ValueError, match="enough"):
        run.result()


# --- results -------------------------------------------------------------------------------------


def test_what_came_before_a_failure_is_kept() -> None:
    run = pull(values([4, 2, 0]), map(lambda value: 8 // value), collect()).start()
    with pytest.raises(ZeroDivisionError):
        run.result()
    assert run.partial == [2, 4]


def test_a_module_that_fails_after_its_end_fails_the_run() -> None:
    def fails(_cause: Exception | None) -> None:
        raise ValueError("while cleaning up")

    with pytest.raises(ValueError, match="while cleaning up"):
        pull(values([1, 2], on_stop=fails), take(1), collect()).run()


# --- what does not end ---------------------------------------------------------------------------


def test_a_module_that_does_not_confirm_is_named() -> None:
    manual = Manual()
    run = pull(manual.source, take(1), collect()).start()
    manual.answer(0, None, 1)
    with pytest.raises(EndNotConfirmed) as raised:
        run.result()
    assert raised.value.facts["modules"] == ("manual",)


def test_a_module_that_does_not_confirm_in_time_is_named() -> None:
    def open(module: Module) -> Callable[..., None]:
        def read(abort: End | None, answer: AnswerTo) -> None:
            if abort is None:
                module.later(0.001, answer, None, 1)
            else:
                module.later(60, answer, True)

        return read

    with pytest.raises(EndNotConfirmed) as raised:
        pull(PullSource.of("stubborn", open), map(str), take(2), collect()).run(confirm_within=0.01)
    assert raised.value.facts["modules"] == ("stubborn",)


def test_a_source_that_never_answers_is_named() -> None:
    with pytest.raises(NeverAnswered) as raised:
        pull(Manual().source, map(str), collect()).run()
    assert raised.value.facts["modules"] == ("manual",)


def test_a_source_that_answers_for_a_while_and_then_never_again_is_named() -> None:
    def open(module: Module) -> Callable[..., None]:
        left = [1, 2]

        def read(abort: End | None, answer: AnswerTo) -> None:
            if abort is not None:
                answer(abort)
            elif left:
                module.later(0.001, answer, None, left.pop(0))

        return read

    with pytest.raises(NeverAnswered) as raised:
        pull(PullSource.of("tired", open), map(str), collect()).run()
    assert raised.value.facts["modules"] == ("tired",)


def test_each_module_has_the_whole_time_to_confirm() -> None:
    def closing_after(seconds: float) -> PullSource:
        def open(module: Module) -> Callable[..., None]:
            def read(abort: End | None, answer: AnswerTo) -> None:
                module.later(0.001 if abort is None else seconds, answer, abort, 1)

            return read

        return PullSource.of(f"closes after {seconds}", open)

    async def both() -> None:
        await pull(closing_after(0.02), take(1), collect()).start(confirm_within=5)
        with pytest.raises(EndNotConfirmed):
            await pull(closing_after(60), take(1), collect()).start(confirm_within=0.01)

    asyncio.run(both())


def test_a_sink_that_never_reads_is_named() -> None:
    with pytest.raises(NeverAnswered):
        pull(values([1]), Hand().sink).run()


# --- opening -------------------------------------------------------------------------------------


def fails_to_open(*_of: object) -> Callable[..., None]:
    raise OSError("not there")


def test_a_source_that_cannot_be_opened_fails_the_pipeline() -> None:
    with pytest.raises(OSError, match="not there"):
        pull(PullSource.of("absent", fails_to_open), map(str), collect()).run()


def test_a_transformer_that_cannot_be_opened_fails_its_source() -> None:
    stopped: list[Exception | None] = []
    with pytest.raises(OSError, match="not there") as raised:
        pull(
            values([1], on_stop=stopped.append), PullTransformer.of("absent", fails_to_open), collect()
        ).run()
    assert stopped == [raised.value]


def test_a_sink_that_cannot_be_opened_fails_its_source() -> None:
    stopped: list[Exception | None] = []
    with pytest.raises(OSError, match="not there") as raised:
        pull(values([1], on_stop=stopped.append), PullSink.of("absent", fails_to_open)).run()
    assert stopped == [raised.value]


def test_a_task_that_somebody_else_cancels_is_an_error_and_nobody_waits_for_ever() -> None:
    async def wait_for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    def open(module: Module, edge: PullEdge) -> None:
        module.spawn(wait_for_ever(), lambda error, _result: module.fail(error or ValueError()))

    async def main() -> None:
        run = pull(values([1]), PullSink.of("waits", open)).start()
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        with pytest.raises(CallCancelled):
            await run

    asyncio.run(main())
