"""The modules of this form by themselves: what they give, and how they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.pull import Recorder, Run, dataflow
from headrace.pull import values as callback_values
from headrace.pull.dataflow import (
    DONE,
    Abort,
    Ask,
    DataflowEdge,
    DataflowSink,
    DataflowSource,
    DataflowTransformer,
    Done,
    Fail,
    Failed,
    FailIndication,
    ModuleContext,
    Requests,
    Value,
    cat,
    collect,
    count,
    drain,
    empty,
    error,
    filter,
    find,
    flatten,
    for_each,
    infinite,
    map,
    merge,
    once,
    probe,
    probe_around,
    pull,
    reduce,
    skip,
    take,
    unique,
    values,
    working,
)
from headrace.pull.errors import NotComposable, ProtocolBroken, WrongValue
from headrace.pull.rules.checker import PROFILES, check


def test_sources_give_their_values_and_end() -> None:
    assert pull(values([1, 2]), collect()).run() == [1, 2]
    assert pull(count(3), collect()).run() == [0, 1, 2, 3]
    assert pull(count(0), collect()).run() == [0]
    assert pull(count(), take(3), collect()).run() == [0, 1, 2]
    assert pull(infinite(lambda: "x"), take(2), collect()).run() == ["x", "x"]
    assert pull(once(None), collect()).run() == [None]
    assert pull(empty(), collect()).run() == []
    with pytest.raises(ValueError, match="no source"):
        pull(error(ValueError("no source")), collect()).run()


def test_transformers_give_what_their_names_say() -> None:
    items = values([3, 1, 3, 2, 1])
    assert pull(items, map(str), collect()).run() == ["3", "1", "3", "2", "1"]
    assert pull(items, filter(lambda value: value > 1), collect()).run() == [3, 3, 2]
    assert pull(items, skip(3), collect()).run() == [2, 1]
    assert pull(items, take(0), collect()).run() == []
    assert pull(items, unique(), collect()).run() == [3, 1, 2]
    assert pull(items, unique(lambda value: value % 2), collect()).run() == [3, 2]


def test_sinks_have_their_results() -> None:
    seen: list[int] = []
    assert pull(values([1, 2, 3]), reduce(lambda total, value: total + value, 0)).run() == 6
    assert pull(values([1, 2, 3]), find(lambda value: value > 1)).run() == 2
    assert pull(values([1, 2, 3]), find(lambda value: value > 5, "none")).run() == "none"
    assert pull(values([1, 2, 3]), for_each(seen.append)).run() is None
    assert pull(count(), drain(lambda value: value < 4)).run() is None
    assert seen == [1, 2, 3]


def test_a_generator_is_closed_when_the_stream_is_stopped() -> None:
    closed: list[str] = []

    def items() -> Iterator[int]:
        try:
            yield from (1, 2, 3)
        finally:
            closed.append("closed")

    generator = items()
    assert pull(values(generator), take(1), collect()).run() == [1]
    assert closed == ["closed"]


def test_a_piece_runs_anew_each_time() -> None:
    pipeline = pull(values([1, 2, 2]), unique(), take(5), collect())
    assert pipeline.run() == pipeline.run() == [1, 2]


def test_pieces_compose_in_part() -> None:
    odd = pull(filter(lambda value: value % 2), map(lambda value: value * 10))
    first = pull(odd, take(2), collect())
    assert pull(pull(count(), odd), take(1), collect()).run() == [10]
    assert pull(count(), first).run() == [10, 30]


def test_nothing_happens_before_a_run() -> None:
    pull(infinite(lambda: 1 / 0), collect())


@pytest.mark.parametrize(
    ("pieces", "position"),
    [
        ((collect(), values([1])), 1),
        ((values([1]), values([1])), 2),
        ((values([1]), collect(), map(str)), 2),
        ((values([1]), str), 2),
        ((pull(values([1]), collect()), map(str)), 1),
        ((callback_values([1]), collect()), 1),
    ],
)
def test_what_makes_no_pipeline_says_where(pieces: Any, position: int) -> None:
    with pytest.raises(NotComposable) as wrong:
        pull(*pieces)
    assert wrong.value.facts["position"] == position


def test_pull_of_nothing_is_an_error() -> None:
    with pytest.raises(NotComposable):
        pull()


def test_flatten_takes_sources_and_collections() -> None:
    inner = [values([1, 2]), [], [3], empty(), (4, 5)]
    assert pull(values(inner), flatten(), collect()).run() == [1, 2, 3, 4, 5]


def test_ten_thousand_empty_inner_streams_take_no_stack() -> None:
    assert pull(count(9_999), map(lambda _value: empty()), flatten(), collect()).run() == []


def test_an_abort_of_flatten_reaches_the_inner_source_first() -> None:
    told: list[str] = []

    def noting(name: str) -> DataflowSource:
        async def thread(_module: ModuleContext, requests: Requests) -> None:
            async for request in requests:
                if isinstance(request, Ask):
                    request.answer.bind(Value(values_of[name]))
                else:
                    told.append(name)
                    request.answer.bind(DONE)

        return DataflowSource.of(name, thread)

    values_of: dict[str, Any] = {"inner": 7}
    values_of["outer"] = noting("inner")
    assert pull(noting("outer"), flatten(), find(lambda value: value == 7)).run() == 7
    assert told == ["inner", "outer"]


def test_the_error_of_an_inner_source_ends_flatten_and_aborts_upstream() -> None:
    recorder = Recorder()
    failing = pull(values([[1], error(ValueError("inner"))]), probe(recorder), flatten(), collect())
    run: Run = failing.start()
    with pytest.raises(ValueError, match="inner"):
        run.wait()
    assert run.partial == [1]
    assert str(recorder.trace()).endswith("D:abort3 U:ans3=done")


def test_cat_opens_one_source_after_the_other() -> None:
    opened: list[str] = []

    def noting(name: str) -> DataflowSource:
        return pull(values([name]), map(lambda value: opened.append(value) or value))

    assert pull(cat([noting("a"), noting("b"), noting("c")]), take(2), collect()).run() == ["a", "b"]
    assert opened == ["a", "b"]
    assert pull(cat([]), collect()).run() == []


def test_merge_takes_turns_and_fails_all_with_the_first_error() -> None:
    recorder = Recorder()
    assert pull(merge(values("ad"), values("be"), values("c")), collect()).run() == list("abcde")
    assert pull(merge(), collect()).run() == []
    other = pull(count(), probe(recorder))
    with pytest.raises(ValueError, match="one"):
        pull(merge(other, error(ValueError("one"))), collect()).run()
    assert str(recorder.trace()) == (
        "D:ask1 U:ans1=value(0) D:ask2 U:ans2=value(1) D:error3(one) U:ans3=error(one)"
    )


def test_an_abort_of_merge_is_confirmed_by_all_its_sources() -> None:
    recorders = [Recorder(), Recorder()]
    sources = [pull(count(), probe(recorder)) for recorder in recorders]
    assert pull(merge(*sources), take(3), collect()).run() == [0, 0, 1]
    assert all(recorder.events[-1].index == recorder.events[-2].index for recorder in recorders)
    traces = [str(recorder.trace()) for recorder in recorders]
    assert all("abort" in trace and trace.count("ask") <= 3 for trace in traces)


# --- what says nothing is refused and never taken for an abort -------------------------------------


def stopping(cause: Any) -> DataflowSink:
    """A sink that stops the stream for this reason at once; its result is the answer."""

    async def thread(module: ModuleContext, upstream: DataflowEdge) -> None:
        module.done(await upstream.stop(cause))

    return DataflowSink.of("stopping", thread)


def stopped_by(cause: Any) -> tuple[str, Any]:
    recorder = Recorder()
    found = pull(values([1]), probe(recorder), stopping(cause)).run()
    return str(recorder.trace()), found


def test_a_stream_may_be_stopped_by_an_exception() -> None:
    error = ValueError("no more")
    for cause in (error, Failed(error)):
        assert stopped_by(cause) == ("D:error1(no more) U:ans1=error(no more)", Failed(error))
    for cause in (True, DONE, Done()):
        assert stopped_by(cause) == ("D:abort1 U:ans1=done", DONE)


@pytest.mark.parametrize(
    "cause", ["no more", None, False, ValueError, Done, Ask(), Value(1), KeyboardInterrupt()]
)
def test_a_stream_cannot_be_stopped_by_what_is_no_reason(cause: Any) -> None:
    with pytest.raises(WrongValue, match="stop"):
        stopped_by(cause)


def test_all_inputs_may_be_stopped_by_an_exception() -> None:
    recorder = Recorder()

    def thread(module: ModuleContext, requests: Requests, upstream: DataflowEdge) -> Any:
        async def work(asks: Any) -> None:
            ask = await asks.next()
            ask.answer.bind(await module.stop_inputs(ValueError("no more")))

        return working(module, requests, work)

    with pytest.raises(ValueError, match="no more"):
        pull(values([1]), probe(recorder), DataflowTransformer.of("stopping", thread), collect()).run()
    assert str(recorder.trace()) == "D:error1(no more) U:ans1=error(no more)"


@pytest.mark.parametrize("request_", [ValueError("no more"), True, None, Ask, Done, Value(1), "ask"])
def test_what_is_no_request_cannot_be_sent(request_: Any) -> None:
    async def thread(_module: ModuleContext, upstream: DataflowEdge) -> None:
        upstream.send(request_)

    with pytest.raises(WrongValue, match="'sending'"):
        pull(values([1]), DataflowSink.of("sending", thread)).run()


@pytest.mark.parametrize("answer", [7, None, True, ValueError("lost"), Value, Done, Ask()])
def test_what_is_no_answer_ends_no_stream(answer: Any) -> None:
    def naughty(to: type[Any]) -> DataflowSource:
        async def thread(_module: ModuleContext, requests: Requests) -> None:
            async for request in requests:
                request.answer.bind(answer if isinstance(request, to) else Value(0))

        return DataflowSource.of("naughty", thread)

    with pytest.raises(ProtocolBroken, match="'naughty' answered") as raised:
        pull(naughty(Ask), collect()).run()
    assert raised.value.facts["module"] == "naughty"
    with pytest.raises(ProtocolBroken, match="'naughty' answered"):
        pull(naughty(Abort), take(1), collect()).run()
    with pytest.raises(ZeroDivisionError) as failed:
        pull(naughty(Fail), find(lambda _value: 1 / 0)).run()
    assert "'naughty' answered" in failed.value.__notes__[0]


@pytest.mark.parametrize("kind", [Failed, Fail, FailIndication, error])
@pytest.mark.parametrize("odd", ["text", None, True, ValueError, KeyboardInterrupt()])
def test_only_exceptions_are_failures(kind: Any, odd: Any) -> None:
    with pytest.raises(WrongValue, match="exception"):
        kind(odd)


def test_a_sink_may_fail_with_the_end_that_it_met() -> None:
    async def thread(module: ModuleContext, upstream: DataflowEdge) -> None:
        end = await upstream.ask()
        module.fail(end, "nothing")  # type: ignore[arg-type]

    run = pull(error(ValueError("lost")), DataflowSink.of("failing", thread)).start()
    with pytest.raises(ValueError, match="lost"):
        run.wait()
    assert run.partial == "nothing"


def test_a_transformer_is_recorded_at_both_its_edges() -> None:
    recorder = Recorder()
    pull(values([1]), probe_around(map(lambda value: value + 1), recorder), collect()).run()
    assert str(recorder.trace()) == (
        "D:ask1 TI:ask1 U:ansT1=value(1) TO:ans1=value(2) D:ask2 TI:ask2 U:ansT2=done TO:ans2=done"
    )


def test_many_items_and_many_modules_take_no_stack() -> None:
    deep = [map(lambda value: value) for _ in range(200)]
    assert pull(count(99), *deep, collect()).run() == list(range(100))
    assert pull(count(19_999), map(lambda value: -value), drain()).run(window=3) is None


def test_all_names_are_there() -> None:
    assert all(hasattr(dataflow, name) for name in dataflow.__all__)


@pytest.mark.parametrize("second", [empty, lambda: error(ValueError("second"))], ids=["done", "error"])
def test_an_input_that_has_ended_is_not_stopped_when_another_one_fails(
    second: Callable[[], DataflowSource],
) -> None:
    recorder = Recorder()
    run = pull(merge(error(ValueError("first")), pull(second(), probe(recorder))), collect()).start()
    assert str(run.error) == "first"
    assert [check(recorder.trace(), profile) for profile in PROFILES] == [(), (), ()]
