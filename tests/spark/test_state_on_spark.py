"""On Spark a checkpoint goes on with a changed flow, on other shards, and from an earlier tick."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark")
import pyarrow.parquet as pq

import headrace as hr
from headrace import Change, Flow, col, io
from headrace.errors import FlowChanged
from headrace.spark import run
from headrace.spark.resharding import reshard
from headrace.state.inspection import inspect, rows_of_key
from headrace.state.rewind import rewind


class Bid(NamedTuple):
    item: int
    price: int


def bids_of(number: int) -> list[Bid]:
    return [Bid(n % 5, n * number % 17) for n in range(12)]


def arrive(folder: Path, *numbers: int) -> None:
    folder.mkdir(exist_ok=True)
    for number in numbers:
        aside = folder / f".{number}"
        aside.write_text("".join(json.dumps(b._asdict()) + "\n" for b in bids_of(number)))
        aside.rename(folder / f"{number:03d}.json")


def best_of(*numbers: int) -> Counter[Any]:
    prices: dict[int, list[int]] = {}
    for number in numbers:
        for bid in bids_of(number):
            prices.setdefault(bid.item, []).append(bid.price)
    return Counter((item, max(found), len(found)) for item, found in prices.items())


def best() -> Flow:
    flow = Flow("best")
    bids = flow.source("bids", Bid)
    flow.sink("best", bids.group_by(col.item).agg(best=hr.max(col.price), n=hr.count()))
    return flow


def best_and_more() -> Flow:
    flow = Flow("best and more")
    bids = flow.source("bids", Bid)
    flow.sink("high", bids.filter(col.price > 5).select(col.item))
    found = bids.group_by(col.item).agg(best=hr.max(col.price), n=hr.count())
    flow.sink("items", found.select(col.item))
    flow.sink("the best", found)
    return flow


def stricter() -> Flow:
    flow = Flow("best")
    bids = flow.source("bids", Bid).filter(col.price > 1)
    flow.sink("best", bids.group_by(col.item).agg(best=hr.max(col.price), n=hr.count()))
    return flow


def table(path: Path) -> Counter[Any]:
    files = (path / "current").glob("*.parquet")
    rows = (record for file in files for record in pq.ParquetFile(file).read().to_pylist())
    return Counter(tuple(row.values()) for row in rows)


def test_a_changed_flow_goes_on_on_other_shards(spark: Any, tmp_path: Path) -> None:
    sources = {"bids": io.JsonFiles(tmp_path / "in")}
    sink, checkpoint = io.TableFiles(tmp_path / "out", key="item", buckets=4), tmp_path / "c"
    arrive(tmp_path / "in", 1, 2)
    run(best(), spark, sources=sources, sinks={"best": sink}, checkpoint=checkpoint, shards=2)
    with pytest.raises(FlowChanged, match="its groups would lack"):
        run(stricter(), spark, sources=sources, sinks={"best": sink}, checkpoint=checkpoint)
    arrive(tmp_path / "in", 3)
    run(best_and_more(), spark, sources=sources, sinks={"the best": sink}, checkpoint=checkpoint)
    reshard(checkpoint, 3, best_and_more())
    arrive(tmp_path / "in", 4, 5)
    run(best_and_more(), spark, sources=sources, sinks={"the best": sink}, checkpoint=checkpoint)
    assert table(tmp_path / "out") == best_of(1, 2, 3, 4, 5)
    held = inspect(checkpoint)
    assert (held.on, held.shards, held.damage) == ("Spark", 3, ())
    ((_, _, number),) = [row for row in best_of(1, 2, 3, 4, 5) if row[0] == 2]
    assert sum(slot.whole.keys for slot in held.slots) == 5
    (found,) = rows_of_key(checkpoint, held.slots[0].name, 2)
    assert found.value[0] == number


def test_after_going_back_what_came_later_is_read_again(spark: Any, tmp_path: Path) -> None:
    def go_on() -> Counter[Any]:
        changes: list[Change[Any]] = []
        sources = {"bids": io.JsonFiles(tmp_path / "in")}
        run(best(), spark, sources=sources, sinks={"best": changes}, checkpoint=tmp_path / "c", shards=2)
        total: Counter[Any] = Counter()
        for row, weight in changes:
            total[tuple(row)] += weight
        return total

    sums: list[Counter[Any]] = []
    for number in (1, 2, 3):
        arrive(tmp_path / "in", number)
        sums.append(go_on())
    last = inspect(tmp_path / "c").tick
    kept = (tmp_path / "in" / "002.json").read_text()
    (tmp_path / "in" / "002.json").unlink()
    assert rewind(tmp_path / "c", last - 1).gone == ()
    assert rewind(tmp_path / "c", last - 2).gone == (str(tmp_path / "in" / "002.json"),)
    (tmp_path / "in" / "002.json").write_text(kept)
    arrive(tmp_path / "in", 4)
    again = go_on()
    total = Counter(sums[0])
    total.update(again)
    assert +total == best_of(1, 2, 3, 4)
