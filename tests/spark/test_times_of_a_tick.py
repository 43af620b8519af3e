"""A tick that is several times: each change leaves at its own, in both ways of a tick. No Spark needed."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from headrace import Engine
from headrace.compute.errors import NotServable
from headrace.compute.plans import check_servable
from headrace.errors import HeadraceError
from headrace.spark.ticks.intake import SpooledTimes
from tests.properties.effort import examples
from tests.random_flows.cases import Case, Tick, cases, cuts
from tests.spark.tasks_in_process import InProcessTasks


@st.composite
def served(draw: st.DrawFn) -> tuple[Case, list[Tick]]:
    case = draw(cases(folds=True))
    try:
        check_servable(case.flow)
    except NotServable:
        assume(False)
    return case, draw(cuts(case, most=5))


class Timed(InProcessTasks):
    """The next tick takes all given ticks as times: 10, 20, ..."""

    def __init__(self, case: Case, shards: int, folder: Path, way: str) -> None:
        super().__init__(case.flow, shards, folder, way, reading=SpooledTimes())

    def run(self, ticks: list[Tick], first: int) -> dict[int, dict[str, Counter[Any]]]:
        """Per time and sink the changes of one tick; `first` is the number of the first time."""
        self.times = tuple(10 * (first + at) for at in range(len(ticks)))
        inputs: dict[str, list[tuple[int, list[Any]]]] = {}
        for number, tick in enumerate(ticks):
            for name, changes in tick.items():
                rows = self.engine.internal_rows(name, list(changes))
                inputs.setdefault(name, []).append((number, rows))
        found: dict[int, dict[str, Counter[Any]]] = {time: {} for time in self.times}
        for name, rows in self.tick(inputs).items():
            for row in rows:
                found[row[-1]].setdefault(name, Counter())[row[:-2]] += row[-2]
        return found


def nonzero(changes: dict[str, Counter[Any]]) -> dict[str, dict[Any, int]]:
    kept = {name: {row: n for row, n in rows.items() if n} for name, rows in changes.items()}
    return {name: rows for name, rows in kept.items() if rows}


@examples(0.5)
@given(served(), st.integers(1, 3), st.sampled_from(["one task", "stages"]), st.data())
def test_each_time_of_a_tick_gives_what_a_tick_of_its_own_gives(
    drawn: tuple[Case, list[Tick]], shards: int, way: str, data: st.DataObject
) -> None:
    case, ticks = drawn
    engine = Engine(case.flow)
    try:
        expected = [{n: c.raw for n, c in engine.tick(**tick).items()} for tick in ticks]
    except HeadraceError:
        assume(False)
        raise
    cut = data.draw(st.integers(0, len(ticks)), "ticks in the first one")
    with tempfile.TemporaryDirectory() as folder:
        timed = Timed(case, shards, Path(folder), way)
        found = dict(timed.run(ticks[:cut], 0)) if cut else {}
        if cut < len(ticks):
            found |= timed.run(ticks[cut:], cut)
    for at, changes in enumerate(expected):
        wanted: dict[str, Counter[Any]] = {}
        for name, rows in changes.items():
            for row in rows:
                wanted.setdefault(name, Counter())[row[:-1]] += row[-1]
        assert nonzero(found[10 * at]) == nonzero(wanted)
