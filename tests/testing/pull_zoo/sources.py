"""Sources, each broken in one way."""

from __future__ import annotations

from headrace.pull import PullSource
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End
from tests.testing.pull_zoo.broken import breaks


class Counting:
    """A source of 1, 2, 3 that is right, for others to get wrong."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.given = 0

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is not None:
            self.stop(abort, answer)
        elif self.given >= 3:
            self.end(answer)
        else:
            self.given += 1
            self.value(answer, self.given)

    def value(self, answer: AnswerTo, value: int) -> None:
        answer(None, value)

    def end(self, answer: AnswerTo) -> None:
        answer(True)

    def stop(self, abort: End, answer: AnswerTo) -> None:
        answer(abort)


def counting(kind: type[Counting]) -> PullSource:
    return PullSource.of(kind.__name__, lambda module: kind(module).read)


@breaks("P2")
def source_that_answers_twice() -> PullSource:
    class Twice(Counting):
        def value(self, answer: AnswerTo, value: int) -> None:
            answer(None, value)
            answer(None, value)

    return counting(Twice)


@breaks("P2")
def source_that_ends_twice() -> PullSource:
    class Twice(Counting):
        def stop(self, abort: End, answer: AnswerTo) -> None:
            answer(abort)
            answer(abort)

    return counting(Twice)


@breaks("P3")
def source_that_answers_out_of_order() -> PullSource:
    class Swapped(Counting):
        def value(self, answer: AnswerTo, value: int) -> None:
            self.module.later(3.0 - value, answer, None, value)

    return counting(Swapped)


@breaks("P4")
def source_that_answers_a_value_after_done() -> PullSource:
    class Late(Counting):
        def value(self, answer: AnswerTo, value: int) -> None:
            self.module.later(1.0, answer, None, value)

        def end(self, answer: AnswerTo) -> None:
            self.given += 1  # the third ask after the last value is the late one
            self.module.later(2.0, answer, *((None, 7) if self.given == 6 else (True,)))

    return counting(Late)


@breaks("P5")
def source_that_answers_an_abort_by_a_value() -> PullSource:
    class Generous(Counting):
        def stop(self, abort: End, answer: AnswerTo) -> None:
            answer(None, 7)

    return counting(Generous)


@breaks("P9")
def source_that_forgets_to_confirm() -> PullSource:
    class Forgetful(Counting):
        def stop(self, abort: End, answer: AnswerTo) -> None:
            pass

    return counting(Forgetful)


@breaks("P9")
def source_that_does_not_end() -> PullSource:
    class Silent(Counting):
        def end(self, answer: AnswerTo) -> None:
            pass

    return counting(Silent)


@breaks("end")
def source_that_raises() -> PullSource:
    class Raising(Counting):
        def end(self, answer: AnswerTo) -> None:
            raise ValueError("E")

    return counting(Raising)


@breaks("end")
def source_that_fails_instead_of_confirming() -> PullSource:
    class Failing(Counting):
        def stop(self, abort: End, answer: AnswerTo) -> None:
            answer(ValueError("E"))

    return counting(Failing)


@breaks("values")
def source_that_loses_a_value() -> PullSource:
    class Lossy(Counting):
        def value(self, answer: AnswerTo, value: int) -> None:
            answer(None, value if value < 2 else value + 1)

    return counting(Lossy)


@breaks("values")
def source_that_ends_early() -> PullSource:
    class Early(Counting):
        def value(self, answer: AnswerTo, value: int) -> None:
            if value < 3:
                answer(None, value)
            else:
                answer(True)

    return counting(Early)


@breaks("left")
def source_that_leaks_a_timer() -> PullSource:
    class Leaking(Counting):
        def value(self, answer: AnswerTo, value: int) -> None:
            self.module.run.runtime.later(100.0, print)
            answer(None, value)

    return counting(Leaking)


@breaks("left")
def source_that_leaks_a_task() -> PullSource:
    class Leaking(Counting):
        def value(self, answer: AnswerTo, value: int) -> None:
            async def endless() -> None:
                import asyncio

                await asyncio.sleep(100)

            self.module.run.runtime.spawn(endless(), print)
            answer(None, value)

    return counting(Leaking)


@breaks("P3")
def source_that_is_wrong_only_in_some_orders() -> PullSource:
    class Tasks(Counting):
        """Each value by a task of its own: they end in the order in which they began, as a rule."""

        def value(self, answer: AnswerTo, value: int) -> None:
            async def itself() -> int:
                return value

            self.module.spawn(itself(), answer)

    return counting(Tasks)
