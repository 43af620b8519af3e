"""Every sink keeps the rules whatever its source does, and in whatever order things happen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.pull import (
    PullSink,
    collect,
    concat,
    drain,
    find,
    for_each,
    join_lines,
    last,
    log,
    map,
    on_end,
    pull,
    reduce,
    to_file,
)
from headrace.pull.errors import NoValue
from headrace.pull.rules.checker import Profile
from headrace.testing import check_sink

Result = Callable[[list[int]], Any]


async def rest(value: int) -> None:
    await asyncio.sleep(0.01 * (value % 3))


def nothing(_value: Any) -> None:
    return None


def aborted() -> PullSink:
    sink = drain()
    sink.abort()
    return sink


SINKS: dict[str, tuple[Callable[[], PullSink], Result | None, Result | None]] = {
    "collect": (collect, list, list),
    "collect in batches": (lambda: collect(batch=3), list, list),
    "concat": (concat, lambda values: "".join(str(value) for value in values), None),
    "drain": (drain, nothing, None),
    "drain of two": (lambda: drain(lambda value: value != 2), nothing, None),
    "drain that was aborted": (aborted, nothing, None),
    "find": (lambda: find(lambda value: value == 2), lambda values: 2 if 2 in values else None, None),
    "for_each": (lambda: for_each(lambda value: None), nothing, None),
    "for_each that waits": (lambda: for_each(rest), nothing, None),
    "for_each of two at once": (lambda: for_each(rest, width=2), nothing, None),
    "for_each that cancels": (lambda: for_each(rest, width=2, cancel=True), nothing, None),
    "last": (lambda: last(default=0), lambda values: ([0, *values])[-1], lambda values: ([0, *values])[-1]),
    "log": (lambda: log(to=nothing), nothing, None),
    "on_end": (lambda: on_end(nothing), nothing, None),
    "reduce": (lambda: reduce(lambda total, value: total + value, 10), lambda values: 10 + sum(values), None),
}

AHEAD = ("for_each of two at once", "for_each that cancels")
"""Sinks that ask for a value while they wait for another, which the older rules do not know."""


@pytest.mark.parametrize("name", SINKS)
def test_a_sink_keeps_the_rules_in_every_order(name: str) -> None:
    make, result, partial = SINKS[name]
    profiles: tuple[Profile, ...] = ("spec",) if name in AHEAD else ("spec", "docs")
    assert check_sink(make, result=result, partial=partial, profiles=profiles, seeds=100) > 100


def test_reduce_keeps_the_rules_where_an_empty_stream_is_an_error() -> None:
    check_sink(lambda: reduce(max), result=lambda values: max(values), fails=NoValue, seeds=100)


def test_a_file_is_there_as_a_whole_or_not_at_all_in_every_order(tmp_path: Path) -> None:
    path = tmp_path / "out"

    def make() -> PullSink:
        assert not list(tmp_path.glob(".*"))
        path.unlink(missing_ok=True)
        return pull(map(str), join_lines(), to_file(path))

    check_sink(make, result=lambda values: sum(len(str(value)) + 1 for value in values), seeds=100)
    assert not list(tmp_path.glob(".*"))
