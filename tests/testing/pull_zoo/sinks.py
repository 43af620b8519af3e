"""Sinks, each broken in one way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.pull import Sink
from headrace.pull.edge import Edge
from headrace.pull.module_context import Module
from headrace.pull.protocol import End
from tests.testing.pull_zoo.broken import breaks


def asking(
    over: Callable[[Module, Edge, End, list[Any]], object],
    *,
    step: Callable[[Callable[[], None], list[Any]], object] | None = None,
    begin: Callable[[Module, Edge], object] | None = None,
) -> Sink:
    """A sink that collects, and does `over` at the end."""

    def open(module: Module, edge: Edge) -> None:
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

    return Sink.of("asking", open)


def rightly(module: Module, _edge: Edge, end: End, found: list[Any]) -> None:
    if end is True:
        module.done(found)
    else:
        module.fail(end, found)


def silent(_end: End | None, _value: Any = None, /) -> None:
    """Nothing is done with an answer."""


@breaks("S1")
def sink_that_asks_twice_at_once() -> Sink:
    return asking(rightly, step=lambda ask, _found: (ask(), ask()))


@breaks("S2")
def sink_that_asks_after_the_end() -> Sink:
    def over(module: Module, edge: Edge, end: End, found: list[Any]) -> None:
        edge(None, silent)
        rightly(module, edge, end, found)

    return asking(over)


@breaks("S2")
def sink_that_aborts_after_the_end() -> Sink:
    def over(module: Module, edge: Edge, end: End, found: list[Any]) -> None:
        edge(True, silent)
        rightly(module, edge, end, found)

    return asking(over)


@breaks("S6")
def sink_that_indicates() -> Sink:
    def begin(_module: Module, edge: Edge) -> None:
        edge(True)

    return asking(rightly, begin=begin)


@breaks("S7")
def sink_that_aborts_twice() -> Sink:
    def begin(_module: Module, edge: Edge) -> None:
        edge(True, silent)
        edge(True, silent)

    return Sink.of("twice", lambda module, edge: (begin(module, edge), module.later(9.0, module.done, [])))


@breaks("stuck")
def sink_that_stops_asking() -> Sink:
    return asking(rightly, step=lambda _ask, _found: None)


@breaks("end")
def sink_that_swallows_an_error() -> Sink:
    return asking(lambda module, _edge, _end, found: module.done(found))


@breaks("end")
def sink_that_fails() -> Sink:
    return asking(lambda module, _edge, _end, found: module.fail(ValueError("E"), found))


@breaks("result")
def sink_that_loses_a_value() -> Sink:
    return asking(lambda module, edge, end, found: rightly(module, edge, end, found[1:]))


@breaks("partial")
def sink_that_drops_what_it_had() -> Sink:
    def over(module: Module, edge: Edge, end: End, found: list[Any]) -> None:
        rightly(module, edge, end, found if end is True else [])

    return asking(over)


@breaks("left")
def sink_that_leaks_a_timer() -> Sink:
    return asking(rightly, begin=lambda module, _edge: module.run.runtime.later(100.0, print))


@breaks("end")
def sink_that_raises() -> Sink:
    def over(_module: Module, _edge: Edge, _end: End, _found: list[Any]) -> None:
        raise ValueError("E")

    return asking(over)
