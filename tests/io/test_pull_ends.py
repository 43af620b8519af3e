"""Sources and sinks of a run that are pull-streams: what they get, who waits for whom, how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import Change, col
from headrace.errors import BadInput, BadOption, BadRow, UserFunctionFailed
from headrace.io import Changelog, Memory, Rows
from headrace.io.files.changelog import ChangelogWriter
from headrace.pull import (
    PullSource,
    async_map,
    collect,
    count,
    filter,
    find,
    for_each,
    from_lines,
    infinite,
    iterate,
    map,
    pull,
    sink,
    source,
    take,
    to_lines,
    values,
)
from headrace.pull.errors import CallCancelled, EndNotConfirmed, NeverAnswered
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End, Read


class Word(NamedTuple):
    text: str


def numbers(*names: str, bounded: str = "") -> hr.Flow:
    flow = hr.Flow("numbers")
    for name in names or ("n",):
        flow.sink(f"{name}_out", flow.source(name, int, bounded=name == bounded))
    return flow


def totals() -> hr.Flow:
    flow = hr.Flow("totals")
    words = flow.source("words", Word)
    flow.sink("totals", words.group_by(col.text).agg(n=hr.count()))
    return flow


def inverse() -> hr.Flow:
    flow = hr.Flow("inverse")
    flow.sink("out", flow.source("n", int).map(lambda n: 1 // n, returns=int))
    return flow


class Told:
    """An endless source of 0, 1, ..., that notes what it was told and confirms."""

    def __init__(self) -> None:
        self.given = 0
        self.stops: list[End] = []
        self.source = PullSource.of("told", lambda _module: self._read)

    def _read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is not None:
            self.stops.append(abort)
            answer(abort)
        else:
            self.given += 1
            answer(None, self.given - 1)


# --- what they get ---------------------------------------------------------------------


def test_a_file_of_words_is_counted_into_a_file(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\nb\na\n")
    words = pull(from_lines(tmp_path / "in.txt"), map(Word))
    lines = pull(map(lambda change: f"{change.weight:+d} {change.row.text} {change.row.n}"),
                 to_lines(tmp_path / "out.txt"))  # fmt: skip
    result = hr.run(totals(), {"words": words}, {"totals": lines})
    assert sorted((tmp_path / "out.txt").read_text().splitlines()) == ["+1 a 2", "+1 b 1"]
    assert result.rows_in == 3
    assert result.results == {"totals": 2}, "how many lines"


def test_a_sink_is_given_each_change_by_itself_in_the_order_of_ticks() -> None:
    ends: dict[str, Any] = {"sources": {"words": [Word("a"), Word("a")]}, "tick_rows": 1}
    result = hr.run(totals(), sinks={"totals": collect()}, **ends)
    seen: list[Any] = []
    hr.run(totals(), sinks={"totals": seen}, **ends)
    assert result.results["totals"] == seen
    assert all(type(change) is Change for change in result.results["totals"])


def test_results_are_those_of_pull_streams_only() -> None:
    flow = numbers("a", "b")
    result = hr.run(flow, {"a": [1], "b": values([2])}, {"a_out": Memory(), "b_out": collect()})
    assert result.results == {"b_out": [(2, 1)]}


def test_ticks_of_a_pull_source_take_tick_rows() -> None:
    seen: list[int] = []
    hr.run(numbers(), {"n": pull(values(range(7)))}, tick_rows=3, on_tick=lambda p: seen.append(p.rows_in))
    assert seen == [3, 3, 1]


def test_a_bounded_pull_source_is_whole_in_the_first_tick() -> None:
    seen: list[int] = []
    hr.run(
        numbers("a", "b", bounded="a"),
        {"a": pull(values(range(2500)), map(lambda n: n)), "b": pull(values(range(3)))},
        tick_rows=2,
        on_tick=lambda p: seen.append(p.rows_in),
    )
    assert seen == [2502, 1]


def test_a_bad_row_of_a_pull_source_is_named_and_ends_both_ends() -> None:
    with pytest.raises(BadRow, match="source 'n'") as raised:
        hr.run(numbers(), {"n": values([1, "x"])}, {"n_out": collect()}, tick_rows=1)
    assert raised.value.facts["before"] == "1 rows"


def test_sources_that_answer_at_once_are_in_one_tick_however_many_modules_they_have() -> None:
    seen: list[int] = []
    long = pull(values(range(3)), *[filter(lambda _: True) for _ in range(30)], take(3), take(3))
    hr.run(
        numbers("a", "b"), {"a": long, "b": range(3)}, tick_rows=1, on_tick=lambda p: seen.append(p.rows_in)
    )
    assert seen == [2, 2, 2]


def test_a_source_that_waits_does_not_hold_up_another() -> None:
    async def later(n: int) -> int:
        await asyncio.sleep(0)
        return n

    seen: list[Any] = []
    flow = numbers("a", "b")
    sources = {"a": pull(values(range(3)), async_map(later)), "b": Rows([[1], [2], [3]])}
    hr.run(flow, sources, {"a_out": seen, "b_out": seen})
    assert sorted(change.row for change in seen) == [0, 1, 1, 2, 2, 3]


def test_arun_shares_the_loop_with_its_ends() -> None:
    stored: list[Any] = []

    async def store(change: Any) -> None:
        await asyncio.sleep(0)
        stored.append(change.row)

    async def session() -> Any:
        return await hr.arun(numbers(), {"n": values(range(5))}, {"n_out": for_each(store)}, tick_rows=2)

    assert asyncio.run(session()).ticks == 3
    assert stored == [0, 1, 2, 3, 4]


def test_within_a_loop_run_says_what_to_call_instead_of_waiting() -> None:
    async def one() -> AsyncIterator[int]:
        yield 1

    async def session() -> None:
        hr.run(numbers(), {"n": iterate(one())}, {"n_out": collect()})

    with pytest.raises(BadInput, match="arun"):
        asyncio.run(session())


def test_a_run_whose_ends_answer_at_once_makes_no_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_loop() -> None:
        raise AssertionError("a loop was made")

    monkeypatch.setattr(asyncio, "new_event_loop", no_loop)
    assert hr.run(numbers(), {"n": values(range(9))}, {"n_out": collect()}).ticks == 1


# --- who waits for whom ------------------------------------------------------------------


def test_a_slow_sink_holds_back_a_fast_source() -> None:
    given, stored, ahead = 0, 0, list[int]()

    def endless() -> Iterator[int]:
        nonlocal given
        while True:
            given += 1
            yield given

    async def store(_change: Any) -> None:
        nonlocal stored
        await asyncio.sleep(0)
        stored += 1
        ahead.append(given - stored)

    slow = pull(take(200), for_each(store))
    hr.run(numbers(), {"n": iterate(endless())}, {"n_out": slow}, tick_rows=7)
    assert stored == 200
    assert max(ahead) == 6, "of one tick, and none of the next"


def test_the_slower_of_two_sinks_holds_back_the_source() -> None:
    told, stored, fast = Told(), list[int](), pull(take(20), collect())

    async def store(_change: Any) -> None:
        await asyncio.sleep(0)
        stored.append(told.given)

    flow = numbers()
    flow.sink("fast", hr.Stream(flow, 0, flow.node(0).schema))
    hr.run(flow, {"n": told.source}, {"fast": fast, "n_out": pull(take(20), for_each(store))}, tick_rows=1)
    assert stored == list(range(1, 21)), "one row per tick, and no tick ahead"


# --- enough ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("enough", "result"),
    [(pull(take(3), collect()), [(0, 1), (1, 1), (2, 1)]), (find(lambda change: change.row == 2), (2, 1))],
)
def test_a_sink_that_has_enough_ends_the_run(enough: Any, result: Any) -> None:
    told = Told()
    ended = hr.run(numbers(), {"n": told.source}, {"n_out": enough}, tick_rows=1)
    assert ended.results["n_out"] == result
    assert (ended.ticks, told.given, told.stops) == (3, 3, [True])


def test_only_sources_that_nobody_reads_any_more_are_stopped() -> None:
    first, second = Told(), pull(values(range(50)))
    seen: list[Any] = []
    flow = numbers("a", "b")
    result = hr.run(
        flow,
        {"a": first.source, "b": second},
        {"a_out": pull(take(2), collect()), "b_out": seen},
        tick_rows=1,
    )
    assert (first.given, first.stops) == (2, [True])
    assert len(seen) == 50
    assert result.rows_in == 52


def test_a_source_of_two_sinks_goes_on_until_both_have_enough() -> None:
    told = Told()
    flow = numbers()
    flow.sink("more", hr.Stream(flow, 0, flow.node(0).schema))
    result = hr.run(
        flow,
        {"n": told.source},
        {"n_out": pull(take(2), collect()), "more": pull(take(5), collect())},
        tick_rows=1,
    )
    assert [len(found) for found in result.results.values()] == [2, 5]
    assert (told.given, told.stops) == (5, [True])


def test_a_sink_that_wants_nothing_has_no_tick() -> None:
    told = Told()
    result = hr.run(numbers(), {"n": told.source}, {"n_out": pull(take(0), collect())})
    assert (result.ticks, told.given, told.stops) == (0, 0, [True])


def test_what_was_enough_is_committed_and_the_next_run_goes_on(tmp_path: Path) -> None:
    found: list[Any] = []
    for _ in range(2):
        result = hr.run(
            numbers(),
            {"n": pull(count(), map(lambda n: n))},
            {"n_out": pull(take(2), collect())},
            checkpoint=tmp_path,
            tick_rows=1,
        )
        found += result.results["n_out"]
    assert [change.row for change in found] == [0, 1, 2, 3]
    assert result.last_tick == 4


def asks_and_aborts(said: list[str]) -> Any:
    """A sink that has enough while its first ask pends."""

    def connect(read: Any) -> None:
        read(None, lambda _end, _value=None: said.append("ask answered"))
        read(True, lambda _end, _value=None: said.append("abort confirmed"))

    return sink(connect)


def test_a_sink_may_have_enough_while_the_flow_waits_for_its_sources() -> None:
    said: list[str] = []

    def silent(abort: End | None, answer: AnswerTo) -> None:
        if abort:
            said.append("source stopped")
            answer(abort)

    result = hr.run(numbers(), {"n": source(silent)}, {"n_out": asks_and_aborts(said)})
    assert said == ["source stopped", "ask answered", "abort confirmed"]
    assert result.ticks == 0


def test_a_sink_is_told_when_all_sources_have_confirmed() -> None:
    said: list[str] = []

    def slow(name: str) -> PullSource:
        def open(module: Module) -> Read:
            def confirm(abort: End, answer: AnswerTo) -> None:
                said.append(name)
                answer(abort)

            def read(abort: End | None, answer: AnswerTo) -> None:
                if abort:
                    module.later(0, confirm, abort, answer)

            return read

        return PullSource.of(name, open)

    flow = hr.Flow("both")
    flow.sink("out", flow.source("a", int).union(flow.source("b", int), flow.source("c", int)))
    files = Closing(said)
    hr.run(flow, {"a": slow("a"), "b": files, "c": slow("c")}, {"out": asks_and_aborts(said)})
    assert sorted(said[:3]) == ["a", "c", "closed"]
    assert said[3:] == ["ask answered", "abort confirmed"]


@dataclass(frozen=True)
class Closing(hr.io.Source):
    """A source without rows, for ever, that says when it is closed."""

    said: list[str]


class ClosingReader(hr.io.Reader):
    def __init__(self, said: list[str]) -> None:
        self._said = said

    def read(self, limit: int | None) -> hr.io.Batch | None:
        return None

    def close(self) -> None:
        super().close()
        self._said.append("closed")


@hr.io.open_source.register
def _(source: Closing, feed: hr.io.Feed) -> hr.io.Reader:
    return ClosingReader(source.said)


def test_a_reader_that_cannot_be_closed_is_an_error_of_the_run() -> None:
    class Broken(list[str]):
        def append(self, _text: str) -> None:
            raise OSError("cannot close")

    with pytest.raises(OSError, match="cannot close"):
        hr.run(numbers(), {"n": Closing(Broken())}, {"n_out": asks_and_aborts([])})


# --- errors --------------------------------------------------------------------------------


def test_a_function_that_raises_in_a_tick_reaches_both_ends(tmp_path: Path) -> None:
    told, heard = Told(), list[Any]()

    def listen(read: Any) -> None:
        def got(end: End | None, value: Any = None) -> None:
            heard.append(end or value)
            if end is None:
                read(None, got)

        read(None, got)

    flow = hr.Flow("inverse")
    flow.sink("out", flow.source("n", int).map(lambda n: 6 // (2 - n), returns=int))
    flow.sink("files", hr.Stream(flow, 0, flow.node(0).schema))
    with pytest.raises(UserFunctionFailed) as raised:
        hr.run(
            flow,
            {"n": told.source},
            {"out": sink(listen), "files": Changelog(tmp_path / "files")},
            tick_rows=1,
            checkpoint=tmp_path / "checkpoint",
        )
    error = raised.value
    assert heard == [(3, 1), (6, 1), error]
    assert told.stops == [error]
    assert sorted(p.name for p in (tmp_path / "files").iterdir()) == ["tick=1", "tick=2"]
    assert hr.run(numbers(), {"n": [1]}).last_tick == 1


def test_a_failing_sink_fails_the_sources_and_the_other_sinks() -> None:
    told, failure = Told(), OSError("the disk is full")
    ends: list[Any] = []

    def fail(_tick: int, _changes: Any) -> None:
        raise failure

    def listen(read: Any) -> None:
        read(
            None,
            lambda end, value=None: ends.append(end) if end else read(None, lambda e, v=None: ends.append(e)),
        )

    flow = numbers()
    flow.sink("other", hr.Stream(flow, 0, flow.node(0).schema))
    with pytest.raises(OSError, match="disk") as raised:
        hr.run(flow, {"n": told.source}, {"n_out": fail, "other": sink(listen)}, tick_rows=1)
    assert raised.value is failure
    assert told.stops == [failure]
    assert ends == [failure]


def test_a_failing_source_fails_the_other_sources_and_the_sinks() -> None:
    told, failure = Told(), ConnectionError("gone")

    def read(abort: End | None, answer: AnswerTo) -> None:
        answer(abort or failure)

    with pytest.raises(ConnectionError) as raised:
        hr.run(
            numbers("a", "b"), {"a": source(read), "b": told.source}, {"a_out": collect(), "b_out": collect()}
        )
    assert raised.value is failure
    assert told.stops == [failure]


def test_the_first_cause_is_raised_and_what_fails_while_closing_is_noted() -> None:
    def read(abort: End | None, answer: AnswerTo) -> None:
        answer(OSError("cannot close") if abort else None, 0)

    with pytest.raises(UserFunctionFailed) as raised:
        hr.run(inverse(), {"n": source(read)}, {"out": collect()})
    assert "cannot close" in "".join(raised.value.__notes__)


def test_a_source_that_fails_while_it_is_stopped_is_an_error() -> None:
    def read(abort: End | None, answer: AnswerTo) -> None:
        answer(OSError("cannot close") if abort else None, 0)

    with pytest.raises(OSError, match="cannot close"):
        hr.run(numbers(), {"n": source(read)}, {"n_out": pull(take(1), collect())})


# --- confirmation -----------------------------------------------------------------------------


def test_a_source_that_never_confirms_is_named() -> None:
    def stubborn(abort: End | None, answer: AnswerTo) -> None:
        if not abort:
            answer(None, 1)

    with pytest.raises(EndNotConfirmed, match="source n: stubborn"):
        hr.run(numbers(), {"n": source(stubborn)}, {"n_out": pull(take(1), collect())})


def test_a_source_that_does_not_confirm_in_time_is_named_in_a_loop_too() -> None:
    async def nothing(_change: Any) -> None: ...

    def stubborn(abort: End | None, answer: AnswerTo) -> None:
        if not abort:
            answer(None, 1)

    with pytest.raises(EndNotConfirmed, match="source n: stubborn") as raised:
        hr.run(
            numbers(),
            {"n": source(stubborn)},
            {"n_out": pull(take(1), for_each(nothing))},
            confirm_within=0.01,
        )
    assert raised.value.facts["modules"] == ("source n: stubborn",)


def test_a_source_that_nothing_will_come_of_is_named() -> None:
    with pytest.raises(NeverAnswered, match="source n: silent"):
        hr.run(numbers(), {"n": source(lambda _abort, _answer: None, name="silent")}, {"n_out": collect()})


def test_a_cancelled_run_stops_its_pull_sources() -> None:
    told = Told()

    async def session() -> None:
        began = asyncio.Event()

        async def wait(_change: Any) -> None:
            began.set()
            await asyncio.sleep(0)

        running = asyncio.create_task(
            hr.arun(numbers(), {"n": told.source}, {"n_out": for_each(wait)}, tick_rows=1)
        )
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(session())
    assert told.stops == [True]


# --- going on after a crash -----------------------------------------------------------------


class Crash(Exception):
    pass


@pytest.mark.parametrize("at", range(6))
def test_after_a_failure_the_last_tick_comes_once_more_and_nothing_is_missing(
    tmp_path: Path, at: int
) -> None:
    heard: list[int] = []

    def hear(change: Any) -> None:
        if len(heard) == at:
            heard.append(change.row)
            raise Crash
        heard.append(change.row)

    ends: dict[str, Any] = {"sources": {"n": values(range(6))}, "tick_rows": 3, "checkpoint": tmp_path}
    with pytest.raises(Crash):
        hr.run(numbers(), sinks={"n_out": for_each(hear)}, **ends)
    before = heard[:]
    heard.clear()
    at = 99
    hr.run(numbers(), sinks={"n_out": for_each(hear)}, **ends)
    tick = len(before[:-1]) // 3 * 3
    assert heard == list(range(tick, 6)), "from the beginning of the tick in which it failed"


def test_async_sources_bring_what_their_modules_make() -> None:
    async def three() -> AsyncIterator[int]:
        for n in (1, 2, 3):
            yield n

    assert hr.run(
        numbers(), {"n": pull(iterate(three()), map(lambda n: n * 10))}, {"n_out": collect()}
    ).results["n_out"] == [(10, 1), (20, 1), (30, 1)]


def test_an_endless_source_of_one_value_is_cut_by_its_own_pipeline() -> None:
    made = pull(infinite(lambda: 5), take(4))
    assert hr.run(numbers(), {"n": made}, {"n_out": collect()}, tick_rows=3).ticks == 2


def test_what_an_interrupt_kept_from_a_sink_comes_in_the_next_run(tmp_path: Path) -> None:
    heard: list[int] = []

    def hear(change: Any) -> None:
        if change.row == 4 and -1 not in heard:
            heard.append(-1)
            raise KeyboardInterrupt
        heard.append(change.row)

    ends: dict[str, Any] = {"sources": {"n": values(range(9))}, "tick_rows": 3, "checkpoint": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        hr.run(numbers(), sinks={"n_out": for_each(hear)}, **ends)
    hr.run(numbers(), sinks={"n_out": for_each(hear)}, **ends)
    assert heard == [0, 1, 2, 3, -1, 3, 4, 5, 6, 7, 8]


def test_a_tick_whose_preparation_is_interrupted_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, interrupted = ChangelogWriter.prepare, list[int]()

    def once(writer: ChangelogWriter, tick: int, rows: Any) -> None:
        if tick == 2 and not interrupted:
            interrupted.append(tick)
            raise KeyboardInterrupt
        prepare(writer, tick, rows)

    monkeypatch.setattr(ChangelogWriter, "prepare", once)
    told = Told()
    ends: dict[str, Any] = {"tick_rows": 1, "checkpoint": tmp_path / "checkpoint"}
    sinks = {"n_out": Changelog(tmp_path / "out")}
    with pytest.raises(KeyboardInterrupt):
        hr.run(numbers(), {"n": told.source}, sinks, **ends)
    assert [type(stop) for stop in told.stops] == [CallCancelled]
    hr.run(numbers(), {"n": values(range(3))}, sinks, **ends)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["tick=1", "tick=2", "tick=3"]


class Escape(BaseException):
    pass


def test_what_no_handler_may_catch_ends_a_run_within_a_loop_too() -> None:
    told = Told()

    def escape(progress: Any) -> None:
        if progress.tick == 3:
            raise Escape

    async def session() -> None:
        with pytest.raises(Escape):
            await asyncio.wait_for(
                hr.arun(numbers(), {"n": told.source}, {"n_out": collect()}, tick_rows=1, on_tick=escape), 10
            )

    asyncio.run(session())
    assert len(told.stops) == 1


def test_rows_taken_before_are_skipped_in_parts(tmp_path: Path) -> None:
    asked: list[int] = []

    def open(_module: Module) -> Any:
        left = 5000

        def read(abort: End | None, answer: AnswerTo, most: int) -> None:
            nonlocal left
            asked.append(most)
            given, left = min(most, left), left - min(most, left)
            answer(abort or (None if given else True), [0] * given)

        return read

    rows = PullSource.of("rows", open, batches=True, linear=True)
    for _ in range(2):
        assert hr.run(numbers(), {"n": rows}, {"n_out": collect()}, checkpoint=tmp_path).last_tick == 5
    assert max(asked) == 1000


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "x"])
def test_a_time_limit_that_is_none_is_refused(limit: Any) -> None:
    with pytest.raises(BadOption, match="confirm_within"):
        hr.run(numbers(), {"n": [1]}, confirm_within=limit)
    with pytest.raises(BadOption, match="confirm_within"):
        asyncio.run(hr.arun(numbers(), {"n": [1]}, confirm_within=limit))
