from penstock.pull import Source, collect, pull
from penstock.pull.module_context import Module
from penstock.pull.protocol import AnswerTo, End


def sevens(_module: Module) -> None:
    def read(abort: End | None, answer: AnswerTo) -> None:
        answer(abort, 7)


pull(Source.of("sevens", sevens), collect()).run()  # type: ignore[arg-type]
