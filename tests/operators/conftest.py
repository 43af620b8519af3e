"""Every example runs on every engine; the oracle, which judges random flows, is held to them too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import penstock as ps
from penstock.testing import Backend, InProcess, answers
from penstock.testing.strategies import Accumulated, Case
from penstock.testing.ticks import TickInput


class FromScratch:
    """The oracle as an engine: each tick it answers all over again, and tells the difference."""

    def changes(
        self, flow: ps.Flow, ticks: Sequence[TickInput]
    ) -> list[dict[str, list[tuple[tuple[Any, ...], int]]]]:
        case = Case(flow, {name: [] for name in flow.graph().sources})
        if case.is_deferred:
            pytest.skip("the oracle knows what is there in the end, not in which tick it comes")
        so_far = Accumulated(case)
        before: dict[str, Counter[Any]] = {name: Counter() for name in case.graph.sinks}
        out: list[dict[str, list[tuple[tuple[Any, ...], int]]]] = []
        for tick in ticks:
            so_far.add({name: list(rows) for name, rows in tick.items()})
            after = answers(case.graph, so_far.inputs)
            for name, bag in after.items():
                before[name].subtract(bag)
            out.append({name: [(row, -n) for row, n in bag.items() if n] for name, bag in before.items()})
            before = after
        return out


@pytest.fixture(params=["in process", "from scratch"])
def backend(request: pytest.FixtureRequest) -> Backend:
    engines: dict[str, Backend] = {"in process": InProcess(), "from scratch": FromScratch()}
    return engines[request.param]
