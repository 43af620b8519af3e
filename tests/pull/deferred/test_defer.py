"""defer: pieces that are connected later, with what was asked of them before."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headrace.pull import (
    PullDuplex,
    PullSink,
    PullSource,
    PullTransformer,
    Recorder,
    collect,
    count,
    defer,
    drain,
    empty,
    map,
    once,
    pair,
    probe,
    pull,
    take,
    together,
    values,
)
from headrace.pull.errors import AlreadyUsed, EndNotConfirmed, NeverAnswered, NotComposable, WrongThread
from tests.pull.core.modules import Hand, Manual

# -- sources ------------------------------------------------------------------------------------


def test_requests_wait_and_are_made_in_order_when_the_source_is_known() -> None:
    later, manual, hand = defer(PullSource), Manual(), Hand()
    pull(later, hand.sink).start()
    hand.request("one")
    hand.request("two")
    later.resolve(manual.source)
    assert manual.requests == [None, None]
    manual.answer(0, None, "a")
    manual.answer(1, None, "b")
    hand.request("three")
    assert manual.requests == [None, None, None]
    assert hand.heard == [("one", "a"), ("two", "b")]


def test_an_abort_waits_too_and_is_confirmed_when_the_source_has_closed() -> None:
    later, manual, hand = defer(), Manual(), Hand()
    pull(later, hand.sink).start()
    hand.request("one")
    hand.request("stop", True)
    assert hand.heard == []
    later.resolve(manual.source)
    assert manual.requests == [None, True]
    assert hand.heard == []
    manual.answer(1, True)
    assert hand.heard == [("one", True), ("stop", True)]


def test_a_stop_that_nothing_will_confirm_names_the_deferred_piece() -> None:
    run = pull(defer(), collect()).start()
    run.stop()
    with pytest.raises(EndNotConfirmed, match="'defer'"):
        run.result()


@pytest.mark.parametrize("cause", [None, OSError("x")])
def test_aborted_it_ends_so(cause: Exception | None) -> None:
    later, hand = defer(), Hand()
    pull(later, hand.sink).start()
    hand.request("one")
    later.abort(cause)
    hand.request("two")
    assert hand.heard == [("one", cause or True), ("two", cause or True)]


def test_each_run_opens_the_source_anew_before_and_after() -> None:
    later = defer()
    pipeline = pull(later, collect())
    before = [pipeline.start(), pipeline.start()]
    later.resolve(values([1, 2]))
    assert [run.result() for run in before] == [[1, 2], [1, 2]]
    assert pipeline.run() == [1, 2]


def test_batches_go_through() -> None:
    later, recorder = defer(), Recorder()
    run = pull(later, collect(batch=3)).start()
    later.resolve(pull(count(4), probe(recorder)))
    assert run.result() == list(range(5))
    assert recorder.trace().texts()[:3] == ("D:ask1*3", "U:ans1=values(0, 1, 2)", "D:ask2*3")


def test_it_may_be_resolved_with_a_deferred_source() -> None:
    first, second = defer(), defer()
    run = pull(first, collect()).start()
    first.resolve(second)
    second.resolve(once(1))
    assert run.result() == [1]


# -- transformers -------------------------------------------------------------------------------


def test_a_transformer_stands_between_its_neighbours_when_it_is_known() -> None:
    later, manual, hand = defer(PullTransformer), Manual(), Hand()
    pull(manual.source, later, hand.sink).start()
    hand.request("one")
    assert manual.requests == []
    later.resolve(pull(map(lambda x: x + 1), map(str)))
    manual.answer(0, None, 1)
    assert hand.heard == [("one", "2")]
    hand.request("stop", True)
    manual.answer(1, True)
    assert hand.heard == [("one", "2"), ("stop", True)]


def test_what_a_deferred_transformer_raises_reaches_both_ends() -> None:
    stops: list[Exception | None] = []
    later = defer(PullTransformer)
    run = pull(values([1, 0], on_stop=stops.append), later, collect()).start()
    later.resolve(map(lambda x: 1 // x))
    assert run.partial == [1]
    with pytest.raises(ZeroDivisionError) as raised:
        run.result()
    assert stops == [raised.value]


@pytest.mark.parametrize("cause", [None, OSError("x")])
def test_an_aborted_transformer_stops_upstream_and_ends_downstream(cause: Exception | None) -> None:
    stops: list[Exception | None] = []
    later, hand = defer(PullTransformer), Hand()
    pull(values([1], on_stop=stops.append), later, hand.sink).start()
    hand.request("one")
    later.abort(cause)
    assert stops == [cause]
    assert hand.heard == [("one", cause or True)]


def test_who_waits_behind_a_deferred_transformer_waits_for_what_stands_before_it() -> None:
    later = defer(PullTransformer)
    run = pull(Manual().source, later, collect()).start()
    later.resolve(map(str))
    with pytest.raises(NeverAnswered) as raised:
        run.result()
    assert raised.value.modules == ("manual",)


def test_transformers_resolved_with_nothing_pass_values_on() -> None:
    later = defer(PullTransformer)
    run = pull(values([1]), later, collect()).start()
    later.resolve(PullTransformer(()))
    assert run.result() == [1]


# -- sinks --------------------------------------------------------------------------------------


def test_the_result_of_a_deferred_sink_is_that_of_the_pipeline() -> None:
    later = defer(PullSink)
    run = pull(values([1, 2]), later).start()
    assert not run.finished
    later.resolve(pull(map(str), collect()))
    assert run.result() == ["1", "2"]


def test_errors_name_the_sink_that_it_has_become() -> None:
    def broken(_value: int) -> None:
        raise OSError("x")

    later = defer(PullSink)
    run = pull(values([1]), later).start()
    later.resolve(drain(broken))
    with pytest.raises(OSError, match="x"):
        run.result()
    assert {module.name for module in run.modules} >= {"values", "drain"}


@pytest.mark.parametrize("cause", [None, OSError("x")])
def test_an_aborted_sink_stops_upstream(cause: Exception | None) -> None:
    stops: list[Exception | None] = []
    later = defer(PullSink)
    run = pull(values([1], on_stop=stops.append), later).start()
    later.abort(cause)
    assert stops == [cause]
    if cause is None:
        assert run.result() is None
    else:
        with pytest.raises(OSError, match="x"):
            run.result()


# -- duplexes -----------------------------------------------------------------------------------


def test_a_duplex_is_connected_with_both_its_halves() -> None:
    later = defer(PullDuplex)
    received = collect()
    run = pull(values([1, 2]), later, collect()).start()
    later.resolve(PullDuplex(values("ab"), received))
    assert run.result() == ["a", "b"]
    assert [1, 2] in run.results.values()


def test_an_aborted_duplex_stops_both_its_sides() -> None:
    stops: list[Exception | None] = []
    later = defer(PullDuplex)
    run = pull(values([1], on_stop=stops.append), later, collect()).start()
    later.abort()
    assert run.result() == []
    assert stops == [None]


# -- mistakes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [collect(), map(str), [1], None])
def test_the_kind_is_that_of_its_place(wrong: Any) -> None:
    later = defer(PullSource)
    with pytest.raises(NotComposable, match=r"defer\(PullSource\) cannot become"):
        later.resolve(wrong)
    later.resolve(empty())


def test_it_is_resolved_or_aborted_once() -> None:
    later = defer(PullSource)
    later.resolve(empty())
    with pytest.raises(AlreadyUsed, match="second time"):
        later.resolve(once(1))
    with pytest.raises(AlreadyUsed, match="second time"):
        later.abort()
    assert pull(later, collect()).run() == []


def test_another_thread_may_not_resolve_what_a_run_waits_for() -> None:
    later = defer(PullSource)
    run = pull(later, collect()).start()
    refused: list[WrongThread] = []

    def work() -> None:
        try:
            later.resolve(empty())
        except WrongThread as error:
            refused.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert "call_soon_threadsafe" in str(refused[0])
    later.resolve(once(1))
    assert run.result() == [1]


def test_other_kinds_are_refused() -> None:
    with pytest.raises(NotComposable, match="not a kind of module"):
        defer(int)  # type: ignore[call-overload]


# -- further sinks that open late ---------------------------------------------------------------


def test_a_sink_that_is_opened_beside_a_late_piece_does_not_give_the_result() -> None:
    """The late source brings a pipeline of its own along; the result is still that of the first sink."""
    later = defer(PullSource)
    run = pull(later, take(1), collect()).start()
    beside = pull(values([7]), collect())
    source = values([1, 2])
    later.resolve(PullSource(source.part, source.then, (beside,)))
    assert run.result() == [1]


# -- runs that were given up, and sinks with something behind ---------------------------------------


def test_a_run_that_was_given_up_is_not_connected_any_more() -> None:
    later, seen = defer(PullSource), list[int]()
    pipeline = pull(later, drain(seen.append))
    with pytest.raises(NeverAnswered):
        pipeline.run()
    later.resolve(values([1, 2]))
    assert seen == []
    pipeline.run()
    assert seen == [1, 2]


def test_a_run_that_was_given_up_in_another_thread_is_in_nobodys_way() -> None:
    later = defer(PullSource)
    pipeline = pull(later, collect())

    def give_up() -> None:
        with pytest.raises(NeverAnswered):
            pipeline.run()

    thread = threading.Thread(target=give_up)
    thread.start()
    thread.join()
    later.resolve(values([1, 2]))
    assert pipeline.run() == [1, 2]


@pytest.mark.parametrize("early", [True, False])
def test_a_sink_with_something_behind_it_gives_the_last_result(early: bool) -> None:
    later, middle = defer(PullSink), pair()
    sink = pull(map(lambda value: value + 1), middle, collect())
    if early:
        later.resolve(sink)
    both = together(pull(values([1, 2]), later), pull(once("beside"), collect())).start()
    one = pull(values([5]), later).start()
    if not early:
        later.resolve(sink)
    assert both.result() == ([2, 3], ["beside"])
    assert one.result() == [6]
