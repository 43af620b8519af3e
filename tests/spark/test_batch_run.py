"""A run in batch mode: from sources of every kind to sinks of every kind, once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import col, io
from headrace.errors import BadInput, BadRow
from headrace.spark import Frame, Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Bid(NamedTuple):
    auction: int
    price: int


class Auction(NamedTuple):
    id: int
    category: str


BIDS = [Bid(n % 7, n * n % 31) for n in range(60)]
AUCTIONS = [Auction(n, "ab"[n % 2]) for n in range(7)]


def averages() -> hr.Flow:
    """The average best price per category, and the best price of each auction."""
    flow = hr.Flow("averages")
    bids, auctions = flow.source("bids", Bid), flow.table("auctions", Auction)
    best = bids.group_by(col.auction).agg(best=hr.max(col.price))
    joined = best.join(auctions, on=col.auction == col.id)
    flow.sink("best", joined.select("auction", "best"))
    flow.sink("averages", joined.group_by(col.category).agg(average=hr.mean(col.best)))
    return flow


def write_lines(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(json.dumps(row._asdict()) + "\n" for row in rows))


@pytest.fixture
def bid_files(tmp_path: Path) -> Path:
    folder = tmp_path / "bids"
    folder.mkdir()
    write_lines(folder / "1.json", BIDS[:25])
    write_lines(folder / "2.json", BIDS[25:])
    return folder


def auction_changes() -> list[Any]:
    wrong = [Auction(3, "c"), Auction(99, "a")]
    return [hr.insert(a) for a in (*AUCTIONS, *wrong)] + [hr.delete(a) for a in wrong]


def in_process(sink: str) -> Counter[Any]:
    memory = io.Memory()
    hr.run(averages(), {"bids": BIDS, "auctions": auction_changes()}, {sink: memory})
    return Counter(memory.rows())


def test_files_rows_and_frames_give_what_the_run_in_process_gives(
    spark: SparkSession, bid_files: Path
) -> None:
    frame = spark.createDataFrame(
        [(*c.row, c.weight) for c in auction_changes()], "id long, category string, weight long"
    )
    for auctions in (auction_changes(), Frame(frame)):
        best = io.Memory()
        seen: list[Any] = []
        progress: list[Progress] = []

        def note(tick: int, changes: Any, seen: list[Any] = seen) -> None:
            seen.extend((tick, *change) for change in changes)

        result = hr.spark.run(
            averages(),
            spark,
            sources={"bids": io.JsonFiles(str(bid_files)), "auctions": auctions},
            sinks={"best": best, "averages": note},
            mode="batch",
            on_tick=progress.append,
        )
        assert Counter(best.rows()) == in_process("best")
        assert {(tick, weight) for tick, _, weight in seen} == {(1, 1)}
        assert Counter(row for _, row, _ in seen) == in_process("averages")
        assert (result.last_tick, result.ticks, result.rows_in, result.changes_out) == (1, 1, 60 + 11, 7 + 2)
        assert [(p.tick, p.rows_in, p.set_aside, p.changes_out) for p in progress] == [(1, 71, 0, 9)]


def test_files_are_written_by_tasks_and_appear_whole(
    spark: SparkSession, bid_files: Path, tmp_path: Path
) -> None:
    log, table = tmp_path / "log", tmp_path / "table"
    hr.spark.run(
        averages(),
        spark,
        sources={"bids": io.JsonFiles(str(bid_files)), "auctions": auction_changes()},
        sinks={
            "averages": io.Changelog(str(log)),
            "best": io.TableFiles(str(table), key="auction", buckets=3),
        },
        mode="batch",
    )
    written = [r for f in sorted(log.glob("tick=1/*.parquet")) for r in pq.ParquetFile(f).read().to_pylist()]
    assert Counter((r["category"], r["average"], r["weight"]) for r in written) == {
        (*row, 1): 1 for row in in_process("averages")
    }
    current = [r for f in (table / "current").glob("*.parquet") for r in pq.ParquetFile(f).read().to_pylist()]
    assert Counter(tuple(r.values()) for r in current) == in_process("best")


def test_copies_of_a_row_are_one_change_with_their_number(spark: SparkSession) -> None:
    flow = hr.Flow("copies")
    flow.sink("out", flow.source("bids", Bid).select("auction"))
    changes: list[Any] = []
    hr.spark.run(flow, spark, sources={"bids": BIDS[:8]}, sinks={"out": changes}, mode="batch")
    assert Counter({c.row: c.weight for c in changes}) == Counter((b.auction,) for b in BIDS[:8])


def test_a_bad_row_ends_the_run_with_its_place_and_nothing_is_written(
    spark: SparkSession, bid_files: Path, tmp_path: Path
) -> None:
    with (bid_files / "2.json").open("a") as file:
        file.write('{"auction": 1, "price": "dear"}\n')
    with pytest.raises(BadRow, match=r"row 36 of .*2\.json"):
        hr.spark.run(
            averages(),
            spark,
            sources={"bids": io.JsonFiles(str(bid_files)), "auctions": auction_changes()},
            sinks={"averages": io.Changelog(str(tmp_path / "log"))},
            mode="batch",
        )
    assert list((tmp_path / "log").glob("tick=*")) == []


def test_bad_rows_go_to_the_dead_letters_where_there_is_a_place_for_them(
    spark: SparkSession, bid_files: Path, tmp_path: Path
) -> None:
    with (bid_files / "1.json").open("a") as file:
        file.write("no JSON\n")
    best, dead = io.Memory(), tmp_path / "dead"
    result = hr.spark.run(
        averages(),
        spark,
        sources={"bids": io.JsonFiles(str(bid_files), dead_letter=str(dead)), "auctions": auction_changes()},
        sinks={"best": best},
        mode="batch",
    )
    assert Counter(best.rows()) == in_process("best")
    assert (result.rows_in, result.set_aside) == (71, 1)
    letters = [json.loads(line) for file in dead.iterdir() for line in file.read_text().splitlines()]
    assert [letter["row"] for letter in letters] == [26]


def test_csv_in_another_encoding_has_the_same_rows_and_dead_letters_as_in_process(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "bids").mkdir()
    lines = ["", "auction,price", "1,2", '"1"0,3', "4," + "5" * 140_000, "6,7", ""]
    (tmp_path / "bids" / "1.csv").write_bytes(("\ufeff" + "\n".join(lines)).encode("utf-16-le"))
    flow = hr.Flow("bids")
    flow.sink("out", flow.source("bids", Bid).select("auction", "price"))

    def run(name: str, run_flow: Callable[..., Any]) -> tuple[Any, Any]:
        out, dead = io.Memory(), tmp_path / name
        source = io.CsvFiles(tmp_path / "bids", encoding="utf-16-le", dead_letter=dead)
        run_flow(sources={"bids": source}, sinks={"out": out})
        letters = [json.loads(line) for file in dead.iterdir() for line in file.read_text().splitlines()]
        return Counter(out.rows()), letters

    rows, letters = run("in_process", partial(hr.run, flow))
    assert rows == Counter([(1, 2), (6, 7)])
    assert [(letter["row"], letter["line"]) for letter in letters] == [(2, 4), (3, 5)]
    assert run("spark", partial(hr.spark.run, flow, spark, mode="batch")) == (rows, letters)


def test_what_never_ends_is_refused(spark: SparkSession) -> None:
    flow = hr.Flow("endless")
    flow.sink("out", flow.source("bids", Bid))
    endless = spark.readStream.format("rate").load().selectExpr("value AS auction", "value AS price")
    with pytest.raises(BadInput, match="neither a checkpoint nor follow"):
        hr.spark.run(flow, spark, sources={"bids": BIDS}, sinks={"out": []}, mode="batch", follow=True)
    with pytest.raises(BadInput, match="a batch needs input that ends"):
        hr.spark.run(flow, spark, sources={"bids": Frame(endless)}, sinks={"out": []}, mode="batch")


@pytest.mark.parametrize("mode", ["batch", "stream"])
def test_a_bad_value_in_a_column_that_nobody_reads_is_not_fetched(spark: SparkSession, mode: Any) -> None:
    flow = hr.Flow("categories")
    flow.sink("out", flow.source("auctions", Auction).select("id"))
    frame = spark.createDataFrame([(1, None), (2, "b")], "id long, category string")
    memory = io.Memory()
    hr.spark.run(flow, spark, sources={"auctions": Frame(frame)}, sinks={"out": memory}, mode=mode)
    assert Counter(memory.rows()) == Counter([(1,), (2,)])
