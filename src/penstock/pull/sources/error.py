"""error: a stream that has failed from the start."""

from __future__ import annotations

from penstock.pull.module import Module
from penstock.pull.pieces import Source
from penstock.pull.protocol import AnswerTo, End, Read


def error(cause: Exception) -> Source:
    """`cause` is the answer to every request: to an ask, and to an abort as well.

    Downstream that fails with an error of its own hears that one, with `cause` attached.

    >>> from penstock.pull import collect, pull
    >>> pull(error(OSError("the line is dead")), collect()).run()
    Traceback (most recent call last):
    OSError: the line is dead
    """

    def open(_module: Module) -> Read:
        def read(_abort: End | None, answer: AnswerTo) -> None:
            answer(cause)

        return read

    return Source.of("error", open)
