"""The described cases about modules with several streams on one side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.pull import (
    Pipeline,
    PullDuplex,
    PullSource,
    cat,
    closing_handshake,
    collect,
    error,
    flatten,
    many,
    notify,
    pair,
    pull,
    sorted_merge,
    take,
    together,
    values,
)
from headrace.pull.errors import NeverAnswered
from tests.pull.core.modules import Hand, Manual
from tests.pull.described import case


class Failure(Exception):
    pass


def fails(pipeline: Pipeline, cause: Exception) -> Any:
    """Run a pipeline that fails with this cause; what its sink held."""
    run = pipeline.start()
    with pytest.raises(type(cause)) as raised:
        run.result()
    assert raised.value is cause
    return run.partial


def noting(heard: list[Any], name: str) -> Callable[[Exception | None], object]:
    return lambda stopped: heard.append((name, stopped))


@case("flatten: arrays, streams, scalars, objects")
def test_flatten_gives_what_collections_and_streams_contain_and_other_values_as_they_are() -> None:
    items = [[1, 2], 3, values([4]), "s", None]
    assert pull(values(items), flatten(), collect()).run() == [1, 2, 3, 4, "s"]
    assert pull(values([{"x": 1, "y": 2}]), flatten(), collect()).run() == [1, 2]


@case("flatten: an inner error aborts the outer stream (with true), then answers the error")
def test_an_inner_error_aborts_the_outer_stream_and_is_answered_then() -> None:
    heard: list[Any] = []
    cause = Failure("inner")
    outer = values([values([1]), error(cause), values([2])], on_stop=noting(heard, "outer"))
    assert fails(pull(outer, flatten(), collect()), cause) == [1]
    assert heard == [("outer", None)]


@case("flatten: abort goes to the current inner stream, then the outer one; queued inner streams untouched")
def test_an_abort_closes_the_inner_stream_then_the_outer_one_and_no_other() -> None:
    heard: list[Any] = []
    first = values([1, 2], on_stop=noting(heard, "first"))
    second = values([3], on_stop=noting(heard, "second"))
    outer = values([first, second], on_stop=noting(heard, "outer"))
    hand = Hand()
    pull(outer, flatten(), hand.sink).start()
    hand.request("ask")
    hand.request("abort", True)
    assert hand.heard == [("ask", 1), ("abort", True)]
    assert heard == [("first", None), ("outer", None)]


@case("pull of a duplex: s.sink(read); read = s.source")
def test_a_duplex_in_a_pipeline_stands_for_its_sink_and_then_its_source() -> None:
    duplex = PullDuplex(values(["its", "source"]), collect())
    pipeline = pull(values([1, 2]), duplex, collect())
    assert together(pipeline).run() == (["its", "source"],)
    run = pipeline.start()
    assert list(run.results.values()) == [[1, 2], ["its", "source"]]


@case("many: round robin over synchronous inputs, keeps each input order")
def test_inputs_that_answer_at_once_take_turns() -> None:
    assert pull(many([values([1, 3, 5]), values([2, 4, 6])]), collect()).run() == [1, 2, 3, 4, 5, 6]
    # Where an input ends, the original passes over the one that is next.
    unequal = many([values(["a1", "a2", "a3"]), values(["b1"]), values(["c1", "c2"])])
    assert pull(unequal, collect()).run() == ["a1", "b1", "c1", "a2", "c2", "a3"]


@case("many: error of one input aborts the others and ends with the error")
def test_an_input_that_fails_fails_the_others_with_its_error() -> None:
    heard: list[Any] = []
    cause = Failure("input")
    inputs = many([values([1, 2], on_stop=noting(heard, "values")), error(cause)])
    assert fails(pull(inputs, collect()), cause) == [1]  # the original loses what came before the error
    assert heard == [("values", cause)]


@case("many(): open until cap()")
def test_many_that_is_open_ended_stays_open_until_it_is_capped() -> None:
    inputs = many(open_ended=True)
    run = pull(inputs, collect()).start()
    inputs.add(values([1, 2]))
    assert not run.finished
    with pytest.raises(NeverAnswered, match="'many'"):
        run.result()
    inputs.add(values([3]))
    inputs.cap()
    assert run.result() == [1, 2, 3]


@case("many reads one item ahead from every input")
def test_the_first_request_asks_every_input_once() -> None:
    manuals = [Manual(), Manual(), Manual()]
    hand = Hand()
    pull(many([manual.source for manual in manuals]), hand.sink).start()
    assert [manual.requests for manual in manuals] == [[], [], []]
    hand.request("ask")
    assert [manual.requests for manual in manuals] == [[None], [None], [None]]
    manuals[1].answer(0, None, "b")
    assert hand.heard == [("ask", "b")]
    assert [manual.requests for manual in manuals] == [[None], [None, None], [None]]


def letters(*sources: PullSource, equal: Any = "both") -> list[Any]:
    return pull(sorted_merge(*sources, key=lambda pair: pair[0], equal=equal), collect()).run()


@case("merge: sorted merge; equal keys emit only the right one")
def test_sorted_streams_are_merged_and_equal_keys_are_both_there() -> None:
    assert pull(sorted_merge(values([1, 3, 5]), values([2, 4, 6])), collect()).run() == [1, 2, 3, 4, 5, 6]
    # The original loses the left one.
    left, right = values([(1, "L")]), values([(1, "R")])
    assert letters(left, right) == [(1, "L"), (1, "R")]
    assert letters(left, right, equal="right") == [(1, "R")]
    assert letters(left, right, equal="left") == [(1, "L")]


@case("merge: an error of one input is swallowed")
def test_an_error_of_a_sorted_input_is_not_swallowed() -> None:
    heard: list[Any] = []
    cause = Failure("input")
    inputs = sorted_merge(error(cause), values([1, 2], on_stop=noting(heard, "values")))
    assert fails(pull(inputs, collect()), cause) == []
    assert heard == [("values", cause)]


@case("merge: abort aborts both inputs, waits for both")
def test_an_abort_of_a_sorted_merge_waits_for_all_inputs() -> None:
    heard: list[Any] = []
    odd = values([1, 3, 5], on_stop=noting(heard, "odd"))
    even = values([2, 4, 6], on_stop=noting(heard, "even"))
    assert pull(sorted_merge(odd, even), take(4), collect()).run() == [1, 2, 3, 4]
    assert heard == [("odd", None), ("even", None)]

    slow = Manual()
    hand = Hand()
    pull(sorted_merge(slow.source, values([2])), hand.sink).start()
    hand.request("abort", True)
    assert hand.heard == []
    slow.answer(0, True)
    assert hand.heard == [("abort", True)]


@case("notify: broadcast to listeners from the moment they listen; end() ends all")
def test_everybody_hears_what_is_pushed_from_when_they_listen() -> None:
    news = notify()
    early = pull(news.listen(), collect()).start()
    news.push(1)
    late = pull(news.listen(), collect()).start()
    news.push(2)
    news.end()
    assert early.result() == [1, 2]
    assert late.result() == [2]


@case("goodbye: on source end send GOODBYE and wait for the peer GOODBYE before ending")
def test_neither_end_of_a_line_ends_before_the_other_has_said_goodbye() -> None:
    first, second = Manual(), Manual()
    one = closing_handshake(PullDuplex(first.source, collect()))
    other = closing_handshake(PullDuplex(second.source, collect()))
    run = together(pull(one, other, one)).start()
    first.answer(0, None, 1)
    second.answer(0, None, 2)
    first.answer(1, True)
    assert not run.finished
    second.answer(1, True)
    assert run.finished
    assert [1] in run.results.values()
    assert [2] in run.results.values()

    same = closing_handshake(PullDuplex(values([1, 2, 3]), collect()))
    peer = closing_handshake(PullDuplex(values([1, 2, 3]), collect()))
    run = pull(same, peer, same).start()
    assert [result for result in run.results.values() if result is not None] == [[1, 2, 3], [1, 2, 3]]


def test_the_halves_of_a_pair_are_joined() -> None:
    line = pair()
    assert together(pull(values([1, 2]), line.sink), pull(line.source, collect())).run() == (None, [1, 2])


@case("next: sequence of lazily created streams")
def test_streams_that_are_made_one_after_the_other_when_they_are_wanted() -> None:
    made: list[str] = []

    def streams() -> Iterator[PullSource]:
        for letters in ("ab", "c", "never"):
            made.append(letters)
            yield values(letters)

    hand = Hand()
    pull(cat(streams()), hand.sink).start()
    for name in "123":
        hand.request(name)
    assert hand.heard == [("1", "a"), ("2", "b"), ("3", "c")]
    assert made == ["ab", "c"]
    assert pull(flat_stream(), collect()).run() == ["a", "b", "c"]


def flat_stream() -> PullSource:
    """The same with a function: what is no source ends the sequence."""
    stock: list[Any] = [values("ab"), values("c"), None]
    return cat(iter(lambda: stock.pop(0), None))
