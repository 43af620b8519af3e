"""The queries of Nexmark as text of Spark SQL: their answers are those of the flows in Python."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from examples.nexmark.generator import Generator, side_input
from examples.nexmark.queries import QUERIES
from examples.nexmark.spark_sql import MISSING, query_files
from tests.examples.nexmark_answers import EVENTS, PARAMETERS
from tests.examples.recomputation import add
from tests.queries.spark_answers import comparable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

AT_WINDOW_CLOSE = ("q5", "q7", "q11")
"""In Python these answer when a window closes; the text has an answer to all events so far."""

TICKS = list(itertools.pairwise([0, 200, 450, 451, 1_200, EVENTS]))


@pytest.mark.parametrize("name", [name for name in QUERIES if name not in (*MISSING, "q11")])
def test_the_text_answers_as_the_flow_in_python(spark: SparkSession, name: str) -> None:
    text, flow = query_files()[name].plan(), QUERIES[name].flow()
    assert columns(text, "answer") == columns(flow, name)
    engines = {"answer": hr.Engine(text), name: hr.Engine(flow)}
    answers: dict[str, Counter[Any]] = {sink: Counter() for sink in engines}
    for rows in ticks():
        for sink, engine in engines.items():
            add(answers[sink], engine.tick(**read(engine, rows))[sink].raw)
        if name not in AT_WINDOW_CLOSE:
            assert answers["answer"] == answers[name]
    add(answers[name], engines[name].end()[name].raw)
    assert answers["answer"] == answers[name]
    assert answers["answer"]


@pytest.mark.parametrize("name", AT_WINDOW_CLOSE)
def test_the_text_answers_as_spark_before_windows_close(spark: SparkSession, name: str) -> None:
    file, generator = query_files()[name], Generator(PARAMETERS)
    engine, answer = hr.Engine(file.plan()), Counter[Any]()
    for (_, end), rows in zip(TICKS, ticks(), strict=True):
        add(answer, engine.tick(**read(engine, rows))["answer"].raw)
        if end not in (450, EVENTS):
            continue
        spark.createDataFrame(generator.table("bids", 0, end)).coalesce(1).createOrReplaceTempView("bids")
        mine = Counter({comparable(row): count for row, count in answer.items()})
        assert mine == Counter(comparable(row) for row in spark.sql(file.text).collect())


def ticks() -> Iterator[dict[str, Any]]:
    generator = Generator(PARAMETERS)
    for start, end in TICKS:
        yield {**generator.tick(start, end), "side_input": [] if start else side_input()}


def read(engine: hr.Engine, rows: dict[str, Any]) -> dict[str, Any]:
    """Return the rows of the sources that an engine reads."""
    return {name: rows[name] for name in engine.program.graph.sources}


def columns(flow: hr.Flow, sink: str) -> list[tuple[str, object]]:
    graph = flow.graph()
    return [(field.name, field.type) for field in graph.nodes[graph.sinks[sink]].schema.fields]
