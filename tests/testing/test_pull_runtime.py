"""The runtimes for tests: virtual time, and an order that a seed chooses."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

from headrace.pull import (
    PullSource,
    PullTransformer,
    Recorder,
    async_map,
    collect,
    probe,
    probe_around,
    pull,
    tap,
    values,
)
from headrace.pull.edge import PullEdge
from headrace.pull.errors import EndNotConfirmed, NeverAnswered
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End
from headrace.testing import RandomRuntime, SinkCase, VirtualRuntime, reference_sink, reference_source
from headrace.testing.pull.virtual_runtime import PATIENCE


def runtimes() -> list[Callable[[], VirtualRuntime]]:
    return [VirtualRuntime, *(lambda seed=seed: RandomRuntime(seed) for seed in range(30))]


every_runtime = pytest.mark.parametrize("make", runtimes())


def waiting(seconds: float) -> PullTransformer:
    """Passes values on after so many seconds of a timer."""

    def open(module: Module, edge: PullEdge) -> Any:
        def read(abort: End | None, answer: AnswerTo) -> None:
            edge(abort, lambda end, value=None, /: module.later(seconds, answer, end, value))

        return read

    return PullTransformer.of("waiting", open, linear=True)


async def sleepy(value: int) -> int:
    await asyncio.sleep(3600 / value)
    return 10 * value


# --- time ------------------------------------------------------------------------------------


@every_runtime
def test_an_hour_of_timers_takes_no_time(make: Callable[[], VirtualRuntime]) -> None:
    with make() as runtime:
        run = pull(values([1, 2, 3]), waiting(1200.0), collect()).start(runtime)
        assert run.result() == [1, 2, 3]
        assert runtime.time >= 4800.0


@every_runtime
def test_an_hour_of_sleeping_tasks_takes_no_time(make: Callable[[], VirtualRuntime]) -> None:
    with make() as runtime:
        run = pull(values([1, 2, 3]), async_map(sleepy, width=3), collect()).start(runtime)
        assert run.result() == [10, 20, 30]
        assert runtime.time >= 3600.0


def test_time_that_does_not_pass_by_itself_is_advanced() -> None:
    with VirtualRuntime(passing=False) as runtime:
        recorder = Recorder()
        pull(values([1, 2]), waiting(2.0), probe(recorder), collect()).start(runtime)
        assert str(recorder.trace()) == "D:ask1"
        runtime.advance(1.9)
        assert str(recorder.trace()) == "D:ask1"
        runtime.advance(0.1)
        assert str(recorder.trace()) == "D:ask1 U:ans1=value(1) D:ask2"
        assert runtime.time == pytest.approx(2.0)
        assert runtime.pass_to_next()
        assert runtime.pass_to_next()
        assert not runtime.pass_to_next()
        assert runtime.time == pytest.approx(6.0)


def test_tasks_and_timers_share_the_clock() -> None:
    with VirtualRuntime(passing=False) as runtime:
        seen: list[tuple[str, float]] = []

        async def task() -> None:
            await asyncio.sleep(2.0)
            seen.append(("task", asyncio.get_running_loop().time()))

        runtime.spawn(task(), lambda _error, _result: seen.append(("told", runtime.now())))
        runtime.later(1.0, lambda: seen.append(("timer", runtime.now())))
        runtime.later(3.0, lambda: seen.append(("timer", runtime.now())))
        runtime.advance(10.0)
        assert seen == [("timer", 1.0), ("task", 2.0), ("told", 2.0), ("timer", 3.0)]
        assert runtime.now() == 10.0


@every_runtime
def test_a_cancelled_timer_or_task_does_nothing(make: Callable[[], VirtualRuntime]) -> None:
    with make() as runtime:
        seen: list[str] = []

        async def task() -> None:
            seen.append("task")

        def cancelled_together() -> None:
            waits = [runtime.later(1.0, seen.append, "timer")]
            waits.append(runtime.spawn(task(), lambda _error, _result: seen.append("told")))
            for wait in waits:
                wait.cancel()
                wait.cancel()

        runtime.loop.set_exception_handler(lambda _loop, _context: seen.append("lost"))
        runtime.enter(cancelled_together)
        assert runtime.left == 0
        gc.collect()
        assert seen == []


@every_runtime
def test_a_timer_that_is_due_may_still_be_cancelled(make: Callable[[], VirtualRuntime]) -> None:
    with make() as runtime:
        seen: list[str] = []

        def set_both() -> None:
            runtime.later(1.0, lambda: late.cancel())
            late = runtime.later(1.0, seen.append, "late")

        runtime.enter(set_both)
        assert runtime.time == 1.0
        assert (runtime.left, seen) == (0, [])


@every_runtime
def test_the_clock_never_goes_back(make: Callable[[], VirtualRuntime]) -> None:
    with make() as runtime:
        times: list[float] = []
        mapped = async_map(sleepy, width=3)
        run = pull(
            values(range(1, 6)), waiting(0.7), mapped, tap(lambda _: times.append(runtime.now())), collect()
        )
        assert len(run.start(runtime).result()) == 5
        assert times == sorted(times)


@every_runtime
def test_a_task_that_is_cancelled_when_it_has_its_result_tells_nothing(
    make: Callable[[], VirtualRuntime],
) -> None:
    with make() as runtime:
        seen: list[str] = []

        async def short() -> None:
            asyncio.get_running_loop().call_soon(task.cancel)

        task = runtime.spawn(short(), lambda _error, _result: seen.append("told"))
        runtime.enter(lambda: None)
        assert runtime.left == 0


@every_runtime
def test_threads_are_waited_for_in_real_time(make: Callable[[], VirtualRuntime]) -> None:
    def from_a_thread(module: Module) -> Any:
        left = [3, 2, 1]

        def read(abort: End | None, answer: AnswerTo) -> None:
            end = abort or (None if left else True)
            if end is not None:
                answer(end)
                return
            resume = module.from_thread()
            threading.Thread(target=resume, args=(answer, None, left.pop())).start()

        return read

    with make() as runtime:
        run = pull(PullSource.of("thread", from_a_thread, linear=True), collect()).start(runtime)
        assert run.result() == [1, 2, 3]


@every_runtime
def test_jobs_of_an_executor_are_waited_for(make: Callable[[], VirtualRuntime]) -> None:
    def square(value: int) -> int:
        return value * value

    async def in_a_thread(value: int) -> int:
        return await asyncio.to_thread(square, value)

    with make() as runtime:
        run = pull(values([1, 2, 3]), async_map(in_a_thread, width=2), collect()).start(runtime)
        assert run.result() == [1, 4, 9]


def test_patience_is_long_enough_for_a_process() -> None:
    async def shout(word: str) -> bytes:
        process = await asyncio.create_subprocess_exec("echo", word, stdout=asyncio.subprocess.PIPE)
        return (await process.communicate())[0]

    with VirtualRuntime() as runtime:
        run = pull(values(["a", "b"]), async_map(shout), collect()).start(runtime)
        assert run.result() == [b"a\n", b"b\n"]
        assert runtime.time < PATIENCE


# --- order -----------------------------------------------------------------------------------


def trace_of(seed: int) -> str:
    recorder = Recorder()
    case = SinkCase(stops_after=3, waits=False, concurrency=3)
    mapped = probe_around(async_map(sleepy, width=2, ordered=False), recorder)
    with RandomRuntime(seed) as runtime:
        pull(reference_source(5), mapped, reference_sink(case)).start(runtime)
        assert runtime.left == 0
    return str(recorder.trace())


def test_the_same_seed_is_the_same_order() -> None:
    for seed in range(50):
        assert trace_of(seed) == trace_of(seed)


def test_seeds_are_many_orders() -> None:
    assert len({trace_of(seed) for seed in range(100)}) > 5


def test_the_usual_order_is_that_of_the_runtime_of_pipelines() -> None:
    def trace(start: Callable[[Any], Any]) -> str:
        recorder = Recorder()
        start(pull(values(range(5)), probe(recorder), reference_sink(SinkCase(concurrency=2))))
        return str(recorder.trace())

    def virtually(pipeline: Any) -> None:
        pipeline.start(VirtualRuntime())

    assert trace(virtually) == trace(lambda pipeline: pipeline.run())


@pytest.mark.seeds(50)
def test_one_lane_keeps_its_order(seed: int) -> None:
    runtime, seen = RandomRuntime(seed), dict[str, list[int]](a=[], b=[], up=[])

    def post_all() -> None:
        for number in range(5):
            runtime.post("a", seen["a"].append, number)
            runtime.post("b", seen["b"].append, number)
            runtime.descend("a", seen["up"].append, number)

    runtime.enter(post_all)
    assert set(map(tuple, seen.values())) == {(0, 1, 2, 3, 4)}


def test_lanes_overtake_each_other() -> None:
    orders: set[tuple[str, ...]] = set()
    for seed in range(50):
        runtime, seen = RandomRuntime(seed), list[str]()
        runtime.enter(
            lambda runtime=runtime, seen=seen: [runtime.post(lane, seen.append, lane) for lane in "abc"]
        )
        orders.add(tuple(seen))
    assert len(orders) == 6


def test_after_each_thing_that_happens_an_invariant_is_looked_at() -> None:
    looked: list[int] = []
    runtime = RandomRuntime(3, after_each=lambda: looked.append(1))
    pull(values([1, 2, 3]), collect()).start(runtime)
    assert len(looked) > 5


# --- what does not end -----------------------------------------------------------------------


def test_a_run_that_is_stuck_says_its_seed() -> None:
    silent = PullSource.of("silent", lambda _module: lambda _abort, _answer: None)
    run = pull(silent, collect()).start(RandomRuntime(17))
    with pytest.raises(NeverAnswered) as stuck:
        run.result()
    assert stuck.value.__notes__ == ["in a random order, again with seed=17"]


def test_an_end_that_is_not_confirmed_is_an_error_in_virtual_time() -> None:
    def open(module: Module) -> Any:
        module.later(1000.0, print)
        return lambda _abort, _answer: None

    with RandomRuntime(5) as runtime:
        assert runtime.loop.time() == 0.0
        run = pull(PullSource.of("silent", open), reference_sink(SinkCase(stops_after=0))).start(runtime)
        with pytest.raises(EndNotConfirmed):
            run.result()


def test_a_run_that_has_finished_leaves_no_timer_in_its_loop() -> None:
    with VirtualRuntime() as runtime:
        sink = SinkCase(stops_after=1)
        run = pull(values([1, 2, 3]), async_map(sleepy), reference_sink(sink)).start(runtime)
        assert run.result().end is True
        assert runtime.time == 3600.0
