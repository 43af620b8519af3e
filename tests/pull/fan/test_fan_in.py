"""merge, many and sorted_merge: who is asked when, and how they end."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from headrace.errors import BadOption
from headrace.pull import (
    PullSink,
    PullSource,
    Recorder,
    batch,
    closing_handshake,
    collect,
    empty,
    error,
    fork,
    many,
    map,
    merge,
    probe,
    pull,
    sorted_merge,
    take,
    tee,
    together,
    values,
)
from headrace.pull.errors import AlreadyUsed, NeverAnswered, NotComposable, NotSorted
from headrace.pull.rules.checker import PROFILES, check
from headrace.testing import VirtualRuntime, reference_source
from tests.pull.core.modules import Hand, Manual, delay


class Failure(Exception):
    pass


ALL = pytest.mark.parametrize(
    "join", [merge, lambda *sources: many(sources), sorted_merge], ids=["merge", "many", "sorted_merge"]
)


@ALL
def test_nothing_is_asked_before_somebody_asks(join: Any) -> None:
    first, second, hand = Manual(), Manual(), Hand()
    pull(join(first.source, second.source), hand.sink).start()
    assert first.requests == second.requests == []
    hand.request("ask")
    assert first.requests == second.requests == [None]


@ALL
@pytest.mark.parametrize("second", [empty, lambda: error(Failure("second"))], ids=["done", "error"])
def test_an_input_that_has_ended_is_not_stopped_when_another_one_fails(
    join: Any, second: Callable[[], PullSource]
) -> None:
    recorder = Recorder()
    run = pull(join(error(Failure("first")), pull(second(), probe(recorder))), collect()).start()
    assert run.error is not None
    assert run.error.args == ("first",)
    assert len(recorder.events) == 2
    assert [check(recorder.trace(), profile) for profile in PROFILES] == [(), (), ()]


@ALL
@pytest.mark.parametrize("stop", [True, Failure("stop")])
def test_a_stop_reaches_every_input_once_and_waits_for_all(join: Any, stop: Any) -> None:
    first, second, hand = Manual(), Manual(), Hand()
    pull(join(first.source, second.source, values()), hand.sink).start()
    hand.request("ask")
    hand.request("stop", stop)
    hand.request("stop again", stop)
    assert first.requests == second.requests == [None, stop]
    first.answer(1, stop)
    assert hand.heard == []
    second.answer(1, stop)
    assert hand.heard == [("ask", stop), ("stop", stop), ("stop again", stop)]


@ALL
def test_an_error_is_answered_when_the_others_have_confirmed(join: Any) -> None:
    first, second, hand = Manual(), Manual(), Hand()
    pull(join(first.source, second.source), hand.sink).start()
    hand.request("ask")
    cause = Failure("first")
    first.answer(0, cause)
    assert second.requests == [None, cause]
    assert hand.heard == []
    second.answer(1, Failure("second"))
    assert hand.heard == [("ask", cause)]
    assert cause.__notes__ == ["then, while closing: Failure: second"]


@ALL
def test_errors_while_closing_answer_the_abort(join: Any) -> None:
    first, second, hand = Manual(), Manual(), Hand()
    pull(join(first.source, second.source), hand.sink).start()
    hand.request("abort", True)
    cause = Failure("first")
    first.answer(0, cause)
    second.answer(0, Failure("second"))
    assert hand.heard == [("abort", cause)]
    assert cause.__notes__ == ["then, while closing: Failure: second"]


@ALL
def test_many_thousand_inputs_are_one_stream(join: Any) -> None:
    found = pull(join(*(values([at]) for at in range(3_000))), collect()).run()
    assert sorted(found) == [*range(3_000)]


@ALL
def test_inputs_work_at_once(join: Any) -> None:
    runtime = VirtualRuntime()
    sources = [pull(values(range(10)), delay(1), delay(1)) for _ in range(3)]
    run = pull(join(*sources), collect()).start(runtime)
    assert len(run.wait()) == 30
    assert runtime.now() == pytest.approx(11, abs=5)  # each alone: 11; one after the other: 33


# --- merge -------------------------------------------------------------------------------------


def test_values_go_on_in_the_order_in_which_they_come() -> None:
    slow = pull(values("abc"), delay(2))
    quick = pull(values([1, 2, 3, 4]), delay(1.5))
    run = pull(merge(slow, quick), collect()).start(VirtualRuntime())
    assert run.wait() == [1, "a", 2, "b", 3, 4, "c"] or run.wait() == [1, "a", 2, "b", 3, "c", 4]


def test_an_input_that_never_answers_holds_up_no_other() -> None:
    silent, hand = Manual(), Hand()
    pull(merge(silent.source, values("ab")), hand.sink).start()
    hand.request("1")
    hand.request("2")
    hand.request("3")
    assert hand.heard == [("1", "a"), ("2", "b")]
    silent.answer(0, True)
    assert hand.heard[2:] == [("3", True)]


def test_each_input_is_read_one_value_ahead_and_no_more() -> None:
    first, second, hand = Manual(), Manual(), Hand()
    pull(merge(first.source, second.source), hand.sink).start()
    hand.request("1")
    first.answer(0, None, "a")
    second.answer(0, None, "b")
    assert (first.requests, second.requests) == ([None, None], [None])
    first.answer(1, None, "c")
    assert (first.requests, second.requests) == ([None, None], [None])
    hand.request("2")
    hand.request("3")
    assert hand.heard == [("1", "a"), ("2", "b"), ("3", "c")]


def test_batches_of_inputs_take_turns_and_one_request_is_filled_from_several() -> None:
    merged = merge(values("aaaa"), values("bbbb"), values("c"))
    assert pull(merged, collect(batch=2)).run() == [*"aabbcabba"]
    assert pull(merged, collect(batch=100)).run() == [*"aaaabbbbc"]


# --- many --------------------------------------------------------------------------------------


def test_sources_are_added_before_during_and_between_runs() -> None:
    inputs = many([values("a")], open_ended=True)
    inputs.add(values("b"))
    first, second = (pull(inputs, collect()).start() for _ in range(2))
    inputs.add(values("c"))
    inputs.cap()
    assert inputs.capped
    assert first.result() == ["a", "b", "c"]
    assert second.result() == ["a", "c"]  # what was added before went to the first
    assert pull(inputs, collect()).run() == ["a"]


def test_what_is_added_is_asked_at_once_where_somebody_waits() -> None:
    inputs, later, hand = many(open_ended=True), Manual(), Hand()
    pull(inputs, hand.sink).start()
    inputs.add(later.source)
    assert later.requests == []
    hand.request("ask")
    assert later.requests == [None]
    another = Manual()
    inputs.add(another.source)
    assert another.requests == [None]
    another.answer(0, None, "x")
    assert hand.heard == [("ask", "x")]


def test_nothing_is_added_to_a_capped_stream() -> None:
    inputs = many(open_ended=True)
    inputs.cap()
    inputs.cap()
    with pytest.raises(AlreadyUsed):
        inputs.add(values())
    with pytest.raises(AlreadyUsed):
        many([values()]).add(values())
    assert pull(inputs, collect()).run() == []


def test_what_is_added_while_it_closes_is_not_opened() -> None:
    inputs, slow, hand = many(open_ended=True), Manual(), Hand()
    run = pull(inputs, hand.sink).start()
    inputs.add(slow.source)
    hand.request("abort", True)
    late = Manual()
    inputs.add(late.source)
    slow.answer(0, True)
    assert hand.heard == [("abort", True)]
    assert late.module is None
    assert hand.module is not None
    hand.module.done()
    assert run.finished


def test_an_aborted_open_ended_stream_ends_though_it_is_not_capped() -> None:
    inputs = many([values("abc")], open_ended=True)
    assert pull(inputs, take(2), collect()).run() == ["a", "b"]


def test_a_run_that_was_given_up_gets_nothing_more() -> None:
    inputs = many(open_ended=True)
    with pytest.raises(NeverAnswered, match="'many'"):
        pull(inputs, collect()).run()
    inputs.add(values("a"))
    inputs.cap()
    assert pull(inputs, collect()).run() == ["a"]


def test_inputs_that_have_ended_are_forgotten() -> None:
    inputs = many(open_ended=True)
    run = pull(inputs, collect()).start()
    sources = [values([at]) for at in range(3)]
    seen = [weakref.ref(source.part) for source in sources] if hasattr(sources[0].part, "__weakref__") else []
    for source in sources:
        inputs.add(source)
    assert [module.name for module in run.modules] == ["many", "collect"]
    del sources, source
    gc.collect()
    assert not any(ref() for ref in seen)
    inputs.cap()
    assert run.result() == [0, 1, 2]


# --- sorted_merge ------------------------------------------------------------------------------


def test_a_value_waits_until_every_input_has_shown_its_next() -> None:
    first, second, hand = Manual(), Manual(), Hand()
    pull(sorted_merge(first.source, second.source), hand.sink).start()
    hand.request("1")
    first.answer(0, None, 5)
    assert hand.heard == []
    second.answer(0, None, 7)
    assert hand.heard == [("1", 5)]
    assert (first.requests, second.requests) == ([None], [None])  # more is asked for when more is wanted
    hand.request("2")
    assert (first.requests, second.requests) == ([None, None], [None])
    first.answer(1, True)
    assert hand.heard[1:] == [("2", 7)]


@pytest.mark.parametrize(("equal", "expected"), [("both", "abcdwxyz"), ("left", "ab"), ("right", "yz")])
@pytest.mark.parametrize("batch", [1, 3, 100])
def test_of_equal_keys_all_go_on_or_those_of_one_source(equal: Any, expected: str, batch: int) -> None:
    sources = values("ab"), values("cd"), values("wx"), values("yz")
    merged = sorted_merge(*sources, key=lambda _: 0, equal=equal)
    assert "".join(pull(merged, collect(batch=batch)).run()) == expected


def test_a_key_that_comes_again_in_one_source_is_kept() -> None:
    left, right = values([1, 1, 2]), values([1, 2, 2])
    assert pull(sorted_merge(left, right, equal="left"), collect()).run() == [1, 1, 2]
    assert pull(sorted_merge(left, right, equal="right"), collect()).run() == [1, 2, 2]


def test_values_that_cannot_be_compared_need_only_a_key() -> None:
    pairs = sorted_merge(values([(1, {})]), values([(1, {}), (2, {})]), key=lambda pair: pair[0])
    assert pull(pairs, collect()).run() == [(1, {}), (1, {}), (2, {})]


@pytest.mark.parametrize("batch", [1, 50])
def test_a_source_that_is_not_sorted_fails_all(batch: int) -> None:
    told: list[Exception | None] = []
    sources = values([1, 3, 2]), values([1, 9, 10], on_stop=told.append)
    run = pull(sorted_merge(*sources), collect(batch=batch)).start()
    with pytest.raises(NotSorted) as raised:
        run.result()
    assert (raised.value.source, raised.value.key, raised.value.after) == (0, 2, 3)
    assert run.partial == [1, 1, 3]
    assert told == [raised.value]


def test_what_the_key_raises_fails_all() -> None:
    told: list[Exception | None] = []
    sources = values(["x", 1]), values(["y"], on_stop=told.append)
    run = pull(sorted_merge(*sources, key=str.upper), collect()).start()
    with pytest.raises(TypeError) as raised:
        run.result()
    assert told == [raised.value]


def test_keys_that_cannot_be_compared_fail_all() -> None:
    with pytest.raises(TypeError):
        pull(sorted_merge(values([1]), values(["x"])), collect()).run()


def test_what_to_do_with_equal_keys_is_one_of_three() -> None:
    with pytest.raises(BadOption):
        sorted_merge(equal="all")  # type: ignore[arg-type]


def test_an_error_of_the_only_input_comes_after_its_values() -> None:
    run = pull(sorted_merge(reference_source(2, Failure("end"))), collect()).start()
    with pytest.raises(Failure, match="end"):
        run.result()
    assert run.partial == [1, 2]


@pytest.mark.parametrize(
    "build",
    [
        lambda thing: merge(values(), thing),
        lambda thing: sorted_merge(values(), thing),
        lambda thing: many([values(), thing]),
        lambda thing: many(open_ended=True).add(thing),
        lambda thing: tee(thing),
        lambda thing: fork(thing, bool),
        lambda thing: together(thing),
        lambda thing: closing_handshake(thing),
    ],
)
@pytest.mark.parametrize("thing", [[1, 2], None, collect(), map(abs)])
def test_what_is_of_the_wrong_kind_is_named_where_it_is_written(build: Any, thing: Any) -> None:
    with pytest.raises(NotComposable) as raised:
        build(thing)
    assert raised.value.where[0].location.file == __file__


def test_pieces_of_pieces() -> None:
    def evens(source: PullSource) -> PullSource:
        return pull(source, map(lambda n: 2 * n))

    def all_of(*sources: PullSource) -> PullSink | Any:
        return pull(merge(*sources), collect())

    merged = sorted_merge(merge(evens(values([1, 2]))), sorted_merge(values([1, 3]), values([])))
    assert all_of(merged).run() == [1, 2, 3, 4]
    with pytest.raises(Failure):
        all_of(merged, error(Failure())).run()


@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize("lists", [1, 2, 3])
def test_the_values_of_one_source_stay_in_order_whatever_is_asked_for(window: int, lists: int) -> None:
    joined = pull(many([values(range(30))]), batch(3), collect(batch=lists))
    assert joined.run(window=window) == [list(range(at, at + 3)) for at in range(0, 30, 3)]
