"""A module that is asked one at a time is not asked again before its function has returned."""

from __future__ import annotations

from headrace.pull import PullSource, collect, pull
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End, Read
from headrace.testing import VirtualRuntime


def counting(last: int, inside: list[str]) -> PullSource:
    """1 to last: the first after a second, while more asks come; notes when it is asked while it answers."""

    def open(module: Module) -> Read:
        at = 0
        busy = False

        def read(abort: End | None, answer: AnswerTo) -> None:
            nonlocal at
            if busy:
                inside.append("asked" if abort is None else "stopped")
            at += 1
            if at == 1:
                module.later(1, give, answer, None, 1)
            else:
                give(answer, abort or (True if at > last else None), at)

        def give(answer: AnswerTo, end: End | None, value: int) -> None:
            nonlocal busy
            busy = True
            answer(end, value)
            busy = False

        return read

    return PullSource.of("counting", open, linear=True)


def test_a_linear_module_is_asked_again_when_its_function_has_returned() -> None:
    inside: list[str] = []
    run = pull(counting(5, inside), collect()).start(VirtualRuntime(), window=3)
    assert run.wait() == [1, 2, 3, 4, 5]
    assert inside == []
