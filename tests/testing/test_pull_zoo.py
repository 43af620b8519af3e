"""Broken modules: each must be caught, with the name of the rule that it breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.pull import Sink, Source, Transformer
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.protocol import AnswerTo, End
from penstock.testing import ModuleFailed, check_sink, check_source, check_transformer

Broken = Callable[[], Any]
ZOO: list[Any] = []


def breaks(rule: str) -> Callable[[Broken], Broken]:
    """The rule that a maker's module must be caught by."""

    def mark(make: Broken) -> Broken:
        ZOO.append(pytest.param(make, rule, id=make.__name__))
        return make

    return mark


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


def counting(kind: type[Counting]) -> Source:
    return Source.of(kind.__name__, lambda module: kind(module).read)


def test_a_source_that_is_right_passes() -> None:
    assert check_source(lambda: counting(Counting), expected=[1, 2, 3]) == 283


# --- sources ---------------------------------------------------------------------------------


@breaks("P2")
def source_that_answers_twice() -> Source:
    class Twice(Counting):
        def value(self, answer: AnswerTo, value: int) -> None:
            answer(None, value)
            answer(None, value)

    return counting(Twice)


@breaks("P2")
def source_that_ends_twice() -> Source:
    class Twice(Counting):
        def stop(self, abort: End, answer: AnswerTo) -> None:
            answer(abort)
            answer(abort)

    return counting(Twice)


@breaks("P3")
def source_that_answers_out_of_order() -> Source:
    class Swapped(Counting):
        def value(self, answer: AnswerTo, value: int) -> None:
            self.module.later(3.0 - value, answer, None, value)

    return counting(Swapped)


@breaks("P4")
def source_that_answers_a_value_after_done() -> Source:
    class Late(Counting):
        def value(self, answer: AnswerTo, value: int) -> None:
            self.module.later(1.0, answer, None, value)

        def end(self, answer: AnswerTo) -> None:
            self.given += 1  # the third ask after the last value is the late one
            self.module.later(2.0, answer, *((None, 7) if self.given == 6 else (True,)))

    return counting(Late)


@breaks("P5")
def source_that_answers_an_abort_by_a_value() -> Source:
    class Generous(Counting):
        def stop(self, abort: End, answer: AnswerTo) -> None:
            answer(None, 7)

    return counting(Generous)


@breaks("P9")
def source_that_forgets_to_confirm() -> Source:
    class Forgetful(Counting):
        def stop(self, abort: End, answer: AnswerTo) -> None:
            pass

    return counting(Forgetful)


@breaks("P9")
def source_that_does_not_end() -> Source:
    class Silent(Counting):
        def end(self, answer: AnswerTo) -> None:
            pass

    return counting(Silent)


@breaks("end")
def source_that_raises() -> Source:
    class Raising(Counting):
        def end(self, answer: AnswerTo) -> None:
            raise ValueError("E")

    return counting(Raising)


@breaks("end")
def source_that_fails_instead_of_confirming() -> Source:
    class Failing(Counting):
        def stop(self, abort: End, answer: AnswerTo) -> None:
            answer(ValueError("E"))

    return counting(Failing)


@breaks("values")
def source_that_loses_a_value() -> Source:
    class Lossy(Counting):
        def value(self, answer: AnswerTo, value: int) -> None:
            answer(None, value if value < 2 else value + 1)

    return counting(Lossy)


@breaks("values")
def source_that_ends_early() -> Source:
    class Early(Counting):
        def value(self, answer: AnswerTo, value: int) -> None:
            if value < 3:
                answer(None, value)
            else:
                answer(True)

    return counting(Early)


@breaks("left")
def source_that_leaks_a_timer() -> Source:
    class Leaking(Counting):
        def value(self, answer: AnswerTo, value: int) -> None:
            self.module.run.runtime.later(100.0, print)
            answer(None, value)

    return counting(Leaking)


@breaks("left")
def source_that_leaks_a_task() -> Source:
    class Leaking(Counting):
        def value(self, answer: AnswerTo, value: int) -> None:
            async def endless() -> None:
                import asyncio

                await asyncio.sleep(100)

            self.module.run.runtime.spawn(endless(), print)
            answer(None, value)

    return counting(Leaking)


@breaks("P3")
def source_that_is_wrong_only_in_some_orders() -> Source:
    class Tasks(Counting):
        """Each value by a task of its own: they end in the order in which they began, as a rule."""

        def value(self, answer: AnswerTo, value: int) -> None:
            async def itself() -> int:
                return value

            self.module.spawn(itself(), answer)

    return counting(Tasks)


# --- transformers ----------------------------------------------------------------------------


def passing(
    *,
    ask: Callable[[Edge, AnswerTo], object] | None = None,
    stop: Callable[[Edge, End, AnswerTo], object] | None = None,
    begin: Callable[[Module, Edge], object] | None = None,
) -> Transformer:
    """A transformer that passes everything on, but for what is given."""

    def open(module: Module, edge: Edge) -> Callable[..., None]:
        if begin is not None:
            begin(module, edge)

        def read(abort: End | None, answer: AnswerTo) -> None:
            if abort is not None:
                (stop or Edge.__call__)(edge, abort, answer)
            elif ask is not None:
                ask(edge, answer)
            else:
                edge(None, answer)

        return read

    return Transformer.of("passing", open)


def answering(change: Callable[[AnswerTo, End | None, Any], object]) -> Transformer:
    """A transformer that passes asks on, and answers in another way."""

    def ask(edge: Edge, answer: AnswerTo) -> None:
        edge(None, lambda end, value=None, /: change(answer, end, value))

    return passing(ask=ask)


def test_a_transformer_that_is_right_passes() -> None:
    assert check_transformer(passing, expected=list) == 1196


@breaks("TO.P2")
def transformer_that_answers_twice() -> Transformer:
    return answering(lambda answer, end, value: (answer(end, value), answer(end, value)))


@breaks("T8")
def transformer_that_swallows_an_error() -> Transformer:
    return answering(lambda answer, end, value: answer(end and True, value))


@breaks("end")
def transformer_that_makes_another_error_of_one() -> Transformer:
    def change(answer: AnswerTo, end: End | None, value: Any) -> None:
        answer(ValueError("E") if isinstance(end, Exception) else end, value)

    return answering(change)


@breaks("end")
def transformer_that_copies_an_error() -> Transformer:
    def change(answer: AnswerTo, end: End | None, value: Any) -> None:
        answer(type(end)(str(end)) if isinstance(end, Exception) else end, value)

    return answering(change)


@breaks("values")
def transformer_that_changes_a_value() -> Transformer:
    return answering(lambda answer, end, value: answer(end, 7 if value == 3 else value))


@breaks("TO.P9")
def transformer_that_does_not_answer() -> Transformer:
    return answering(lambda answer, end, value: None if value == 3 else answer(end, value))


@breaks("T3")
def transformer_that_skips_a_value() -> Transformer:
    def ask(edge: Edge, answer: AnswerTo) -> None:
        edge(None, lambda end, value=None, /: ask(edge, answer) if value == 2 else answer(end, value))

    return passing(ask=ask)


@breaks("T6")
def transformer_that_ends_early() -> Transformer:
    return answering(lambda answer, end, value: answer(True if value == 3 else end, value))


@breaks("T2")
def transformer_that_invents_a_value() -> Transformer:
    asked = 0

    def ask(edge: Edge, answer: AnswerTo) -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            answer(None, 7)
        else:
            edge(None, answer)

    return passing(ask=ask)


@breaks("T3")
def transformer_that_asks_at_once() -> Transformer:
    return passing(begin=lambda _module, edge: edge(None, print))


@breaks("T4")
def transformer_that_confirms_before_upstream() -> Transformer:
    return passing(stop=lambda edge, end, answer: (edge(end, lambda _end, _value=None, /: None), answer(end)))


@breaks("T5")
def transformer_that_confirms_alone() -> Transformer:
    return passing(stop=lambda _edge, end, answer: answer(end))


@breaks("TO.P9")
def transformer_that_forgets_to_confirm() -> Transformer:
    return passing(stop=lambda edge, end, _answer: edge(end, lambda _end, _value=None, /: None))


@breaks("T8")
def transformer_that_aborts_where_it_should_fail() -> Transformer:
    return passing(stop=lambda edge, _end, answer: edge(True, answer))


@breaks("TI.S7")
def transformer_that_aborts_twice() -> Transformer:
    def stop(edge: Edge, end: End, answer: AnswerTo) -> None:
        edge(end, lambda _end, _value=None, /: edge(end, answer))

    return passing(stop=stop)


@breaks("TI.S6")
def transformer_that_indicates() -> Transformer:
    def stop(edge: Edge, end: End, answer: AnswerTo) -> None:
        edge(end)
        edge(end, answer)

    return passing(stop=stop)


@breaks("left")
def transformer_that_leaks_a_timer() -> Transformer:
    return passing(begin=lambda module, _edge: module.run.runtime.later(100.0, print))


# --- sinks -----------------------------------------------------------------------------------


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


def test_a_sink_that_is_right_passes() -> None:
    assert check_sink(lambda: asking(rightly), result=list, partial=list) == 260


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


# --- all of them -----------------------------------------------------------------------------


def check(make: Broken, **options: Any) -> int:
    """The check for its kind of module."""
    piece = make()
    if isinstance(piece, Source):
        return check_source(make, expected=[1, 2, 3], **options)
    if isinstance(piece, Transformer):
        return check_transformer(make, expected=list, **options)
    return check_sink(make, result=list, partial=list, **options)


@pytest.mark.parametrize(("make", "rule"), ZOO)
def test_a_broken_module_is_caught_by_its_rule(make: Broken, rule: str) -> None:
    with pytest.raises(ModuleFailed) as caught:
        check(make)
    assert caught.value.rule == rule


@pytest.mark.parametrize(("make", "rule"), ZOO)
def test_a_failure_in_a_random_order_is_seen_again_with_its_seed(make: Broken, rule: str) -> None:
    for seed in range(2000):
        try:
            check(make, seed=seed)
        except ModuleFailed as failure:
            first = failure
            break
    else:
        pytest.fail("no order shows it")
    assert f"again with seed={first.seed}" in str(first)
    with pytest.raises(ModuleFailed) as again:
        check(make, seed=first.seed)
    assert str(again.value) == str(first)
