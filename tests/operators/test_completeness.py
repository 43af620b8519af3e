"""Every operator runs on every engine; what an engine must refuse is named here, with the reason it gives."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import io
from headrace.compute.plans.registry import RECORDS
from headrace.engine.change import Change
from headrace.errors import NotOnSpark
from headrace.expr.row_classes import from_user
from headrace.lowering.reference import NotOfBags
from headrace.operators import all_operators
from headrace.operators.aggregate.aggregation import Aggregation, accumulator_of, answer_of
from headrace.operators.endpoints import KeyedSource
from headrace.operators.over.partitions import answer_of_row, function_source
from headrace.operators.over.window_function import WindowFunction
from headrace.spark import run
from headrace.spark.batch.batch_plan import plan_batch
from headrace.spark.placing.stages import cut_stages
from headrace.testing.oracle import TickOracle
from tests.operators.conftest import ENGINES
from tests.operators.examples import ALL, EXAMPLES, PAIR, TICKS, ExamplePair, X, Y, example
from tests.spark.batch_rows_of import bags_in_one_tick, json_of_many, told_in_json
from tests.spark.tasks_in_process import InProcessTasks

# What Spark refuses, in which mode, and a word of the reason.
REFUSED = {
    ("batch", "initialize: initialize"): "may hold any Python value",
}


def test_every_operator_has_an_example() -> None:
    # What is given to it are records, not pairs: tests/io/test_keyed_tables.py.
    streams = {cls for cls in all_operators() if ".signals." not in cls.__module__}
    assert streams - {KeyedSource} == set(EXAMPLES)


WINDOW_FUNCTIONS = [cls for cls in RECORDS.values() if issubclass(cls, WindowFunction)]


@pytest.mark.parametrize("function", WINDOW_FUNCTIONS, ids=lambda cls: cls.__name__)
def test_every_aggregate_and_window_function_has_code_and_a_reference(function: type[WindowFunction]) -> None:
    of_groups = (accumulator_of, answer_of) if issubclass(function, Aggregation) else ()
    for form in (function_source, answer_of_row, *of_groups):
        assert form.dispatch(function) is not form.dispatch(object)


# In shards from rows, an operator answers as the engine, see below; from scratch is what it is compared with.
@pytest.mark.parametrize("engine", ["in process", "in shards, from columns"])
@pytest.mark.parametrize("name", ALL)
def test_every_operator_answers_what_it_means(engine: str, name: str) -> None:
    flow, backend = example(name), ENGINES[engine]()
    oracle, inside = TickOracle(flow.graph()), from_user(PAIR, what="pairs")
    for tick, changes in zip(TICKS, backend.changes(flow, TICKS), strict=True):
        came = {
            "x": Counter(inside(tick.get("x", []))),
            "y": Counter({inside([row])[0]: 0 for row, _ in tick.get("y", [])}),
        }
        for row, weight in tick.get("y", []):
            came["y"][inside([row])[0]] += weight
        try:
            expected = oracle.tick(came)["out"]
        except NotOfBags as unknown:
            pytest.skip(f"it reads order, so tables of its own tell what it means: {unknown}")
        found: Counter[Any] = Counter()
        for row, weight in changes.get("out", []):
            found[row] += weight
        assert {row: weight for row, weight in found.items() if weight} == dict(expected)


# --- on Spark -----------------------------------------------------------------------------


def runs_on_spark(mode: str) -> list[str]:
    return [name for name in ALL if (mode, name) not in REFUSED]


@pytest.mark.parametrize(("mode", "name"), REFUSED)
def test_what_spark_cannot_run_is_refused_with_a_reason(mode: str, name: str) -> None:
    graph = example(name).graph()
    with pytest.raises(NotOnSpark) as refused:
        cut_stages(graph, 2) if mode == "stream" else plan_batch(graph)
    assert REFUSED[mode, name] in str(refused.value.why)
    assert refused.value.fix


@pytest.mark.parametrize("name", runs_on_spark("stream"))
def test_tasks_answer_each_tick_as_the_engine_does(name: str, tmp_path: Path) -> None:
    engine, tasks = hr.Engine(example(name)), InProcessTasks(example(name), 3, tmp_path, "stages")
    for tick, ended in [*((tick, ()) for tick in TICKS), ({}, tuple(engine.awaited_ends))]:
        rows = {source: engine.internal_rows(source, given) for source, given in tick.items()}
        expected: Counter[Any] = Counter()
        append = engine.program.sink_append["out"]
        for row in engine.tick_rows(rows, ended=ended).get("out", []):
            expected[row if append else row[:-1]] += 1 if append else row[-1]
        found: Counter[Any] = Counter()
        for *row, weight in tasks.tick(tick, ended).get("out", []):
            found[tuple(row)] += weight
        assert {r: n for r, n in found.items() if n} == {r: n for r, n in expected.items() if n}


@pytest.mark.spark
@pytest.mark.verify
@pytest.mark.parametrize("part", range(4))
def test_a_batch_answers_as_the_engine_with_all_input_in_one_tick(spark: Any, part: int) -> None:
    inputs = {"x": [Change(row, 1) for row in X], "y": [*map(hr.insert, Y), hr.delete(Y[0])]}
    cases = {name: (example(name), inputs) for name in runs_on_spark("batch")[part::4]}
    found = json_of_many(spark, cases)
    for name, (flow, _) in cases.items():
        schema = flow.graph().nodes[flow.graph().sinks["out"]].schema
        assert found[name] == told_in_json(bags_in_one_tick(flow, inputs)["out"], schema), name


@pytest.mark.spark
def test_every_operator_runs_in_one_stream(spark: Any) -> None:
    flow = hr.Flow("all operators", ticks="given")
    x, y = flow.source("x", ExamplePair), flow.table("y", ExamplePair)
    names = [name for name in runs_on_spark("stream") if not name.startswith("tick: ")]
    for at, name in enumerate(names):
        flow.sink(f"out{at}", ALL[name](x, y))
    batches = {source: io.Rows([tick.get(source, []) for tick in TICKS]) for source in ("x", "y")}
    held: list[dict[str, Counter[str]]] = []
    for engine in (hr.run, run):
        sinks = {f"out{at}": io.Memory() for at in range(len(names))}
        engine(flow, sources=batches, sinks=sinks)
        held.append({name: Counter(map(repr, sinks[f"out{at}"].rows())) for at, name in enumerate(names)})
    for name in names:
        assert held[1][name] == held[0][name], name
