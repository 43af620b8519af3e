"""`timeout`: limit the time upstream may take to answer."""

from __future__ import annotations

from typing import Any

from headrace.errors import Step
from headrace.pull.argument_checks import check_positive
from headrace.pull.edge import Edge, NamedModule
from headrace.pull.errors import NoAnswerInTime
from headrace.pull.module_context import Module
from headrace.pull.modules import Transformer
from headrace.pull.protocol import AnswerTo, BatchRead, End


def timeout(seconds: float) -> Transformer:
    """Pass values through; fail with `NoAnswerInTime` if an ask is not answered within `seconds`.

    The time starts with an ask, and restarts with each answer while further asks wait, since concurrent asks
    are answered one after the other. Upstream is failed with the error, and once it has confirmed, downstream
    gets it. Time in which downstream does not ask is not counted. Done, errors and aborts are passed on; an
    abort has a time limit of its own (`confirm_within` of `run`).

    >>> from headrace.pull import collect, pull, values
    >>> pull(values("ab"), timeout(60), collect()).run()
    ['a', 'b']
    """
    check_positive("timeout", "seconds", seconds)
    return Transformer.of("timeout", lambda module, edge: _timeout(module, edge, seconds), batches=True)


def _timeout(module: Module, edge: Edge, seconds: float) -> BatchRead:
    # One timer at a time: when it fires, it checks whether the limit has moved since it was set.
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
        edge(None, got, most)

    def watch() -> None:
        nonlocal watching
        watching = pending > 0 and edge.ended is None  # otherwise nobody waits, or the end is on its way
        if watching:
            module.later(limit - module.now(), look)

    def look() -> None:
        if pending and edge.ended is None and limit <= module.now():
            raise _no_answer(module, edge.upper, seconds)
        watch()

    return read


def _no_answer(module: Module, upper: NamedModule, seconds: float) -> NoAnswerInTime:
    return NoAnswerInTime(
        f"{upper.name!r} has not answered within {seconds:g} s",
        where=[Step(upper.location, "asked here"), Step(module.location, f"and waited for {seconds:g} s")],
        fix="raise the timeout, or handle it with a catch(...) after it",
        module=upper.name,
        seconds=seconds,
    )
