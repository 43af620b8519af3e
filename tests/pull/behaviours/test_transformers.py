"""The described behaviours of transformers: of ours, where the original is wrong."""

from __future__ import annotations

import asyncio
import re
from operator import itemgetter
from typing import Any

import pytest

from headrace.pull import (
    Pipeline,
    Recorder,
    Run,
    abortable,
    async_map,
    catch,
    collect,
    eager,
    filter,
    filter_not,
    limit,
    map,
    non_unique,
    paramap,
    probe,
    pull,
    recent,
    sliding,
    source,
    take,
    take_while,
    tap,
    through,
    unique,
    values,
)
from headrace.pull.protocol import AnswerTo, End
from headrace.testing.pull import VirtualRuntime
from tests.pull.core.modules import Hand, Manual
from tests.pull.described import case


def result(*pieces: Any) -> Any:
    return pull(*pieces, collect()).run()


def run_to_its_end(pipeline: Pipeline) -> Run:
    with VirtualRuntime() as runtime:
        run = pipeline.start(runtime)
    assert run.finished
    return run


def failing_after(error: Exception, *items: Any) -> Any:
    """A source of these items that then fails."""
    left = iter(items)

    def read(abort: End | None, answer: AnswerTo) -> None:
        for item in left if abort is None else ():
            answer(None, item)
            return
        answer(abort or error)

    return source(read)


# -- map -------------------------------------------------------------------------------------------


@case("map: order-preserving 1:1")
def test_map_keeps_the_order() -> None:
    assert result(values([0, 1, 2, 3]), map(lambda x: x * x)) == [0, 1, 4, 9]


@case("map: string argument is property access, regexp returns first match")
def test_map_takes_functions_that_get_an_item_or_match() -> None:
    assert result(values([{"a": 1}, {"a": 2}]), map(itemgetter("a"))) == [1, 2]
    first_number = re.compile(r"\d+").search
    found = map(lambda text: (match := first_number(text)) and match[0])
    assert result(values(["ab1", "x22"]), found) == ["1", "22"]


# -- async_map -------------------------------------------------------------------------------------


async def plus_one(x: int) -> int:
    return x + 1


@case("asyncMap: one element at a time, order kept")
def test_async_map_works_on_one_value_at_a_time_and_keeps_the_order() -> None:
    running: list[int] = []
    most: list[int] = []

    async def call(x: int) -> int:
        running.append(x)
        most.append(len(running))
        await asyncio.sleep(1)
        running.remove(x)
        return x + 1

    run = run_to_its_end(pull(values(range(100)), take(21), async_map(call), collect()))
    assert run.result() == [*range(1, 22)]
    assert max(most) == 1


@case("asyncMap: slow source acknowledgement keeps callback order")
def test_async_map_answers_the_ask_before_the_abort_however_slow_the_source_confirms() -> None:
    manual, hand = Manual(), Hand()
    pull(manual.source, async_map(plus_one), hand.sink).start()
    hand.request("ask")
    hand.request("abort", True)
    assert hand.heard == []
    manual.answer(1, True)
    assert hand.heard == [("ask", True), ("abort", True)]


@case("asyncMap: mapper error aborts the source with that error")
def test_an_error_of_the_function_fails_the_source_with_it() -> None:
    stopped: list[Exception | None] = []
    own = ValueError("own")

    async def fail(_x: int) -> int:
        raise own

    run = run_to_its_end(pull(values([1, 2, 3], on_stop=stopped.append), async_map(fail), collect()))
    assert (run.error, run.partial, stopped) == (own, [], [own])


@case("asyncMap: partial result kept on error")
def test_what_was_mapped_before_an_error_is_kept() -> None:
    async def fail_at_five(x: int) -> int:
        if x == 5:
            raise ValueError(x)
        return x

    run = run_to_its_end(pull(values(range(1, 9)), async_map(fail_at_five, width=3), collect()))
    assert run.partial == [1, 2, 3, 4]


@case("asyncMap: after abort every read answers the abort value without touching upstream")
def test_after_an_abort_upstream_is_left_alone() -> None:
    manual, hand = Manual(), Hand()
    pull(manual.source, async_map(plus_one), hand.sink).start()
    hand.request("abort", True)
    manual.answer(0, True)
    hand.request("ask")
    assert hand.heard == [("abort", True), ("ask", True)]
    assert manual.requests == [True]


@case("asyncMap with a synchronous callback is stack safe under drain")
def test_a_function_that_waits_for_nothing_needs_no_stack() -> None:
    pipeline = pull(values(range(20_000)), async_map(plus_one), collect())
    assert pipeline.run()[-1] == 20_000


# -- filter ----------------------------------------------------------------------------------------


@case("filter: regexp / property / default truthiness tests")
def test_filter_takes_any_function_and_tests_the_value_itself_by_default() -> None:
    assert result(values([0, 1, "", 2, None, 3]), filter()) == [1, 2, 3]
    assert result(values([{"a": 0}, {"a": 1}]), filter(itemgetter("a"))) == [{"a": 1}]
    assert result(values(["hat", "hen"]), filter(re.compile("^[^e]+$", re.I).search)) == ["hat"]


@case("filter: a throwing predicate is not caught")
def test_an_exception_of_the_test_fails_the_stream_on_both_sides() -> None:
    stopped: list[Exception | None] = []
    own = ValueError("own")

    def test(x: int) -> bool:
        if x == 2:
            raise own
        return True

    run = pull(values([1, 2, 3], on_stop=stopped.append), filter(test), collect()).start()
    assert (run.error, run.partial, stopped) == (own, [1], [own])


@case("filterNot inverts")
def test_filter_not_is_the_other_half() -> None:
    no_e = re.compile("^[^e]+$", re.I).search
    assert result(values(["hat", "hen"]), filter_not(no_e)) == ["hen"]


@case("filter is stack safe when rejecting synchronously")
def test_a_million_refused_values_need_no_stack() -> None:
    assert result(values(range(1_000_000)), filter(lambda _x: False)) == []


# -- unique ----------------------------------------------------------------------------------------

REPEATING = [1, 2, 2, 3, 4, 5, 6, 4, 0, 6, 7, 8, 3, 1, 2, 9, 0]


@case("unique keeps first occurrences")
def test_unique_keeps_the_first_of_each() -> None:
    assert result(values(REPEATING), unique()) == [1, 2, 3, 4, 5, 6, 0, 7, 8, 9]


@case("nonUnique keeps every repeat occurrence")
def test_non_unique_keeps_all_but_the_first_of_each() -> None:
    assert result(values(REPEATING), non_unique()) == [2, 4, 6, 3, 1, 2, 0]


@case("unique keys are JS strings")
def test_keys_are_compared_as_python_does() -> None:
    assert result(values([1, "1", 2, 1.0]), unique()) == [1, "1", 2]
    assert result(values([{"a": 1}, {"a": 2}]), unique(itemgetter("a"))) == [{"a": 1}, {"a": 2}]


# -- take ------------------------------------------------------------------------------------------


@case("take(n): n values, n asks upstream for values")
def test_take_asks_for_as_many_values_as_it_gives() -> None:
    recorder = Recorder()
    assert result(values(range(1, 11)), probe(recorder), take(5)) == [1, 2, 3, 4, 5]
    asks = [event for event in recorder.trace().texts() if event.startswith("D:ask")]
    assert len(asks) == 5


@case("take(n) aborts upstream only on the ask after the last value")
@pytest.mark.parametrize("first", [take(3), take_while(lambda d: d < 3, last=True)])
def test_the_ask_after_the_last_value_aborts(first: Any) -> None:
    stopped: list[Exception | None] = []
    hand = Hand()
    pull(values([1, 2, 3, 4, 5], on_stop=stopped.append), first, hand.sink).start()
    for ask in "abc":
        hand.request(ask)
        assert stopped == []
    hand.request("d")
    assert stopped == [None]
    assert hand.heard == [("a", 1), ("b", 2), ("c", 3), ("d", True)]


@case("take(test) excludes the failing item by default, includes it with {last:true}")
def test_the_value_that_fails_the_test_is_left_out_or_the_last() -> None:
    assert result(values(range(1, 11)), take_while(lambda n: n < 5)) == [1, 2, 3, 4]
    assert result(values(range(1, 11)), take_while(lambda n: n < 5, last=True)) == [1, 2, 3, 4, 5]


@case("take(0) and take(-1) never stop")
@pytest.mark.parametrize("count", [0, -1])
def test_take_of_nothing_is_empty_and_asks_nothing(count: int) -> None:
    manual, hand = Manual(), Hand()
    pull(manual.source, take(count), hand.sink).start()
    hand.request("ask")
    assert manual.requests == [True]
    manual.answer(0, True)
    assert hand.heard == [("ask", True)]


@case("take: an error raised while aborting is delivered downstream")
@pytest.mark.parametrize("first", [take(1), take_while(lambda _x: False, last=True)])
def test_what_closing_fails_with_is_the_answer_of_the_last_ask(first: Any) -> None:
    own = ValueError("while closing")

    def read(abort: End | None, answer: AnswerTo) -> None:
        answer(own if abort else None, "value")

    run = pull(source(read), first, collect()).start()
    assert (run.error, run.partial) == (own, ["value"])


@case("take: concurrent abort makes a second upstream abort")
@pytest.mark.parametrize("first", [take(1), take_while(lambda _x: False, last=True)])
def test_upstream_is_aborted_once_however_often_downstream_stops(first: Any) -> None:
    manual, hand = Manual(), Hand()
    pull(manual.source, first, hand.sink).start()
    hand.request("ask1")
    hand.request("ask2")
    hand.request("abort3", True)
    assert manual.requests[-1] is True
    for at in range(len(manual.requests)):
        manual.answer(at, True if manual.requests[at] else None, "value")
    assert manual.requests.count(True) == 1
    assert hand.heard == [("ask1", True), ("ask2", True), ("abort3", True)]


# -- through ---------------------------------------------------------------------------------------


@case("through(op,onEnd): onEnd once, null for normal end or abort(true), the error otherwise")
def test_the_end_is_told_once_as_none_or_the_error() -> None:
    own = ValueError("own")
    told: list[Any] = []
    seen: list[Any] = []
    assert result(values([1]), through(seen.append, told.append)) == [1]
    assert (seen, told) == ([1], [None])
    pull(failing_after(own), through(on_end=told.append), collect()).start()
    assert told == [None, own]
    assert result(values([1, 2, 3]), through(on_end=told.append), take(2)) == [1, 2]
    assert told == [None, own, None]


# -- others ----------------------------------------------------------------------------------------


@case("paramap: first error ends the stream at the next drain")
def test_the_first_error_of_paramap_ends_the_stream_after_what_came_before() -> None:
    own = ValueError("own")

    def fail_at_two(x: int) -> int:
        if x == 2:
            raise own
        return x

    run = pull(values([1, 2, 3]), paramap(fail_at_two, width=3), collect()).start()
    with pytest.raises(ValueError, match="own"):
        run.wait()
    assert (run.error, run.partial) == (own, [1])


@case("abortable.abort(): onEnd, sink done, then upstream abort")
@pytest.mark.parametrize("cause", [None, ValueError("own")])
def test_an_abort_from_beside_closes_upstream_first_then_tells_then_ends_downstream(
    cause: Exception | None,
) -> None:
    order: list[Any] = []
    manual = Manual()
    stop = abortable(on_end=lambda error: order.append(("told", error)))
    run = pull(manual.source, stop, collect()).start()
    run.when_finished(lambda run: order.append(("finished", run.error)))
    stop.abort(cause)
    assert manual.requests == [None, cause or True]
    assert order == []
    manual.answer(1, cause or True)
    assert order == [("told", cause), ("finished", cause)]


@case("window.sliding(reduce,3)")
def test_a_sliding_window_drops_what_is_not_complete() -> None:
    def found(window: list[int]) -> dict[str, int]:
        return {"start": window[0], "data": sum(window)}

    assert result(values([1, 2, 3, 4, 5]), sliding(3, found)) == [
        {"start": 1, "data": 6},
        {"start": 2, "data": 9},
        {"start": 3, "data": 12},
    ]


@case("window.recent(2): tumbling, last partial window emitted at end")
def test_the_last_recent_window_may_be_shorter() -> None:
    assert result(values([1, 2, 3, 4, 5]), recent(2)) == [[1, 2], [3, 4], [5]]


@case("catch: onError false passes the error; truthy value is emitted then end; else ends normally")
@pytest.mark.parametrize(
    ("outcome", "end", "found"),
    [(False, "own", [0]), ("V", None, [0, "V"]), (None, None, [0]), (True, None, [0])],
)
def test_a_handler_passes_the_error_or_gives_a_value_or_ends(
    outcome: Any, end: str | None, found: Any
) -> None:
    own = ValueError("own")
    run = pull(failing_after(own, 0), catch(lambda _error: outcome), collect()).start()
    if end is None:
        assert run.result() == found
    else:
        assert (run.error, run.partial) == (own, found)


@case("eager-buffer drains input first; limit() restores one-in one-out")
def test_a_limit_bounds_what_is_inside_of_an_eager_buffer() -> None:
    def order(inner: Any) -> str:
        seen: list[str] = []
        into, out = tap(lambda x: seen.append(f"in{x}")), tap(lambda x: seen.append(f"out{x}"))
        assert result(values([0, 1, 2]), inner(pull(into, eager(9))), out) == [0, 1, 2]
        return " ".join(seen)

    assert order(lambda inner: inner) == "in0 in1 in2 out0 out1 out2"
    assert order(lambda inner: limit(inner, 1)) == "in0 out0 in1 out1 in2 out2"


@pytest.mark.parametrize("count", [1, 2, 5])
def test_no_more_is_inside_of_a_limit_than_it_says_and_no_less_where_the_inside_is_eager(count: int) -> None:
    entered: list[int] = []
    hand = Hand()
    inner = limit(pull(tap(entered.append), eager(9)), count)
    pull(values(range(100)), inner, hand.sink).start()
    assert entered == []
    for taken in range(1, 20):
        hand.request("ask")
        assert hand.heard[-1] == ("ask", taken - 1)
        assert len(entered) == taken + count
