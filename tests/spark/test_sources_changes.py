"""Change data, Delta tables, pull-streams and rates as sources on Spark."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest import mock

import pytest

import headrace as hr
from headrace import Flow, col, io, pull
from headrace.errors import BadInput, BadRow, UnreadableSource, UserFunctionFailed, WrongType
from headrace.spark import Frame, Pulled, run
from headrace.spark.ticks.ticker import DriverSink
from tests.io.change_records import BOOKS, Book, debezium, lines, now, operations

pytestmark = pytest.mark.spark


def copied(spark: Any, source: Any, row: Any = Book, *, table: bool = True, **options: Any) -> Counter[Any]:
    """What a flow that copies a source ends with."""
    flow = Flow("copy")
    rows = flow.table("rows", row) if table else flow.source("rows", row)
    flow.sink("copied", rows)
    memory = io.Memory()
    run(flow, spark, sources={"rows": source}, sinks={"copied": memory}, **options)
    return Counter(repr(row) for row in memory.rows())


def frame(spark: Any, records: list[Any], schema: str) -> Frame:
    return Frame(spark.createDataFrame(records, schema))


def books(spark: Any, tmp_path: Path, records: list[Any]) -> Frame:
    """Records as a DataFrame, by way of a file of JSON."""
    image = "struct<id: long, title: string, added: long, tags: array<string>>"
    schema = f"before {image}, after {image}, op string, title string"
    (tmp_path / "records.json").write_text(lines(records))
    return Frame(spark.read.schema(schema).json(str(tmp_path / "records.json")))


@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_envelopes_of_debezium_mean_the_same_from_files_and_from_a_dataframe(
    spark: Any, tmp_path: Path, mode: Any
) -> None:
    records = debezium(BOOKS)
    expected = Counter(map(repr, now(BOOKS)))
    from_frame = io.Debezium(books(spark, tmp_path, records), epoch="millis")
    assert copied(spark, from_frame, mode=mode) == expected
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text(lines([*records, None]))
    from_files = io.Debezium(io.JsonFiles(tmp_path / "in"), epoch="millis")
    assert copied(spark, from_files, mode=mode) == expected


def test_a_payload_of_a_dataframe_is_looked_into(spark: Any) -> None:
    image = "struct<id: long, n: int>"
    payload = f"payload struct<before: {image}, after: {image}, op: string>"

    class Numbered(NamedTuple):
        id: int
        n: date

    records = [((None, (1, 5), "c"),), (((1, 5), (1, 6), "u"),)]
    source = io.Debezium(frame(spark, records, payload), epoch="micros")
    assert copied(spark, source, Numbered) == Counter([repr(Numbered(1, date(1970, 1, 7)))])


def test_nanoseconds_of_a_dataframe_are_counted_in_whole_numbers(spark: Any) -> None:
    class Timed(NamedTuple):
        at: datetime

    counts = [1_700_000_000_123_457_000, 1_700_000_000_123_457_999, -1, -1_000]
    image = "struct<at: long>"
    records = [(None, (count,), "c") for count in counts]
    source = io.Debezium(frame(spark, records, f"before {image}, after {image}, op string"), epoch="nanos")
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    expected = Counter(repr(Timed(epoch + timedelta(microseconds=count // 1000))) for count in counts)
    assert copied(spark, source, Timed) == expected


def test_a_checkpoint_may_lie_in_a_folder_with_any_name(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"x": 1}\n')
    folder = tmp_path / "a [b] {c,d} * ?"
    files = io.JsonFiles(tmp_path / "in")
    assert copied(spark, files, Point, table=False, checkpoint=folder) == Counter([repr(Point(1))])


@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_sources_may_have_any_names(spark: Any, tmp_path: Path, mode: Any) -> None:
    names = ["a", "a/b", "..", "_c", "d%2F[e]"]
    flow = Flow("names")
    sources: dict[str, Any] = {}
    for number, name in enumerate(names):
        flow.sink(name, flow.source(name, int))
        sources[name] = [number]
    memories = {name: io.Memory() for name in names}
    with TemporaryDirectory() as folder:
        durable: dict[str, Any] = {} if mode == "batch" else {"checkpoint": Path(folder) / "in" / "c"}
        run(flow, spark, sources=sources, sinks=memories, mode=mode, **durable)
        assert list(Path(folder).glob("*")) == list(Path(folder).glob("in"))
    assert [memory.rows() for memory in memories.values()] == [[n] for n in range(len(names))]


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"op": "u", "before": None, "after": None}, "before: it is null or missing, and op u needs it"),
        ({"op": "c", "before": None, "after": None}, "after: it is null or missing, and op c needs it"),
        ({"op": "t", "before": None, "after": None}, "op: t is none of 'c', 'r', 'u', 'd', 'm'"),
        ({"op": "x\ny" * 99, "before": None, "after": None}, "is none of"),
        ({"title": "no envelope"}, "op: null is none of"),
    ],
)
def test_a_record_of_a_dataframe_that_means_nothing_is_named(
    spark: Any, tmp_path: Path, record: Any, text: str
) -> None:
    source = io.Debezium(books(spark, tmp_path, [record]), epoch="millis")
    with pytest.raises(BadRow, match="P201 BadRow: source 'rows': ") as raised:
        copied(spark, source)
    assert text in str(raised.value)


def test_a_value_of_a_dataframe_that_did_not_change_is_that_of_before(spark: Any) -> None:
    class Document(NamedTuple):
        id: int
        body: str | None
        scan: bytes | None
        tags: list[str] | None
        counts: list[int] | None
        names: dict[str, str] | None

    whole = (1, "long", bytearray(b"scan"), ["a"], [1], {"a": "b"})
    for text in io.change_data.UNAVAILABLE, "gone":
        code = text.encode()
        after = (1, text, bytearray(code), [text], list(code), {text: text})
        image = (
            "struct<id: long, body: string, scan: binary, tags: array<string>, counts: array<long>, "
            "names: map<string, string>>"
        )
        schema = f"before {image}, after {image}, op string"
        first = (None, whole, "c")
        source = io.Debezium(frame(spark, [first, (whole, after, "u")], schema), unavailable=text)
        expected = Document(1, "long", b"scan", ["a"], [1], {"a": "b"})
        assert copied(spark, source, Document) == Counter([repr(expected)])
        source = io.Debezium(
            frame(spark, [first, ((*whole[:3], None, *whole[4:]), after, "u")], schema), unavailable=text
        )
        with pytest.raises(BadRow, match="after: tags: the record does not tell the value"):
            copied(spark, source, Document)


def test_operations_of_a_dataframe_become_weights(spark: Any) -> None:
    class Word(NamedTuple):
        word: str

    records = [("a", "I"), ("a", "D"), ("b", "I"), ("c", "noise")]
    given = frame(spark, records, "word string, op string")
    source = io.Operations(given, "op", "I", "D", ignore="noise")
    assert copied(spark, source, Word) == Counter([repr(Word("b"))])
    with pytest.raises(BadRow, match="op: noise is none of 'I', 'D'"):
        copied(spark, io.Operations(given, "op", "I", "D"), Word)
    with pytest.raises(WrongType, match="has no column 'kind'"):
        copied(spark, io.Operations(given, "kind", "I", "D"), Word)
    with pytest.raises(BadInput, match="gets change data, but is append-only"):
        copied(spark, source, Word, table=False)


def test_rows_that_cannot_be_read_go_to_dead_letters(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text(lines([*operations(BOOKS), {"op": "?"}]))
    files = io.JsonFiles(tmp_path / "in", dead_letter=tmp_path / "dead")
    source = io.Operations(files, "op", "insert", "delete")
    assert copied(spark, source) == Counter(map(repr, now(BOOKS)))
    [letter] = (tmp_path / "dead").glob("*.jsonl")
    assert json.loads(letter.read_text())["reason"] == "id: it is missing, but int64 is declared without null"


class Point(NamedTuple):
    x: int


class Shape(NamedTuple):
    points: list[Point]
    at: Point | None


def test_nulls_within_nested_columns_are_found(spark: Any) -> None:
    schema = "points array<struct<x: long>>, at struct<x: long>"
    right = [([(1,), (2,)], None), ([], (3,))]
    assert copied(spark, frame(spark, right, schema), Shape) == Counter(
        [repr(Shape([Point(1), Point(2)], None)), repr(Shape([], Point(3)))]
    )
    for wrong in (([(None,)], None), ([None], None), ([], (None,))):
        with pytest.raises(BadRow, match="of its DataFrame holds a null"):
            copied(spark, frame(spark, [wrong], schema), Shape)


# --- Delta tables ---------------------------------------------------------------------------


def test_the_versions_of_a_delta_table_are_followed_across_runs(spark: Any, tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="deltalake is not installed")

    class Total(NamedTuple):
        shop: str
        total: int

    flow = Flow("totals")
    totals = flow.source("sales", Total).group_by(col.shop).agg(total=hr.sum(col.total))
    flow.sink("totals", totals)
    copy = Flow("copy")
    copy.sink("totals", copy.table("rows", Total).filter(col.total > 1))
    sales = [Total("abc"[n % 3], n) for n in range(9)]
    for last in (3, 6, 9):
        hr.run(
            flow,
            {"sales": io.Rows([[sale] for sale in sales[:last]])},
            {"totals": io.DeltaTable(tmp_path / "totals", "shop")},
            checkpoint=tmp_path / "first",
        )
        run(
            copy, spark, shards=1, checkpoint=tmp_path / "second",
            sources={"rows": io.DeltaRows(tmp_path / "totals", version=0)},
            sinks={"totals": io.DeltaTable(tmp_path / "copy", "shop")},
        )  # fmt: skip
    import polars as pl

    assert sorted(pl.read_delta(str(tmp_path / "copy")).rows()) == [("a", 9), ("b", 12), ("c", 15)]
    assert copied(spark, io.DeltaRows(tmp_path / "copy"), Total, mode="batch") == Counter(
        map(repr, [Total("a", 9), Total("b", 12), Total("c", 15)])
    )
    with pytest.raises(UnreadableSource, match="retracts rows in version"):
        copied(spark, io.DeltaRows(tmp_path / "totals", version=0), Total, table=False)


def test_a_bounded_delta_source_is_one_version(spark: Any, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    import pyarrow as pa
    from deltalake import write_deltalake

    class Total(NamedTuple):
        shop: str
        total: int

    for shop in "abc":
        write_deltalake(tmp_path / "t", pa.table({"shop": [shop], "total": [1]}), mode="append")
    flow = Flow("whole")
    flow.sink("rows", flow.source("rows", Total, bounded=True))
    for version, shops in ((0, "a"), (1, "ab"), (None, "abc")):
        found = io.Memory()
        run(
            flow,
            spark,
            sources={"rows": io.DeltaRows(tmp_path / "t", version=version)},
            sinks={"rows": found},
        )
        assert sorted(row.shop for row in found.rows()) == list(shops)


# --- pull-streams ----------------------------------------------------------------------------


class Number(NamedTuple):
    value: int


def numbers(last: int) -> pull.PullSource:
    return pull.pull(pull.values(range(last)), pull.map(Number))


@pytest.mark.verify
def test_a_pull_stream_is_taken_tick_by_tick_in_order_and_goes_on_after_a_crash(
    spark: Any, tmp_path: Path
) -> None:
    flow = Flow("numbers")
    flow.sink("firsts", flow.source("numbers", Number).enumerate())
    seen: dict[int, list[Any]] = {}

    def attempt(last: int) -> None:
        run(
            flow, spark, checkpoint=tmp_path / "checkpoint", shards=2,
            sources={"numbers": Pulled(numbers(last), rows_per_tick=10)},
            sinks={"firsts": lambda tick, changes: seen.setdefault(tick, []).extend(changes.raw)},
        )  # fmt: skip

    prepare = DriverSink.prepare

    def dying(outlet: DriverSink, tick: int, *written: Any) -> None:
        if tick == 2:
            raise OSError("the machine is gone")
        prepare(outlet, tick, *written)

    with mock.patch.object(DriverSink, "prepare", dying), pytest.raises(OSError, match="the machine is gone"):
        attempt(25)
    assert list(seen) == [1]
    attempt(32)
    found = [row for tick in sorted(seen) for row in sorted(seen[tick])]
    assert [row[:-1] for row in found] == [(n, n) for n in range(32)]
    assert [len(rows) for rows in seen.values()] == [10, 10, 10, 2]


@pytest.mark.verify
def test_a_pull_stream_without_end_is_followed(spark: Any) -> None:
    class Enough(Exception):
        pass

    seen: list[Any] = []

    def tell(tick: int, changes: Any) -> None:
        seen.extend(changes.raw)
        if len(seen) >= 20:
            raise Enough

    flow = Flow("numbers")
    flow.sink("numbers", flow.source("numbers", Number))
    endless = Pulled(pull.pull(pull.count(), pull.map(Number)), rows_per_tick=10)
    with pytest.raises(Enough):
        run(flow, spark, sources={"numbers": endless}, sinks={"numbers": tell}, follow=True)
    assert sorted(row[0] for row in seen) == list(range(len(seen)))


@pytest.mark.verify
def test_a_pull_stream_is_read_whole_in_a_batch_and_as_a_bounded_source(spark: Any) -> None:
    expected = Counter(repr(Number(n)) for n in range(25))
    assert copied(spark, numbers(25), Number, table=False, mode="batch") == expected
    flow = Flow("bounded")
    flow.sink("copied", flow.source("rows", Number, bounded=True))
    memory = io.Memory()
    run(flow, spark, sources={"rows": numbers(25)}, sinks={"copied": memory})
    assert Counter(map(repr, memory.rows())) == expected


@pytest.mark.verify
def test_changes_of_a_pull_stream_have_their_weights(spark: Any) -> None:
    changes = [hr.insert(Number(1)), hr.insert(Number(2)), hr.delete(Number(1))]
    assert copied(spark, pull.values(changes), Number) == Counter([repr(Number(2))])


@pytest.mark.verify
def test_what_a_pull_stream_fails_with_is_told(spark: Any) -> None:
    def odd(value: int) -> Number:
        if value == 7:
            raise ValueError("seven")
        return Number(value)

    failing = pull.pull(pull.values(range(9)), pull.map(odd))
    with pytest.raises(UserFunctionFailed, match="source 'rows' failed\n\nValueError: seven"):
        copied(spark, failing, Number, table=False)
    with pytest.raises(BadRow, match="must be Number, got str 'x'"):
        copied(spark, pull.values(["x"]), Number, table=False)
    with pytest.raises(BadInput, match="source 'rows' cannot be sent to Spark"):
        copied(spark, _unpicklable(), Number, table=False)


def _unpicklable() -> pull.PullSource:
    import threading

    lock = threading.Lock()
    return pull.pull(pull.values([1]), pull.map(lambda n: (lock, Number(n))[1]))


def test_a_source_that_forgets_its_rows_is_told_so(spark: Any, tmp_path: Path) -> None:
    from headrace.spark.sources.pull_source import PullReader, _pickled

    flow = Flow("numbers")
    flow.sink("numbers", flow.source("numbers", Number))
    intake = hr.Engine(flow).intake_of("numbers")
    schema = flow.graph().nodes[0].schema
    reader = PullReader(_pickled("numbers", ("numbers", Pulled(numbers(5)), intake, schema, True)))
    batches = reader.readBetweenOffsets({"rows": 1}, {"rows": 4})
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == [1, 2, 3]
    with pytest.raises(Exception, match="source 'numbers' ended after 5 rows"):
        reader.readBetweenOffsets({"rows": 1}, {"rows": 9})


# --- Spark's own ------------------------------------------------------------------------------


def test_the_rate_source_is_a_frame(spark: Any, tmp_path: Path) -> None:
    class Beat(NamedTuple):
        timestamp: datetime | None
        value: int | None

    flow = Flow("beats")
    flow.sink("beats", flow.source("beats", Beat))
    beats = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5)
    beats = beats.option("startTimestamp", 0).option("advanceMillisPerBatch", 1000).load()
    seen: list[Any] = []

    class Enough(Exception):
        pass

    def tell(tick: int, changes: Any) -> None:
        seen.extend(changes.raw)
        if tick == 2:
            raise Enough

    with pytest.raises(Enough):
        run(flow, spark, sources={"beats": Frame(beats)}, sinks={"beats": tell}, follow=True)
    assert sorted(row[1] for row in seen) == list(range(10))
    assert {row[0] for row in seen} >= {datetime(1970, 1, 1, tzinfo=UTC)}


def test_a_static_table_is_there_in_the_first_tick_of_a_stream(spark: Any, tmp_path: Path) -> None:
    class Shop(NamedTuple):
        shop: int
        town: str

    class Sale(NamedTuple):
        shop: int
        price: int

    flow = Flow("towns")
    shops = flow.source("shops", Shop, bounded=True)
    sales = flow.source("sales", Sale).join(shops, on="shop")
    flow.sink("towns", sales.group_by(col.town).agg(total=hr.sum(col.price)))
    towns = spark.createDataFrame([(1, "x"), (2, "y")], "shop long, town string")
    for last in (1, 3):
        batches = [[Sale(n % 2 + 1, n), Sale(9, 1)] for n in range(last)]
        memory = io.Memory()
        run(
            flow, spark, shards=2, checkpoint=tmp_path / "checkpoint",
            sources={"shops": Frame(towns), "sales": io.Rows(batches)},
            sinks={"towns": memory},
        )  # fmt: skip
    # What the second run tells: in all, 0 + 2 of shop 1 and 1 of shop 2.
    assert sorted(map(tuple, memory.changes())) == [(("x", 0), -1), (("x", 2), 1), (("y", 1), 1)]
