"""Options that make no sense are refused where they are written, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace.errors import BadOption
from headrace.pull import (
    PullTransformer,
    async_map,
    batch,
    eager,
    high_watermark,
    limit,
    map,
    paramap,
    recent,
    skip,
    sliding,
    take,
    throttle,
    timeout,
)


async def call(x: Any) -> Any:
    return x


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: take("2"), "count"),
        (lambda: take(1.5), "count"),
        (lambda: skip(None), "count"),
        (lambda: batch(0), "size"),
        (lambda: sliding(0), "size"),
        (lambda: recent(0), "size"),
        (lambda: recent(1, 0), "seconds"),
        (lambda: recent(1, float("nan")), "seconds"),
        (lambda: async_map(call, 0), "width"),
        (lambda: async_map(call, True), "width"),
        (lambda: paramap(str, 0), "width"),
        (lambda: limit(map(str), 0), "count"),
        (lambda: eager(0), "bound"),
        (lambda: high_watermark(0), "high"),
        (lambda: high_watermark(3, -1), "low"),
        (lambda: high_watermark(3, 3), "low"),
        (lambda: throttle(every=0), "every"),
        (lambda: throttle(per_second=-1), "per_second"),
        (lambda: throttle(every=float("inf")), "every"),
        (lambda: throttle(every="1"), "every"),
        (lambda: throttle(), "per_second"),
        (lambda: throttle(per_second=1, every=1), "per_second"),
        (lambda: timeout(0), "seconds"),
    ],
)
def test_an_option_of_the_wrong_size_is_refused(make: Callable[[], PullTransformer], option: str) -> None:
    with pytest.raises(BadOption) as error:
        make()
    assert f"{option}=" in str(error.value)
    assert error.value.where[0].location.file == __file__
    assert error.value.fix
