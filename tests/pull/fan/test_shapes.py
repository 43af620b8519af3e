"""Every shape in which duplexes are composed: what comes of it, that it is lazy, that it runs again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.pull import (
    Pipeline,
    PullDuplex,
    PullSink,
    PullSource,
    PullTransformer,
    closing_handshake,
    collect,
    defer,
    duplex_pair,
    error,
    flat_map,
    map,
    pair,
    pull,
    pushable,
    sink,
    source,
    take,
    together,
    values,
)
from headrace.pull.errors import NotComposable
from headrace.pull.protocol import AnswerTo, End, Read


class Failure(Exception):
    pass


class Peer:
    """A duplex that sends letters of its own, and keeps what it is sent, run by run."""

    def __init__(self, letters: str) -> None:
        self.got: list[list[Any]] = []
        self.opened = 0
        self.duplex = PullDuplex(source(self._counted(letters)), sink(self._keep), letters)

    def _counted(self, letters: str) -> Read:
        left = iter(())

        def read(abort: End | None, answer: AnswerTo) -> None:
            nonlocal left
            value = next(left, None)
            if value is None and abort is None and self.opened < len(self.got):
                self.opened += 1
                left = iter(letters)
                value = next(left, None)
            answer(abort or (True if value is None else None), value)

        return read

    def _keep(self, read: Read) -> None:
        mine: list[Any] = []
        self.got.append(mine)

        def got(end: End | None, value: Any = None, /) -> None:
            if end is None:
                mine.append(value)
                read(None, got)

        read(None, got)


def sent(letters: str) -> PullSource:
    return values(letters)


def shout() -> PullTransformer:
    return map(str.upper)


def mark(text: str) -> PullTransformer:
    return map(lambda letter: letter + text)


def test_each_shape_is_a_piece_of_its_kind() -> None:
    a, b = Peer("ab").duplex, Peer("xy").duplex
    shapes: list[tuple[tuple[Any, ...], type]] = [
        ((a,), PullDuplex),
        ((a, b), PullDuplex),
        ((a, shout(), b), PullDuplex),
        ((shout(), a), PullDuplex),
        ((a, shout()), PullDuplex),
        ((shout(), a, shout(), b, shout()), PullDuplex),
        ((sent("c"), a), PullSource),
        ((sent("c"), shout(), a, shout()), PullSource),
        ((sent("c"), a, b), PullSource),
        ((a, collect()), PullSink),
        ((shout(), a, shout(), collect()), PullSink),
        ((a, b, collect()), PullSink),
        ((sent("c"), a, collect()), Pipeline),
        ((sent("c"), a, shout(), b, collect()), Pipeline),
        ((a, b, a), Pipeline),
        ((a, shout(), b, shout(), a), Pipeline),
        ((a, shout(), a), Pipeline),
        ((a, a), Pipeline),
    ]
    for pieces, kind in shapes:
        assert isinstance(pull(*pieces), kind), pieces


def test_composing_and_splitting_shapes_does_nothing() -> None:
    a, b = Peer("ab"), Peer("xy")
    pull(a.duplex, shout(), b.duplex, a.duplex)
    pull(sent("c"), a.duplex, b.duplex, collect())
    assert a.got == b.got == []


def test_a_loop_of_two_is_two_pipelines() -> None:
    a, b = Peer("ab"), Peer("xyz")
    pull(a.duplex, mark("1"), b.duplex, mark("2"), a.duplex).run()
    assert b.got == [["a1", "b1"]]
    assert a.got == [["x2", "y2", "z2"]]


def test_a_loop_of_three_goes_round() -> None:
    a, b, c = Peer("a"), Peer("b"), Peer("c")
    pull(a.duplex, b.duplex, c.duplex, a.duplex).run()
    assert (a.got, b.got, c.got) == ([["c"]], [["a"]], [["b"]])


def test_a_duplex_in_a_loop_with_itself_gets_what_it_sends() -> None:
    a = Peer("ab")
    pull(a.duplex, shout(), a.duplex).run()
    pull(a.duplex, a.duplex).run()
    assert a.got == [["A", "B"], ["a", "b"]]


def splits(pieces: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """All ways to put neighbouring pieces into one piece first."""
    return [
        (*pieces[:first], pull(*pieces[first:last]), *pieces[last:])
        for first in range(len(pieces))
        for last in range(first + 1, len(pieces) + 1)
        if last - first < len(pieces)
    ]


@pytest.mark.parametrize("way", range(20))
def test_however_it_is_put_together_it_does_the_same(way: int) -> None:
    a, b = Peer("ab"), Peer("xy")
    ways = splits((sent("cd"), mark("0"), a.duplex, mark("1"), b.duplex, collect()))
    assert len(ways) == 20
    assert pull(*ways[way]).run() == ["x", "y"]
    assert (a.got, b.got) == ([["c0", "d0"]], [["a1", "b1"]])


@pytest.mark.parametrize(
    "joined", [lambda a, b: (pull(a, b), collect()), lambda a, b: (a, pull(b, collect()))]
)
def test_partial_duplexes_mean_what_the_whole_means(joined: Callable[..., tuple[Any, ...]]) -> None:
    a, b = Peer("ab"), Peer("xy")
    assert pull(sent("c"), *joined(a.duplex, b.duplex)).run() == ["x", "y"]
    assert (a.got, b.got) == ([["c"]], [["a", "b"]])


def test_shapes_can_be_run_again() -> None:
    a, b = Peer("ab"), Peer("xy")
    loop = pull(a.duplex, b.duplex, a.duplex)
    loop.run()
    loop.run()
    assert a.got == [["x", "y"]] * 2
    assert b.got == [["a", "b"]] * 2


@pytest.mark.parametrize(
    "shape",
    [
        lambda line: pull(sent("abc"), line, collect()),
        lambda line: pull(pull(sent("abc"), line), collect()),
        lambda line: pull(sent("abc"), pull(line, collect())),
        lambda line: pull(sent("abc"), shout(), map(str.lower), pull(line, pair()), collect()),
        lambda line: pull(sent("abc"), pair(), pair(), line, collect()),
    ],
)
def test_pairs_in_every_shape_pass_everything_on_and_can_be_run_again(
    shape: Callable[[PullDuplex], Pipeline],
) -> None:
    pipeline = shape(pair())
    assert pipeline.run() == pipeline.run() == ["a", "b", "c"]


def test_an_abort_goes_through_all_pairs_and_a_failure_too() -> None:
    told: list[Exception | None] = []
    upstream = values("abc", on_stop=told.append)
    assert pull(upstream, pair(), pair(), take(1), collect()).run() == ["a"]
    assert told == [None]

    def failing(_letter: str) -> str:
        raise Failure

    with pytest.raises(Failure) as raised:
        pull(upstream, pair(), map(failing), pair(), collect()).run()
    assert told[1:] == [raised.value]
    with pytest.raises(Failure):
        pull(error(Failure()), pair(), pair(), collect()).run()


def test_a_failure_in_one_direction_leaves_the_other_to_its_end() -> None:
    near = PullDuplex(error(Failure("near")), collect())
    far = PullDuplex(values("xyz"), collect())
    run = pull(near, far, near).start()
    with pytest.raises(Failure, match="near"):
        run.result()
    assert list(run.results.values()) == [["x", "y", "z"]]


def test_a_line_between_two_peers() -> None:
    a, b = Peer("ab"), Peer("xyz")
    near, far = duplex_pair()
    together(pull(a.duplex, near, a.duplex), pull(b.duplex, far, b.duplex)).run()
    assert a.got == [["x", "y", "z"]]
    assert b.got == [["a", "b"]]


def test_peers_that_say_goodbye_on_a_line() -> None:
    a, b = Peer("ab"), Peer("xyz")
    near, far = duplex_pair()
    one, other = closing_handshake(a.duplex), closing_handshake(b.duplex)
    together(pull(one, near, one), pull(other, far, other)).run()
    assert a.got == [["x", "y", "z"]]
    assert b.got == [["a", "b"]]


@pytest.mark.parametrize(
    ("pieces", "position"),
    [
        (lambda a: (a, sent("c")), 2),
        (lambda a: (collect(), a), 1),
        (lambda a: (sent("c"), collect(), a), 2),
        (lambda a: (a, collect(), a), 2),
        (lambda a: (pull(a, collect()), shout()), 1),
        (lambda a: (shout(), pull(sent("c"), a)), 2),
    ],
)
def test_a_wrong_order_with_a_duplex_is_named(
    pieces: Callable[[PullDuplex], tuple[Any, ...]], position: int
) -> None:
    with pytest.raises(NotComposable) as raised:
        pull(*pieces(Peer("ab").duplex))
    assert raised.value.position == position


def test_pipelines_that_run_together_give_all_their_results() -> None:
    pipelines = [pull(sent(text), collect()) for text in ("ab", "", "c")]
    assert together(*pipelines).run() == (["a", "b"], [], ["c"])
    assert together(together(*pipelines[:2]), pipelines[2]).run() == (["a", "b"], [], ["c"])
    assert together().run() == ()


def test_one_failure_among_pipelines_that_run_together_waits_for_the_others() -> None:
    bad = pull(error(Failure("bad")), collect())
    run = together(bad, pull(sent("ab"), collect()), pull(error(Failure("worse")), collect())).start()
    with pytest.raises(Failure, match="bad") as raised:
        run.result()
    assert raised.value.__notes__ == ["then, while closing: Failure: worse"]
    assert list(run.results.values()) == [["a", "b"]]


def test_a_duplex_in_a_stream_that_is_opened_later_leaves_the_result_alone() -> None:
    pipeline = pull(values("ab"), flat_map(lambda letter: pull(values([letter]), pair())), collect())
    assert pipeline.run() == ["a", "b"]


def test_a_sink_behind_a_duplex_gives_the_result_also_as_a_part() -> None:
    part = pull(pair(), pair(), collect())
    assert pull(values("ab"), shout(), part).run() == ["A", "B"]
    assert together(pull(values("a"), part), pull(values("b"), collect())).run() == (["a"], ["b"])
    inside = PullDuplex(values([1]), pull(pair(), collect()))
    assert together(pull(values("ab"), inside, collect())).run() == ([1],)


def test_handles_are_pieces_of_duplexes() -> None:
    letters = pushable()
    letters.push("a")
    letters.end()
    polite = closing_handshake(PullDuplex(letters, collect()))
    found = together(pull(polite.source, collect()), pull(values([1]), polite.sink)).run()
    assert found == (["a", "GOODBYE"], [1])

    later = defer(PullSink)
    part = pull(pair(), shout(), later)
    run = pull(values("b"), part).start()
    later.resolve(collect())
    assert run.result() == ["B"]
