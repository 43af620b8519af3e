"""Streaming on Spark: the same answers as in-process, tick by tick, whatever the way, and after restarts."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import Engine, Flow, col, io, lit
from headrace.errors import (
    BadRow,
    CheckpointDamaged,
    CheckpointInUse,
    EvaluationError,
    FlowChanged,
    UnreadableSource,
    UserFunctionFailed,
    WrongType,
)
from headrace.io.files import compaction
from headrace.spark import Frame, run
from headrace.spark.ticks.ticker import DriverSink
from headrace.state.checkpoint import Checkpoint
from headrace.state.manifest import as_it_is
from tests.spark.streamed_flows import EXAMPLES, Bid, Example, closing_prices

pytestmark = pytest.mark.spark

Ticks = dict[str, dict[int, Counter[Any]]]


def recorder(into: dict[int, Counter[Any]]) -> Any:
    def record(tick: int, changes: Any) -> None:
        assert tick not in into
        into[tick] = Counter(changes.raw)

    return record


def in_process(example: Example) -> Ticks:
    engine = Engine(example.flow())
    found: Ticks = {name: {} for name in engine.program.graph.sinks}
    ticks = example.ticks()
    while ticks or engine.pending:
        for name, changes in engine.tick(**(ticks.pop(0) if ticks else {})).items():
            if len(changes):
                found[name][engine.ticks] = Counter(changes.raw)
    return found


def on_spark(spark: Any, example: Example, **options: Any) -> Ticks:
    flow = example.flow()
    found: Ticks = {name: {} for name in flow.graph().sinks}
    run(
        flow,
        spark,
        sources={name: io.Rows(batches) for name, batches in example.batches().items()},
        sinks={name: recorder(into) for name, into in found.items()},
        **options,
    )
    return found


@pytest.mark.parametrize(("way", "shards"), [("one task", 3), ("stages", 2)])
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_tick_is_what_it_is_in_process(name: str, way: Any, shards: int, spark: Any) -> None:
    example = EXAMPLES[name]
    assert on_spark(spark, example, way=way, shards=shards) == in_process(example)


def test_one_way_goes_on_where_the_other_was(spark: Any, tmp_path: Path) -> None:
    whole = EXAMPLES["closing prices"]
    found: list[Any] = []
    for ticks, way in ((1, "stages"), (2, "one task"), (3, "stages")):
        part = Example(whole.flow, lambda ticks=ticks: whole.ticks()[:ticks])
        found.append(on_spark(spark, part, way=way, shards=2, checkpoint=tmp_path / "checkpoint"))
    expected = in_process(whole)
    for name, by_tick in expected.items():
        assert {t: c for part in found for t, c in part[name].items()} == by_tick


# --- files ------------------------------------------------------------------------------


def write_bids(folder: Path, number: int, bids: list[Bid]) -> None:
    folder.mkdir(exist_ok=True)
    aside = folder / f".{number}.tmp"
    aside.write_text("".join(json.dumps(b._asdict()) + "\n" for b in bids))
    aside.rename(folder / f"{number:03d}.json")


def best_bids() -> Flow:
    flow = Flow("best bids")
    best = flow.source("bids", Bid).group_by(col.auction).agg(best=hr.max(col.price), n=hr.count())
    flow.sink("best", best)
    return flow


def published(path: Path) -> Counter[Any]:
    """The rows of a changelog, added up."""
    rows: Counter[Any] = Counter()
    for file in path.glob("tick=*/*.parquet"):
        for record in pq.ParquetFile(file).read().to_pylist():
            weight = record.pop("weight")
            rows[tuple(record.values())] += weight
    return +rows


def table_rows(path: Path) -> Counter[Any]:
    files = (path / "current").glob("*.parquet")
    return Counter(tuple(r.values()) for f in files for r in pq.ParquetFile(f).read().to_pylist())


def bids_of(number: int) -> list[Bid]:
    return [Bid(n % 5, n * number % 17) for n in range(12)]


def best_of(numbers: range) -> Counter[Any]:
    bids = [bid for number in numbers for bid in bids_of(number)]
    auctions = {bid.auction for bid in bids}
    prices = {a: [b.price for b in bids if b.auction == a] for a in auctions}
    return Counter((a, max(prices[a]), len(prices[a])) for a in auctions)


def test_files_arrive_between_runs_and_each_counts_once(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for last in (3, 3, 5):
        for number in range(1, last + 1):
            if not (tmp_path / "in" / f"{number:03d}.json").exists():
                write_bids(tmp_path / "in", number, bids_of(number))
        run(
            best_bids(), spark, shards=2, checkpoint=tmp_path / "checkpoint",
            sources={"bids": io.JsonFiles(tmp_path / "in", files_per_tick=1)},
            sinks={"best": io.Changelog(out)},
        )  # fmt: skip
        assert published(out) == best_of(range(1, last + 1))


def test_a_table_holds_the_rows_of_now(spark: Any, tmp_path: Path) -> None:
    for number in range(1, 4):
        write_bids(tmp_path / "in", number, bids_of(number))
        run(
            best_bids(), spark, shards=3, checkpoint=tmp_path / "checkpoint", way="stages",
            sources={"bids": io.JsonFiles(tmp_path / "in")},
            sinks={"best": io.TableFiles(tmp_path / "table", key="auction", buckets=4)},
        )  # fmt: skip
        assert table_rows(tmp_path / "table") == best_of(range(1, number + 1))


def test_a_changelog_is_compacted_by_the_driver_and_gone_on_with(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for setting in ("SETTLED_SECONDS", "LISTING_SECONDS"):
        monkeypatch.setattr(compaction, setting, 0.0)
    monkeypatch.setattr(compaction, "MIN_BATCH", 4)
    out = tmp_path / "out"
    for last in (8, 9):
        for number in range(1, last + 1):
            if not (tmp_path / "in" / f"{number:03d}.json").exists():
                write_bids(tmp_path / "in", number, bids_of(number))
        run(
            best_bids(), spark, shards=2, checkpoint=tmp_path / "checkpoint", keep_ticks=4,
            sources={"bids": io.JsonFiles(tmp_path / "in", files_per_tick=1)},
            sinks={"best": io.Changelog(out, compact_after=1)},
        )  # fmt: skip
        assert published(out) == best_of(range(1, last + 1))
        assert len(list(out.glob("tick=*/merged-*"))) == 1
        # One can go back to these.
        assert all((out / f"tick={tick}").is_dir() for tick in range(last - 2, last + 1))


class Crash(Exception):
    """What stands for the end of the driver."""


def crash_before(module: Any, name: str, at: int) -> Any:
    """A patch that lets the driver crash instead of the call number `at`."""
    calls = iter(range(1000))
    original = getattr(module, name)

    def crashing(*arguments: Any, **options: Any) -> Any:
        if next(calls) == at:
            raise Crash
        return original(*arguments, **options)

    return mock.patch.object(module, name, crashing)


@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize(
    ("place", "name"),
    [(DriverSink, "prepare"), (Checkpoint, "commit"), (Checkpoint, "_forget_old"), (DriverSink, "publish")],
)
def test_a_crash_at_each_step_of_a_tick_costs_and_doubles_nothing(
    spark: Any, tmp_path: Path, place: Any, name: str, table: bool
) -> None:
    for number in (1, 2, 3):
        write_bids(tmp_path / "in", number, bids_of(number))
    out = tmp_path / "out"
    target = io.TableFiles(out, key="auction", buckets=2) if table else io.Changelog(out)

    def go_on() -> None:
        sources = {"bids": io.JsonFiles(tmp_path / "in", files_per_tick=1)}
        run(best_bids(), spark, sources=sources, sinks={"best": target}, checkpoint=tmp_path / "c", shards=2)

    with crash_before(place, name, 1), pytest.raises(Crash):
        go_on()
    go_on()
    assert (table_rows(out) if table else published(out)) == best_of(range(1, 4))


def streamed(spark: Any, folder: Path) -> Frame:
    """Files as a streaming DataFrame, one per batch."""
    reader = spark.readStream.schema("auction long, price long").option("maxFilesPerTrigger", 1)
    return Frame(reader.json(str(folder)))


@pytest.mark.parametrize("crash", [False, True])
def test_files_are_read_beside_a_streaming_data_frame(spark: Any, tmp_path: Path, crash: bool) -> None:
    """A batch of Spark takes them along; what is left over comes in ticks of its own."""
    flow = Flow("both")
    both = flow.source("here", Bid).union(flow.source("there", Bid))
    flow.sink("best", both.group_by(col.auction).agg(best=hr.max(col.price), n=hr.count()))
    for number in range(1, 4):
        write_bids(tmp_path / "here", number, bids_of(number))
    write_bids(tmp_path / "there", 1, bids_of(4))

    def go_on() -> None:
        sources = {
            "here": io.JsonFiles(tmp_path / "here", files_per_tick=1),
            "there": streamed(spark, tmp_path / "there"),
        }
        sinks = {"best": io.Changelog(tmp_path / "out")}
        run(flow, spark, sources=sources, sinks=sinks, checkpoint=tmp_path / "c", shards=2)

    if crash:
        with crash_before(Checkpoint, "commit", 1), pytest.raises(Crash):
            go_on()
    go_on()
    assert published(tmp_path / "out") == best_of(range(1, 5))
    write_bids(tmp_path / "here", 5, bids_of(5))
    go_on()
    write_bids(tmp_path / "there", 6, bids_of(6))
    go_on()
    assert published(tmp_path / "out") == best_of(range(1, 7))


def test_nothing_of_a_tick_that_failed_is_committed_by_a_batch_that_waited(
    spark: Any, tmp_path: Path
) -> None:
    """The watching thread and Spark's own take turns; a failure of one ends the other's turns, too."""
    write_bids(tmp_path / "here", 1, bids_of(1))
    write_bids(tmp_path / "there", 1, bids_of(2))
    flow = Flow("both")
    both = flow.source("here", Bid).union(flow.source("there", Bid))
    flow.sink("best", both.group_by(col.auction).agg(best=hr.max(col.price), n=hr.count()))

    def go_on(**options: Any) -> None:
        sources = {
            "here": io.JsonFiles(tmp_path / "here", files_per_tick=1),
            "there": streamed(spark, tmp_path / "there"),
        }
        sinks = {"best": io.Changelog(tmp_path / "out")}
        run(flow, spark, sources=sources, sinks=sinks, checkpoint=tmp_path / "c", shards=2, **options)

    def spoil(progress: Any) -> None:
        (tmp_path / "here" / ".2").write_text('{"auction": 1}\n')
        (tmp_path / "here" / ".2").rename(tmp_path / "here" / "002.json")
        write_bids(tmp_path / "there", 2, bids_of(3))

    with pytest.raises(BadRow, match=r"002\.json"):
        go_on(follow=True, on_tick=spoil)
    write_bids(tmp_path / "here", 2, bids_of(4))
    go_on()
    assert published(tmp_path / "out") == best_of(range(1, 5))


def test_a_source_that_comes_back_is_new(spark: Any, tmp_path: Path) -> None:
    def told(*names: str) -> dict[str, io.Memory]:
        flow = Flow("some")
        sources: dict[str, Any] = {}
        sinks: dict[str, Any] = {}
        for name in names:
            sums = flow.source(name, Bid).group_by(col.auction).agg(n=hr.count())
            flow.sink(f"of {name}", sums)
            sources[name], sinks[f"of {name}"] = io.JsonFiles(tmp_path / name), io.Memory()
        run(flow, spark, sources=sources, sinks=sinks, checkpoint=tmp_path / "c", shards=1)
        return sinks

    for name in "ab":
        write_bids(tmp_path / name, 1, [Bid(1, 2)])
    told("a", "b")
    write_bids(tmp_path / "a", 2, [Bid(1, 2)])
    told("a")
    assert [tuple(row) for row in told("a", "b")["of b"].rows()] == [(1, 1)]


def test_files_alone_leave_nothing_of_spark_in_the_checkpoint(spark: Any, tmp_path: Path) -> None:
    """And of 30 files no more than of a few: what was read is state, and files of state are merged."""
    for number in range(30):
        write_bids(tmp_path / "in", number, bids_of(number))
    sources = {"bids": io.JsonFiles(tmp_path / "in", files_per_tick=1)}
    run(best_bids(), spark, sources=sources, checkpoint=tmp_path / "c", shards=1)
    assert {path.name for path in (tmp_path / "c").iterdir()} == {
        "commit", "lease", "manifest", "state"
    }  # fmt: skip
    assert len(list((tmp_path / "c" / "state" / "sources").iterdir())) < 20


def test_a_batch_that_spark_repeats_counts_once(spark: Any, tmp_path: Path) -> None:
    """Spark's own record of a batch is written after ours, so a crash between the two repeats it."""
    write_bids(tmp_path / "in", 1, bids_of(1))
    for last in (2, 3):
        write_bids(tmp_path / "in", last, bids_of(last))
        run(
            best_bids(), spark, checkpoint=tmp_path / "c", shards=2,
            sources={"bids": streamed(spark, tmp_path / "in")},
            sinks={"best": io.Changelog(tmp_path / "out")},
        )  # fmt: skip
        latest = max((tmp_path / "c" / "source" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
        latest.unlink()
    assert published(tmp_path / "out") == best_of(range(1, 4))


def test_a_bad_row_ends_the_run_by_name_and_nothing_of_its_tick_is_seen(spark: Any, tmp_path: Path) -> None:
    write_bids(tmp_path / "in", 1, bids_of(1))
    (tmp_path / "in" / "002.json").write_text('{"auction": 1, "price": 2}\n{"auction": 1, "price": "two"}\n')
    options: dict[str, Any] = {"shards": 2, "checkpoint": tmp_path / "checkpoint"}
    sources = {"bids": io.JsonFiles(tmp_path / "in", files_per_tick=1)}
    with pytest.raises(BadRow, match=r"row 2 of .*002\.json"):
        run(best_bids(), spark, sources=sources, sinks={"best": io.Changelog(tmp_path / "out")}, **options)
    assert published(tmp_path / "out") == best_of(range(1, 2))
    write_bids(tmp_path / "in", 2, bids_of(2))
    run(best_bids(), spark, sources=sources, sinks={"best": io.Changelog(tmp_path / "out")}, **options)
    assert published(tmp_path / "out") == best_of(range(1, 3))


def test_bad_rows_are_set_aside_where_the_source_says_so(spark: Any, tmp_path: Path) -> None:
    write_bids(tmp_path / "in", 1, bids_of(1))
    with (tmp_path / "in" / "001.json").open("a") as file:
        file.write('{"auction": 1}\nnot json\n')
    result = run(
        best_bids(), spark,
        sources={"bids": io.JsonFiles(tmp_path / "in", dead_letter=tmp_path / "dead")},
        sinks={"best": io.Changelog(tmp_path / "out")},
    )  # fmt: skip
    assert (result.rows_in, result.set_aside) == (12, 2)
    assert published(tmp_path / "out") == best_of(range(1, 2))
    letters = [
        json.loads(line) for f in (tmp_path / "dead").glob("*.jsonl") for line in f.read_text().splitlines()
    ]
    assert sorted(letter["row"] for letter in letters) == [13, 14]


def test_a_folder_that_is_not_there_is_named(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(UnreadableSource, match="nowhere"):
        run(best_bids(), spark, sources={"bids": io.JsonFiles(tmp_path / "nowhere")})


# --- DataFrames --------------------------------------------------------------------------


def test_any_streaming_dataframe_is_a_source_and_a_static_one_is_there_at_once(
    spark: Any, tmp_path: Path
) -> None:
    class Item(NamedTuple):
        id: int
        label: str | None

    flow = Flow("labelled")
    items = flow.source("items", Item, bounded=True)
    flow.sink("labelled", flow.source("bids", Bid).join(items, on=col.auction == col.id, how="left"))
    for number in (1, 2):
        write_bids(tmp_path / "in", number, bids_of(number))
    arriving = spark.readStream.schema("price long, auction long, more string").json(str(tmp_path / "in"))
    static = spark.createDataFrame([(1, "one"), (2, None), (3, "three")], "id long, label string")
    kept = io.Memory()
    run(flow, spark, sources={"bids": Frame(arriving), "items": Frame(static)}, sinks={"labelled": kept})
    labels = {1: (1, "one"), 2: (2, None), 3: (3, "three")}
    expected = Counter((*b, *labels.get(b.auction, (None, None))) for n in (1, 2) for b in bids_of(n))
    assert Counter(tuple(row) for row in kept.rows()) == expected


def test_static_rows_do_not_wait_for_a_stream_that_brings_nothing(spark: Any, tmp_path: Path) -> None:
    flow = Flow("both")
    there, arriving = flow.source("there", Bid, bounded=True), flow.source("arriving", Bid)
    flow.sink("out", there.union(arriving))
    (tmp_path / "in").mkdir()
    sources = {
        "there": Frame(spark.createDataFrame([(1, 2)], "auction long, price long")),
        "arriving": Frame(spark.readStream.schema("auction long, price long").json(str(tmp_path / "in"))),
    }
    kept = io.Memory()
    for expected in ([Bid(1, 2)], [Bid(1, 2), Bid(3, 4)]):
        run(flow, spark, sources=sources, sinks={"out": kept}, checkpoint=tmp_path / "checkpoint")
        assert kept.rows() == expected
        write_bids(tmp_path / "in", 1, [Bid(3, 4)])


def test_filters_and_projections_behind_a_dataframe_are_sparks_own(spark: Any, tmp_path: Path) -> None:
    flow = Flow("native part")
    bids = flow.table("bids", Bid).filter(col.price > 3).select(col.auction, half=col.price / 2)
    flow.sink("halves", bids)
    flow.sink("sums", bids.group_by(col.auction).agg(total=hr.sum(col.half)))
    for number in (1, 2):
        write_bids(tmp_path / "in", number, bids_of(number))
    frame = spark.readStream.schema("auction long, price long").json(str(tmp_path / "in"))
    weighted = frame.selectExpr("*", "case when auction = 1 then -1L else 1L end as weight")
    halves, sums = io.Memory(), io.Memory()
    result = run(flow, spark, sources={"bids": Frame(weighted)}, sinks={"halves": halves, "sums": sums})
    changes = [hr.Change(b, -1 if b.auction == 1 else 1) for n in (1, 2) for b in bids_of(n)]
    expected = {name: Counter(c.raw) for name, c in Engine(flow).tick(bids=changes).items()}
    assert Counter((*c.row, c.weight) for c in halves.changes()) == expected["halves"]
    assert Counter((*c.row, c.weight) for c in sums.changes()) == expected["sums"]
    # What Spark drops never came.
    assert result.rows_in == sum(change.row.price > 3 for change in changes)


def test_what_the_native_part_refuses_is_an_error_of_ours(spark: Any) -> None:
    flow = Flow("native failure")
    flow.sink("out", flow.source("bids", Bid).select(share=lit(1) / col.price))
    for price, error in ((0, EvaluationError), (None, BadRow)):
        frame = spark.createDataFrame([(1, price)], "auction long, price long")
        with pytest.raises(error):
            run(flow, spark, sources={"bids": Frame(frame)}, sinks={"out": io.Memory()})


def test_a_dataframe_of_other_types_is_refused_before_it_is_read(spark: Any) -> None:
    frame = spark.createDataFrame([(1, "2")], "auction long, price string")
    with pytest.raises(WrongType, match="'price' as string"):
        run(best_bids(), spark, sources={"bids": Frame(frame)})


def test_a_null_that_the_flow_does_not_expect_is_named(spark: Any) -> None:
    frame = spark.createDataFrame([(1, None)], "auction long, price long")
    with pytest.raises(BadRow, match="column 'price' of its DataFrame is null"):
        run(best_bids(), spark, sources={"bids": Frame(frame)}, sinks={"best": io.Memory()})


@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_a_row_of_a_table_without_a_weight_is_named(spark: Any, mode: Any) -> None:
    flow = Flow("table")
    bids = flow.table("bids", Bid)
    flow.sink("counted", bids.group_by(col.auction).agg(n=hr.count()))
    frame = spark.createDataFrame([(1, 2, 1), (1, 3, None)], "auction long, price long, weight long")
    with pytest.raises(BadRow, match="column 'weight' of its DataFrame is null"):
        run(flow, spark, sources={"bids": Frame(frame)}, sinks={"counted": io.Memory()}, mode=mode)


@pytest.mark.parametrize("mode", ["stream", "batch"])
@pytest.mark.parametrize("given", ["files", "frame"])
def test_copies_of_a_row_are_counted_by_its_live_columns(
    spark: Any, tmp_path: Path, mode: Any, given: str
) -> None:
    flow = Flow("table")
    flow.sink("auctions", flow.table("bids", Bid).select(col.auction))
    rows = [(1, 2, 1), (1, 3, 1), (2, 4, 1), (1, 9, -1)]
    if given == "files":
        lines = [json.dumps(dict(zip(("auction", "price", "weight"), row, strict=True))) for row in rows]
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "1.jsonl").write_text("\n".join(lines))
        source: Any = io.JsonFiles(tmp_path / "in")
    else:
        source = Frame(spark.createDataFrame(rows, "auction long, price long, weight long"))
    kept = io.Memory()
    run(flow, spark, sources={"bids": source}, sinks={"auctions": kept}, mode=mode)
    assert sorted(map(tuple, kept.rows())) == [(1,), (2,)]


# --- errors and checkpoints ----------------------------------------------------------------


def picky(bid: Bid) -> Bid:
    if bid.price == 13:
        raise ValueError("unlucky")
    return bid


def test_a_user_function_that_raises_is_named_with_its_row(spark: Any, tmp_path: Path) -> None:
    flow = Flow("picky")
    flow.sink("out", flow.source("bids", Bid).map(picky))
    sources = {"bids": io.Rows([[Bid(1, 1)], [Bid(2, 13)]])}
    with pytest.raises(UserFunctionFailed, match="unlucky") as caught:
        run(flow, spark, sources=sources, sinks={"out": io.Changelog(tmp_path / "out")})
    assert "(2, 13)" in str(caught.value)
    assert published(tmp_path / "out") == Counter({(1, 1): 1})


def started(spark: Any, checkpoint: Path) -> None:
    write_bids(checkpoint.parent / "in", 1, bids_of(1))
    run_best(spark, checkpoint)


def run_best(spark: Any, checkpoint: Path, flow: Flow | None = None) -> Any:
    sources = {"bids": io.JsonFiles(checkpoint.parent / "in")}
    return run(flow or best_bids(), spark, sources=sources, sinks={}, checkpoint=checkpoint, shards=2)


class Noted(NamedTuple):
    auction: int
    note: str | None
    price: int


def test_a_column_that_nobody_reads_may_come(spark: Any, tmp_path: Path) -> None:
    started(spark, tmp_path / "checkpoint")
    changed = Flow("best bids")
    bids = changed.source("bids", Noted)
    changed.sink("best", bids.group_by(col.auction).agg(best=hr.max(col.price), n=hr.count()))
    (tmp_path / "in" / "2.json").write_text(json.dumps({"auction": 0, "note": "n", "price": 10_000}) + "\n")
    assert run_best(spark, tmp_path / "checkpoint", changed).rows_in == 1


def test_a_changed_flow_on_an_old_checkpoint_is_refused(spark: Any, tmp_path: Path) -> None:
    started(spark, tmp_path / "checkpoint")
    changed = Flow("best bids")
    best = changed.source("bids", Bid).group_by(col.auction).agg(best=hr.min(col.price), n=hr.count())
    changed.sink("best", best)
    with pytest.raises(FlowChanged, match="min"):
        run_best(spark, tmp_path / "checkpoint", changed)


def test_a_sink_that_would_miss_the_ticks_so_far_is_refused(spark: Any, tmp_path: Path) -> None:
    started(spark, tmp_path / "checkpoint")
    with pytest.raises(FlowChanged, match="'best' has missed"):
        run(
            best_bids(), spark, checkpoint=tmp_path / "checkpoint",
            sources={"bids": io.JsonFiles(tmp_path / "in")}, sinks={"best": io.Changelog(tmp_path / "out")},
        )  # fmt: skip


def test_a_second_driver_on_a_checkpoint_is_refused(spark: Any, tmp_path: Path) -> None:
    started(spark, tmp_path / "checkpoint")
    held = Checkpoint.open(tmp_path / "checkpoint", as_it_is)
    with held, pytest.raises(CheckpointInUse, match=str(os.getpid())):
        run_best(spark, tmp_path / "checkpoint")
    run_best(spark, tmp_path / "checkpoint")


@pytest.mark.parametrize("harm", ["delete", "tear", "alter"])
def test_a_damaged_state_file_is_named(spark: Any, tmp_path: Path, harm: str) -> None:
    started(spark, tmp_path / "checkpoint")
    for victim in (tmp_path / "checkpoint" / "state").glob("*/*"):
        data = victim.read_bytes()
        victim.unlink() if harm == "delete" else victim.write_bytes(
            data[:-5] if harm == "tear" else data[:-5] + b"WRONG"
        )
    write_bids(tmp_path / "in", 2, bids_of(2))
    with pytest.raises(CheckpointDamaged, match="checkpoint/state/"):
        run_best(spark, tmp_path / "checkpoint")


def test_lost_source_positions_are_not_taken_for_a_new_start(spark: Any, tmp_path: Path) -> None:
    write_bids(tmp_path / "in", 1, bids_of(1))
    options: dict[str, Any] = {"checkpoint": tmp_path / "c", "shards": 2}
    run(best_bids(), spark, sources={"bids": streamed(spark, tmp_path / "in")}, **options)
    shutil.rmtree(tmp_path / "c" / "source")
    with pytest.raises(CheckpointDamaged, match="positions"):
        run(best_bids(), spark, sources={"bids": streamed(spark, tmp_path / "in")}, **options)


def test_a_run_that_follows_ends_where_nothing_more_can_come(spark: Any) -> None:
    found = io.Memory()
    sources = {"bids": io.Rows([[Bid(1, 2)], [Bid(1, 3)]])}
    assert run(best_bids(), spark, sources=sources, sinks={"best": found}, follow=True).last_tick == 2


def test_a_signal_ends_a_following_run_after_the_tick(spark: Any, tmp_path: Path) -> None:
    write_bids(tmp_path / "in", 1, bids_of(1))
    ticks: list[int] = []

    def stop(progress: Any) -> None:
        ticks.append(progress.tick)
        os.kill(os.getpid(), signal.SIGINT)

    result = run(
        best_bids(), spark, follow=True, on_tick=stop, checkpoint=tmp_path / "checkpoint",
        sources={"bids": io.JsonFiles(tmp_path / "in")}, sinks={"best": io.Changelog(tmp_path / "out")},
    )  # fmt: skip
    assert (result.stopped_by, result.last_tick, ticks) == (signal.SIGINT, 1, [1])
    assert published(tmp_path / "out") == best_of(range(1, 2))


def test_deferred_rows_are_waited_for_by_a_following_run_too(spark: Any, tmp_path: Path) -> None:
    flow = Flow("later")
    flow.sink("out", flow.source("bids", Bid).defer_tick())
    seen: list[int] = []

    def stop_at_2(progress: Any) -> None:
        seen.append(progress.changes_out)
        if progress.tick == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    result = run(
        flow, spark, follow=True, on_tick=stop_at_2, sinks={"out": io.Memory()},
        sources={"bids": io.Rows([[Bid(1, 1), Bid(2, 2)]])},
    )  # fmt: skip
    assert (result.stopped_by, seen) == (signal.SIGTERM, [0, 2])


def test_a_temporary_checkpoint_is_removed(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run(closing_prices(), spark, sources={"bids": [Bid(1, 2)], "auctions": []})
    assert list(tmp_path.iterdir()) == []


class Auction(NamedTuple):
    id: int
    name: str | None
    seller: int
    description: str


def joined() -> Flow:
    flow = Flow("joined")
    bids, auctions = flow.source("bids", Bid), flow.source("auctions", Auction)
    flow.sink("sold", bids.join(auctions, on=col.auction == col.id).select("name", "price"))
    flow.sink("sellers", auctions.filter(col.seller > 1).select("seller"))
    flow.sink("prices", flow.source("more", Bid).select(paid=col.price))
    return flow


@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_parquet_files_answer_alike_whether_their_rows_stay_columns_or_not(
    spark: Any, tmp_path: Path, mode: Any
) -> None:
    """One file has a narrower type, one is null where nobody looks, and one lacks that column."""
    for name in ("bids", "auctions", "more"):
        (tmp_path / name).mkdir()
    bids = {"auction": [1, 2, 1], "price": [5, 6, 7]}
    whole = pa.table(bids)
    narrow = pa.table({"auction": pa.array([2, 3], pa.int32()), "price": [8, 9]})
    for name, table in (("1", whole), ("2", narrow), ("3", whole.slice(1))):
        pq.write_table(table, tmp_path / "bids" / f"{name}.parquet")
    auctions = pa.table(
        {"id": [1, 2, 3], "name": ["a", None, "c"], "seller": [1, 2, 3], "description": ["x"] * 3}
    )
    pq.write_table(auctions, tmp_path / "auctions" / "1.parquet")
    dead = pa.table({"auction": pa.array([None, None], pa.string()), "price": [1, 1]})
    pq.write_table(dead, tmp_path / "more" / "1.parquet")
    pq.write_table(pa.table({"price": pa.array([2], pa.int16())}), tmp_path / "more" / "2.parquet")
    sources: dict[str, Any] = {n: io.ParquetFiles(tmp_path / n) for n in ("bids", "auctions", "more")}
    expected = {name: io.Memory() for name in ("sold", "sellers", "prices")}
    hr.run(joined(), sources, dict(expected))
    sinks: dict[str, Any] = {name: io.Changelog(tmp_path / "out" / name) for name in expected}
    run(joined(), spark, sources=sources, sinks=sinks, mode=mode)
    for name, memory in expected.items():
        assert published(tmp_path / "out" / name) == Counter(map(tuple, memory.rows())), name
