"""The way of a tick on Spark follows its own size, as far as the driver knows it before it runs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col, io
from headrace.spark.sources.arrivals import FoundInput
from headrace.spark.sources.tick_input import Density, Expected, TickInput, batch_rows
from headrace.spark.ticks import plan
from headrace.spark.ticks.plan import ROWS_OF_ONE_TASK

LARGE, SMALL = ROWS_OF_ONE_TASK + 1, 3


@pytest.fixture(autouse=True)
def _as_if_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "COLUMNS_OF_ONE_TASK", ROWS_OF_ONE_TASK)


class Sale(NamedTuple):
    shop: int
    price: int


def totals() -> hr.Flow:
    flow = hr.Flow("totals")
    sales = flow.source("sales", Sale)
    flow.sink("totals", sales.group_by(col.shop).agg(total=hr.sum(col.price)))
    return flow


def ways(spark: Any, source: Any, **options: Any) -> list[str]:
    found: list[str] = []
    hr.spark.run(
        totals(), spark, sources={"sales": source}, sinks={"totals": []},
        on_tick=lambda progress: found.append(progress.way), **options,
    )  # fmt: skip
    return found


def rows(count: int) -> list[Sale]:
    return [Sale(shop=number % 7, price=number) for number in range(count)]


def write_parquet(folder: Path, *counts: int) -> Path:
    folder.mkdir()
    for number, count in enumerate(counts):
        # One value, so that the files say nothing by their sizes.
        table = pa.table({"shop": [1] * count, "price": [1] * count})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=5_000)
    return folder


def test_a_large_tick_of_files_uses_all_cores_and_a_small_one_after_it_does_not(
    spark: Any, tmp_path: Path
) -> None:
    folder = write_parquet(tmp_path / "in", LARGE, SMALL, LARGE, 0, SMALL)
    found = ways(spark, io.ParquetFiles(folder, files_per_tick=1))
    assert found == ["stages", "one task", "stages", "one task", "one task"]


def test_given_rows_are_counted(spark: Any) -> None:
    batches = io.Rows([rows(SMALL), rows(LARGE), rows(SMALL)])
    assert ways(spark, batches) == ["one task", "stages", "one task"]


def test_a_static_frame_is_as_large_as_spark_estimates(spark: Any) -> None:
    few = spark.range(SMALL).selectExpr("id shop", "id price")
    many = spark.range(1_000_000).selectExpr("id shop", "id price")
    assert ways(spark, hr.spark.Frame(few)) == ["one task"]
    assert ways(spark, hr.spark.Frame(many)) == ["stages"]


def test_where_spark_knows_no_size_the_first_tick_uses_all_cores(spark: Any) -> None:
    unknown = spark.createDataFrame([(1, 2)], "shop long, price long")
    assert ways(spark, hr.spark.Frame(unknown)) == ["stages"]


def test_a_streaming_frame_is_as_large_as_its_files(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number, count in enumerate((SMALL, 1_000_000, SMALL)):
        values = pa.array([n * 7919 % 1_000_003 for n in range(count)])
        pq.write_table(pa.table({"shop": values, "price": values}), folder / f"{number}.parquet")
    stream = spark.readStream.schema("shop long, price long").option("maxFilesPerTrigger", 1)
    found = ways(spark, hr.spark.Frame(stream.parquet(str(folder))))
    assert found == ["one task", "stages", "one task"]


def test_the_answer_is_that_of_the_other_way_where_the_size_is_guessed_wrong(
    spark: Any, tmp_path: Path
) -> None:
    # Rows of a few bytes, which count as fewer rows than there are.
    (tmp_path / "0.json").write_text("".join(f'{{"shop":{n % 3},"price":1}}\n' for n in range(LARGE)))
    answers: list[list[Any]] = []
    for way in ("auto", "stages"):
        answers.append([])
        hr.spark.run(
            totals(), spark, sources={"sales": io.JsonFiles(tmp_path)}, sinks={"totals": answers[-1]},
            way=way,
        )  # fmt: skip
    assert sorted(map(repr, answers[0])) == sorted(map(repr, answers[1]))


def test_a_frame_that_nobody_reads_is_counted_and_makes_nothing(spark: Any) -> None:
    flow = totals()
    flow.source("unread", Sale)
    frame = hr.spark.Frame(spark.range(SMALL).selectExpr("id shop", "id price"))
    progress: list[Any] = []
    changes: list[Any] = []
    hr.spark.run(
        flow, spark, sources={"sales": frame, "unread": frame}, sinks={"totals": changes},
        on_tick=progress.append,
    )  # fmt: skip
    assert len(changes) == SMALL
    assert progress[0].rows_in == 2 * SMALL


# --- without Spark ----------------------------------------------------------------------------------


def located(*found: FoundInput) -> TickInput:
    return TickInput([(0, each, place) for place, each in enumerate(found)])


def test_rows_that_cannot_be_counted_are_taken_for_their_bytes() -> None:
    given = located(FoundInput("a", 640), FoundInput("b", 10**9, lambda: 7))
    assert given.expected(100) == Expected(counted=7, size=640)
    assert Expected(7, 640).rows(Density()) == 17


def test_the_bytes_of_a_row_are_those_of_the_ticks_so_far() -> None:
    density = Density()
    density.learn(10_000, 100_000)
    assert Expected(0, 500).rows(density) == 50
    density.learn(3, 100_000)  # too few to tell
    assert Expected(0, 500).rows(density) == 50


def test_a_footer_that_cannot_be_read_is_left_to_the_task() -> None:
    def fails() -> int:
        raise OSError("no such file")

    assert located(FoundInput("a", 640, fails)).expected(100) == Expected(0, 640)


def test_footers_are_not_read_once_the_tick_is_known_to_be_large() -> None:
    counted: list[str] = []

    def count(name: str) -> int:
        counted.append(name)
        return 60

    found = [FoundInput(name, 1, lambda name=name: count(name)) for name in "abcd"]
    expected = located(*found).expected(100)
    assert counted == ["a", "b"]
    assert expected is not None
    assert expected.counted == 120


@given(st.lists(st.integers(0, 1000)), st.integers(1, 5), st.lists(st.text(max_size=2), max_size=2))
def test_each_location_is_in_one_share_and_shares_are_about_as_large(
    sizes: list[int], count: int, ended: list[str]
) -> None:
    found = [FoundInput(str(number), size) for number, size in enumerate(sizes)]
    given = located(*found) + TickInput(ended=ended)
    shares = given.shares(count)
    assert len(shares) == count
    assert sorted(map(repr, (row for share in shares for row in share))) == sorted(map(repr, given.tagged()))
    loads = [sum(sizes[place] for _, _, place in share if place is not None) for share in shares]
    assert max(loads) - min(loads) <= max(sizes, default=0) + len(sizes) + len(ended)


def offsets(folder: Path, batch: int, *lines: str, version: str = "v1") -> None:
    (folder / "offsets").mkdir(exist_ok=True)
    text = "\n".join([version, '{"batchWatermarkMs":0}', *lines])
    (folder / "offsets" / str(batch)).write_text(text)


def test_records_of_kafka_are_counted_by_their_offsets(tmp_path: Path) -> None:
    for source, at in (("0", {"bids": {"0": 90, "1": 0}}), ("1", {"sales": {"0": 5}})):
        (tmp_path / "sources" / source).mkdir(parents=True)
        # As Spark writes the offsets at which a source begins.
        (tmp_path / "sources" / source / "0").write_text(f"\0v1\n{json.dumps(at)}")
    offsets(tmp_path, 0, '{"bids":{"0":100,"1":7}}', '{"sales":{"0":5}}')
    offsets(tmp_path, 1, '{"bids":{"0":130,"1":7,"2":4}}', '{"sales":{"0":6}}')
    assert batch_rows(tmp_path, 0) == 17
    assert batch_rows(tmp_path, 1) == 30 + 4 + 1


def test_sources_with_names_are_counted_too(tmp_path: Path) -> None:
    offsets(tmp_path, 4, 'bids_5c23793:{"bids":{"0":100}}', 'sales:{"sales":{"0":5}}', version="v2")
    offsets(tmp_path, 5, 'sales:{"sales":{"0":9}}', 'bids_5c23793:{"bids":{"0":101}}', version="v2")
    assert batch_rows(tmp_path, 5) == 5


@pytest.mark.parametrize("line", ['{"logOffset":3}', "1795943626129", "-", "x:1"])
def test_other_offsets_tell_no_rows(tmp_path: Path, line: str) -> None:
    offsets(tmp_path, 1, '{"bids":{"0":100}}', line)
    offsets(tmp_path, 2, '{"bids":{"0":101}}', line)
    assert batch_rows(tmp_path, 2) is None
    assert batch_rows(tmp_path, 7) is None


def test_a_compressed_file_counts_for_more_than_its_bytes(tmp_path: Path) -> None:
    from headrace.io.files.file_source import WHOLE, Listing
    from headrace.spark.sources.arrivals import FileArrivals

    content = gzip.compress(b'{"shop":1,"price":2}\n' * 1000)
    (tmp_path / "a.json.gz").write_bytes(content)
    arrivals = FileArrivals(
        Listing("sales", str(tmp_path), frozenset()), {}, None, lambda file: [WHOLE], lambda file, part: None,
        may_be_none=False,
    )  # fmt: skip
    (found,) = arrivals.take()
    assert found.size > len(content)
