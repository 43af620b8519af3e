"""Values lent to borrowers that come, go and fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.errors import BadOption
from headrace.pull import (
    PullDuplex,
    PullSink,
    PullTransformer,
    Recorder,
    async_map,
    collect,
    count,
    duplex_pair,
    flat_map,
    lend,
    map,
    probe,
    pull,
    take,
    values,
)
from headrace.pull.errors import NeverAnswered, NotLending, ProtocolBroken
from headrace.pull.rules.checker import check
from headrace.testing import RandomRuntime, SinkCase, VirtualRuntime, reference_sink, reference_source
from tests.pull.core.modules import Hand as Reader
from tests.pull.core.modules import Manual
from tests.pull.lend.hand import Hand


def times_ten() -> PullTransformer:
    return map(lambda x: 10 * x)


async def slow(x: int) -> int:
    await asyncio.sleep(1.0)
    return 10 * x


def in_flight(*hands: Hand) -> Any:
    """A started pipeline of 0, 1, 2, ... lent to these borrowers; three of its results are wanted at once."""
    lender = lend(*(hand.transformer for hand in hands))
    run = pull(count(), lender, reference_sink(SinkCase(stops_after=3, concurrency=3))).start()
    return lender, run


# --- who gets what ---------------------------------------------------------------------------


def test_several_borrowers_work_at_once() -> None:
    with VirtualRuntime() as runtime:
        run = pull(values(range(8)), lend(slow, slow, slow, slow), collect()).start(runtime)
        assert run.result() == [0, 10, 20, 30, 40, 50, 60, 70]
        assert runtime.time == 2.0


def test_a_fast_borrower_gets_more_values() -> None:
    async def slower(x: int) -> int:
        await asyncio.sleep(4.0)
        return 10 * x

    lender = lend()
    with VirtualRuntime(passing=False) as runtime:
        run = pull(values(range(10)), lender, collect()).start(runtime)
        fast, late = lender.lend(slow), lender.lend(slower)
        runtime.advance(100.0)
        assert run.result() == [10 * x for x in range(10)]
        assert (fast.lent, late.lent) == (8, 2)
        assert (fast.answered, late.answered, fast.over, late.over) == (8, 2, True, True)


def test_a_duplex_borrows_what_it_sends_and_returns_what_it_receives() -> None:
    here, there = duplex_pair()
    server = pull(there, times_ten(), there)
    remote = PullDuplex(here.source, PullSink(here.sink.part, here.sink.before, (*here.sink.beside, server)))
    assert pull(values([1, 2, 3]), lend(remote), collect()).run() == [10, 20, 30]


def test_results_wait_for_those_of_earlier_values() -> None:
    first, second = Hand(), Hand()
    _, run = in_flight(first, second)
    first.read()
    second.read()
    assert (first.values, second.values) == ([0], [1])
    second.answer("b")
    first.answer("a")
    second.read()
    second.answer("c")
    assert run.result().values == ["a", "b", "c"]


def test_values_are_read_for_a_borrower_and_for_downstream_only() -> None:
    hand, recorder = Hand(), Recorder()
    lender = lend(hand.transformer)
    pull(count(), probe(recorder), lender, reference_sink(SinkCase(stops_after=2, concurrency=2))).start()
    assert str(recorder.trace()) == ""
    for _ in range(5):
        hand.read()
    assert str(recorder.trace()) == "D:ask1 U:ans1=value(0) D:ask2 U:ans2=value(1)"


# --- borrowers that fail ---------------------------------------------------------------------


def test_values_of_a_borrower_that_failed_are_lent_again_the_oldest_first() -> None:
    fails, other = Hand(), Hand()
    _, run = in_flight(fails, other)
    for _ in range(2):
        fails.read()
    other.read()
    assert (fails.values, other.values) == ([0, 1], [2])
    fails.fail(ValueError("E"))
    other.read()
    other.read()
    assert other.values == [2, 0, 1]
    for result in "cab":
        other.answer(result)
    assert run.result().values == ["a", "b", "c"]


def test_the_oldest_value_is_lent_first_whoever_failed_first() -> None:
    first, second, other = Hand(), Hand(), Hand()
    in_flight(first, second, other)
    first.read()
    second.read()
    second.fail(ValueError("E"))
    first.fail(ValueError("E"))
    other.read()
    other.read()
    assert other.values == [0, 1]


def test_a_borrower_that_wants_no_more_is_lent_nothing_that_comes_later() -> None:
    leaves, other = Hand(), Hand()
    manual = Manual()
    lender = lend(leaves.transformer, other.transformer)
    pull(manual.source, lender, collect()).start()
    leaves.read()
    leaves.stop_reading()
    manual.answer(0, None, "a")
    other.read()
    assert other.values == ["a"]


@pytest.mark.parametrize("end", [True, ValueError("E")])
def test_a_borrower_that_ends_early_gives_its_values_back(end: Any) -> None:
    quits, other = Hand(), Hand()
    _, run = in_flight(quits, other)
    quits.read()
    quits.finish(end)
    for result in "abc":
        other.read()
        other.answer(result)
    assert run.result().values == ["a", "b", "c"]


def test_what_a_borrower_failed_by_is_said_by_its_loan() -> None:
    hand, lender = Hand(), lend()
    run = pull(values([1]), lender, collect()).start()
    loan = lender.lend(hand.transformer)
    hand.read()
    error = ValueError("E")
    hand.fail(error)
    assert (loan.over, loan.error, loan.lent, loan.answered) == (True, error, 1, 0)
    lender.lend(times_ten())
    assert run.result() == [10]


def test_a_borrower_that_is_recalled_gives_its_values_back() -> None:
    hand, lender = Hand(), lend()
    run = pull(values([1]), lender, collect()).start()
    loan = lender.lend(hand.transformer)
    hand.read()
    loan.recall()
    assert (loan.over, loan.error, hand.stopped) == (True, None, True)
    lender.lend(times_ten())
    loan.recall()
    assert run.result() == [10]


def test_a_borrower_that_cannot_be_opened_does_no_harm() -> None:
    def open(_module: Any, _edge: Any) -> Any:
        raise ValueError("no such machine")

    lender = lend(PullTransformer.of("broken", open), times_ten())
    assert pull(values([1, 2]), lender, collect()).run() == [10, 20]


def test_more_results_than_values_are_a_failure_of_the_borrower() -> None:
    lender = lend()
    run = pull(values([1, 2]), lender, collect()).start()
    loan = lender.lend(flat_map(lambda x: [x, x]))
    assert isinstance(loan.error, ProtocolBroken)
    lender.lend(times_ten())
    assert run.result()[1] == 20


def test_where_no_borrower_is_left_the_stream_waits_for_the_next() -> None:
    lender = lend(pull(take(1), times_ten()))
    run = pull(values([1, 2]), lender, collect()).start()
    with pytest.raises(NeverAnswered, match="'lend'"):
        run.result()
    lender.lend(times_ten())
    assert run.result() == [10, 20]


# --- ends ------------------------------------------------------------------------------------


def test_borrowers_that_wait_get_the_end_when_all_is_answered() -> None:
    works, waits = Hand(), Hand()
    lender = lend(works.transformer, waits.transformer)
    run = pull(values([1]), lender, collect()).start()
    works.read()
    waits.read()
    assert waits.end is None, "it may get the value of one that fails"
    works.answer("a")
    assert waits.end is True
    assert waits.stopped is None, "it has its end"
    waits.finish()
    assert run.result() == ["a"]
    assert works.stopped is True


def test_an_error_of_upstream_comes_after_the_results_before_it() -> None:
    cause = ValueError("E")
    with VirtualRuntime() as runtime:
        run = pull(reference_source(3, cause), lend(slow, slow), collect()).start(runtime)
        with pytest.raises(ValueError, match="E") as raised:
            run.result()
        assert raised.value is cause
        assert run.partial == [10, 20, 30]


def test_an_abort_is_confirmed_when_all_borrowers_have_closed() -> None:
    hand, recorder = Hand(confirms=False), Recorder()
    lender = lend(hand.transformer)
    run = pull(count(), lender, probe(recorder), reference_sink(SinkCase(stops_after=0, waits=False))).start()
    assert str(recorder.trace()) == "D:ask1 D:abort2"
    assert hand.stopped is True
    with pytest.raises(NotLending):
        lender.lend(times_ten())
    hand.confirm()
    assert str(recorder.trace()) == "D:ask1 D:abort2 U:ans1=done U:ans2=done"
    assert run.finished
    assert check(recorder.trace()) == ()


def test_an_abort_after_upstream_has_failed_is_answered_by_its_error() -> None:
    hand, sink, cause = Hand(), Reader(), ValueError("E")
    pull(reference_source(1, cause), lend(hand.transformer), sink.sink).start()
    sink.request("first")
    sink.request("second")
    hand.read()
    hand.read()
    assert sink.heard == [], "a value is with the borrower"
    sink.request("stop", True)
    assert sink.heard == [("first", cause), ("second", cause), ("stop", cause)]


def test_borrowers_of_a_run_that_is_given_up_are_told_to_stop() -> None:
    hand = Hand()
    with pytest.raises(NeverAnswered):
        pull(values([1]), lend(hand.transformer), collect()).run()
    assert hand.stopped is True


def test_borrowers_are_told_the_error_of_downstream() -> None:
    hand, cause = Hand(), ValueError("E")
    run = pull(count(), lend(hand.transformer), reference_sink(SinkCase(stops_after=0, by=cause))).start()
    assert run.result().end is cause
    assert hand.stopped is cause


def test_the_stream_does_not_end_before_the_last_borrower_has_closed() -> None:
    hand = Hand(confirms=False)
    lender = lend(times_ten(), hand.transformer)
    run = pull(values([1, 2]), lender, collect()).start()
    assert not run.finished
    hand.confirm()
    assert run.result() == [10, 20]


# --- runs ------------------------------------------------------------------------------------


def test_each_run_has_borrowers_of_its_own() -> None:
    pipeline = pull(values([1, 2]), lend(pull(take(1), times_ten()), times_ten()), collect())
    assert pipeline.run() == pipeline.run() == [10, 20]


def test_lending_goes_to_the_run_that_was_started_last() -> None:
    lender = lend()
    pipeline = pull(values([1, 2]), lender, collect())
    first, second = pipeline.start(), pipeline.start()
    lender.lend(times_ten())
    assert (first.finished, second.result()) == (False, [10, 20])
    lender.lend(map(str))
    assert first.result() == ["1", "2"]
    with pytest.raises(NotLending):
        lender.lend(times_ten())


def test_borrowers_may_come_from_a_task_beside_the_pipeline() -> None:
    async def main() -> Any:
        lender = lend()
        waiting = asyncio.ensure_future(_awaited(pull(values([1, 2, 3]), lender, collect())))
        await asyncio.sleep(0)
        lender.lend(async_map(ten_times), values=2)
        await asyncio.sleep(0)
        lender.lend(ten_times)
        return await waiting

    async def ten_times(x: int) -> int:
        await asyncio.sleep(0)
        return 10 * x

    assert asyncio.run(main()) == [10, 20, 30]


async def _awaited(pipeline: Any) -> Any:
    return await pipeline


@pytest.mark.seeds(30)
def test_borrowers_that_fail_now_and_then_change_no_result(seed: int) -> None:
    async def moody(x: int) -> int:
        await asyncio.sleep(1.0)
        if (x * 7 + seed) % 5 == 0:
            raise ValueError(x)
        return 10 * x

    with RandomRuntime(seed) as runtime:
        run = pull(values(range(20)), lend(*[moody] * 8, slow), collect()).start(runtime)
        assert run.result() == [10 * x for x in range(20)]
        assert runtime.left == 0


@pytest.mark.parametrize("width", [0, -1, 1.5])
def test_a_width_that_makes_no_sense_is_refused(width: Any) -> None:
    with pytest.raises(BadOption):
        lend(width=width)
