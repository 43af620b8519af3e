"""The queries of Nexmark, in this process, against SQL over all input so far."""

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from examples.nexmark.events import SOURCES
from examples.nexmark.files import Format, write_chunks
from examples.nexmark.generator import Generator, Parameters, side_input
from examples.nexmark.log import Log
from examples.nexmark.oracle import Database
from examples.nexmark.queries import QUERIES, Query, flow_of
from headrace import io
from tests.examples.nexmark_answers import EVENTS, PARAMETERS, WINDOWS, WITH_LATE_ONES, expected, rows_on_time
from tests.examples.recomputation import Kept, add

WHEN_IT_IS_OVER = ("q5", "q7", "q11", "q12")
"""Answer when a window closes or a tick ends, not for all events so far."""


def batches(flow: hr.Flow, size: int, parameters: Parameters = PARAMETERS) -> dict[str, Any]:
    """The sources of a flow: `size` events in a tick."""
    ticks = list(Generator(parameters).ticks(EVENTS, size))
    given: dict[str, Any] = {kind: io.Rows([tick[kind] for tick in ticks]) for kind in SOURCES}
    given["side_input"] = side_input()
    return {name: given[name] for name in flow.graph().sources}


@pytest.mark.parametrize("size", [83, 700, EVENTS])
def test_all_queries_answer_as_the_database_however_the_events_are_cut(size: int) -> None:
    flow = flow_of(QUERIES.values(), "all of nexmark")
    kept = {name: Kept() for name in QUERIES}
    hr.run(flow, sources=batches(flow, size), sinks=kept)
    for name, answer in expected(QUERIES.values(), size=size).items():
        assert kept[name].rows == answer, name
        assert answer, f"the input is too small to show anything of {name}"


@pytest.mark.parametrize("query", [pytest.param(query, id=name) for name, query in QUERIES.items()])
def test_a_query_by_itself_answers_as_among_others(query: Query) -> None:
    flow, kept = query.flow(), Kept()
    hr.run(flow, sources=batches(flow, 500), sinks={query.name: kept})
    assert kept.rows == expected([query], size=500)[query.name]


def test_after_every_tick_the_answer_is_that_of_all_events_so_far() -> None:
    queries = [query for name, query in QUERIES.items() if name not in WHEN_IT_IS_OVER]
    flow, database, generator = flow_of(queries, "prefixes"), Database(), Generator(PARAMETERS)
    engine = hr.Engine(flow)
    answers: dict[str, Counter[Any]] = {query.name: Counter() for query in queries}
    for tick, start in enumerate(range(0, 1_500, 250)):
        for kind in SOURCES:
            database.add(kind, tick, generator.table(kind, start, start + 250))
        side = {"side_input": side_input()} if tick == 0 else {}
        changes = engine.tick(**generator.tick(start, start + 250), **side)
        for query in queries:
            add(answers[query.name], changes[query.name].raw)
            assert answers[query.name] == database.answer(query), query.name


@pytest.mark.parametrize("size", [61, 1_000])
def test_windows_pass_over_late_rows_and_are_right_for_all_others(size: int) -> None:
    late = {kind: Generator(WITH_LATE_ONES).table(kind, 0, EVENTS).num_rows for kind in SOURCES}
    for kind in SOURCES:
        late[kind] -= rows_on_time(kind, Generator(WITH_LATE_ONES)).num_rows
    assert all(late.values())
    queries = [QUERIES[name] for name in WINDOWS]
    flow, kept = flow_of(queries, "late rows"), {query.name: Kept() for query in queries}
    engine = hr.Engine(flow)
    for tick, rows in enumerate(Generator(WITH_LATE_ONES).ticks(EVENTS, size)):
        for name, changes in engine.tick(**rows).items():
            kept[name](tick, changes)
    for name, changes in engine.end().items():
        kept[name](EVENTS, changes)
    assert sorted(engine.late_rows.values()) == sorted(late.values())
    right = expected(queries, parameters=WITH_LATE_ONES)
    assert {name: each.rows for name, each in kept.items()} == right
    with_all_rows = Database()
    for kind in SOURCES:
        with_all_rows.add(kind, 0, Generator(WITH_LATE_ONES).table(kind, 0, EVENTS))
    for query in queries:
        assert right[query.name] != with_all_rows.answer(query), "the late rows would make no difference"


def test_times_of_day_have_the_same_names_as_in_the_database() -> None:
    # Here 4,000 events take 33 hours.
    slow = Parameters(seed=12, inter_event_delay=timedelta(seconds=30))
    queries = [QUERIES[name] for name in ("q10", "q14", "q15", "q16", "q17")]
    flow, kept = flow_of(queries, "days"), {query.name: Kept() for query in queries}
    hr.run(flow, sources=batches(flow, 1_000, slow), sinks=kept)
    assert {name: each.rows for name, each in kept.items()} == expected(queries, parameters=slow)
    assert {row[3] for row in kept["q14"].rows} == {"dayTime", "nightTime", "otherTime"}


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_arriving_files_give_the_same_answers(format: Format, tmp_path: Path) -> None:
    write_chunks(tmp_path, EVENTS, chunk=500, format=format, parameters=PARAMETERS)
    queries = [QUERIES[name] for name in ("q3", "q4", "q5", "q20")]
    flow, kept = flow_of(queries, "files"), {query.name: Kept() for query in queries}
    kind = {"json": io.JsonFiles, "parquet": io.ParquetFiles}[format]
    sources = {source: kind(tmp_path / source, files_per_tick=1) for source in flow.graph().sources}
    hr.run(flow, sources=sources, sinks=kept)
    assert kept["q4"].ticks == 8
    assert {name: each.rows for name, each in kept.items()} == expected(queries)


def test_the_log_has_a_folder_for_each_minute_and_each_bid_once_though_a_tick_is_told_again(
    tmp_path: Path,
) -> None:
    import duckdb

    flow, log = QUERIES["q10"].flow(), Log(tmp_path)

    def told_twice(tick: int, changes: Any) -> None:
        listed = list(changes)
        log(tick, listed)
        log(tick, listed)

    hr.run(flow, sources=batches(flow, 500), sinks={"q10": told_twice})
    folders = {str(file.parent.relative_to(tmp_path)) for file in tmp_path.glob("*/*/*.parquet")}
    assert folders == {"dt=2015-07-14/hm=23%3A59", "dt=2015-07-15/hm=00%3A00"}
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    found = database.sql(f"SELECT * FROM read_parquet('{tmp_path}/*/*/*.parquet', hive_partitioning=true)")
    rows = Counter((*row[:5], str(row[5]), str(row[6])) for row in found.fetchall())
    assert rows == expected([QUERIES["q10"]])["q10"]
