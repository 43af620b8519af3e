"""iterate: iterables and iterators, drawn as they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.pull import collect, iterate, pull, take
from headrace.pull.errors import AlreadyUsed
from tests.pull.core.modules import Hand


class Letters:
    """Can be iterated again; notes what happens to its generators."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.seen: list[str] = []

    def __iter__(self) -> Iterator[str]:
        self.seen.append("begin")
        try:
            for letter in self.text:
                self.seen.append(letter)
                yield letter
        finally:
            self.seen.append("closed")


def test_one_is_drawn_for_each_that_is_asked_for() -> None:
    letters = Letters("abc")
    hand = Hand()
    pull(iterate(letters), hand.sink).start()
    assert letters.seen == []
    hand.request("one")
    assert letters.seen == ["begin", "a"]
    hand.request("two")
    assert letters.seen == ["begin", "a", "b"]


def test_each_run_begins_an_iterable_anew() -> None:
    pipeline = pull(iterate(Letters("ab")), collect())
    assert pipeline.run() == pipeline.run() == ["a", "b"]


def test_an_abort_closes_a_generator_before_it_is_confirmed() -> None:
    letters = Letters("abc")
    hand = Hand()
    pull(iterate(letters), hand.sink).start()
    hand.request("one")
    hand.request("stop", OSError("x"))
    assert letters.seen == ["begin", "a", "closed"]
    assert hand.heard[-1][0] == "stop"


def test_the_confirmation_is_given_when_the_generator_has_closed() -> None:
    letters = Letters("abc")
    read: Any = iterate(letters).part.open(None)  # type: ignore[arg-type]
    read(None, lambda end, found=None: letters.seen.append(f"gave {found}"), 1)
    read(True, lambda end, found=None: letters.seen.append("confirmed"), 1)
    assert letters.seen == ["begin", "a", "gave ['a']", "closed", "confirmed"]


def test_an_abort_before_the_first_ask_begins_nothing() -> None:
    letters = Letters("abc")
    assert pull(iterate(letters), take(0), collect()).run() == []
    assert letters.seen == []


def test_an_iterator_that_was_not_begun_can_still_be_used() -> None:
    pipeline = iterate(iter("ab"))
    assert pull(pipeline, take(0), collect()).run() == []
    assert pull(pipeline, collect()).run() == ["a", "b"]
    with pytest.raises(AlreadyUsed):
        pull(pipeline, collect()).run()


def test_the_second_run_of_an_iterator_that_has_begun_fails_though_values_are_left() -> None:
    pipeline = iterate(iter("abc"))
    assert pull(pipeline, take(1), collect()).run() == ["a"]
    with pytest.raises(AlreadyUsed, match="read a second time"):
        pull(pipeline, take(1), collect()).run()


def test_a_file_that_somebody_else_has_opened_stays_open() -> None:
    with open(__file__) as file:
        found = pull(iterate(file), take(1), collect()).run()
        assert found[0].startswith('"""iterate')
        assert not file.closed


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_an_error_of_the_iterator_comes_after_its_values(batch: int) -> None:
    def broken() -> Iterator[int]:
        yield 1
        yield 2
        raise OSError("torn")

    run = pull(iterate(broken()), collect(batch=batch)).start()
    assert run.partial == [1, 2]
    with pytest.raises(OSError, match="torn"):
        run.result()


def test_an_error_of_beginning_is_the_answer() -> None:
    class Broken:
        def __iter__(self) -> Iterator[int]:
            raise OSError("cannot be opened")

    with pytest.raises(OSError, match="cannot be opened"):
        pull(iterate(Broken()), collect()).run()


def test_an_error_of_closing_is_what_the_abort_is_answered_by() -> None:
    def clings() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            raise OSError("does not close")

    with pytest.raises(OSError, match="does not close"):
        pull(iterate(clings()), take(1), collect()).run()


def test_a_million_values_take_no_stack() -> None:
    assert len(pull(iterate(iter(range(1_000_000))), collect()).run()) == 1_000_000
