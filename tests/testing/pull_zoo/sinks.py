"""Sinks, each broken in one way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.pull import PullSink
from headrace.pull.edge import PullEdge
from headrace.pull.module_context import Module
from headrace.pull.protocol import End
from tests.testing.pull_zoo.broken import breaks


def asking(
    over: Callable[[Module, PullEdge, End, list[Any]], object],
    *,
    step: Callable[[Callable[[], None], list[Any]], object] | None = None,
    begin: Callable[[Module, PullEdge], object] | None = None,
) -> PullSink:
    """A sink that collects, and does `over` at the end."""

    def open(module: Module, edge: PullEdge) -> None:
        found: list[Any] = []

        def got(end: End | None, value: Any = None, /) -> None:
            if end is not None:
                over(module, edge, end, found)
                return
            found.append(value)
            if step is None:
                ask()
            else:
                step(ask, found)

        def ask() -> None:
            edge(None, got)

        if begin is not None:
            begin(module, edge)
        ask()

    return PullSink.of("asking", open)


def rightly(module: Module, _edge: PullEdge, end: End, found: list[Any]) -> None:
    if end is True:
        module.done(found)
    else:
        module.fail(end, found)


def silent(_end: End | None, _value: Any = None, /) -> None:
    """Nothing is done with an answer."""


@breaks("S1")
def sink_that_asks_twice_at_once() -> PullSink:
    return asking(rightly, step=lambda ask, _found: (ask(), ask()))


@breaks("S2")
def sink_that_asks_after_the_end() -> PullSink:
    def over(module: Module, edge: PullEdge, end: End, found: list[Any]) -> None:
        edge(None, silent)
        rightly(module, edge, end, found)

    return asking(over)


@breaks("S2")
def sink_that_aborts_after_the_end() -> PullSink:
    def over(module: Module, edge: PullEdge, end: End, found: list[Any]) -> None:
        edge(True, silent)
        rightly(module, edge, end, found)

    return asking(over)


@breaks("S6")
def sink_that_indicates() -> PullSink:
    def begin(_module: Module, edge: PullEdge) -> None:
        edge(True)

    return asking(rightly, begin=begin)


@breaks("S7")
def sink_that_aborts_twice() -> PullSink:
    def begin(_module: Module, edge: PullEdge) -> None:
        edge(True, silent)
        edge(True, silent)

    return PullSink.of(
        "twice", lambda module, edge: (begin(module, edge), module.later(9.0, module.done, []))
    )


@breaks("stuck")
def sink_that_stops_asking() -> PullSink:
    return asking(rightly, step=lambda _ask, _found: None)


@breaks("end")
def sink_that_swallows_an_error() -> PullSink:
    return asking(lambda module, _edge, _end, found: module.done(found))


@breaks("end")
def sink_that_fails() -> PullSink:
    return asking(lambda module, _edge, _end, found: module.fail(ValueError("E"), found))


@breaks("result")
def sink_that_loses_a_value() -> PullSink:
    return asking(lambda module, edge, end, found: rightly(module, edge, end, found[1:]))


@breaks("partial")
def sink_that_drops_what_it_had() -> PullSink:
    def over(module: Module, edge: PullEdge, end: End, found: list[Any]) -> None:
        rightly(module, edge, end, found if end is True else [])

    return asking(over)


@breaks("left")
def sink_that_leaks_a_timer() -> PullSink:
    return asking(rightly, begin=lambda module, _edge: module.run.runtime.later(100.0, print))


@breaks("end")
def sink_that_raises() -> PullSink:
    def over(_module: Module, _edge: PullEdge, _end: End, _found: list[Any]) -> None:
        raise ValueError("E")

    return asking(over)
