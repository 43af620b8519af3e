"""The texts of the errors about input, as a whole: golden/<name>.txt is what the user sees."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import Flow
from headrace.errors import HeadraceError
from headrace.expr.row_classes import schema_of
from headrace.file_system import FolderLock
from headrace.io import (
    Changelog,
    CsvFiles,
    Debezium,
    JsonFiles,
    ParquetFiles,
    SinkRequest,
    TableFiles,
    open_sink,
    open_source,
    parse_sink,
    parse_source,
)
from headrace.io.files import compaction
from headrace.io.files.compaction import compact
from headrace.state.rewind import skip_file, unskip_file
from tests.golden import assert_golden
from tests.io.feeds import Everything, Point, feed, read, write

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Relative paths, so that the texts are the same on every machine.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compaction, "SETTLED_SECONDS", 0.0)


def malformed_json() -> Any:
    write(Path("in/a.json"), '{"x": 1}\n{"x": 2, "label": "a, "b"}\n')
    return read(JsonFiles("in"), feed(Point))


def wrong_type_in_json() -> Any:
    write(Path("in/a.json"), '[{"x": 1},\n {"x": "2", "label": "' + "long " * 100 + '"}]')
    return read(JsonFiles("in"), feed(Point))


def nested_wrong_type_in_json() -> Any:
    write(Path("in/a.json"), '{"points": [{"x": 1}, {"label": "a"}]}')
    return read(JsonFiles("in"), feed(Everything))


def no_json_array() -> Any:
    write(Path("in/a.json"), '[{"x": 1},\n{"x": 2}')
    return read(JsonFiles("in"), feed(Point))


def out_of_range_in_csv() -> Any:
    write(Path("in/a.csv"), "label,x\na,1\n\nb,99999999999999999999\n")
    return read(CsvFiles("in"), feed(Point))


def missing_column_in_csv() -> Any:
    write(Path("in/a.csv"), "label,X\na,1\n")
    return read(CsvFiles("in"), feed(Point))


def misspelt_column_in_csv() -> Any:
    write(Path("in/a.csv"), "lab,X,xs\na,1,2\n")
    return read(CsvFiles("in"), feed(Point))


def two_byte_order_marks_in_csv() -> Any:
    write(Path("in/a.csv"), "\ufeff\ufeffx,label\n1,a\n")
    return read(CsvFiles("in"), feed(Point))


def header_of_another_encoding_in_csv() -> Any:
    write(Path("in/a.csv"), "x,label\n1,a\n".encode("utf-16"))
    return read(CsvFiles("in"), feed(Point))


def row_of_another_encoding_in_csv() -> Any:
    write(Path("in/a.csv"), "x,label\n1,Käse\n".encode("cp1252"))
    return read(CsvFiles("in"), feed(Point))


def unclosed_quotes_in_csv() -> Any:
    write(Path("in/a.csv"), 'x,label\n1,"a\n2,b\n')
    return read(CsvFiles("in"), feed(Point))


def change_after_a_read(content: str, later: str, limit: int | None) -> Any:
    path, positions = write(Path("in/a.json"), content), feed(Point)
    os.utime(path, (0, 0))
    open_source(JsonFiles("in"), positions).read(limit)
    write(path, later)
    os.utime(path, (3600, 3600))
    return read(JsonFiles("in"), positions)


def file_that_grew() -> Any:
    return change_after_a_read('{"x": 1}\n', '{"x": 1}\n{"x": 2}\n', None)


def file_that_changed() -> Any:
    return change_after_a_read('{"x": 1}\n', '{"x": 2}\n', None)


def file_that_shrank() -> Any:
    return change_after_a_read('{"x": 1}\n' * 3, '{"x": 1}\n', 2)


def broken_quotes_in_csv() -> Any:
    write(Path("in/a.csv"), 'x\n1\n"2"3\n')
    return read(CsvFiles("in"), feed(Point))


def unknown_end_of_row_in_csv() -> Any:
    write(Path("in/a.csv"), 'x\n1\n"2""3\n4\n')
    return read(CsvFiles("in", dead_letter="bad"), feed(Point))


def nested_type_in_csv() -> Any:
    return read(CsvFiles("in"), feed(Everything))


def wrong_type_in_parquet() -> Any:
    Path("in").mkdir()
    pq.write_table(pa.table({"x": ["1"]}), "in/a.parquet")
    return read(ParquetFiles("in"), feed(Point))


def null_in_parquet() -> Any:
    Path("in").mkdir()
    pq.write_table(pa.table({"x": [1, None], "label": ["a", "b"]}), "in/a.parquet")
    return read(ParquetFiles("in"), feed(Point))


def not_parquet() -> Any:
    write(Path("in/a.parquet"), "x\n1\n")
    return read(ParquetFiles("in"), feed(Point))


def no_folder() -> Any:
    return read(JsonFiles("nowhere"), feed(Point))


def no_file() -> Any:
    return read(JsonFiles("*.json"), feed(Point))


def no_weight() -> Any:
    write(Path("in/a.json"), '{"x": 1, "weight": 0}')
    return read(JsonFiles("in"), feed(Point, append=False))


def no_source_uri() -> Any:
    return parse_source("kafka:topic")


def no_sink_uri() -> Any:
    return parse_sink("out.parquet")


def bad_file_of_a_run_with_a_checkpoint() -> Any:
    flow = Flow("points")
    flow.sink("points", flow.source("points", Point))
    write(Path("in/a b.csv"), "label,X\na,1\n")
    hr.run(flow, {"points": CsvFiles("in")}, {"points": []}, checkpoint="state")


def skip_without_a_checkpoint() -> Any:
    write(Path("in/a.csv"), "x\n1\n")
    skip_file("out", "in/a.csv")


def skip_a_file_that_is_gone() -> Any:
    Path("state/commit").mkdir(parents=True)
    skip_file("state", "in/a.csv")


def unskip_a_file_that_is_not_skipped() -> Any:
    Path("state/commit").mkdir(parents=True)
    unskip_file("state", "in/a.csv")


def two_rows_of_a_key() -> Any:
    sink = open_sink(TableFiles("out", key="x"), SinkRequest("points", schema_of(Point)))
    sink.recover(0)
    sink.prepare(1, [(1, "a", 1), (1, "b", 1)])


def update_of_a_row_that_never_came() -> Any:
    flow = Flow("points")
    flow.sink("points", flow.table("feed", Point))
    came = '{"op": "c", "before": null, "after": {"x": 1, "label": "a"}}'
    changed = '{"op": "u", "before": {"x": 1, "label": "A"}, "after": {"x": 1, "label": "b"}}'
    write(Path("in/a.json"), f"{came}\n{changed}\n")
    hr.run(flow, {"feed": Debezium(JsonFiles("in"))}, {"points": TableFiles("out", key="x")})


def output_of_another_run() -> Any:
    for _ in range(2):
        sink = open_sink(TableFiles("out"), SinkRequest("points", schema_of(Point)))
        sink.recover(0)
        sink.prepare(1, [(1, "a", 1)])
        sink.publish(1)


def compact_what_is_no_changelog() -> Any:
    Path("out").mkdir()
    return compact("out")


def compact_while_a_run_writes() -> Any:
    sink = open_sink(Changelog("out"), SinkRequest("totals", schema_of(Point)))
    sink.recover(0)
    sink.prepare(1, [(1, "a", 1)])
    sink.publish(1)
    return compact("out")


def compact_with_files_of_others() -> Any:
    write_ticks = open_sink(Changelog("out"), SinkRequest("totals", schema_of(Point)))
    write_ticks.recover(0)
    for tick in range(1, 8):
        write_ticks.prepare(tick, [(tick, "a", 1)])
        write_ticks.publish(tick)
    write_ticks.close()
    pq.write_table(pa.table({"x": [1]}), "out/tick=3/of-others.parquet")
    return compact("out", keep=1)


def run_while_compacting() -> Any:
    Path("out").mkdir()
    sink = open_sink(Changelog("out"), SinkRequest("totals", schema_of(Point)))
    with FolderLock.take(Path("out"), exclusive=True) or nullcontext():
        sink.recover(0)


CASES: list[Callable[[], Any]] = [
    malformed_json, wrong_type_in_json, nested_wrong_type_in_json, no_json_array,
    out_of_range_in_csv, missing_column_in_csv, broken_quotes_in_csv, unknown_end_of_row_in_csv,
    nested_type_in_csv,
    misspelt_column_in_csv, two_byte_order_marks_in_csv, header_of_another_encoding_in_csv,
    row_of_another_encoding_in_csv, unclosed_quotes_in_csv,
    file_that_grew, file_that_changed, file_that_shrank,
    wrong_type_in_parquet, null_in_parquet, not_parquet,
    no_folder, no_file, no_weight, no_source_uri, no_sink_uri, two_rows_of_a_key, output_of_another_run,
    update_of_a_row_that_never_came,
    bad_file_of_a_run_with_a_checkpoint,
    compact_what_is_no_changelog, compact_while_a_run_writes, compact_with_files_of_others,
    run_while_compacting,
    skip_without_a_checkpoint, skip_a_file_that_is_gone, unskip_a_file_that_is_not_skipped,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_error_says_what_where_why_and_what_to_do(case: Callable[[], Any]) -> None:
    with pytest.raises(HeadraceError) as raised:
        case()
    assert_golden(GOLDEN / f"{case.__name__}.txt", f"{raised.value}\n")
