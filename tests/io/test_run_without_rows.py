"""A run whose sources bring nothing has a first tick, if something is said in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr


def flow() -> hr.Flow:
    made = hr.Flow("nothing")
    n = made.source("n", int)
    made.sink("sum", n.fold(0, lambda sum, x: sum + x))
    made.sink("begun", made.initialize().map(lambda _: "begun", returns=str))
    return made


async def nothing() -> AsyncIterator[int]:
    for n in ():
        yield n


@pytest.mark.parametrize("source", [[], nothing])
def test_what_is_there_from_the_first_tick_on_is_there(source: Any) -> None:
    sums: list[Any] = []
    begun: list[Any] = []
    result = hr.run(flow(), {"n": source}, {"sum": sums, "begun": begun})
    assert (result.last_tick, sums, begun) == (1, [(0, 1)], [("begun", 1)])


def test_a_run_that_goes_on_had_its_first_tick(tmp_path: Path) -> None:
    found: list[list[Any]] = []
    for rows in ([], [], [5]):
        sink = hr.io.Memory()
        hr.run(flow(), {"n": rows}, {"sum": sink}, checkpoint=tmp_path)
        found.append([tuple(change) for change in sink.changes()])
    assert found == [[(0, 1)], [], [(0, -1), (5, 1)]]


def test_a_run_without_rows_in_which_nothing_is_said_has_no_tick() -> None:
    quiet = hr.Flow("quiet")
    quiet.sink("out", quiet.source("n", int))
    assert hr.run(quiet, {"n": []}, {"out": []}).ticks == 0
