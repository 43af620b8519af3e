"""Change data as weights: the forms, from every kind of file, at any cut; and what hostile records meet."""

from __future__ import annotations

import csv
import io as text_io
import json
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import Flow, io
from headrace.errors import BadInput, BadRow, UnreadableSource
from headrace.io import (
    BadRecord,
    CsvFiles,
    Debezium,
    DeltaChanges,
    JsonFiles,
    Operations,
    ParquetFiles,
    open_source,
)
from tests.io.change_records import BOOKS, Book, debezium, in_iso, lines, now, operations
from tests.io.feeds import feed, read, write


def copied(source: Any, row: Any = Book, **options: Any) -> list[Any]:
    flow = Flow("copy")
    flow.sink("copied", flow.table("rows", row))
    memory = io.Memory()
    hr.run(flow, {"rows": source}, {"copied": memory}, **options)
    return sorted(memory.rows())


def test_envelopes_of_debezium_become_weights(tmp_path: Path) -> None:
    plain = debezium(BOOKS)
    wrapped = [{"schema": {"type": "struct"}, "payload": record} for record in plain]
    mixed = [plain[0], None, {**plain[1], "op": "r"}, {"op": "m", "message": {}}, *wrapped[2:]]
    for number, records in enumerate((plain, wrapped, mixed)):
        write(tmp_path / str(number) / "1.json", lines(records))
        assert copied(Debezium(JsonFiles(tmp_path / str(number)), epoch="millis")) == sorted(now(BOOKS))


@pytest.mark.parametrize("tick_rows", [1, 2, 3, 100])
def test_an_update_is_one_tick_however_the_input_is_cut(tmp_path: Path, tick_rows: int) -> None:
    write(tmp_path / "1.json", lines(debezium(BOOKS)))
    flow = Flow("copy")
    flow.sink("copied", flow.table("rows", Book))
    ticks: list[list[Any]] = []
    hr.run(
        flow,
        {"rows": Debezium(JsonFiles(tmp_path), epoch="millis")},
        {"copied": lambda _tick, changes: ticks.append([c.weight for c in changes])},
        tick_rows=tick_rows,
    )
    assert len(ticks) >= len(BOOKS) // tick_rows
    if tick_rows == 1:
        assert sorted(ticks[2]) == [-1, 1]


def test_a_run_goes_on_between_two_records_of_a_file(tmp_path: Path) -> None:
    source = Debezium(JsonFiles(tmp_path / "in"), epoch="millis")
    write(tmp_path / "in" / "1.json", lines(debezium(BOOKS)))
    expected = read(source, feed(Book, append=False))
    for at in range(len(BOOKS) + 1):
        taken: dict[Any, Any] = {}
        first, second = (feed(Book, append=False, taken=taken) for _ in range(2))
        rows: list[Any] = []
        if at:
            reader = io.open_source(source, first)
            batch = reader.read(at)
            assert batch is not None
            rows += batch.rows
            reader.close()
        assert rows + read(source, second) == expected


def test_times_are_numbers_of_the_unit_that_is_said(tmp_path: Path) -> None:
    class Moments(NamedTuple):
        at: datetime | None
        on: date | None
        all: list[datetime | None]

    image = {"at": 1_500_000_001, "on": -1, "all": [1, None]}
    write(tmp_path / "1.json", lines([{"op": "c", "before": None, "after": image}]))
    units: dict[Any, tuple[datetime, int]] = {
        "millis": (datetime(1970, 1, 18, 8, 40, 0, 1000, UTC), 1000),
        "micros": (datetime(1970, 1, 1, 0, 25, 0, 1, UTC), 1),
        "nanos": (datetime(1970, 1, 1, 0, 0, 1, 500000, UTC), 0),
    }
    for unit, (moment, micros) in units.items():
        [row] = copied(Debezium(JsonFiles(tmp_path), epoch=unit), Moments)
        assert row == Moments(moment, date(1969, 12, 31), [datetime(1970, 1, 1, 0, 0, 0, micros, UTC), None])
    with pytest.raises(BadRow, match="after: at: expected a timestamp as a string, found 1500000001"):
        copied(Debezium(JsonFiles(tmp_path)), Moments)


def test_flat_operations_are_read_from_every_kind_of_file(tmp_path: Path) -> None:
    class Word(NamedTuple):
        word: str
        n: int

    records = [("a", 1, "I"), ("b", 2, "I"), ("a", 1, "U-"), ("a", 3, "U+"), ("b", 2, "D"), ("c", 1, "?")]
    columns = ["word", "n", "op"]
    text = text_io.StringIO()
    csv.writer(text).writerows([columns, *records])
    write(tmp_path / "csv" / "1.csv", text.getvalue())
    write(tmp_path / "json" / "1.json", lines([dict(zip(columns, r)) for r in records]))
    (tmp_path / "parquet").mkdir()
    pq.write_table(
        pa.Table.from_pylist([dict(zip(columns, r)) for r in records]), tmp_path / "parquet" / "1.parquet"
    )
    for files in (
        CsvFiles(tmp_path / "csv"),
        JsonFiles(tmp_path / "json"),
        ParquetFiles(tmp_path / "parquet"),
    ):
        source = Operations(files, "op", ["I", "U+"], ["D", "U-"], ignore="?")
        assert copied(source, Word) == [Word("a", 3)]
        with pytest.raises(BadRow, match=r"op: '\?' is not one of 'I', 'U\+', 'D', 'U-'"):
            copied(Operations(files, "op", ["I", "U+"], ["D", "U-"]), Word)


def test_the_operation_may_be_a_column_of_the_row(tmp_path: Path) -> None:
    class Told(NamedTuple):
        word: str
        op: str

    write(tmp_path / "1.json", lines([{"word": "a", "op": "+"}, {"word": "b", "op": "+"}]))
    assert copied(Operations(JsonFiles(tmp_path), "op", "+", "-"), Told) == [Told("a", "+"), Told("b", "+")]


def test_an_exported_change_data_feed_of_delta_becomes_weights(tmp_path: Path) -> None:
    words = {"insert": "insert", "delete": "delete"}
    records = operations(BOOKS, (words["insert"], words["delete"]), "_change_type")
    records[2]["_change_type"], records[3]["_change_type"] = "update_preimage", "update_postimage"
    table = [{**r, "added": datetime.fromisoformat(r["added"]), "_commit_version": 1} for r in records]
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "1.parquet")
    assert copied(DeltaChanges(ParquetFiles(tmp_path))) == sorted(now(BOOKS))


def test_envelopes_in_parquet_have_nested_columns(tmp_path: Path) -> None:
    image = pa.struct(
        [("id", pa.int64()), ("title", pa.string()), ("added", pa.int64()), ("tags", pa.list_(pa.string()))]
    )
    schema = pa.schema([("before", image), ("after", image), ("op", pa.string())])
    records = [{name: record[name] for name in schema.names} for record in debezium(BOOKS)]
    pq.write_table(pa.Table.from_pylist(records, schema=schema), tmp_path / "1.parquet")
    assert copied(Debezium(ParquetFiles(tmp_path), epoch="millis")) == sorted(now(BOOKS))


# --- what is wrong ---------------------------------------------------------------------------


def test_change_data_needs_a_table_and_files(tmp_path: Path) -> None:
    flow = Flow("append")
    flow.sink("copied", flow.source("rows", Book))
    write(tmp_path / "1.json", lines(debezium(BOOKS)))
    with pytest.raises(BadInput, match=r'flow.table\("rows", ...\)'):
        hr.run(flow, {"rows": Debezium(JsonFiles(tmp_path))}, {})
    with pytest.raises(BadInput, match="Debezium cannot read Rows"):
        copied(Debezium(io.Rows([])))
    with pytest.raises(BadInput, match="the operation 'I' has two meanings"):
        Operations(JsonFiles("in"), "op", ("I", "D"), "I")
    with pytest.raises(BadInput, match="epoch is 'days'"):
        Debezium(JsonFiles("in"), epoch="days")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="which a CSV file cannot hold"):
        copied(Debezium(CsvFiles(tmp_path)))


RIGHT = in_iso(now(BOOKS)[0])
HOSTILE: list[tuple[Any, str]] = [
    ({"op": "t", "before": None, "after": None}, "op: 't' is not one of"),
    ({"op": None, "after": RIGHT}, "op: None is not one of"),
    ({"op": 1, "after": RIGHT}, "op: expected a string, found 1"),
    ({"op": {"$ne": 1}, "after": RIGHT}, "op: expected a string"),
    ({"op": "x" * 100_000}, "op: 'xxxx"),
    (
        {"op": "u", "before": None, "after": RIGHT},
        "before: it is null or missing, but op 'u' needs it; the database",
    ),
    ({"op": "d", "after": RIGHT}, "REPLICA IDENTITY FULL"),
    ({"op": "c", "before": RIGHT}, "after: it is null or missing, but op 'c' needs it"),
    ({"op": "c", "after": [RIGHT]}, "after: expected an object"),
    ({"op": "c", "after": "x"}, "after: expected an object, found 'x'"),
    ({"op": "c", "after": {**RIGHT, "id": 10**400}}, "id: it is out of the range of int64"),
    ({"op": "c", "after": {**RIGHT, "id": True}}, "id: expected an int64, found True"),
    ({"op": "c", "after": {**RIGHT, "title": "\ud800"}}, "title: the text is not valid Unicode"),
    ({"op": "c", "after": {**RIGHT, "tags": {"length": 3}}}, "tags: expected an array"),
    ({"op": "c", "after": {k: v for k, v in RIGHT.items() if k != "id"}}, "after: id: it is missing"),
    ({"payload": "c"}, "payload: expected an object"),
    ({"payload": {"payload": {"op": "c", "after": RIGHT}}}, "op: None is not one of"),
    ([1, 2], "expected an object, found [1, 2]"),
    ({"id": 1}, "op: None is not one of"),
]


@pytest.mark.parametrize(("record", "reason"), HOSTILE, ids=lambda value: str(value)[:30])
def test_a_hostile_record_is_named_and_set_aside_alone(record: Any, reason: str, tmp_path: Path) -> None:
    good = {"op": "c", "after": RIGHT}
    write(tmp_path / "in" / "1.json", lines([good, record, good]))
    found = read(Debezium(JsonFiles(tmp_path / "in", dead_letter="d")), feed(Book, append=False))
    [bad] = [r for r in found if isinstance(r, BadRecord)]
    assert len(found) == 3
    assert reason in bad.reason
    assert (bad.row, bad.line) == (2, 2)
    assert len(bad.reason) < 500
    assert len(bad.text) <= 200


def test_lines_that_are_too_deep_or_hold_too_long_numbers_are_set_aside(tmp_path: Path) -> None:
    deep = '{"op": "c", "after": ' + '{"id": ' * 200_000 + "1" + "}" * 200_001
    long = '{"op": "c", "after": {"id": ' + "9" * 100_000 + "}}"
    write(tmp_path / "in" / "1.json", "\n".join([deep, long, '{"op": "m"}']))
    found = read(Debezium(JsonFiles(tmp_path / "in", dead_letter="d")), feed(Book, append=False))
    assert [type(r) for r in found] == [BadRecord, BadRecord]


def test_what_is_set_aside_is_told_in_the_dead_letters_of_the_files(tmp_path: Path) -> None:
    write(tmp_path / "in" / "1.json", lines([*debezium(BOOKS), {"op": "?"}]))
    source = Debezium(JsonFiles(tmp_path / "in", dead_letter=tmp_path / "dead"), epoch="millis")
    assert copied(source) == sorted(now(BOOKS))
    [letter] = (tmp_path / "dead").glob("*.jsonl")
    assert json.loads(letter.read_text())["row"] == len(BOOKS) + 1


# --- paths that lead elsewhere ----------------------------------------------------------------


@pytest.mark.parametrize("path", ["in", "in/*.json", "in/deep/../*.json"])
def test_a_link_out_of_the_folder_is_refused_and_one_within_is_read(tmp_path: Path, path: str) -> None:
    class Word(NamedTuple):
        word: str

    secret = write(tmp_path / "secret.json", '{"word": "secret"}')
    write(tmp_path / "in" / "a.json", '{"word": "a"}')
    (tmp_path / "in" / "deep").mkdir()
    (tmp_path / "in" / "b.json").symlink_to("a.json")
    source = JsonFiles(str(tmp_path / path))
    assert Counter(read(source, feed(Word))) == Counter({("a",): 2})
    for target in (secret, Path("../secret.json"), Path("/etc/passwd")):
        (tmp_path / "in" / "c.json").symlink_to(target)
        with pytest.raises(UnreadableSource, match=r"'c\.json', a link that leads out of it"):
            read(source, feed(Word))
        (tmp_path / "in" / "c.json").unlink()


def test_a_folder_that_is_itself_a_link_is_read(tmp_path: Path) -> None:
    class Word(NamedTuple):
        word: str

    write(tmp_path / "real" / "a.json", '{"word": "a"}')
    (tmp_path / "link").symlink_to("real", target_is_directory=True)
    for path in ("link", "link/*.json", "real/a.json"):
        assert read(JsonFiles(tmp_path / path), feed(Word)) == [("a",)]


def test_names_with_line_breaks_are_files_like_others_and_forge_no_lines_of_errors(tmp_path: Path) -> None:
    class Word(NamedTuple):
        word: str

    name = "a\nFix: run this\x1b[2J.json"
    write(tmp_path / "in" / name, '{"word": "a"}\n{"word": 1}')
    source = JsonFiles(tmp_path / "in", dead_letter=tmp_path / "dead")
    assert copied(Operations(source, "op", "I", "D"), Word) == []
    for letter in (tmp_path / "dead").glob("*.jsonl"):
        assert [json.loads(line)["file"] for line in letter.read_text().splitlines()] == [
            str(tmp_path / "in" / name)
        ] * 2
    with pytest.raises(BadRow) as raised:
        copied(JsonFiles(tmp_path / "in"), Word)
    assert "\nFix: run this" not in str(raised.value)
    assert "\x1b" not in str(raised.value)


def test_records_that_mean_nothing_make_no_tick_and_are_not_waited_for(tmp_path: Path) -> None:
    nothing = [None, {"op": "m", "message": {}}, None]
    for number, records in enumerate((nothing, [*nothing, *debezium(BOOKS)], nothing)):
        write(tmp_path / f"{number}.json", lines(records))
    for source in (JsonFiles(tmp_path), JsonFiles(tmp_path, files_per_tick=1)):
        reader = open_source(Debezium(source, epoch="millis"), feed(Book, append=False))
        batch = reader.read(1)
        assert batch is not None
        assert batch.rows
