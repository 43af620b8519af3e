"""Active replication: whichever runtime answers first, it is the same answer, at every time."""

from __future__ import annotations

import tempfile
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.compute.errors import NotServable
from headrace.compute.frontier import Frontier
from headrace.compute.plans import check_servable, encode, schema_to_bytes, sinks_of
from headrace.compute.protocol.commands import CollectionImport, Dataflow, IndexExport
from headrace.compute.protocol.responses import Problem, RowsResponse, Update
from headrace.expr.row_classes import from_user
from tests.compute.runtimes.conftest import make_here, maker
from tests.compute.runtimes.stage import Stage
from tests.properties.effort import examples
from tests.random_flows.cases import Case, Tick, cases, cuts

_NUMBERS = count()


@st.composite
def served(draw: st.DrawFn) -> tuple[Case, list[Tick]]:
    """A flow that may be served, and its input by times."""
    case = draw(cases(folds=True))
    try:
        check_servable(case.flow)
    except NotServable:
        assume(False)
    return case, draw(cuts(case, most=4))


@pytest.mark.verify
@pytest.mark.spark
@examples(0.06)
@given(drawn=served(), data=st.data())
def test_the_runtimes_give_the_same_answers_at_every_time(
    drawn: tuple[Case, list[Tick]], data: st.DataObject, request: pytest.FixtureRequest
) -> None:
    case, ticks = drawn
    written = data.draw(st.integers(0, len(ticks)), "ticks written before")
    as_of = data.draw(st.integers(0, 10 * written), "as of")
    uri = f"memory:agreement {next(_NUMBERS)}"
    with tempfile.TemporaryDirectory() as folder:
        stages = [
            Stage(make_here, uri, Path(folder, "here")),
            Stage(maker("spark", request), uri, Path(folder, "spark")),
        ]
        try:
            for name in case.inputs:
                stages[0].store.create(name, schema_to_bytes(case.source(name).schema))
            for at in range(written):
                write(stages[0], case, ticks[at], at)
            exports = tuple(
                IndexExport(f"u{n}", sink.name, sink.schema.names[: n % 2])
                for n, sink in enumerate(sinks_of(case.flow))
            )
            imports = tuple(CollectionImport(name, name) for name in case.inputs)
            for stage in stages:
                stage.create(
                    Dataflow(encode(case.flow, allow_callables=True), imports, (), exports, Frontier(as_of))
                )
            for at in range(written, len(ticks)):
                write(stages[0], case, ticks[at], at)
            end = 10 * len(ticks)
            for time in range(as_of, end, 5):
                for export in exports:
                    here, spark = (answer(stage, export.id, time) for stage in stages)
                    assert spark == here, (export, time)
        finally:
            for stage in stages:
                stage.close()


def write(stage: Stage, case: Case, tick: Tick, at: int) -> None:
    for name in case.inputs:
        stage.write(name, *updates(case, name, tick.get(name, []), 10 * at + 5), upper=10 * at + 10)


def updates(case: Case, name: str, changes: Any, time: int) -> list[Update]:
    source = case.source(name)
    pairs = [(row, 1) for row in changes] if source.append else [tuple(change) for change in changes]
    rows = from_user(source.schema, what=name)([row for row, _ in pairs])
    return [(row, time, weight) for row, (_, weight) in zip(rows, pairs, strict=True)]


def answer(stage: Stage, id: str, time: int) -> Any:
    """The rows at a time, or what is wrong then."""
    found = stage.answer(stage.ask(id, time))
    if isinstance(found, Problem):
        return found.code, found.time
    assert isinstance(found, RowsResponse)
    return Counter(dict(found.rows))
