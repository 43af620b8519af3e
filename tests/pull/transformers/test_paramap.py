"""paramap: threads and processes; order, width, errors, aborts."""

from __future__ import annotations

import asyncio
import operator
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from headrace.pull import Pipeline, async_map, collect, paramap, pull, take, tap, values
from headrace.pull.errors import EndNotConfirmed
from tests.pull.core.modules import Hand


def test_as_many_calls_run_at_once_as_the_width_says() -> None:
    together = threading.Barrier(4, timeout=30)

    def meet(x: int) -> int:
        together.wait()
        return x

    assert pull(values(range(12)), paramap(meet, width=4), collect()).run() == [*range(12)]


def test_results_come_in_the_order_of_the_values() -> None:
    second_called = threading.Event()

    def call(x: int) -> int:
        if x == 0:
            assert second_called.wait(30)
        else:
            second_called.set()
        return x

    assert pull(values([0, 1]), paramap(call, width=2), collect()).run() == [0, 1]


def test_results_come_as_they_are_ready_where_order_does_not_matter() -> None:
    second_seen = threading.Event()

    def call(x: int) -> int:
        if x == 0:
            assert second_seen.wait(30)
        return x

    seen = tap(lambda x: second_seen.set() if x == 1 else None)
    pipeline = pull(values([0, 1]), paramap(call, width=2, ordered=False), seen, collect())
    assert pipeline.run() == [1, 0]


def test_one_ask_takes_one_value_however_wide_it_is() -> None:
    taken: list[int] = []
    assert pull(
        values(range(9)), paramap(lambda x: taken.append(x) or x, width=5), take(1), collect()
    ).run() == [0]
    assert taken == [0]


def test_an_abort_is_confirmed_when_the_call_that_runs_has_returned() -> None:
    let_go, begun = threading.Event(), threading.Event()

    def call(x: int) -> int:
        begun.set()
        assert let_go.wait(30)
        return x

    hand = Hand()
    run = pull(values([1]), paramap(call, width=1), hand.sink).start()
    hand.request("ask")
    assert begun.wait(30)
    hand.request("abort", True)
    assert hand.heard == []
    let_go.set()
    assert hand.module is not None
    hand.module.done("result")
    assert run.wait() == "result"
    assert hand.heard == [("ask", True), ("abort", True)]


def test_no_thread_is_left_when_it_is_over() -> None:
    assert pull(values(range(9)), paramap(str, width=3), collect()).run()
    for thread in threading.enumerate():
        if thread.name.startswith("paramap"):
            thread.join(30)
            assert not thread.is_alive()


def test_a_pool_of_the_caller_is_used_and_left_open() -> None:
    with ThreadPoolExecutor(2, thread_name_prefix="given") as pool:

        def name(_x: int) -> str:
            return threading.current_thread().name[:5]

        assert pull(values([1, 2]), paramap(name, width=2, executor=pool), collect()).run() == ["given"] * 2
        assert pool.submit(int, "7").result() == 7


def test_processes_do_the_calls_where_the_pool_has_them() -> None:
    from multiprocessing import get_context

    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pull(values([1, 2]), paramap(operator.neg, width=2, executor=pool), collect()).run() == [
            -1,
            -2,
        ]
        run = pull(values([None]), paramap(operator.neg, width=1, executor=pool), collect()).start()
        with pytest.raises(TypeError):
            run.wait()


def test_what_ends_the_thread_ends_the_program() -> None:
    def leave(_x: int) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        pull(values([1]), paramap(leave, width=1), collect()).run()


def test_a_call_that_returns_when_nobody_waits_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    let_go = threading.Event()

    def call(x: int) -> int:
        assert let_go.wait(30)
        return x

    hand = Hand()
    run = pull(values([1]), paramap(call, width=1), hand.sink).start(confirm_within=0.01)
    hand.request("ask")
    assert hand.module is not None
    hand.module.enter(hand.module.done)
    with pytest.raises(EndNotConfirmed):
        run.wait()
    let_go.set()
    for thread in threading.enumerate():
        if thread.name.startswith("paramap"):
            thread.join(30)
    assert caplog.records == []


def test_beside_other_tasks_of_an_event_loop() -> None:
    async def both() -> list[list[int]]:
        async def plus_one(x: int) -> int:
            await asyncio.sleep(0)
            return x + 1

        pipeline = pull(values(range(9)), async_map(plus_one, 2), paramap(operator.neg, 2), collect())
        return list(await asyncio.gather(pipeline_result(pipeline), pipeline_result(pipeline)))

    async def pipeline_result(pipeline: Pipeline) -> list[int]:
        return await pipeline

    assert asyncio.run(both()) == [[*range(-1, -10, -1)]] * 2
