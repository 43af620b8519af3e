"""Sources come and go between runs of one checkpoint, where Spark knows them by name."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace import Flow, col, io
from headrace.errors import FlowChanged
from headrace.spark import Frame, run
from headrace.spark.sources.opening import spark_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Sale(NamedTuple):
    shop: int
    amount: int


def sums_of(*names: str) -> Flow:
    flow = Flow("sums")
    for name in names:
        sums = flow.source(name, Sale).group_by(col.shop).agg(total=hr.sum(col.amount))
        flow.sink(f"sums {name}", sums)
    return flow


def test_names_that_spark_does_not_take_are_made_into_others_that_differ() -> None:
    assert spark_name("sales_1") == "sales_1"
    assert len({spark_name(name) for name in ("a b", "a-b", "a_b", "ä b")}) == 4
    assert all(spark_name(name).replace("_", "").isalnum() for name in ("a b", "a-b", "Größe"))


@pytest.mark.spark
def test_a_source_that_was_added_later_brings_its_rows_and_the_others_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    sales: dict[str, list[Sale]] = {"north east": [], "south": []}

    def arrive(name: str, number: int, rows: list[Sale]) -> None:
        sales[name] += rows
        (tmp_path / name).mkdir(exist_ok=True)
        text = "".join(json.dumps(row._asdict()) + "\n" for row in rows)
        (tmp_path / name / f"{number}.json").write_text(text)

    def go(*names: str) -> dict[str, Any]:
        sources = {name: io.JsonFiles(str(tmp_path / name)) for name in names}
        sinks: dict[str, Any] = {f"sums {name}": io.Memory() for name in names}
        run(
            sums_of(*names), spark, sources=sources, sinks=sinks, checkpoint=tmp_path / "checkpoint", shards=2
        )
        return sinks

    arrive("north east", 1, [Sale(1, 5), Sale(2, 7)])
    go("north east")
    arrive("north east", 2, [Sale(1, 2)])
    arrive("south", 1, [Sale(9, 1)])
    sinks = go("north east", "south")
    assert changes(sinks["sums north east"]) == {(1, 5): -1, (1, 7): 1}
    assert changes(sinks["sums south"]) == {(9, 1): 1}
    arrive("south", 2, [Sale(9, 4)])
    sinks = go("north east", "south")
    assert changes(sinks["sums south"]) == {(9, 1): -1, (9, 5): 1}
    assert not sinks["sums north east"].changes()
    assert spark.conf.get("spark.sql.streaming.queryEvolution.enableSourceEvolution", None) != "true"


@pytest.mark.spark
def test_rows_that_come_whole_come_with_the_next_tick_where_their_source_was_added_later(
    spark: SparkSession, tmp_path: Path
) -> None:
    def go(arrived: list[Sale], *, both: bool) -> dict[str, Any]:
        flow, sources = sums_of("arriving"), {"arriving": io.Rows([arrived])}
        sinks: dict[str, Any] = {"sums arriving": io.Memory()}
        if both:
            whole = flow.source("whole", Sale, bounded=True)
            flow.sink("sums whole", whole.group_by(col.shop).agg(total=hr.sum(col.amount)))
            sources["whole"] = io.Rows([[Sale(3, 1), Sale(3, 4)]])
            sinks["sums whole"] = io.Memory()
        run(flow, spark, sources=sources, sinks=sinks, checkpoint=tmp_path / "checkpoint", shards=2)
        return sinks

    go([Sale(1, 5)], both=False)
    assert changes(go([Sale(1, 5)], both=True)["sums whole"]) == {(3, 5): 1}
    assert not go([Sale(1, 5)], both=True)["sums whole"].changes()


@pytest.mark.spark
def test_beside_a_dataframe_of_the_users_own_no_source_can_be_added(
    spark: SparkSession, tmp_path: Path
) -> None:
    def frame(name: str) -> Frame:
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.json").write_text('{"shop": 1, "amount": 2}\n')
        return Frame(spark.readStream.schema("shop long, amount long").json(str(tmp_path / name)))

    one, two = frame("one"), frame("two")
    run(sums_of("one"), spark, sources={"one": one}, checkpoint=tmp_path / "checkpoint", shards=2)
    with pytest.raises(FlowChanged, match="noted the positions of other sources"):
        run(
            sums_of("one", "two"), spark, sources={"one": one, "two": two}, checkpoint=tmp_path / "checkpoint"
        )


def changes(sink: io.Memory) -> dict[tuple[Any, ...], int]:
    found: Counter[tuple[Any, ...]] = Counter()
    for *row, weight in sink.changes().raw:
        found[tuple(row)] += weight
    return {row: weight for row, weight in found.items() if weight}
