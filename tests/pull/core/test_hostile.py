"""Modules that raise, answer and close in ways that nobody should: no hang, no lost value, no lost cause."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.errors import BadOption
from headrace.pull import (
    PullSink,
    PullSource,
    PullTransformer,
    Recorder,
    Run,
    abortable,
    async_map,
    collect,
    drain,
    filter,
    filter_not,
    map,
    probe,
    pull,
    skip_while,
    source,
    take,
    values,
)
from headrace.pull.edge import PullEdge
from headrace.pull.errors import (
    EndNotConfirmed,
    LoopRunsAlready,
    NeverAnswered,
    NotFinished,
    ProtocolBroken,
    WrongThread,
)
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End
from tests.golden import MESSAGES, assert_golden
from tests.pull.core.modules import Hand, Manual


class Fatal(BaseException):
    pass


class Falsy(Exception):
    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def ticking(stopped: list[Any], *, close_with: Exception | None = None) -> PullSource:
    """Values from a timer; closes from a timer, too."""

    def open(module: Module) -> Callable[..., None]:
        def read(abort: End | None, answer: AnswerTo) -> None:
            if abort is not None:
                stopped.append(abort)
                module.later(0.001, answer, close_with or abort)
            else:
                module.later(0.001, answer, None, 1)

        return read

    return PullSource.of("ticking", open, linear=True)


# --- what escapes ---------------------------------------------------------------------------------


def raises(error: BaseException) -> Callable[[Any], Any]:
    def function(_value: Any) -> Any:
        raise error

    return function


def raises_async(error: BaseException) -> Callable[[Any], Any]:
    async def function(_value: Any) -> Any:
        raise error

    return function


STEPS = {"map": lambda e: map(raises(e)), "task": lambda e: async_map(raises_async(e))}


@pytest.mark.parametrize("error", [Fatal(), GeneratorExit(), KeyboardInterrupt(), SystemExit()], ids=repr)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("awaited", [False, True])
def test_what_is_no_exception_stops_the_run_and_is_raised(
    step: str, error: BaseException, awaited: bool
) -> None:
    stopped: list[Any] = []
    pipeline = pull(ticking(stopped), STEPS[step](error), collect())

    async def waited() -> None:
        await pipeline

    with pytest.raises(type(error)):
        asyncio.run(waited()) if awaited else pipeline.run()
    assert len(stopped) == 1


@pytest.mark.parametrize("make", [map, filter, filter_not, skip_while])
@pytest.mark.parametrize("batch", [1, 10])
def test_a_stop_iteration_of_a_function_is_no_end(make: Callable[..., PullTransformer], batch: int) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        pull(values([1, 2, 3]), make(raises(StopIteration())), collect(batch=batch)).run()


# --- exceptions of a strange kind -------------------------------------------------------------------


@pytest.mark.parametrize("error", [Falsy("f"), Frozen(1), Unprintable(), ExceptionGroup("g", [ValueError()])])
def test_a_strange_exception_is_the_end_of_its_stream(error: Exception) -> None:
    for pipeline in (
        pull(source(lambda abort, answer: answer(error)), collect()),
        pull(values([1]), map(raises(error)), collect()),
        pull(ticking([], close_with=ValueError("while closing")), map(raises(error)), collect()),
    ):
        with pytest.raises(type(error)) as raised:
            pipeline.run()
        assert raised.value is error
    assert error.__notes__ == ["then, while closing: ValueError: while closing"]


def test_a_later_failure_that_cannot_be_shown_is_attached_all_the_same() -> None:
    cause = ValueError("first")
    with pytest.raises(ValueError, match="first"):
        pull(ticking([], close_with=Unprintable()), map(raises(cause)), collect()).run()
    assert cause.__notes__ == ["then, while closing: Unprintable: it cannot be shown"]


# --- answers that say nothing -----------------------------------------------------------------------


@pytest.mark.parametrize("end", [KeyboardInterrupt(), ValueError, "oops", 1])
def test_an_end_that_is_none_fails_the_module(end: Any) -> None:
    with pytest.raises(ProtocolBroken, match="for an end"):
        pull(source(lambda abort, answer: answer(end), name="odd"), collect()).run()


@pytest.mark.parametrize("odd", [KeyboardInterrupt(), ValueError, "oops"])
def test_a_request_that_is_none_fails_the_module_that_makes_it(odd: Any) -> None:
    hand = Hand()
    pull(values([1]), hand.sink).start()
    with pytest.raises(TypeError):
        hand.request("1", odd)


@pytest.mark.parametrize("answered", [[], [1, 2, 3, 4], 5, (1,), None], ids=repr)
@pytest.mark.parametrize("watched", [False, True])
def test_a_batch_that_is_none_fails_the_module_and_nobody_else(answered: Any, watched: bool) -> None:
    stopped: list[Exception | None] = []

    def open(module: Module, edge: PullEdge) -> Callable[..., None]:
        return lambda abort, answer, most: answer(abort, answered) if abort is None else edge(abort, answer)

    naughty = PullTransformer.of("naughty", open, batches=True)
    stages = [naughty, probe(Recorder())] if watched else [naughty]
    with pytest.raises(ProtocolBroken, match="B1") as raised:
        pull(values([1], on_stop=stopped.append), *stages, take(3), collect(batch=3)).run()
    assert raised.value.facts["module"] == "naughty"
    assert stopped == [raised.value]


def test_an_end_that_comes_early_waits_for_the_values_before_it() -> None:
    manual, hand = Manual(), Hand()
    pull(manual.source, hand.sink).start()
    for name in "123":
        hand.request(name)
    manual.answer(1, None, "b")
    manual.answer(2, True)
    assert hand.heard == []
    manual.answer(0, None, "a")
    assert hand.heard == [("1", "a"), ("2", "b"), ("3", True)]


# --- what does not close ----------------------------------------------------------------------------


def stubborn(abort: End | None, answer: AnswerTo) -> None:
    if abort is None:
        answer(None, 1)


def test_the_first_cause_is_raised_also_where_upstream_does_not_confirm() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        pull(source(stubborn), map(lambda value: value / 0), collect()).run()
    assert "'stubborn' was stopped" in raised.value.__notes__[0]


def never_closing() -> PullSink:
    def open(module: Module, edge: PullEdge) -> None:
        module.closing(lambda error, closed: None)
        edge(None, lambda end, value=None: module.done(value))

    return PullSink.of("never closing", open)


def test_a_sink_that_does_not_close_is_named() -> None:
    with pytest.raises(EndNotConfirmed) as raised:
        pull(values([1]), never_closing()).run()
    assert raised.value.facts["modules"] == ("never closing",)


def test_a_sink_that_does_not_close_holds_an_await_for_a_time_only() -> None:
    async def waited() -> None:
        await pull(ticking([]), take(1), never_closing()).start(confirm_within=0.01)

    with pytest.raises(EndNotConfirmed):
        asyncio.run(waited())


def test_what_cannot_be_given_back_fails_the_run_and_the_rest_is_given_back() -> None:
    given_back: list[str] = []

    class Resource:
        def __init__(self, name: str) -> None:
            self.name = name

        def cancel(self) -> None:
            given_back.append(self.name)
            raise OSError(self.name)

    def open(module: Module) -> Callable[..., None]:
        module.cancel_at_end(Resource("a"))
        module.cancel_at_end(Resource("b"))
        return lambda abort, answer: module.later(0.001, answer, True)

    with pytest.raises(OSError, match=r"[ab]"):
        pull(PullSource.of("holding", open), collect()).run()
    assert sorted(given_back) == ["a", "b"]


def test_a_sink_that_fails_after_its_result_fails_the_run() -> None:
    def open(module: Module, edge: PullEdge) -> None:
        module.done("ok")
        raise ValueError("after the result")

    with pytest.raises(ValueError, match="after the result"):
        pull(values([1]), PullSink.of("late", open)).run()


def test_a_transformer_whose_kernel_cannot_be_made_stops_its_source() -> None:
    stopped: list[Exception | None] = []

    def kernel() -> Any:
        raise ValueError("no kernel")

    with pytest.raises(ValueError, match="no kernel"):
        pull(values([1], on_stop=stopped.append), PullTransformer.of_kernel("none", kernel), collect()).run()
    assert len(stopped) == 1


def test_a_cancelled_task_has_cleaned_up_when_the_run_is_over() -> None:
    cleaned: list[bool] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    def open(module: Module) -> Callable[..., None]:
        module.spawn(work(), lambda error, result: None)
        return lambda abort, answer: module.later(0.001, answer, True)

    async def waited() -> None:
        await pull(PullSource.of("working", open), collect())

    pull(PullSource.of("working", open), collect()).run()
    asyncio.run(waited())
    assert cleaned == [True, True]


# --- runs used in strange ways ----------------------------------------------------------------------


def test_the_result_of_a_run_at_work_is_an_error_of_its_own() -> None:
    run = pull(ticking([]), take(2), collect()).start()
    with pytest.raises(NotFinished) as error:
        run.result()
    assert_golden(MESSAGES / "not_finished.txt", f"{error.value}\n")
    assert run.wait() == [1, 1]


def test_a_run_that_waits_in_its_own_loop_cannot_be_awaited_in_another() -> None:
    run = pull(ticking([]), take(2), collect()).start()

    async def waited() -> Any:
        return await run

    with pytest.raises(LoopRunsAlready):
        asyncio.run(waited())
    assert run.wait() == [1, 1]


def test_one_of_two_that_wait_for_a_run_can_leave_without_ending_it() -> None:
    async def both() -> list[Any]:
        run = pull(ticking([]), take(20), collect()).start()

        async def waited(run: Run) -> Any:
            return await run

        first, second = asyncio.ensure_future(waited(run)), asyncio.ensure_future(waited(run))
        await asyncio.sleep(0.003)
        first.cancel()
        return await second

    assert asyncio.run(both()) == [1] * 20


@pytest.mark.parametrize(
    "options", [{"window": 0}, {"window": "a"}, {"confirm_within": -1}, {"confirm_within": "x"}]
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadOption):
        pull(values([1]), collect()).run(**options)


def test_a_thread_that_resumes_twice_is_heard_once() -> None:
    heard: list[int] = []

    def open(module: Module) -> Callable[..., None]:
        def read(abort: End | None, answer: AnswerTo) -> None:
            resume = module.from_thread()
            resume(heard.append, 1)
            resume(heard.append, 2)
            resume = module.from_thread()
            resume(answer, True)

        return read

    assert pull(PullSource.of("threads", open), collect()).run() == []
    assert heard == [1]


def test_timers_that_a_module_takes_back_leave_nothing() -> None:
    left: list[int] = []

    def open(module: Module) -> Callable[..., None]:
        def read(abort: End | None, answer: AnswerTo) -> None:
            for _ in range(100):
                module.later(60, answer, True).cancel()
            left.append(len(module._waits))
            answer(True)

        return read

    pull(PullSource.of("timers", open), collect()).run()
    assert left == [0]


def test_a_pipeline_is_told_nothing_from_another_thread() -> None:
    stop = abortable()
    run = pull(Manual().source, stop, collect()).start()
    raised: list[BaseException] = []

    def abort() -> None:
        try:
            stop.abort()
        except WrongThread as error:
            raised.append(error)

    thread = threading.Thread(target=abort)
    thread.start()
    thread.join()
    assert len(raised) == 1
    assert not run.finished


@pytest.mark.parametrize("make", [abortable, drain])
def test_a_handle_forgets_a_run_that_was_given_up(make: Callable[[], Any]) -> None:
    piece = make()
    pipeline = (
        pull(Manual().source, piece)
        if isinstance(piece, PullSink)
        else pull(Manual().source, piece, collect())
    )
    for _ in range(3):
        with pytest.raises(NeverAnswered):
            pipeline.run()
    assert not piece.handle.at_work
