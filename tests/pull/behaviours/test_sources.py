"""The described behaviours of sources, of pushable, cat and defer."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.pull import (
    PullSource,
    cat,
    collect,
    defer,
    empty,
    error,
    keys,
    once,
    pull,
    pushable,
    take,
    values,
)
from headrace.pull.protocol import End
from tests.pull.core.modules import Hand, Manual
from tests.pull.described import case


def answers(source: PullSource, *requests: End | None) -> list[Any]:
    """What a source answers these requests, made one after the other."""
    hand = Hand()
    pull(source, hand.sink).start()
    for at, request in enumerate(requests):
        hand.request(str(at), request)
    assert [name for name, _ in hand.heard] == [str(at) for at in range(len(requests))]
    return [answer for _, answer in hand.heard]


@case("values: emits in order then end")
def test_values_come_in_order_then_the_end() -> None:
    assert answers(values([1, 2, 3]), None, None, None, None) == [1, 2, 3, True]


@case("values: end is repeatable")
def test_the_end_is_answered_again_and_again() -> None:
    assert answers(values([1]), None, None, None)[1:] == [True, True]


@case("values: falsy argument is an empty stream")
def test_values_of_nothing_is_empty() -> None:
    assert answers(values(), None) == answers(values(None), None) == [True]


@case("values: abort(err) answers err and calls onAbort(err) after the callback")
def test_on_stop_is_called_after_the_confirmation_was_given() -> None:
    cause = OSError("x")
    for request, told in ((cause, cause), (True, None)):
        order: list[Any] = []
        source = values([1, 2], on_stop=lambda error, order=order: order.append(("on_stop", error)))
        read: Any = source.part.open(None)  # type: ignore[arg-type]
        read(request, lambda end, _values=None, order=order: order.append(("confirmed", end)), 1)
        assert order == [("confirmed", request), ("on_stop", told)]
        assert answers(values([1, 2]), None, request) == [1, request]


@case("keys: object keys")
def test_keys_of_a_mapping() -> None:
    assert pull(keys({"a": 1, "b": 2, "c": 3}), collect()).run() == ["a", "b", "c"]


@case("once(null) is empty")
def test_once_none_is_one_value_here() -> None:
    """None is a value; the stream without one is `empty()`."""
    assert answers(once(None), None, None) == [None, True]


@case("once(false) emits false")
def test_once_false_is_one_value() -> None:
    assert answers(once(False), None, None) == [False, True]


@case("empty ends; ignores the abort value")
def test_empty_is_done_and_confirms_an_error_as_every_source_does() -> None:
    """The original confirms an error by done, ours by that error: whoever fails a stream hears it again."""
    cause = OSError("x")
    assert answers(empty(), None) == [True]
    assert answers(empty(), True) == [True]
    assert answers(empty(), cause) == [cause]


@case("error answers the error to every request, also to abort")
def test_error_answers_everything_by_the_error() -> None:
    cause = OSError("x")
    assert answers(error(cause), None, None, True) == [cause, cause, cause]
    assert answers(error(cause), True) == [cause]


@case("pushable: buffers until read, end drains the buffer first, also end(err)")
def test_pushable_gives_what_was_pushed_before_its_error() -> None:
    numbers, torn = pushable(), OSError("torn")
    numbers.push(1)
    numbers.end(torn)
    run = pull(numbers, collect()).start()
    assert run.partial == [1]
    with pytest.raises(OSError, match="torn"):
        run.result()


@case("pushable: push after end is ignored")
def test_pushable_ignores_what_is_pushed_after_its_end() -> None:
    numbers = pushable()
    assert numbers.push(1)
    numbers.end()
    assert not numbers.push(2)
    assert pull(numbers, collect()).run() == [1]


@case("pushable: abort with a pending read: onClose, read cb, abort cb")
def test_pushable_closes_then_answers_the_read_then_the_abort() -> None:
    hand = Hand()
    numbers = pushable(on_close=lambda error: hand.heard.append(("closed", error)))
    pull(numbers, hand.sink).start()
    hand.request("read")
    hand.request("abort", True)
    assert hand.heard == [("closed", None), ("read", True), ("abort", True)]


@case("pushable: abort discards buffered data at once; later pushes still accumulate")
def test_pushable_keeps_nothing_after_an_abort() -> None:
    """In the original what is pushed after an abort stays for ever; here it is refused."""
    hand, cause = Hand(), OSError("x")
    numbers = pushable(on_close=lambda error: hand.heard.append(("closed", error)))
    pull(numbers, hand.sink).start()
    numbers.push(1)
    hand.request("abort", cause)
    assert hand.heard == [("closed", cause), ("abort", cause)]
    assert not numbers.push(2)
    assert numbers.waiting == 0


@case("pushable + take(3): onClose called when take aborts")
def test_take_closes_a_pushable() -> None:
    closed: list[Exception | None] = []
    numbers = pushable(on_close=closed.append)
    for number in range(1, 6):
        numbers.push(number)
    assert pull(numbers, take(3), collect()).run() == [1, 2, 3]
    assert closed == [None]


@case("cat: concatenates, skips null")
def test_cat_skips_none() -> None:
    assert pull(cat([values([1, 2]), None, values([3])]), collect()).run() == [1, 2, 3]


@case("cat: abort aborts every remaining stream and then confirms")
def test_cat_confirms_after_what_it_has_opened() -> None:
    """The original opens the rest in order to abort it; what was never opened needs no abort."""
    first, rest, hand = Manual(), Manual(), Hand()
    pull(cat([first.source, rest.source]), hand.sink).start()
    hand.request("one")
    hand.request("abort", True)
    assert first.requests == [None, True]
    assert hand.heard == []
    first.answer(1, True)
    assert hand.heard == [("one", True), ("abort", True)]
    assert rest.module is None


@case("defer.source: read before resolve is queued; read+abort replayed in order")
def test_a_deferred_source_hears_in_order_what_was_asked_of_it() -> None:
    """In the original the read gets 7; here it gets the end, as every read that an abort overtakes."""
    stops: list[Exception | None] = []
    later, hand = defer(PullSource), Hand()
    pull(later, hand.sink).start()
    hand.request("read")
    hand.request("abort", True)
    assert hand.heard == []
    later.resolve(values([7, 8], on_stop=stops.append))
    assert hand.heard == [("read", True), ("abort", True)]
    assert stops == [None]

    later, hand = defer(PullSource), Hand()
    pull(later, hand.sink).start()
    hand.request("read")
    later.resolve(values([7, 8]))
    assert hand.heard == [("read", 7)]


@case("defer.source.abort(err) answers err")
def test_an_aborted_deferred_source_answers_by_the_error() -> None:
    cause = OSError("x")
    later = defer(PullSource)
    later.abort(cause)
    assert answers(later, None) == [cause]
