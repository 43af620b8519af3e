"""What frontiers are told: rising, from the as-of on, ended once."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from headrace.compute.frontier import END, Frontier
from headrace.compute.protocol.responses import Frontiers
from headrace.compute.replica.replica import ReportedFrontiers

frontiers = st.one_of(st.integers(0, 9).map(Frontier), st.just(END))
KINDS = ("write", "input", "output")


@given(frontiers, st.lists(st.tuples(frontiers, frontiers, frontiers)))
def test_each_kind_begins_at_the_as_of_rises_strictly_and_ends_once(
    as_of: Frontier, reached: list[tuple[Frontier, Frontier, Frontier]]
) -> None:
    guard = ReportedFrontiers.since("u1", as_of)
    told = [guard.advance(write=w, input=i, output=o) for w, i, o in reached]
    for kind in KINDS:
        seen = [f for t in told if t is not None if (f := getattr(t, kind)) is not None]
        assert all(as_of <= frontier for frontier in seen)
        assert all(a < b for a, b in itertools.pairwise(seen))
    assert Frontiers("u1") not in told


@given(frontiers, st.lists(frontiers))
def test_after_a_drop_each_kind_has_ended_and_nothing_more_is_told(
    as_of: Frontier, reached: list[Frontier]
) -> None:
    guard = ReportedFrontiers.since("u1", as_of)
    ended = [guard.advance(write=f, input=f, output=f) for f in reached].count(Frontiers("u1", END, END, END))
    dropped = guard.report_end()
    assert (dropped is None) == (ended == 1)
    assert guard.ended
    assert guard.report_end() is None
    assert guard.advance(write=Frontier(3), input=END, output=END) is None


def test_nothing_is_told_twice() -> None:
    guard = ReportedFrontiers.since("u1", Frontier(5))
    assert guard.advance(write=Frontier(7), input=Frontier(7), output=Frontier(7)) is not None
    assert guard.advance(write=Frontier(7), input=Frontier(7), output=Frontier(7)) is None


def test_an_export_that_was_kept_is_told_of_from_its_new_as_of_on() -> None:
    guard = ReportedFrontiers.since("u1", Frontier(9))
    assert guard.advance(write=Frontier(8), input=Frontier(8), output=Frontier(8)) is None
    all_at = Frontiers("u1", Frontier(100), Frontier(100), Frontier(100))
    assert guard.advance(write=Frontier(100), input=Frontier(100), output=Frontier(100)) == all_at
