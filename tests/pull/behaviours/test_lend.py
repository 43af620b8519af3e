"""The described cases about lending."""

from __future__ import annotations

import pytest

from headrace.pull import Recorder, collect, count, lend, map, probe, pull, take, values
from headrace.pull.errors import NotLending
from headrace.testing import VirtualRuntime, reference_source
from tests.pull.described import case
from tests.pull.lend.hand import Hand


@case("lend: values lent one by one, a failing borrower gets its value re-lent, results in input order")
def test_a_value_of_a_borrower_that_crashes_is_lent_to_the_next() -> None:
    async def negative(x: int) -> int:
        return -x

    async def crash(x: int) -> int:
        raise ValueError(f"no {x}")

    async def times_ten(x: int) -> int:
        return 10 * x

    async def square(x: int) -> int:
        return x * x

    lender = lend()
    with VirtualRuntime() as runtime:
        run = pull(values([0, 1, 2]), lender, collect()).start(runtime)
        loans = [lender.lend(borrower, values=1) for borrower in (negative, crash, times_ten, square)]
        assert [type(loan.error) for loan in loans] == [type(None), ValueError, type(None), type(None)]
        assert not run.finished, "nobody has asked whether there is a further value"
        further = lender.lend(square)
        assert (further.over, further.lent) == (True, 0)
        assert run.result() == [0, 10, 4]
        with pytest.raises(NotLending):
            lender.lend(square)


@case("lend-stream: no substream read => no upstream read (lazy)")
def test_borrowers_that_do_not_read_do_not_have_upstream_asked() -> None:
    lender, recorder, hands = lend(), Recorder(), [Hand() for _ in range(10)]
    pull(count(5), probe(recorder), lender, collect()).start()
    for hand in hands:
        lender.lend(hand.transformer)
    assert str(recorder.trace()) == ""
    hands[3].read()
    assert str(recorder.trace()) == "D:ask1 U:ans1=value(0)"


@case("lend-stream: failed substream values are re-lent transparently, order kept")
def test_values_of_a_borrower_that_died_come_in_their_turn() -> None:
    dies = Hand()
    lender = lend(dies.transformer)
    run = pull(values(range(6)), lender, collect()).start()
    dies.read()
    assert dies.values == [0]
    lender.lend(pull(take(2), map(lambda x: x)))
    dies.fail(ValueError("E"))
    assert not run.finished
    lender.lend(map(lambda x: x))
    assert run.result() == [0, 1, 2, 3, 4, 5]


@case("lend-stream: lendStream before connect calls borrower with an error")
def test_lending_before_the_pipeline_runs_is_an_error() -> None:
    lender = lend()
    pull(reference_source(3), lender, collect())
    with pytest.raises(NotLending):
        lender.lend(map(str))
