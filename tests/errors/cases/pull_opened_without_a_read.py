from headrace.pull import PullSource, collect, pull
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End


def sevens(_module: Module) -> None:
    def read(abort: End | None, answer: AnswerTo) -> None:
        answer(abort, 7)


pull(PullSource.of("sevens", sevens), collect()).run()  # type: ignore[arg-type]
