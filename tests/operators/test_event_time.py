"""Watermarks, late rows and windows, tick by tick."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.testing import Backend, check_ticks

AnyStream = hr.Stream[Any, Any, Any, Any]


class Bid(NamedTuple):
    who: str
    at: int


def test_a_row_below_the_watermark_goes_to_the_late_rows(backend: Backend) -> None:
    def parted(flow: hr.Flow) -> None:
        bids = flow.source("bids", Bid)
        flow.sink("on_time", bids.watermark(col.at, lateness=3, late="late"))

    check_ticks(
        backend,
        parted,
        """
        tick | bids         | on_time       | late
        1    | a 5; b 2     | + a 5; + b 2  |
        2    | c 9; d 6     | + c 9; + d 6  |
        2    | e 5          |               | + e 5
        3    | f 2          |               | + f 2
        4    | g 20; h 16   | + g 20        | + h 16
    """,
    )


def test_in_steps_a_watermark_waits_for_whole_windows(backend: Backend) -> None:
    def parted(flow: hr.Flow) -> None:
        bids = flow.source("bids", Bid).watermark(col.at, lateness=3, every=10, late="late")
        flow.sink("out", bids.group_by(window=hr.tumbling(col.at, 10)).agg(n=hr.count()))

    check_ticks(
        backend,
        parted,
        """
        tick | bids         | out       | late
        1    | a 19; b 10   |           |
        2    | c 11; d 9    |           | + d 9
        3    | e 22; f 11   |           |
        4    | g 23; h 19   | + 10 20 4 | + h 19
    """,
    )


def test_without_a_time_a_row_is_late(backend: Backend) -> None:
    class Maybe(NamedTuple):
        at: float | None

    def parted(flow: hr.Flow) -> None:
        flow.sink("on_time", flow.source("times", Maybe).watermark(col.at, lateness=1.5, late="late"))

    check_ticks(
        backend,
        parted,
        """
        tick | times            | on_time  | late
        1    | null; inf; nan   |          | + null; + inf; + nan
        2    | -0.5; -2.5; -2.0 | + -0.5; + -2.0 | + -2.5
    """,
    )


def test_a_window_answers_when_the_watermark_reaches_its_end(backend: Backend) -> None:
    def counts(flow: hr.Flow) -> AnyStream:
        bids = flow.source("bids", Bid).watermark(col.at, lateness=2)
        return bids.group_by("who", window=hr.tumbling(col.at, 10)).agg(n=hr.count())

    check_ticks(
        backend,
        counts,
        """
        tick | bids                | out
        1    | a 1; b 3; a 9       |
        2    | a 11; a 9           |
        3    | b 12                | + a 0 10 3; + b 0 10 1
        4    | b 45                | + a 10 20 1; + b 10 20 1
        5    |                     |
        6    | c 52                | + b 40 50 1
    """,
    )


def test_windows_may_begin_beside_the_multiples_of_their_size(backend: Backend) -> None:
    def counts(flow: hr.Flow) -> AnyStream:
        bids = flow.source("bids", Bid).watermark(col.at, lateness=0)
        return bids.group_by(window=hr.tumbling(col.at, 10, offset=3)).agg(n=hr.count())

    check_ticks(
        backend,
        counts,
        """
        tick | bids              | out
        1    | a -8; a 2; a 3    | + -17 -7 1; + -7 3 1
        2    | b 12; b 13        | + 3 13 2
    """,
    )


def test_a_row_counts_in_every_sliding_window_that_it_is_in(backend: Backend) -> None:
    def counts(flow: hr.Flow) -> AnyStream:
        bids = flow.source("bids", Bid).watermark(col.at, lateness=0)
        return bids.group_by(window=hr.sliding(col.at, 10, 5)).agg(n=hr.count())

    check_ticks(
        backend,
        counts,
        """
        tick | bids        | out
        1    | a 2; a 7    | + -5 5 1
        2    | b 10        | + 0 10 2
        3    | b 21        | + 5 15 2; + 10 20 1
    """,
    )


def test_a_row_between_two_sessions_makes_one_of_them(backend: Backend) -> None:
    def counts(flow: hr.Flow) -> AnyStream:
        bids = flow.source("bids", Bid).watermark(col.at, lateness=10)
        return bids.group_by("who", window=hr.session(col.at, 5)).agg(n=hr.count())

    check_ticks(
        backend,
        counts,
        """
        tick | bids              | out
        1    | a 1; a 9; b 3     |
        2    | a 5               |
        3    | a 14; b 19        | + b 3 8 1
        4    | c 24              | + a 1 14 3
        5    | c 29              | + a 14 19 1
        6    | d 50              | + b 19 24 1; + c 24 29 1; + c 29 34 1
    """,
    )


def test_updates_tell_of_open_windows_in_every_tick(backend: Backend) -> None:
    def counts(flow: hr.Flow) -> AnyStream:
        bids = flow.source("bids", Bid).watermark(col.at, lateness=2)
        return bids.group_by(window=hr.tumbling(col.at, 10), emit="updates").agg(last=hr.max(col.at))

    check_ticks(
        backend,
        counts,
        """
        tick | bids        | out
        1    | a 1; b 3    | + 0 10 3
        2    | c 2         |
        3    | a 11; d 9   | - 0 10 3; + 0 10 9; + 10 20 11
        4    | b 24        | + 20 30 24
    """,
    )


def test_updates_take_back_the_sessions_that_became_part_of_another(backend: Backend) -> None:
    def counts(flow: hr.Flow) -> AnyStream:
        bids = flow.source("bids", Bid).watermark(col.at, lateness=10)
        return bids.group_by("who", window=hr.session(col.at, 5), emit="updates").agg(n=hr.count())

    check_ticks(
        backend,
        counts,
        """
        tick | bids         | out
        1    | a 9; a 1     | + a 9 14 1; + a 1 6 1
        2    | a 5          | - a 9 14 1; - a 1 6 1; + a 1 14 3
        3    | a 50         | + a 50 55 1
    """,
    )


def test_windows_of_windows_close_when_those_in_them_have_answered(backend: Backend) -> None:
    def busiest(flow: hr.Flow) -> AnyStream:
        bids = flow.source("bids", Bid).watermark(col.at, lateness=0)
        counts = bids.group_by("who", window=hr.tumbling(col.at, 5)).agg(n=hr.count())
        return counts.group_by(window=hr.tumbling(col.window_start, 10)).agg(most=hr.max(col.n))

    check_ticks(
        backend,
        busiest,
        """
        tick | bids              | out
        1    | a 1; a 2; b 6     |
        2    | b 9               |
        3    | b 10              | + 0 10 2
        4    | b 16; c 17; c 19  |
        5    | d 20              | + 10 20 2
    """,
    )


def test_the_time_may_be_computed_and_rows_left_out_on_the_way(backend: Backend) -> None:
    def counts(flow: hr.Flow) -> AnyStream:
        bids = flow.source("bids", Bid).watermark(col.at, lateness=2)
        seconds = bids.filter(col.who != "x").select("who", second=col.at // 10)
        return seconds.group_by(window=hr.tumbling(col.second, 2)).agg(n=hr.count())

    check_ticks(
        backend,
        counts,
        """
        tick | bids        | out
        1    | a 1; a 19   |
        2    | x 21        |
        3    | x 22        | + 0 2 2
    """,
    )


def test_of_two_streams_the_slower_decides(backend: Backend) -> None:
    def counts(flow: hr.Flow) -> AnyStream:
        left = flow.source("left", Bid).watermark(col.at, lateness=0)
        right = flow.source("right", Bid).watermark(col.at, lateness=5)
        return left.union(right).group_by(window=hr.tumbling(col.at, 10)).agg(n=hr.count())

    check_ticks(
        backend,
        counts,
        """
        tick | left       | right | out
        1    | a 1; a 31  |       |
        2    |            | b 8   |
        3    |            | b 15  | + 0 10 2
        4    | a 32       | b 26  | + 10 20 1
    """,
    )


@pytest.mark.parametrize("emit", ["close", "updates"])
def test_a_watermark_alone_tells_nothing_of_windows_without_rows(backend: Backend, emit: Any) -> None:
    def counts(flow: hr.Flow) -> AnyStream:
        bids = flow.source("bids", Bid).watermark(col.at, lateness=0)
        windows = hr.tumbling(col.at, 10)
        return bids.filter(col.who == "a").group_by(window=windows, emit=emit).agg(n=hr.count())

    check_ticks(
        backend,
        counts,
        """
        tick | bids        | out
        1    | b 1; b 100  |
        2    | b 200       |
    """,
    )


def test_of_rows_near_to_each_other_the_first_is_kept(backend: Backend) -> None:
    def first(flow: hr.Flow) -> AnyStream:
        return flow.source("bids", Bid).watermark(col.at, lateness=5).first_within(10, by="who")

    check_ticks(
        backend,
        first,
        """
        tick | bids             | out
        1    | a 0; a 9; a 12   | + a 0; + a 12
        2    | a 8; b 25        | + b 25
        3    | a 20; a 22       | + a 22
        4    | b 31; a 31; b 40 | + b 40
    """,
    )


def test_a_join_of_times_pairs_what_is_near_enough_however_late(backend: Backend) -> None:
    def answered(flow: hr.Flow) -> AnyStream:
        asked = flow.source("asked", Bid).watermark(col.at, lateness=5)
        given = flow.source("given", Bid).watermark(col.at, lateness=5)
        soon = hr.right.at.between(hr.left.at, hr.left.at + 3)
        return asked.join(given, on=(hr.left.who == hr.right.who) & soon, suffix="_given")

    check_ticks(
        backend,
        answered,
        """
        tick | asked       | given      | out
        1    | a 1; b 2    | a 4        | + a 1 4
        2    | a 7         | b 6        |
        3    | a 3         | b 5        | + a 3 4; + b 2 5
        4    | a 30; b 26  | b 30; b 29 | + b 26 29
        5    |             | a 33; b 33 | + a 30 33
    """,
    )


def test_a_join_of_times_keeps_what_a_row_may_still_look_back_at(backend: Backend) -> None:
    def before(flow: hr.Flow) -> AnyStream:
        asked = flow.source("asked", Bid).watermark(col.at, lateness=5)
        given = flow.source("given", Bid).watermark(col.at, lateness=5)
        recently = hr.right.at.between(hr.left.at - 10, hr.left.at)
        return asked.join(given, on=(hr.left.who == hr.right.who) & recently, suffix="_given")

    check_ticks(
        backend,
        before,
        """
        tick | asked | given | out
        1    |       | a 10  |
        2    | b 25  |       |
        3    | a 20  | b 40  | + a 20 10
        4    | a 21  | a 36  |
    """,
    )
