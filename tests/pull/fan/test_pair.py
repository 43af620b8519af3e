"""pair, duplex_pair, closing_handshake: what goes in comes out, and every end crosses over."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.pull import (
    PullDuplex,
    closing_handshake,
    collect,
    duplex_pair,
    error,
    map,
    pair,
    pull,
    take,
    together,
    values,
)
from headrace.pull.errors import AlreadyUsed, EndNotConfirmed, NeverAnswered
from headrace.testing import VirtualRuntime
from tests.pull.core.modules import Hand, Manual, delay


class Failure(Exception):
    pass


def joined() -> tuple[Manual, Hand]:
    upstream, line, hand = Manual(), pair(), Hand()
    together(pull(line.source, hand.sink), pull(upstream.source, line.sink)).start()
    return upstream, hand


def test_the_sink_asks_for_what_the_source_is_asked() -> None:
    upstream, hand = joined()
    assert upstream.requests == []
    hand.request("1")
    hand.request("2")
    assert upstream.requests == [None, None]
    upstream.answer(0, None, "a")
    assert hand.heard == [("1", "a")]


@pytest.mark.parametrize("end", [True, Failure("end")])
def test_an_end_of_what_the_sink_reads_is_that_of_the_source(end: Any) -> None:
    upstream, hand = joined()
    hand.request("1")
    upstream.answer(0, end)
    hand.request("2")
    assert hand.heard == [("1", end), ("2", end)]


@pytest.mark.parametrize("stop", [True, Failure("stop")])
def test_a_stop_of_the_source_reaches_what_the_sink_reads_and_is_confirmed_after_it(stop: Any) -> None:
    upstream, hand = joined()
    hand.request("1")
    hand.request("stop", stop)
    assert upstream.requests == [None, stop]
    assert hand.heard == []
    upstream.answer(1, stop)
    assert hand.heard == [("1", stop), ("stop", stop)]


def test_an_error_that_somebody_recovers_from_is_no_failure_of_the_run() -> None:
    line, hand = pair(), Hand()
    run = together(pull(error(Failure()), line.sink), pull(line.source, hand.sink)).start()
    hand.request("ask")
    assert hand.module is not None
    hand.module.done("recovered")
    assert run.result() == (None, "recovered")


def test_the_halves_may_be_opened_in_either_order() -> None:
    for first in (0, 1):
        line = pair()
        halves = [pull(values([1, 2]), line.sink), pull(line.source, collect())]
        assert [1, 2] in together(halves[first], halves[1 - first]).run()


def test_a_pair_works_in_several_runs() -> None:
    pipeline = pull(values([1, 2, 3]), pair(), take(2), collect())
    assert pipeline.run() == pipeline.run() == [1, 2]


def test_half_a_pair_is_named_as_what_does_not_answer() -> None:
    with pytest.raises(NeverAnswered, match="'pair'"):
        pull(pair().source, collect()).run()
    with pytest.raises(NeverAnswered):
        pull(values([1]), pair().sink).run()
    with pytest.raises(EndNotConfirmed, match="'pair'"):
        pull(pair().source, take(0), collect()).run()


def test_each_half_stands_once_in_a_run() -> None:
    line = pair()
    with pytest.raises(AlreadyUsed):
        together(pull(line.source, collect()), pull(line.source, collect())).run()
    with pytest.raises(AlreadyUsed):
        together(pull(values([1]), line, collect()), pull(values([2]), line.sink)).run()


def test_with_a_width_modules_upstream_of_a_pair_work_at_once() -> None:
    def seconds(width: int) -> float:
        runtime = VirtualRuntime()
        upstream = pull(values(range(10)), delay(1), delay(1))
        assert pull(upstream, pair(width=width), collect()).start(runtime).wait() == [*range(10)]
        return runtime.now()

    assert (seconds(0), seconds(2)) == (20, 11)


# --- duplex_pair -------------------------------------------------------------------------------


def test_what_one_end_of_a_line_is_given_comes_out_of_the_other() -> None:
    near, far = duplex_pair()
    run = together(
        pull(values([1, 2]), near, collect()),
        pull(values("ab"), far, collect()),
    )
    assert run.run() == (["a", "b"], [1, 2])
    assert run.run() == (["a", "b"], [1, 2])


def test_the_directions_of_a_line_end_by_themselves() -> None:
    near, far = duplex_pair()
    there, back = Hand(), Hand()
    outgoing = Manual()
    together(
        pull(outgoing.source, near.sink),
        pull(far.source, there.sink),
        pull(values([1]), far.sink),
        pull(near.source, back.sink),
    ).start()
    there.request("1")
    outgoing.answer(0, True)
    back.request("1")
    back.request("2")
    assert there.heard == [("1", True)]
    assert back.heard == [("1", 1), ("2", True)]


def test_an_echo_at_the_far_end() -> None:
    near, far = duplex_pair()
    echo = pull(far, map(str.upper), far)
    assert together(echo, pull(values("ab"), near, collect())).run() == (None, ["A", "B"])
    assert together(echo, pull(values("ab"), near, take(1), collect())).run() == (None, ["A"])


# --- closing_handshake -------------------------------------------------------------------------


def test_goodbye_is_said_after_the_last_value_and_not_heard_by_the_sink() -> None:
    incoming, hand = Manual(), Hand()
    polite = closing_handshake(PullDuplex(values([1]), collect()), "bye")
    run = together(pull(polite.source, hand.sink), pull(incoming.source, polite.sink)).start()
    for name in "123":
        hand.request(name)
    assert hand.heard == [("1", 1), ("2", "bye")]
    incoming.answer(0, None, 10)
    incoming.answer(1, None, "bye")
    assert hand.heard[2:] == [("3", True)]
    assert incoming.requests == [None, None, None]
    incoming.answer(2, True)
    assert hand.module is not None
    hand.module.done()
    assert run.result() == (None, [10])


@pytest.mark.parametrize("end", [True, Failure("line is down")])
def test_nobody_waits_for_a_goodbye_that_cannot_come(end: Any) -> None:
    incoming, hand = Manual(), Hand()
    polite = closing_handshake(PullDuplex(values([]), collect()))
    together(pull(polite.source, hand.sink), pull(incoming.source, polite.sink)).start()
    hand.request("1")
    hand.request("2")
    assert hand.heard == [("1", "GOODBYE")]
    incoming.answer(0, end)
    assert hand.heard[1:] == [("2", True)]


def test_a_sink_that_has_enough_does_not_wait_for_goodbye() -> None:
    polite = closing_handshake(PullDuplex(values([1, 2]), pull(take(1), collect())))
    assert together(pull(polite.source, collect()), pull(values([5, 6]), polite.sink)).run() == (
        [1, 2, "GOODBYE"],
        [5],
    )


def test_an_abort_and_an_error_of_what_goes_out_go_their_way() -> None:
    told: list[Exception | None] = []
    polite = closing_handshake(PullDuplex(values([1, 2], on_stop=told.append), collect()))
    pipeline = together(pull(values([5]), polite.sink), pull(polite.source, take(1), collect()))
    assert pipeline.run() == ([5], [1])
    assert told == [None]
    broken = closing_handshake(PullDuplex(error(Failure("out")), collect()))
    with pytest.raises(Failure, match="out"):
        together(pull(values([5]), broken.sink), pull(broken.source, collect())).run()
