"""What a module does against the rules is put right at its edge, or named where that is watched."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.pull import Recorder, Run
from headrace.pull.dataflow import (
    DONE,
    Abort,
    Ask,
    DataflowEdge,
    DataflowSink,
    DataflowSource,
    Failed,
    ModuleContext,
    Requests,
    Value,
    collect,
    probe,
    pull,
)
from headrace.pull.errors import AlreadyBound, ProtocolBroken
from headrace.pull.rules.checker import check


async def backwards(_module: ModuleContext, requests: Requests) -> None:
    """Answers the second ask before the first."""
    first, second = await requests.next(), await requests.next()
    second.answer.bind(Value("second"))
    first.answer.bind(Value("first"))
    async for request in requests:
        request.answer.bind(DONE)


async def twice(_module: ModuleContext, requests: Requests) -> None:
    async for request in requests:
        request.answer.bind(Value(1))
        request.answer.bind(Value(2))


async def after_the_end(_module: ModuleContext, requests: Requests) -> None:
    first, second = await requests.next(), await requests.next()
    first.answer.bind(DONE)
    second.answer.bind(Value("late"))


async def value_for_a_stop(_module: ModuleContext, requests: Requests) -> None:
    async for request in requests:
        request.answer.bind(Value(1))


async def aborts(module: ModuleContext, upstream: DataflowEdge) -> None:
    await upstream.ask()
    request = Abort()
    upstream.send(request)
    confirmed = await request.answer
    if isinstance(confirmed, Failed):
        module.fail(confirmed.error)
    else:
        module.done(confirmed)


def run(source: Any, sink: DataflowSink, *recorders: Recorder) -> Run:
    probes = [probe(recorder) for recorder in recorders]
    return pull(DataflowSource.of(source.__name__, source), *probes, sink).start(window=2)


def test_answers_out_of_order_are_put_in_order() -> None:
    recorder = Recorder(stop_at_once=False)
    assert run(backwards, collect(), recorder).result() == ["first", "second"]
    assert [found.rule for found in check(recorder.trace())] == ["P3"]


def test_values_after_the_end_and_for_a_stop_are_heard_by_nobody() -> None:
    recorder, other = Recorder(stop_at_once=False), Recorder(stop_at_once=False)
    assert run(after_the_end, collect(), recorder).result() == []
    assert [found.rule for found in check(recorder.trace())] == ["P4"]
    assert run(value_for_a_stop, DataflowSink.of("aborts", aborts), other).result() == DONE
    assert "P5" in [found.rule for found in check(other.trace())]


@pytest.mark.parametrize(
    ("source", "sink", "rule"),
    [
        (backwards, collect(), "P3"),
        (after_the_end, collect(), "P4"),
        (value_for_a_stop, DataflowSink.of("aborts", aborts), "P5"),
    ],
)
def test_a_watched_module_that_breaks_a_rule_fails_with_its_name(
    source: Any, sink: DataflowSink, rule: str
) -> None:
    with pytest.raises(ProtocolBroken, match=source.__name__) as broken:
        run(source, sink, Recorder()).result()
    assert broken.value.facts["rule"] == rule


def test_a_second_answer_is_an_error_where_nobody_watches() -> None:
    with pytest.raises(AlreadyBound):
        run(twice, collect()).result()


def test_both_ends_of_an_edge_can_be_recorded() -> None:
    async def answers(_module: ModuleContext, requests: Requests) -> None:
        async for request in requests:
            request.answer.bind(Value(1) if isinstance(request, Ask) else request.cause)

    async def asks_and_aborts(module: ModuleContext, upstream: DataflowEdge) -> None:
        upstream.ask()
        module.done(await upstream.stop())

    upper, lower = Recorder(), Recorder()
    source = pull(DataflowSource.of("answers", answers), probe(upper), probe(lower, below=True))
    assert pull(source, DataflowSink.of("asks and aborts", asks_and_aborts)).run() == DONE
    assert str(upper.trace()) == "D:ask1 U:ans1=value(1) D:abort2 U:ans2=done"
    assert str(lower.trace()) == "D:ask1 D:abort2 U:ans1=done U:ans2=done"
