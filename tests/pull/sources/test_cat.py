"""cat: sources one after the other, each opened when its turn has come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.pull import PullSource, cat, collect, count, empty, error, iterate, map, pull, take, values
from headrace.pull.errors import AlreadyUsed, NotComposable
from headrace.pull.module_context import Module
from tests.pull.core.modules import Hand, Manual
from tests.pull.core.test_stack import little_stack


def test_one_after_the_other_and_none_is_skipped() -> None:
    source = cat([values([1, 2]), None, empty(), pull(values([3]), map(lambda x: x * 10))])
    assert pull(source, collect()).run() == [1, 2, 30]
    assert pull(source, collect(batch=5)).run() == [1, 2, 30]


@pytest.mark.parametrize("sources", [[], [None], [empty(), None, empty()]])
def test_nothing_of_nothing(sources: list[PullSource | None]) -> None:
    assert pull(cat(sources), collect()).run() == []


def opened(seen: list[str], name: str, source: PullSource) -> PullSource:
    def open(module: Module) -> Any:
        seen.append(name)
        return source.part.open(module)

    return PullSource.of(name, open, batches=True)


def test_a_source_is_made_and_opened_when_its_turn_has_come() -> None:
    seen: list[str] = []

    def made() -> Iterator[PullSource]:
        for name in ("a", "b", "c"):
            seen.append(f"make {name}")
            yield opened(seen, name, values([name]))

    hand = Hand()
    pull(cat(made()), hand.sink).start()
    assert seen == []
    hand.request("one")
    assert seen == ["make a", "a"]
    hand.request("two")
    assert seen == ["make a", "a", "make b", "b"]
    hand.request("stop", True)
    assert hand.heard == [("one", "a"), ("two", "b"), ("stop", True)]
    assert len(seen) == 4


def test_requests_that_the_end_of_a_source_leaves_over_go_to_the_next_in_order() -> None:
    first, second = Manual(), Manual()
    hand = Hand()
    pull(cat([first.source, second.source]), hand.sink).start()
    for name in ("one", "two", "three"):
        hand.request(name)
    assert first.requests == [None, None, None]
    first.answer(0, None, "a")
    first.answer(1, True)
    assert second.requests == [None, None]
    second.answer(0, None, "b")
    second.answer(1, None, "c")
    assert hand.heard == [("one", "a"), ("two", "b"), ("three", "c")]


def test_an_abort_is_confirmed_after_the_open_source_and_the_others_hear_nothing() -> None:
    first, second = Manual(), Manual()
    closed: list[str] = []

    def made() -> Iterator[PullSource]:
        try:
            yield first.source
            yield second.source
        finally:
            closed.append("generator")

    hand = Hand()
    pull(cat(made()), hand.sink).start()
    hand.request("one")
    hand.request("stop", True)
    assert first.requests == [None, True]
    assert (hand.heard, closed) == ([], [])
    first.answer(1, True)
    assert hand.heard == [("one", True), ("stop", True)]
    assert closed == ["generator"]
    assert second.requests == []


def test_an_abort_between_two_sources_opens_no_further_one() -> None:
    stops: list[str] = []
    first = values([1], on_stop=lambda _error: stops.append("first"))
    second = values([2], on_stop=lambda _error: stops.append("second"))
    assert pull(cat([first, second]), take(1), collect()).run() == [1]
    assert stops == ["first"]


def test_an_abort_before_the_first_ask_touches_nothing() -> None:
    first = Manual()
    hand = Hand()
    pull(cat([first.source]), hand.sink).start()
    hand.request("stop", OSError("x"))
    assert [name for name, _ in hand.heard] == ["stop"]
    assert first.requests == []


def test_the_first_error_ends_the_stream_and_closes_the_generator() -> None:
    closed: list[str] = []

    def made() -> Iterator[PullSource]:
        try:
            yield values([1])
            yield error(OSError("torn"))
            yield values([2])
        finally:
            closed.append("generator")

    run = pull(cat(made()), collect()).start()
    assert run.partial == [1]
    with pytest.raises(OSError, match="torn"):
        run.result()
    assert closed == ["generator"]


def test_a_source_that_fails_while_it_is_closed_is_heard() -> None:
    def clings() -> Iterator[int]:
        try:
            yield 1
        finally:
            raise OSError("does not close")

    with pytest.raises(OSError, match="does not close"):
        pull(cat([iterate(clings())]), take(1), collect()).run()


def test_what_the_maker_of_sources_raises_is_the_answer() -> None:
    def made() -> Iterator[PullSource]:
        yield values([1])
        raise OSError("no further one")

    run = pull(cat(made()), collect()).start()
    assert run.partial == [1]
    with pytest.raises(OSError, match="no further one"):
        run.result()


@pytest.mark.parametrize(
    ("wrong", "called"), [([1], "a value of type list"), (collect(), "the sink 'collect'")]
)
def test_what_is_no_source_is_named(wrong: Any, called: str) -> None:
    with pytest.raises(NotComposable, match=f"cat.. was given {called}, which is no source"):
        pull(cat([values([1]), wrong]), collect()).run()


def test_a_collection_of_sources_is_read_anew_and_a_generator_once() -> None:
    again = pull(cat([values([1])]), collect())
    assert again.run() == again.run() == [1]
    once = pull(cat(values([n]) for n in range(2)), collect())
    assert once.run() == [0, 1]
    with pytest.raises(AlreadyUsed, match=r"cat\(\)"):
        once.run()


def test_a_hundred_thousand_empty_sources_take_no_stack_and_keep_no_module() -> None:
    pipeline = pull(cat(empty() for _ in range(100_000)), collect())
    with little_stack():
        run = pipeline.start()
    assert run.result() == []
    assert len(run.modules) < 10


def test_a_million_values_take_no_stack() -> None:
    with little_stack():
        found = pull(cat(count(last=9_999, start=0) for _ in range(100)), collect(batch=100)).run()
    assert len(found) == 1_000_000
