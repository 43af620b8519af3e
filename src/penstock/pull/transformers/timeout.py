"""timeout: upstream has so long to answer."""

from __future__ import annotations

from typing import Any

from penstock.errors import NoAnswerInTime, Step
from penstock.pull.call import Named
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.options import positive
from penstock.pull.pieces import Transformer
from penstock.pull.protocol import AnswerTo, BatchRead, End


def timeout(seconds: float) -> Transformer:
    """Values as they come; `NoAnswerInTime` where an ask is not answered within `seconds`.

    The time begins with the ask, and again with each answer while further asks wait: concurrent
    asks are answered one after the other. Upstream is failed with the error, and when it has
    confirmed, downstream gets it. A downstream that does not ask uses up no time. Done,
    errors and aborts pass; an abort has a time limit of its own (`confirm_within` of `run`).

    >>> from penstock.pull import collect, pull, values
    >>> pull(values("ab"), timeout(60), collect()).run()
    ['a', 'b']
    """
    positive("timeout", "seconds", seconds)
    return Transformer.of("timeout", lambda module, edge: _timeout(module, edge, seconds), batches=True)


def _timeout(module: Module, edge: Edge, seconds: float) -> BatchRead:
    """One timer at a time: it looks whether the limit was moved since it was set."""
    pending, limit, watching = 0, 0.0, False

    def read(abort: End | None, answer: AnswerTo, most: int) -> None:
        nonlocal pending, limit
        if abort is not None:
            pending = 0
            edge(abort, answer)
            return

        def got(end: End | None, value: Any = None, /) -> None:
            nonlocal pending, limit
            pending -= 1
            limit = module.now() + seconds
            answer(end, value)

        pending += 1
        if pending == 1:
            limit = module.now() + seconds
            if not watching:
                watch()
        edge.batch(most, got)

    def watch() -> None:
        nonlocal watching
        watching = True
        module.later(limit - module.now(), look)

    def look() -> None:
        nonlocal watching
        watching = False
        if pending and edge.ended is None:  # else nobody waits, or the end is on its way
            if limit <= module.now():
                raise _no_answer(module, edge.upper, seconds)
            watch()

    return read


def _no_answer(module: Module, upper: Named, seconds: float) -> NoAnswerInTime:
    waited = f"and waited for {seconds:g} s"
    return NoAnswerInTime(
        f"{upper.name!r} has not answered within {seconds:g} s",
        where=[Step(upper.location, "asked here"), Step(module.location, waited)],
        fix="give it more time, or go on without it: put a catch(...) behind the timeout",
        module=upper.name,
        seconds=seconds,
    )
