"""The queries of Nexmark, in this process, against SQL over all input so far."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from examples.nexmark.events import SOURCES
from examples.nexmark.files import Format, write_chunks
from examples.nexmark.generator import Generator, Parameters, side_input
from examples.nexmark.oracle import Database, Rows
from examples.nexmark.queries import QUERIES, Query, flow_of
from penstock import io
from tests.examples.recomputation import Kept, add

# 80 seconds over midnight, up to 2 seconds late: windows of all sizes close, and nothing is too late.
PARAMETERS = Parameters(
    seed=11,
    start=datetime(2015, 7, 14, 23, 59, 20, tzinfo=UTC),
    inter_event_delay=timedelta(milliseconds=20),
    disorder=100,
)
EVENTS = 4_000
FORGETFUL = ("q5", "q7", "q11", "q12")
"""Answer when a window closes or a tick ends: later than others."""

ALL = [pytest.param(query, id=name) for name, query in QUERIES.items()]


def expected(
    queries: list[Query], size: int = EVENTS, parameters: Parameters = PARAMETERS
) -> dict[str, Rows]:
    """What the database answers to all events, where `size` of them came in a tick."""
    database, generator = Database(), Generator(parameters)
    for tick, start in enumerate(range(0, EVENTS, size)):
        for kind in SOURCES:
            database.add(kind, tick, generator.table(kind, start, min(start + size, EVENTS)))
    return {query.name: database.answer(query) for query in queries}


def batches(flow: ps.Flow, size: int, parameters: Parameters = PARAMETERS) -> dict[str, Any]:
    """The sources of a flow: `size` events in a tick."""
    ticks = list(Generator(parameters).ticks(EVENTS, size))
    given: dict[str, Any] = {kind: io.Rows([tick[kind] for tick in ticks]) for kind in SOURCES}
    given["side_input"] = side_input()
    return {name: given[name] for name in flow.graph().sources}


@pytest.mark.parametrize("size", [83, 700, EVENTS])
def test_all_queries_answer_as_the_database_however_the_events_are_cut(size: int) -> None:
    queries = list(QUERIES.values())
    flow = flow_of(queries, "all of nexmark")
    kept = {name: Kept() for name in QUERIES}
    ps.run(flow, sources=batches(flow, size), sinks=kept)
    for name, answer in expected(queries, size).items():
        assert kept[name].rows == answer, name
        assert answer, f"the input is too small to show anything of {name}"


@pytest.mark.parametrize("query", ALL)
def test_a_query_by_itself_answers_as_among_others(query: Query) -> None:
    flow, kept = query.flow(), Kept()
    ps.run(flow, sources=batches(flow, 500), sinks={query.name: kept})
    assert kept.rows == expected([query], 500)[query.name]


def test_after_every_tick_the_answer_is_that_of_all_events_so_far() -> None:
    queries = [query for name, query in QUERIES.items() if name not in FORGETFUL]
    flow, database, generator = flow_of(queries, "prefixes"), Database(), Generator(PARAMETERS)
    engine = ps.Engine(flow)
    answers: dict[str, Counter[Any]] = {query.name: Counter() for query in queries}
    for tick, start in enumerate(range(0, 1_500, 250)):
        for kind in SOURCES:
            database.add(kind, tick, generator.table(kind, start, start + 250))
        side = {"side_input": side_input()} if tick == 0 else {}
        changes = engine.tick(**generator.tick(start, start + 250), **side)
        for query in queries:
            add(answers[query.name], changes[query.name].raw)
            assert answers[query.name] == database.answer(query), query.name


def test_times_of_day_have_the_same_names_as_in_the_database() -> None:
    # Here 4,000 events take 33 hours.
    slow = Parameters(seed=12, inter_event_delay=timedelta(seconds=30))
    queries = [QUERIES[name] for name in ("q10", "q14", "q15", "q16", "q17")]
    flow, kept = flow_of(queries, "days"), {query.name: Kept() for query in queries}
    ps.run(flow, sources=batches(flow, 1_000, slow), sinks=kept)
    assert {name: each.rows for name, each in kept.items()} == expected(queries, parameters=slow)
    assert {row[3] for row in kept["q14"].rows} == {"dayTime", "nightTime", "otherTime"}


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_arriving_files_give_the_same_answers(format: Format, tmp_path: Path) -> None:
    write_chunks(tmp_path, EVENTS, chunk=500, format=format, parameters=PARAMETERS)
    queries = [QUERIES[name] for name in ("q3", "q4", "q5", "q20")]
    flow, kept = flow_of(queries, "files"), {query.name: Kept() for query in queries}
    kind = {"json": io.JsonFiles, "parquet": io.ParquetFiles}[format]
    sources = {source: kind(tmp_path / source, files_per_tick=1) for source in flow.graph().sources}
    ps.run(flow, sources=sources, sinks=kept)
    assert kept["q4"].ticks == 8
    assert {name: each.rows for name, each in kept.items()} == expected(queries)
