"""Every example runs on every engine; the oracle, which judges random flows, is held to them too."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import NotOnSpark
from headrace.lowering.reference import NotOfBags
from headrace.spark.refusals import check_runs_on_spark
from headrace.testing import Backend, InProcess
from headrace.testing.oracle import TickOracle
from headrace.testing.tick_tables import TickInput
from tests.random_flows.cases import Accumulated, Case
from tests.spark.tasks_in_process import SPOOLED, InProcessTasks


class FromScratch:
    """The oracle as an engine: each tick it answers all over again, and tells the difference."""

    def changes(
        self, flow: hr.Flow, ticks: Sequence[TickInput]
    ) -> list[dict[str, list[tuple[tuple[Any, ...], int]]]]:
        case = Case(flow, {name: [] for name in flow.graph().sources})
        oracle = TickOracle(case.graph)
        out: list[dict[str, list[tuple[tuple[Any, ...], int]]]] = []
        for tick in ticks:
            came = Accumulated(case)
            came.add({name: list(rows) for name, rows in tick.items()})
            try:
                changes = oracle.tick(came.inputs)
            except NotOfBags as unknown:
                pytest.skip(f"the oracle knows bags alone: {unknown}")
            out.append({name: _plain(bag) for name, bag in changes.items()})
        return out


def _plain(changes: Counter[tuple[Any, ...]]) -> list[tuple[tuple[Any, ...], int]]:
    """Changes as engines give them: copies one by one where nothing is taken back."""
    if all(count > 0 for count in changes.values()):
        return [(row, 1) for row in changes.elements()]
    return list(changes.items())


class InShards:
    """What Spark runs in its tasks, on three shards with shuffles between the stages, without Spark.

    reading: how rows come in; None for columns, as from a DataFrame.
    """

    def __init__(self, reading: object = SPOOLED) -> None:
        self.reading = reading

    def changes(
        self, flow: hr.Flow, ticks: Sequence[TickInput]
    ) -> list[dict[str, list[tuple[tuple[Any, ...], int]]]]:
        try:
            check_runs_on_spark(flow.graph())
        except NotOnSpark as refused:
            pytest.skip(f"refused, as it should be: {refused.why}")
        with tempfile.TemporaryDirectory() as folder:
            tasks = InProcessTasks(flow, shards=3, folder=Path(folder), way="stages", reading=self.reading)
            out: list[dict[str, list[tuple[tuple[Any, ...], int]]]] = []
            for tick in ticks:
                changes = tasks.tick(tick)
                out.append({n: [(tuple(row[:-1]), row[-1]) for row in rows] for n, rows in changes.items()})
            return out


ENGINES: dict[str, Callable[[], Backend]] = {
    "in process": InProcess,
    "in shards": InShards,
    "in shards, from columns": lambda: InShards(None),
    "from scratch": FromScratch,
}


@pytest.fixture(params=ENGINES)
def backend(request: pytest.FixtureRequest) -> Backend:
    return ENGINES[request.param]()
