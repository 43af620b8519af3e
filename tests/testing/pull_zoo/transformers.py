"""Transformers, each broken in one way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.pull import PullTransformer
from headrace.pull.edge import PullEdge
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End
from tests.testing.pull_zoo.broken import breaks


def passing(
    *,
    ask: Callable[[PullEdge, AnswerTo], object] | None = None,
    stop: Callable[[PullEdge, End, AnswerTo], object] | None = None,
    begin: Callable[[Module, PullEdge], object] | None = None,
) -> PullTransformer:
    """A transformer that passes everything on, but for what is given."""

    def open(module: Module, edge: PullEdge) -> Callable[..., None]:
        if begin is not None:
            begin(module, edge)

        def read(abort: End | None, answer: AnswerTo) -> None:
            if abort is not None:
                (stop or PullEdge.__call__)(edge, abort, answer)
            elif ask is not None:
                ask(edge, answer)
            else:
                edge(None, answer)

        return read

    return PullTransformer.of("passing", open)


def answering(change: Callable[[AnswerTo, End | None, Any], object]) -> PullTransformer:
    """A transformer that passes asks on, and answers in another way."""

    def ask(edge: PullEdge, answer: AnswerTo) -> None:
        edge(None, lambda end, value=None, /: change(answer, end, value))

    return passing(ask=ask)


@breaks("TO.P2")
def transformer_that_answers_twice() -> PullTransformer:
    return answering(lambda answer, end, value: (answer(end, value), answer(end, value)))


@breaks("T8")
def transformer_that_swallows_an_error() -> PullTransformer:
    return answering(lambda answer, end, value: answer(end and True, value))


@breaks("end")
def transformer_that_makes_another_error_of_one() -> PullTransformer:
    def change(answer: AnswerTo, end: End | None, value: Any) -> None:
        answer(ValueError("E") if isinstance(end, Exception) else end, value)

    return answering(change)


@breaks("end")
def transformer_that_copies_an_error() -> PullTransformer:
    def change(answer: AnswerTo, end: End | None, value: Any) -> None:
        answer(type(end)(str(end)) if isinstance(end, Exception) else end, value)

    return answering(change)


@breaks("values")
def transformer_that_changes_a_value() -> PullTransformer:
    return answering(lambda answer, end, value: answer(end, 7 if value == 3 else value))


@breaks("TO.P9")
def transformer_that_does_not_answer() -> PullTransformer:
    return answering(lambda answer, end, value: None if value == 3 else answer(end, value))


@breaks("T3")
def transformer_that_skips_a_value() -> PullTransformer:
    def ask(edge: PullEdge, answer: AnswerTo) -> None:
        edge(None, lambda end, value=None, /: ask(edge, answer) if value == 2 else answer(end, value))

    return passing(ask=ask)


@breaks("T6")
def transformer_that_ends_early() -> PullTransformer:
    return answering(lambda answer, end, value: answer(True if value == 3 else end, value))


@breaks("T2")
def transformer_that_invents_a_value() -> PullTransformer:
    asked = 0

    def ask(edge: PullEdge, answer: AnswerTo) -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            answer(None, 7)
        else:
            edge(None, answer)

    return passing(ask=ask)


@breaks("T3")
def transformer_that_asks_at_once() -> PullTransformer:
    return passing(begin=lambda _module, edge: edge(None, print))


@breaks("T4")
def transformer_that_confirms_before_upstream() -> PullTransformer:
    return passing(stop=lambda edge, end, answer: (edge(end, lambda _end, _value=None, /: None), answer(end)))


@breaks("T5")
def transformer_that_confirms_alone() -> PullTransformer:
    return passing(stop=lambda _edge, end, answer: answer(end))


@breaks("TO.P9")
def transformer_that_forgets_to_confirm() -> PullTransformer:
    return passing(stop=lambda edge, end, _answer: edge(end, lambda _end, _value=None, /: None))


@breaks("T8")
def transformer_that_aborts_where_it_should_fail() -> PullTransformer:
    return passing(stop=lambda edge, _end, answer: edge(True, answer))


@breaks("TI.S7")
def transformer_that_aborts_twice() -> PullTransformer:
    def stop(edge: PullEdge, end: End, answer: AnswerTo) -> None:
        edge(end, lambda _end, _value=None, /: edge(end, answer))

    return passing(stop=stop)


@breaks("TI.S6")
def transformer_that_indicates() -> PullTransformer:
    def stop(edge: PullEdge, end: End, answer: AnswerTo) -> None:
        edge(end)
        edge(end, answer)

    return passing(stop=stop)


@breaks("left")
def transformer_that_leaks_a_timer() -> PullTransformer:
    return passing(begin=lambda module, _edge: module.run.runtime.later(100.0, print))
