"""What becomes of a module's failures, timers, tasks and inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.pull import PullSink, PullSource, collect, map, pull, values
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End
from headrace.testing import VirtualRuntime


def failing_to_close(name: str) -> PullSource:
    def read(abort: End | None, answer: AnswerTo) -> None:
        if abort is None:
            answer(None, name)
        else:
            answer(OSError(name))

    return PullSource.of(name, lambda _module: read)


def test_of_several_inputs_that_fail_to_close_the_first_is_the_cause_and_the_others_are_attached() -> None:
    def sink_of_three(module: Module, edge: Any) -> None:
        inputs = [module.open(failing_to_close(name)) for name in "ab"]
        inputs[0](None, lambda end, value=None: module.done())

    with pytest.raises(OSError, match="c") as raised:
        pull(failing_to_close("c"), PullSink.of("three", sink_of_three)).run()
    assert raised.value.__notes__ == [
        "then, while closing: OSError: a",
        "then, while closing: OSError: b",
    ]


def test_a_second_failure_of_a_module_is_attached_to_the_first() -> None:
    first, second = ValueError("first"), ValueError("second")

    def open(module: Module) -> Callable[..., None]:
        def read(abort: End | None, answer: AnswerTo) -> None:
            module.crash(first)
            module.crash(second)

        return read

    with pytest.raises(ValueError, match="first") as raised:
        pull(PullSource.of("twice", open), collect()).run()
    assert raised.value.__notes__ == ["then, while closing: ValueError: second"]


def test_what_a_failed_module_waited_for_does_not_come() -> None:
    heard: list[str] = []

    def open(module: Module) -> Callable[..., None]:
        def read(abort: End | None, answer: AnswerTo) -> None:
            module.later(1, heard.append, "a timer")
            resume = module.from_thread()
            resume(heard.append, "a thread")
            raise ValueError("failed")

        return read

    with VirtualRuntime() as runtime:
        run = pull(PullSource.of("failing", open), collect()).start(runtime)
        with pytest.raises(ValueError, match="failed"):
            run.wait()
    assert heard == []


def test_the_timers_of_a_module_that_has_ended_are_taken_back() -> None:
    def open(module: Module) -> Callable[..., None]:
        def read(abort: End | None, answer: AnswerTo) -> None:
            module.later(60, answer, None, 1)
            answer(True)

        return read

    with VirtualRuntime() as runtime:
        assert pull(PullSource.of("ending", open), collect()).start(runtime).wait() == []
        assert (runtime.now(), runtime.left) == (0, 0)


def test_a_long_run_keeps_nothing_of_the_streams_that_it_has_opened_and_closed() -> None:
    counts: set[tuple[int, int]] = set()

    def open(module: Module) -> Callable[..., None]:
        left = 50

        def read(abort: End | None, answer: AnswerTo) -> None:
            nonlocal left
            left -= 1
            counts.add((len(module.inputs), len(module.run.modules)))
            if not left:
                answer(True)
                return
            inner = module.open(pull(values([left]), map(str)))

            def value(end: End | None, found: Any = None, /) -> None:
                inner(True, lambda _end, _value=None: answer(None, found))

            inner(None, value)

        return read

    assert len(pull(PullSource.of("opening", open), collect()).run()) == 49
    assert len(counts) == 1
