"""The flights of 2001 on both engines, against SQL over all input so far, weights included."""

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import headrace as hr
from examples.flights.flow import flow
from examples.flights.oracle import sql
from examples.flights.prepare import Weighted, arrivals, read_flights, revisions, write
from examples.flights.rows import Airport, Flight, Route
from headrace import io
from tests.examples.recomputation import Kept, Recomputation, Rows, add

Mode = Literal["stream", "batch"]
START = "ADK"
DAYS = 16
SINKS = ("delays", "worst", "reachable", "unserved")


@pytest.fixture(scope="module")
def flights(shared: Path) -> list[Flight]:
    return read_flights(shared / "data")


@pytest.fixture(scope="module")
def airports(shared: Path) -> list[Airport]:
    rows = read_csv(shared / "data" / "airports.csv")
    return [Airport(a, b, c, d, e, float(f), float(g)) for a, b, c, d, e, f, g in rows]


@pytest.fixture(scope="module")
def routes(shared: Path) -> list[Route]:
    return [Route(row[0], row[1]) for row in read_csv(shared / "data" / "flights-airport.csv")]


def read_csv(path: Path) -> Iterator[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        next(rows)
        yield from rows


def recomputation(airports: list[Airport], routes: list[Route]) -> Recomputation:
    sources = {"flights": Flight, "airports": Airport, "routes": Route}
    database = Recomputation(sources, weighted=["flights"])
    database.feed("airports", airports)
    database.feed("routes", routes)
    return database


def expected(flights: list[Flight], airports: list[Airport], routes: list[Route]) -> dict[str, Rows]:
    database = recomputation(airports, routes)
    for _, rows in arrivals(flights, days=DAYS):
        database.feed("flights", raw(rows))
    return {sink: database.answer(text) for sink, text in sql(START).items()}


def raw(rows: list[Weighted]) -> list[tuple[Any, ...]]:
    return [(*flight, weight) for flight, weight in rows]


def test_after_every_file_every_answer_is_that_of_all_rows_so_far(
    flights: list[Flight], airports: list[Airport], routes: list[Route]
) -> None:
    engine, database = hr.Engine(flow(START)), recomputation(airports, routes)
    answers: dict[str, Rows] = {sink: Counter() for sink in SINKS}
    first: dict[str, Any] = {"airports": airports, "routes": routes}
    for _, rows in arrivals(flights, days=DAYS):
        database.feed("flights", raw(rows))
        changes = engine.tick(flights=[hr.Change(*change) for change in rows], **first)
        first = {}
        for sink, text in sql(START).items():
            add(answers[sink], changes[sink].raw)
            assert answers[sink] == database.answer(text), sink
    assert len(answers["worst"]) == 5
    assert len(answers["reachable"]) > len(answers["unserved"]) > 0


def test_new_routes_extend_what_is_reachable(airports: list[Airport], routes: list[Route]) -> None:
    engine, database, answer = hr.Engine(flow(START)), recomputation(airports, []), Counter[Any]()
    engine.tick(airports=airports)
    for at in range(0, len(routes), 500):
        some = routes[-at - 500 : len(routes) - at]
        database.feed("routes", some)
        add(answer, engine.tick(routes=some)["reachable"].raw)
        assert answer == database.answer(sql(START)["reachable"])


def test_taking_back_all_flights_leaves_what_was_there_before_them(
    flights: list[Flight], airports: list[Airport], routes: list[Route]
) -> None:
    engine = hr.Engine(flow(START))
    some = flights[:3_000]
    before = engine.tick(airports=airports, routes=routes)
    there = engine.tick(flights=[hr.insert(flight) for flight in some])
    back = engine.tick(flights=[hr.delete(flight) for flight in some])
    assert before["delays"].raw == []
    for sink in SINKS:
        total: Rows = Counter()
        for changes in (there[sink], back[sink]):
            for *row, weight in changes.raw:
                total[tuple(row)] += weight
        assert not any(total.values()), sink


def test_revisions_take_back_flights_that_were_there_and_are_always_the_same(flights: list[Flight]) -> None:
    revised = list(revisions(flights))
    assert revised == list(revisions(flights))
    taken_back = [flight for flight, weight in revised if weight == -1]
    assert len(taken_back) > 1_000
    assert not Counter(taken_back) - Counter(flights)
    assert len(taken_back) > sum(weight == 1 for _, weight in revised) > 500


def test_arriving_files_give_the_same_answers(
    shared: Path, flights: list[Flight], airports: list[Airport], routes: list[Route], tmp_path: Path
) -> None:
    write(tmp_path, arrivals(flights, days=DAYS))
    sinks = {sink: Kept() for sink in SINKS}
    result = hr.run(flow(START), sources=files(shared, tmp_path, per_tick=1), sinks=sinks)
    assert result.ticks == 19, "a file per day, and three of revisions"
    assert {sink: kept.rows for sink, kept in sinks.items()} == expected(flights, airports, routes)


@pytest.mark.spark
@pytest.mark.parametrize(("mode", "ticks"), [("stream", 4), ("batch", 1)])
def test_spark_gives_the_same_answers(
    mode: Mode,
    ticks: int,
    shared: Path,
    flights: list[Flight],
    airports: list[Airport],
    routes: list[Route],
    tmp_path: Path,
    spark: Any,
) -> None:
    write(tmp_path / "flights", arrivals(flights, days=DAYS))
    sinks = {sink: Kept() for sink in SINKS}
    hr.spark.run(
        flow(START),
        spark,
        sources=files(shared, tmp_path / "flights", per_tick=5),
        sinks=sinks,
        checkpoint=tmp_path / "checkpoint" if mode == "stream" else None,
        mode=mode,
    )
    assert sinks["delays"].ticks == ticks
    assert {sink: kept.rows for sink, kept in sinks.items()} == expected(flights, airports, routes)


def files(shared: Path, flights: Path, *, per_tick: int) -> dict[str, Any]:
    return {
        "flights": io.JsonFiles(flights, files_per_tick=per_tick),
        "airports": io.CsvFiles(shared / "data" / "airports.csv"),
        "routes": io.CsvFiles(shared / "data" / "flights-airport.csv"),
    }
