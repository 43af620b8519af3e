"""Tables held by key on Spark: they hold the same rows as in this process."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import io
from headrace.errors import BadInput, BadRow, RecordMisfit, WrongType
from tests.io.feeds import write
from tests.io.keyed_flows import (
    AMY,
    ANN,
    BOB,
    ROWS,
    Dated,
    Tagged,
    customers,
    envelope,
    json_lines,
    prices,
    tagged,
    versioned,
    written,
)


@pytest.mark.spark
@pytest.mark.parametrize("form", ROWS)
@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_files_mean_the_same_on_spark(form: str, mode: Any, spark: Any, tmp_path: Path) -> None:
    source, left = written(form, tmp_path / "in")
    memory = io.Memory()
    hr.spark.run(customers(), spark, sources={"customers": source}, sinks={"out": memory}, mode=mode)
    assert sorted(memory.rows()) == left


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_maps_before_a_change_have_no_order_on_spark(mode: Any, spark: Any, tmp_path: Path) -> None:
    images = [(None, {"a": 0.0, "b": 1.0}), ({"b": 1.0, "a": -0.0}, {"b": 7.0})]
    rows = [[None if tags is None else {"id": 1, "tags": tags} for tags in pair] for pair in images]
    write(tmp_path / "1.json", json_lines([envelope("u", *pair) for pair in rows]))
    source, memory = io.Debezium(io.JsonFiles(tmp_path)), io.Memory()
    hr.spark.run(tagged(), spark, sources={"tagged": source}, sinks={"out": memory}, mode=mode)
    assert memory.rows() == [Tagged(1, {"b": 7.0})]


@pytest.mark.spark
def test_rows_in_python_mean_the_same_on_spark(spark: Any) -> None:
    ticks = [ANN, BOB], [hr.update(ANN, AMY), hr.delete_key(2)], [AMY]
    memory = io.Memory()
    hr.spark.run(customers(), spark, sources={"customers": io.Rows(ticks)}, sinks={"out": memory})
    assert Counter(memory.rows()) == Counter([AMY])


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_a_misfit_names_the_table_on_spark(mode: Any, spark: Any) -> None:
    rows, memory = [[Dated("a", 1, 30, 5), Dated("a", 1, 20, 5)]], io.Memory()
    with pytest.raises(
        RecordMisfit, match=r"row of shop='a', item=1 in table 'prices': of sequence 5, it sets"
    ):
        hr.spark.run(prices(), spark, sources={"prices": io.Rows(rows)}, sinks={"out": memory}, mode=mode)


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_a_dataframe_sets_its_rows(mode: Any, spark: Any) -> None:
    rows = [Dated("a", 1, 30, 5), Dated("a", 1, 20, 4), Dated("b", 1, 7, 1), Dated("b", 1, 7, 1)]
    frame = hr.spark.Frame(spark.createDataFrame(rows).select("at", "price", "item", "shop").coalesce(1))
    memory = io.Memory()
    hr.spark.run(prices(), spark, sources={"prices": frame}, sinks={"out": memory}, mode=mode)
    assert sorted(memory.rows()) == [rows[0], rows[2]]


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_weights_of_a_dataframe_set_and_delete(mode: Any, spark: Any) -> None:
    rows = [(1, "ann", "Rome", 1), (2, "bob", None, 1), (1, None, None, -1), (9, None, None, -1)]
    given = spark.createDataFrame(rows, "id long, name string, city string, weight long").coalesce(1)
    memory, sources = io.Memory(), {"customers": hr.spark.Frame(given)}
    hr.spark.run(customers(), spark, sources=sources, sinks={"out": memory}, mode=mode)
    assert memory.rows() == [BOB]


@pytest.mark.spark
@pytest.mark.parametrize("weight", ["2", "0", "null"])
def test_another_weight_in_a_dataframe_is_refused(weight: str, spark: Any) -> None:
    frame = spark.sql(f"SELECT 1L id, 'ann' name, 'Rome' city, CAST({weight} AS BIGINT) weight")
    with pytest.raises(BadRow, match=f"weight: .*, found {weight}"):
        hr.spark.run(
            customers(), spark, sources={"customers": hr.spark.Frame(frame)}, sinks={"out": io.Memory()}
        )


@pytest.mark.spark
def test_a_null_in_a_row_of_a_dataframe_is_refused(spark: Any) -> None:
    frame = hr.spark.Frame(spark.sql("SELECT 1L id, CAST(NULL AS STRING) name, 'Rome' city"))
    with pytest.raises(BadRow, match="null"):
        hr.spark.run(customers(), spark, sources={"customers": frame}, sinks={"out": io.Memory()})


@pytest.mark.spark
def test_a_row_of_a_dataframe_without_a_sequence_is_refused(spark: Any) -> None:
    frame = hr.spark.Frame(spark.sql("SELECT 1L id, 'ann' name, CAST(NULL AS BIGINT) version"))
    with pytest.raises(BadRow, match="version: it is null, but orders the records of a key"):
        hr.spark.run(versioned(), spark, sources={"rows": frame}, sinks={"out": io.Memory()})


@pytest.mark.spark
def test_a_dataframe_without_a_column_is_refused(spark: Any) -> None:
    frame = hr.spark.Frame(spark.range(3))
    with pytest.raises(WrongType, match="name"):
        hr.spark.run(customers(), spark, sources={"customers": frame}, sinks={"out": io.Memory()})


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["stream", "batch"])
@pytest.mark.parametrize("order", [1, -1])
def test_a_row_wins_against_a_deletion_of_an_older_one_on_spark(mode: Any, order: int, spark: Any) -> None:
    rows = [(1, "ann", 0, 1), (1, "amy", 1, 1), (1, "ann", 1, -1), (2, "bob", 5, 1), (2, "bob", 5, -1)]
    given = spark.createDataFrame(rows[::order], "id long, name string, version long, weight long")
    memory = io.Memory()
    hr.spark.run(
        versioned(), spark, sources={"rows": hr.spark.Frame(given)}, sinks={"out": memory}, mode=mode
    )
    assert memory.rows() == [(1, "amy", 1)]


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_of_one_position_in_the_log_the_last_record_counts_on_spark(
    mode: Any, spark: Any, tmp_path: Path
) -> None:
    one, other = ({"id": key, "name": "ann", "version": 7} for key in (1, 2))
    given = [("d", one, None), ("c", None, one), ("u", None, other), ("d", other, None)]
    for number, each in enumerate(given):
        write(tmp_path / f"{number}.json", json_lines([envelope(*each[:1], *each[1:])]))
    memory, source = io.Memory(), io.Debezium(io.JsonFiles(tmp_path))
    hr.spark.run(versioned(), spark, sources={"rows": source}, sinks={"out": memory}, mode=mode)
    assert memory.rows() == [(1, "ann", 7)]


@pytest.mark.spark
def test_change_data_in_a_dataframe_is_refused(spark: Any) -> None:
    frame = io.Debezium(hr.spark.Frame(spark.range(3)))
    with pytest.raises(BadInput, match="is a table with a key, and cannot read Debezium"):
        hr.spark.run(customers(), spark, sources={"customers": frame}, sinks={"out": io.Memory()})
