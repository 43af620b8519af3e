"""Every transformer between sources and sinks that do everything these may do, in any order.

It catches answers that are missing, doubled or out of order, stops that go up twice or not at all,
ends before upstream has confirmed, and values that depend on the order of events.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.pull import (
    abortable,
    async_map,
    batch,
    catch,
    eager,
    filter,
    filter_not,
    high_watermark,
    limit,
    map,
    non_unique,
    paramap,
    pull,
    recent,
    skip,
    skip_while,
    sliding,
    take,
    take_while,
    tap,
    throttle,
    through,
    timeout,
    unbatch,
    unique,
)
from headrace.pull.errors import NoAnswerInTime
from headrace.testing.pull import check_transformer


def same(xs: list[int]) -> list[int]:
    return xs


def pairs(xs: list[int]) -> list[list[int]]:
    return [xs[at : at + 2] for at in range(0, len(xs), 2)]


def odd(x: int) -> int:
    return x % 2


def fails_at_two(x: int) -> float:
    return 1 / (x - 2)


async def slow(x: int) -> int:
    """Later values are ready earlier."""
    await asyncio.sleep([0.3, 0.1, 0.2][x % 3])
    return 10 * x


async def at_once(x: int) -> int:
    return 10 * x


async def slow_and_fails_at_two(x: int) -> float:
    await slow(x)
    return fails_at_two(x)


def tenfold(xs: list[int]) -> list[int]:
    return [10 * x for x in xs]


FUNCTION_FAILS: dict[str, Any] = {"fails": ZeroDivisionError}
OTHER_COUNT: dict[str, Any] = {"one_to_one": False}
# Their streams are complete where upstream fails at a value that they did not want, or may.
ENDS_BEFORE: dict[str, Any] = {"one_to_one": False, "except_for": ["T8"]}

CHECKED: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "map": (lambda: map(str), lambda xs: [str(x) for x in xs], {}),
    "map whose function fails": (lambda: map(fails_at_two), None, FUNCTION_FAILS),
    "filter": (lambda: filter(odd), lambda xs: [x for x in xs if odd(x)], OTHER_COUNT),
    "filter of nothing": (lambda: filter(lambda _x: False), lambda _xs: [], OTHER_COUNT),
    "filter whose test fails": (lambda: filter(fails_at_two), None, OTHER_COUNT | FUNCTION_FAILS),
    "filter_not": (lambda: filter_not(odd), lambda xs: [x for x in xs if not odd(x)], OTHER_COUNT),
    "take nothing": (lambda: take(0), lambda _xs: [], OTHER_COUNT),
    "take 2": (lambda: take(2), lambda xs: xs[:2], OTHER_COUNT),
    "take more": (lambda: take(9), same, OTHER_COUNT),
    "take_while": (lambda: take_while(lambda x: x < 2), lambda xs: xs[:1], ENDS_BEFORE),
    "take_while last": (lambda: take_while(lambda x: x < 2, last=True), lambda xs: xs[:2], ENDS_BEFORE),
    "take_while whose test fails": (lambda: take_while(fails_at_two), None, ENDS_BEFORE | FUNCTION_FAILS),
    "skip": (lambda: skip(1), lambda xs: xs[1:], OTHER_COUNT),
    "skip_while": (lambda: skip_while(lambda x: x < 2), lambda xs: xs[1:], OTHER_COUNT),
    "unique": (lambda: unique(odd), lambda xs: xs[:2], OTHER_COUNT),
    "non_unique": (lambda: non_unique(odd), lambda xs: xs[2:], OTHER_COUNT),
    "tap": (lambda: tap(str), same, {}),
    "through": (lambda: through(str, str), same, {}),
    "batch": (lambda: batch(2), pairs, OTHER_COUNT),
    "unbatch": (
        lambda: pull(map(lambda x: [x] * (x - 1)), unbatch()),
        lambda xs: [x for x in xs for _ in range(x - 1)],
        OTHER_COUNT,
    ),
    "recent": (lambda: recent(2), pairs, OTHER_COUNT),
    "recent in time": (lambda: pull(recent(2, 0.5), unbatch()), same, OTHER_COUNT),
    "sliding": (lambda: sliding(2), lambda xs: [xs[at : at + 2] for at in range(len(xs) - 1)], OTHER_COUNT),
    "async_map that waits for nothing": (lambda: async_map(at_once, 2), tenfold, {}),
    "limit": (lambda: limit(pull(map(tenfold_of), eager(3)), 2), tenfold, OTHER_COUNT),
    "catch": (lambda: catch(), same, ENDS_BEFORE | {"recovers": True}),
    "catch that gives a value": (lambda: catch(lambda _e: 0), None, ENDS_BEFORE | {"recovers": True}),
    "catch that passes": (lambda: catch(lambda _e: False), same, {}),
    "catch that fails": (lambda: catch(lambda _e: 1 / 0), same, ENDS_BEFORE | FUNCTION_FAILS),
    "abortable": (lambda: abortable(), same, {}),
    "eager": (lambda: eager(2), same, OTHER_COUNT),
    "high_watermark": (lambda: high_watermark(3, 1), same, OTHER_COUNT),
    "throttle": (lambda: throttle(every=0.5), same, {}),
    "timeout": (lambda: timeout(0.5), None, {"fails": NoAnswerInTime}),
}


def tenfold_of(x: int) -> int:
    return 10 * x


@pytest.mark.parametrize("name", CHECKED)
def test_a_transformer_keeps_the_rules(name: str) -> None:
    make, expected, options = CHECKED[name]
    assert check_transformer(make, expected=expected, seeds=100, **options) > 100


@pytest.mark.parametrize("cancel", [False, True])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("width", [1, 3])
def test_async_map_keeps_the_rules(width: int, ordered: bool, cancel: bool) -> None:
    check_transformer(
        lambda: async_map(slow, width, ordered=ordered, cancel=cancel),
        expected=tenfold,
        ordered=ordered,
        seeds=100,
    )
    check_transformer(
        lambda: async_map(slow_and_fails_at_two, width, ordered=ordered, cancel=cancel),
        fails=ZeroDivisionError,
        seeds=100,
    )


@pytest.mark.parametrize("ordered", [True, False])
def test_paramap_keeps_the_rules(ordered: bool) -> None:
    check_transformer(
        lambda: paramap(tenfold_of, 2, ordered=ordered), expected=tenfold, ordered=ordered, seeds=20
    )
    check_transformer(lambda: paramap(fails_at_two, 2, ordered=ordered), fails=ZeroDivisionError, seeds=20)
