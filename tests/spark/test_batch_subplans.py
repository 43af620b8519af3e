"""Subplans of a batch on Spark: rows in the order of their source, keys, time, and functions in workers."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

import headrace as hr
from headrace import col, io
from headrace.errors import NotOnSpark, UserFunctionFailed
from headrace.expr.row_classes import schema_of
from headrace.spark import Frame
from headrace.spark.batch.subplans import SubplanBorder, split_between_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Reading(NamedTuple):
    at: int
    meter: str
    value: int


READINGS = [Reading(n * 7 % 300, "abc"[n % 3], n * n % 17) for n in range(300)]


def text(total: str, row: Any) -> str:
    return f"{total}{row.meter}{row.at}"


def changes(total: int, row: Any) -> tuple[int, int]:
    return row.value, row.value - total


def third_fails(n: int, row: Any) -> tuple[int, int]:
    return n + 1, 10 // (3 - n)


def in_order() -> hr.Flow:
    """What is told of readings in their order: over all of them, and per meter."""
    flow = hr.Flow("in order")
    readings = flow.source("readings", Reading)
    flow.sink("text", readings.filter(col.value > 3).fold("", text))
    flow.sink("numbers", readings.with_columns(value=col.value * 2).enumerate(per="meter"))
    flow.sink("changes", readings.select("value", of=col.meter).scan(0, changes, per="of"))
    return flow


def held(engine: Any, flow: hr.Flow, source: Any, **more: Any) -> dict[str, Counter[Any]]:
    sinks = {name: io.Memory() for name in flow.graph().sinks}
    engine(flow, sources={"readings": source}, sinks=sinks, **more)
    return {name: Counter(sink.rows()) for name, sink in sinks.items()}


@pytest.fixture
def files(tmp_path: Path) -> str:
    """Readings in files, of which later ones have names that come first."""
    for number in range(7):
        lines = [json.dumps(r._asdict()) for r in READINGS[number * 50 : number * 50 + 50]]
        (tmp_path / f"{9 - number}.json").write_text("\n".join(lines))
    return str(tmp_path)


@pytest.mark.verify
@pytest.mark.spark
def test_files_are_read_in_the_order_of_their_names(spark: SparkSession, files: str) -> None:
    found = held(hr.spark.run, in_order(), io.JsonFiles(files), spark=spark, mode="batch")
    assert found == held(hr.run, in_order(), io.JsonFiles(files))
    assert found != held(hr.run, in_order(), READINGS)


@pytest.mark.spark
def test_rows_and_frames_keep_their_order(spark: SparkSession) -> None:
    expected = held(hr.run, in_order(), READINGS)
    batches = io.Rows([READINGS[:120], [], READINGS[120:]])
    for source in (batches, Frame(spark.createDataFrame(READINGS))):
        assert held(hr.spark.run, in_order(), source, spark=spark, mode="batch") == expected


@pytest.mark.spark
def test_windows_close_and_late_rows_go_to_their_sink(spark: SparkSession, files: str) -> None:
    flow = hr.Flow("windows")
    timed = flow.source("readings", Reading).watermark(col.at, lateness=150)
    shapes = {"tumbling": hr.tumbling(col.at, 40), "session": hr.session(col.at, 9)}
    for name, shape in shapes.items():
        flow.sink(name, timed.group_by("meter", window=shape).agg(n=hr.count(), most=hr.max(col.value)))
    flow.sink("late", timed.late())
    flow.sink("once", timed.first_within(20, by="meter"))
    found = held(hr.spark.run, flow, io.JsonFiles(files), spark=spark, mode="batch")
    assert found == held(hr.run, flow, io.JsonFiles(files))
    assert all(found.values())


@pytest.mark.spark
def test_keys_beyond_one_piece_are_whole(spark: SparkSession) -> None:
    flow = hr.Flow("keys")
    rows = flow.source("readings", Reading)
    flow.sink("n", rows.fold_keyed("value", 0, lambda n, row: n + 1, commutative=True, into="n"))
    frame = spark.range(30_000).selectExpr("id AS at", "'a' AS meter", "id % 7001 AS value")
    sinks = {"n": io.Memory()}
    hr.spark.run(flow, spark, sources={"readings": Frame(frame)}, sinks=sinks, mode="batch")
    expected = Counter(n % 7001 for n in range(30_000))
    assert {row.value: row.n for row in sinks["n"].rows()} == expected


def test_a_task_goes_through_its_rows_in_pieces_of_whole_keys() -> None:
    border = SubplanBorder(0, "in0", schema_of(int))
    hashes = [h for h in range(3_000) for _ in range(10)] + [3_000] * 30_000 + [3_001]
    rows = pa.array([{"value": h} for h in hashes], pa.struct([("value", pa.int64())]))
    columns = [pa.array([0] * len(rows), pa.int32()), pa.array(hashes, pa.int64()), rows]
    whole = pa.RecordBatch.from_arrays(columns, names=["port", "headrace hash", "row0"])
    batches = [whole.slice(at, 4_000) for at in range(0, len(hashes), 4_000)]
    pieces = [[value for (value,) in piece["in0"]] for piece in split_between_keys(batches, (border,))]
    assert [value for piece in pieces for value in piece] == hashes
    assert all(one[-1] != other[0] for one, other in pairwise(pieces))
    assert [len(piece) for piece in pieces] == [11_990, 12_000, 36_010, 1]


@pytest.mark.spark
def test_a_value_is_there_where_no_row_comes(spark: SparkSession) -> None:
    flow = hr.Flow("none")
    readings = flow.source("readings", Reading)
    flow.sink("total", readings.fold(7, lambda n, row: n + 1, commutative=True))
    flow.sink("started", flow.initialize().map(lambda _: "now", returns=str))
    found = held(hr.spark.run, flow, [], spark=spark, mode="batch")
    assert found == {"total": Counter([7]), "started": Counter(["now"])}


@pytest.mark.spark
def test_inspect_sees_rows_in_workers_also_where_they_go_nowhere(spark: SparkSession, tmp_path: Path) -> None:
    def note(row: Reading) -> None:
        (tmp_path / f"{row.meter}{row.at}").touch()

    flow = hr.Flow("seen")
    readings = flow.source("readings", Reading)
    nothing = readings.inspect(note).null()
    hr.spark.run(flow, spark, sources={"readings": READINGS[:20]}, sinks={}, mode="batch")
    assert {path.name for path in tmp_path.iterdir()} == {f"{r.meter}{r.at}" for r in READINGS[:20]}
    flow.sink("numbered", nothing.chain(readings).enumerate())
    found = held(hr.spark.run, flow, READINGS[:9], spark=spark, mode="batch")
    assert found["numbered"] == Counter((n, *row) for n, row in enumerate(READINGS[:9]))


@pytest.mark.spark
def test_a_function_that_raises_on_an_subplan_is_told_with_its_row_and_place(spark: SparkSession) -> None:
    flow = hr.Flow("failing")
    flow.sink("out", flow.source("readings", Reading).scan(0, third_fails, per="meter"))
    with pytest.raises(UserFunctionFailed, match="ZeroDivisionError") as raised:
        hr.spark.run(flow, spark, sources={"readings": READINGS}, sinks={"out": []}, mode="batch")
    assert raised.value.where[0].location.file == __file__
    assert raised.value.row in READINGS


def test_signals_are_refused_with_a_way_out() -> None:
    flow = hr.Flow("signals")
    flow.sink("out", flow.signal("level", int).changes())
    with pytest.raises(NotOnSpark, match="does not run on Spark") as refused:
        hr.spark.run(flow, sources={"level": [1]}, sinks={"out": []}, mode="batch")
    assert "in-process" in str(refused.value.fix)


# --- modules of the user's ------------------------------------------------------------------

MEASURES = """
from typing import NamedTuple

FACTOR = 3


class Scaled(NamedTuple):
    meter: str
    value: int


class Total(NamedTuple):
    value: int
    count: int


def scaled(row):
    return Scaled(row.meter, row.value * FACTOR)
"""

FLOWS = """
import importlib.util

import measures
from measures import Scaled, Total, scaled


def make(row) -> Scaled:
    return scaled(row)


def add(total: Total, row: Scaled) -> Total:
    return Total(total.value + row.value, total.count + 1)


def numbered(n: int, row: Scaled) -> tuple[int, Scaled]:
    return n + 1, measures.Scaled(row.meter, row.value + n)


def build(flow, source):
    rows = source.map(make)
    flow.sink("totals", rows.fold_keyed("meter", Total(0, 0), add, into="total"))
    flow.sink("numbered", rows.scan(0, numbered))
    back = flow.feedback(Scaled)
    back.close(rows.union(back).filter(lambda row: row.value > 40).map(smaller))
    flow.sink("loop", back)


def importable(row) -> bool:
    return bool(importlib.util.find_spec("measured") or importlib.util.find_spec("measures"))


def smaller(row: Scaled) -> Scaled:
    return measures.Scaled(row.meter, row.value - 9)
"""


@pytest.mark.spark
def test_functions_and_rows_of_modules_that_workers_cannot_import_travel(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "measures.py").write_text(MEASURES)
    (tmp_path / "measured.py").write_text(FLOWS)
    monkeypatch.syspath_prepend(str(tmp_path))
    measured: Any = importlib.import_module("measured")
    flow = hr.Flow("of modules")
    measured.build(flow, flow.source("readings", Reading))
    try:
        expected = held(hr.run, flow, READINGS)
        flow.sink("importable", flow.source("more", Reading).map(measured.importable))
        sinks = {name: io.Memory() for name in flow.graph().sinks}
        sources = {"readings": READINGS, "more": READINGS[:3]}
        hr.spark.run(flow, spark, sources=sources, sinks=sinks, mode="batch")
        found = {name: Counter(sink.rows()) for name, sink in sinks.items()}
        assert found.pop("importable") == {False: 3}
        assert found == expected
    finally:
        for name in ("measured", "measures"):
            sys.modules.pop(name, None)
