"""Tables held by key that read files: rows, operations, change feeds and envelopes."""

from __future__ import annotations

from base64 import b64encode
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import io
from headrace.errors import BadInput, BadRow, RecordMisfit
from tests.io.feeds import write
from tests.io.keyed_flows import (
    AMY,
    ANN,
    BOB,
    ROWS,
    Versioned,
    customers,
    delta_file,
    envelope,
    json_lines,
    upserted,
    versioned,
    written,
)


@pytest.mark.parametrize("form", ROWS)
@pytest.mark.parametrize("tick_rows", [1, 3, 1000])
def test_files_set_and_delete_rows(form: str, tick_rows: int, tmp_path: Path) -> None:
    source, left = written(form, tmp_path / "in")
    memory = io.Memory()
    hr.run(customers(), {"customers": source}, {"out": memory}, tick_rows=tick_rows)
    assert sorted(memory.rows()) == left


def test_a_run_goes_on_with_the_rows_that_are_held(tmp_path: Path) -> None:
    source, checkpoint = io.JsonFiles(tmp_path / "in"), tmp_path / "checkpoint"
    changes: list[Any] = []
    for number, rows in enumerate(([ANN, BOB], [AMY, BOB])):
        write(tmp_path / "in" / f"{number}.json", json_lines([row._asdict() for row in rows]))
        hr.run(customers(), {"customers": source}, {"out": changes}, checkpoint=checkpoint)
    assert sorted(changes[2:]) == [hr.insert(AMY), hr.delete(ANN)]


@pytest.mark.parametrize(
    ("source", "record", "said"),
    [
        (io.JsonFiles, {"id": 1, "name": None, "city": None}, "name: expected str, found None"),
        (io.JsonFiles, {"name": "ann", "city": None}, "id"),
        (io.JsonFiles, None, "expected a row, found None"),
        (io.JsonFiles, {**AMY._asdict(), "weight": 2}, r"weight: .*sets \(1\) or deletes \(-1\).*, found 2"),
        (io.JsonFiles, {**AMY._asdict(), "weight": 0}, "weight: .*, found 0"),
        (io.JsonFiles, {**AMY._asdict(), "weight": "one"}, "weight: .*one"),
        (lambda at: io.Debezium(io.JsonFiles(at)), envelope("u", None, None), "after: it is null or missing"),
        (lambda at: io.Debezium(io.JsonFiles(at)), envelope("d", None, None), "needs the key of the row"),
        (lambda at: io.Debezium(io.JsonFiles(at)), envelope("t", None, None), "op: 't' is not one of"),
        (lambda at: io.Upserts(io.JsonFiles(at)), None, "key: it is null or missing"),
        (lambda at: io.Upserts(io.JsonFiles(at)), {"value": AMY._asdict()}, "key: it is null or missing"),
        (lambda at: io.Upserts(io.JsonFiles(at)), upserted(None, None), "key: id is null or missing"),
        (
            lambda at: io.Upserts(io.JsonFiles(at)),
            upserted(1, {"city": "Rome"}),
            "name: expected str, found None",
        ),
        (
            lambda at: io.Upserts(io.JsonFiles(at)),
            upserted(2, AMY._asdict()),
            "value: its id is 1, not that of the key",
        ),
    ],
)
def test_records_that_cannot_be_read_have_a_place(
    source: Any, record: Any, said: str, tmp_path: Path
) -> None:
    write(tmp_path / "1.json", json_lines([record]))
    with pytest.raises(BadRow, match=said) as error:
        hr.run(customers(), {"customers": source(tmp_path)}, {"out": io.Memory()})
    assert (error.value.facts["row"], error.value.facts["line"]) == (1, 1)


def test_an_upsert_without_a_value_has_its_sequence_in_the_key(tmp_path: Path) -> None:
    def at(version: int | None) -> dict[str, Any]:
        return {"id": 1, "version": version}

    records = [
        {"key": {"id": 1}, "value": {"name": "ann", "version": 3}},
        {"key": at(5), "value": None},
        {"key": {"id": 1}, "value": {"name": "amy", "version": 4}},
    ]
    write(tmp_path / "1.json", json_lines(records))
    memory = io.Memory()
    hr.run(versioned(), {"rows": io.Upserts(io.JsonFiles(tmp_path))}, {"out": memory})
    assert memory.rows() == []
    write(tmp_path / "2.json", json_lines([{"key": at(None), "value": None}]))
    with pytest.raises(BadRow, match="version: it is null, but orders the records of a key"):
        hr.run(versioned(), {"rows": io.Upserts(io.JsonFiles(tmp_path))}, {"out": memory})


@pytest.mark.parametrize("tick_rows", [1, 2, 1000])
def test_an_update_of_a_change_feed_moves_a_row(tmp_path: Path, tick_rows: int) -> None:
    moved = AMY._replace(id=3)
    source = delta_file(
        tmp_path / "1.parquet",
        ("insert", ANN),
        ("update_preimage", ANN),
        ("update_postimage", AMY),
        ("update_preimage", AMY),
        ("update_postimage", moved),
    )
    memory = io.Memory()
    hr.run(customers(), {"customers": source}, {"out": memory}, tick_rows=tick_rows)
    assert memory.rows() == [moved]


def test_a_run_goes_on_between_the_images_of_an_update(tmp_path: Path) -> None:
    moved, checkpoint = AMY._replace(id=3), tmp_path / "checkpoint"
    source = delta_file(
        tmp_path / "in" / "1.parquet",
        ("insert", ANN),
        ("update_preimage", ANN),
        ("update_postimage", moved),
    )
    changes: list[Any] = []

    def stop(_: hr.Progress) -> None:
        raise InterruptedError

    for on_tick in (stop, None):
        with suppress(InterruptedError):
            hr.run(
                customers(),
                {"customers": source},
                {"out": changes},
                tick_rows=2,
                on_tick=on_tick,
                checkpoint=checkpoint,
            )
    assert changes == [hr.insert(ANN), hr.delete(ANN), hr.insert(moved)]


def test_a_preimage_that_is_not_held_is_found(tmp_path: Path) -> None:
    ana = ANN._replace(name="ana")
    source = delta_file(
        tmp_path / "1.parquet", ("insert", ANN), ("update_preimage", ana), ("update_postimage", AMY)
    )
    with pytest.raises(RecordMisfit, match=r"It is row 3 of .*1\.parquet"):
        hr.run(customers(), {"customers": source}, {"out": io.Memory()})


@pytest.mark.parametrize("after", [[], [("insert", BOB)], [("update_preimage", BOB)]])
def test_a_preimage_without_a_postimage_is_unreadable(tmp_path: Path, after: list[Any]) -> None:
    source = delta_file(tmp_path / "1.parquet", ("insert", ANN), ("update_preimage", ANN), *after)
    with pytest.raises(BadRow, match="update_postimage") as error:
        hr.run(customers(), {"customers": source}, {"out": io.Memory()})
    assert (error.value.facts["row"], error.value.facts["file"]) == (2, str(tmp_path / "1.parquet"))


class Logged(NamedTuple):
    id: int
    name: str
    lsn: int
    day: int | None


def logged(op: str, before: Any, after: Any, lsn: int | None) -> Any:
    return {**envelope(op, before, after), "source": {"lsn": lsn, "db": "shop"}, "ts_ms": 86_400_000}


ANN_1, AMY_1 = {"id": 1, "name": "ann"}, {"id": 1, "name": "amy"}

LOGGED = [
    logged("c", None, ANN_1, 1),
    logged("d", {"id": 1}, None, 7),
    logged("u", ANN_1, AMY_1, 5),
    logged("c", None, {"id": 2, "name": "bob"}, 3),
]


@pytest.mark.parametrize("payload", [False, True])
@pytest.mark.parametrize("order", [1, -1])
def test_the_position_in_the_log_is_read_from_the_envelope(payload: bool, order: int, tmp_path: Path) -> None:
    records = [{"payload": record} if payload else record for record in LOGGED[::order]]
    write(tmp_path / "1.json", json_lines(records))
    flow, memory = hr.Flow("f"), io.Memory()
    flow.sink("out", flow.table("rows", Logged, key="id", sequence="lsn"))
    source = io.Debezium(io.JsonFiles(tmp_path), columns={"lsn": "source.lsn", "day": "ts_ms"})
    hr.run(flow, {"rows": source}, {"out": memory})
    assert memory.rows() == [Logged(2, "bob", 3, 86_400_000)]


def test_an_envelope_without_its_position_is_unreadable(tmp_path: Path) -> None:
    write(tmp_path / "1.json", json_lines([logged("c", None, ANN_1, None)]))
    flow = hr.Flow("f")
    flow.sink("out", flow.table("rows", Logged, key="id", sequence="lsn"))
    source = io.Debezium(io.JsonFiles(tmp_path), columns={"lsn": "source.lsn"})
    with pytest.raises(BadRow, match="lsn: expected int64, found None"):
        hr.run(flow, {"rows": source}, {"out": io.Memory()})


def test_a_row_that_moves_from_a_key_alone_leaves_it(tmp_path: Path) -> None:
    first, moved = {"id": 1, "name": "ann", "version": 4}, {"id": 2, "name": "ann", "version": 5}
    late = {"id": 1, "name": "ana", "version": 3}
    given = [envelope("c", None, first), envelope("u", {"id": 1}, moved), envelope("c", None, late)]
    write(tmp_path / "1.json", json_lines(given))
    memory = io.Memory()
    hr.run(versioned(), {"rows": io.Debezium(io.JsonFiles(tmp_path))}, {"out": memory})
    assert memory.rows() == [Versioned(2, "ann", 5)]


@pytest.mark.parametrize("files", [1, 2, 3])
@pytest.mark.parametrize(
    ("ops", "left"),
    [("cdc", ["bob"]), ("cud", []), ("cduuu", ["dan"]), ("cdud", []), ("dc", ["amy"])],
)
def test_of_one_position_in_the_log_the_last_record_counts(
    ops: str, left: list[str], files: int, tmp_path: Path
) -> None:
    names = ["ann", "amy", "bob", "cat", "dan"]
    records = [
        {
            "before": None if op == "c" else {"id": 1},
            "after": None if op == "d" else {"id": 1, "name": name},
            "op": op,
            "source": {"lsn": 7},
        }
        for op, name in zip(ops, names, strict=False)
    ]
    for at in range(files):
        write(
            tmp_path / f"{at}.json",
            json_lines(records[len(ops) * at // files : len(ops) * (at + 1) // files]),
        )
    flow, memory = hr.Flow("f"), io.Memory()

    class Positioned(NamedTuple):
        id: int
        name: str
        lsn: int

    flow.sink("out", flow.table("rows", Positioned, key="id", sequence="lsn", on_misfit="trust_key"))
    source = io.Debezium(io.JsonFiles(tmp_path), columns={"lsn": "source.lsn"})
    hr.run(flow, {"rows": source}, {"out": memory}, tick_rows=1 if files > 1 else None)
    assert [row.name for row in memory.rows()] == left


class Document(NamedTuple):
    id: int
    hits: int
    body: str | None
    scan: bytes | None
    tags: list[str] | None
    counts: list[int] | None
    names: dict[str, str] | None
    version: int


FIRST = Document(1, 1, "long text", b"scan", ["a", "b"], [1, 2], {"a": "b"}, 1)


def unchanged(text: str, **changes: Any) -> dict[str, Any]:
    """What a connector sends of a document in place of its large values."""
    large = {
        "body": text,
        "scan": b64encode(text.encode()).decode(),
        "tags": [text],
        "counts": list(text.encode()),
        "names": {text: text},
    }
    return {**FIRST._asdict(), **large, **changes}


def documents(**options: Any) -> hr.Flow:
    flow = hr.Flow("f")
    flow.sink("out", flow.table("documents", Document, **options))
    return flow


@pytest.mark.parametrize("options", [{}, {"sequence": "version"}, {"on_misfit": "trust_key"}])
@pytest.mark.parametrize("text", [io.change_data.UNAVAILABLE, "not here"])
@pytest.mark.parametrize("before", [None, {"id": 1}])
def test_values_that_did_not_change_are_those_of_the_row_held(
    options: Any, text: str, before: Any, tmp_path: Path
) -> None:
    first = {**FIRST._asdict(), "scan": b64encode(b"scan").decode()}
    given = [
        envelope("c", None, first),
        envelope("u", before, unchanged(text, hits=2, version=2)),
        envelope("u", before, unchanged(text, hits=3, version=3, body="new")),
        envelope("u", before, unchanged(text, hits=4, version=4, tags=None)),
    ]
    for number, each in enumerate(given):
        write(tmp_path / f"{number}.json", json_lines([each]))
    source = io.Debezium(io.JsonFiles(tmp_path), unavailable=text)
    for tick_rows in None, 1:
        memory = io.Memory()
        hr.run(documents(key="id", **options), {"documents": source}, {"out": memory}, tick_rows=tick_rows)
        assert memory.rows() == [FIRST._replace(hits=4, version=4, body="new", tags=None)]


@pytest.mark.parametrize("on_misfit", ["error", "trust_key"])
def test_a_value_that_no_row_held_has_is_found(on_misfit: str, tmp_path: Path) -> None:
    write(tmp_path / "1.json", json_lines([envelope("u", {"id": 1}, unchanged(io.change_data.UNAVAILABLE))]))
    with pytest.raises(RecordMisfit, match="does not tell the value of 'body', which did not change"):
        hr.run(
            documents(key="id", on_misfit=on_misfit),
            {"documents": io.Debezium(io.JsonFiles(tmp_path))},
            {"out": io.Memory()},
        )


def test_a_value_that_no_row_held_has_is_set_aside(tmp_path: Path) -> None:
    write(tmp_path / "1.json", json_lines([envelope("u", {"id": 1}, unchanged(io.change_data.UNAVAILABLE))]))
    flow, memory = hr.Flow("f"), io.Memory()
    held = flow.table("documents", Document, key="id", on_misfit="dead_letter")
    flow.sink("out", held)
    flow.sink("misfits", held.misfits().select("misfit"))
    hr.run(flow, {"documents": io.Debezium(io.JsonFiles(tmp_path))}, {"out": io.Memory(), "misfits": memory})
    ((reason,),) = memory.rows()
    assert reason == "it does not tell the value of 'body', which did not change, but no row is held"


def test_without_a_key_a_value_that_did_not_change_is_unreadable(tmp_path: Path) -> None:
    after = unchanged(io.change_data.UNAVAILABLE, hits=2)
    whole = {**FIRST._asdict(), "scan": b64encode(b"scan").decode()}
    write(tmp_path / "1.json", json_lines([envelope("c", None, whole), envelope("u", whole, after)]))
    memory, source = io.Memory(), io.Debezium(io.JsonFiles(tmp_path))
    hr.run(documents(), {"documents": source}, {"out": memory})
    assert memory.rows() == [FIRST._replace(hits=2)]
    write(tmp_path / "2.json", json_lines([envelope("u", {**whole, "hits": 2, "body": None}, after)]))
    with pytest.raises(BadRow, match="after: body: the record does not tell the value") as error:
        hr.run(documents(), {"documents": source}, {"out": io.Memory()})
    assert "key=" in (error.value.why or "")


def test_an_overwritten_delta_table_keeps_its_rows(tmp_path: Path) -> None:
    import deltalake

    table, feed = tmp_path / "table", tmp_path / "feed"
    settings = {"delta.enableChangeDataFeed": "true"}
    for name in "ann", "amy", "eve":
        rows = pa.table({"id": [1, 2], "name": ["bob", name]})
        deltalake.write_deltalake(table, rows, mode="overwrite", configuration=settings)
    changes = pa.table(deltalake.DeltaTable(table).load_cdf(0))
    feed.mkdir()
    pq.write_table(changes, feed / "1.parquet")

    @dataclass(frozen=True)
    class Committed:
        id: int
        name: str
        _commit_version: int

    flow = hr.Flow("f")
    flow.sink("out", flow.table("rows", Committed, key="id", sequence="_commit_version"))
    for tick_rows in None, 1:
        memory = io.Memory()
        source = io.DeltaChanges(io.ParquetFiles(feed))
        hr.run(flow, {"rows": source}, {"out": memory}, tick_rows=tick_rows)
        assert sorted((each.id, each.name) for each in memory.rows()) == [(1, "bob"), (2, "eve")]


def test_equal_maps_are_one_key(tmp_path: Path) -> None:
    class Labelled(NamedTuple):
        labels: dict[str, int]
        version: int

    before, after = {"labels": {"b": 2, "a": 1}}, {"labels": {"a": 1, "b": 2}, "version": 5}
    write(tmp_path / "1.json", json_lines([envelope("u", before, after)]))
    flow, memory = hr.Flow("f"), io.Memory()
    flow.sink("out", flow.table("rows", Labelled, key="labels", sequence="version"))
    hr.run(flow, {"rows": io.Debezium(io.JsonFiles(tmp_path))}, {"out": memory})
    assert memory.rows() == [Labelled({"a": 1, "b": 2}, 5)]


@pytest.mark.parametrize("dead_letter", [False, True])
def test_rows_beside_a_preimage_alone_are_read(dead_letter: bool, tmp_path: Path) -> None:
    folder = tmp_path / "letters" if dead_letter else None
    delta_file(tmp_path / "in" / "1.parquet", ("insert", ANN), ("update_preimage", ANN), ("insert", BOB))
    source = io.DeltaChanges(io.ParquetFiles(tmp_path / "in", dead_letter=folder))
    memory = io.Memory()
    with nullcontext() if dead_letter else pytest.raises(BadRow):
        hr.run(customers(), {"customers": source}, {"out": memory})
    assert sorted(memory.rows()) == ([ANN, BOB] if dead_letter else [])


@pytest.mark.parametrize(
    "record",
    [
        envelope("d", {"id": 1}, None),
        envelope("c", None, {"id": 1, "name": "ann"}),
        envelope("u", {"id": 1}, {"id": 2, "name": "ann"}),
    ],
)
def test_a_record_without_a_sequence_is_unreadable(record: Any, tmp_path: Path) -> None:
    write(tmp_path / "1.json", json_lines([None, record]))
    with pytest.raises(BadRow, match="version: it is null, but orders the records of a key") as error:
        hr.run(versioned(), {"rows": io.Debezium(io.JsonFiles(tmp_path))}, {"out": io.Memory()})
    assert error.value.facts["row"] == 2


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, {"lsn": "source.lsn"}),
        ({"key": "id"}, {"lsn": "source.lsn"}),
        ({"key": "id", "sequence": "lsn"}, {"id": "source.id"}),
        ({"key": "id", "sequence": "lsn"}, {"nobody": "source.lsn"}),
    ],
)
def test_columns_of_envelopes_need_a_key_and_a_sequence(options: Any, columns: Any, tmp_path: Path) -> None:
    flow = hr.Flow("f")
    flow.sink("out", flow.table("rows", Logged, **options))
    source = io.Debezium(io.JsonFiles(tmp_path), columns=columns)
    with pytest.raises(BadInput, match="envelopes"):
        hr.run(flow, {"rows": source}, {"out": io.Memory()})


@pytest.mark.parametrize("path", ["", "op", "source.", "a b", "before.id", "source"])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(BadInput, match="of an envelope"):
        io.Debezium(io.JsonFiles("in"), columns={"lsn": path, "name": "source.name"})


@pytest.mark.parametrize("tick_rows", [1, 1000])
def test_a_misfit_has_a_place(tmp_path: Path, tick_rows: int) -> None:
    write(tmp_path / "1.json", json_lines([envelope("c", None, ANN._asdict())]))
    there, file = ANN._replace(name="ana")._asdict(), tmp_path / "2.json"
    write(file, json_lines([None, envelope("c", None, BOB._asdict()), envelope("d", there, None)]))
    source = io.Debezium(io.JsonFiles(tmp_path))
    with pytest.raises(RecordMisfit, match=r"It is row 3 of .*2\.json") as error:
        hr.run(customers(), {"customers": source}, {"out": io.Memory()}, tick_rows=tick_rows)
    facts = error.value.facts
    assert (facts["file"], facts["number"], facts["key"], facts["held"]) == (str(file), 3, 1, tuple(ANN))


def test_sources_without_records_by_key_are_refused() -> None:
    for source in (io.Debezium(io.Kafka("a", "b")), io.Kafka("a", "b")):
        with pytest.raises(BadInput, match="is a table with a key, and cannot read"):
            hr.run(customers(), {"customers": source}, {"out": io.Memory()})


@pytest.mark.parametrize("rows", [hr.Flow.table, hr.Flow.source])
def test_upserts_are_of_tables_with_a_key(rows: Any, tmp_path: Path) -> None:
    flow = hr.Flow("f")
    flow.sink("out", rows(flow, "rows", Versioned))
    with pytest.raises(BadInput, match="gets upserts, and is no table with a key") as error:
        hr.run(flow, {"rows": io.Upserts(io.JsonFiles(tmp_path))}, {"out": io.Memory()})
    assert error.value.fix == 'declare it as flow.table("rows", ..., key="id")'
