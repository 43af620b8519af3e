"""Status of tables from a storage alone: freshness, news of inputs, failures, and runs that died."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.pipelines import leaves
from headrace.pipelines.definitions import SHARED, SNAPSHOTS, TableName
from headrace.pipelines.event_log import EventFollower, EventLog, EventRecord, Retention, timestamp
from headrace.pipelines.input_identity import mark_of
from headrace.pipelines.table_status import Health, TableStatus, known_tables, table_statuses
from tests.pipelines.stored_pipeline import StoredPipeline, name_of

os_scandir = os.scandir
ROWS = pa.table({"id": [1, 2]})


@pytest.fixture
def pipeline(tmp_path: Path) -> StoredPipeline:
    return StoredPipeline(tmp_path)


def statuses(pipeline: StoredPipeline) -> dict[str, TableStatus]:
    records = EventLog(pipeline.storage).records()
    tables = known_tables(None, pipeline.entries, records)
    found = table_statuses(pipeline.storage, tables, pipeline.entries, records)
    return {each.table.name.table: each for each in found}


def news(pipeline: StoredPipeline, table: str = "t") -> list[str | None]:
    return list(statuses(pipeline)[table].news.values())


def put(folder: Path, name: str, text: str = "1") -> tuple[str, list[int]]:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(text)
    return str(file), mark_of(file.stat())


def test_tables_come_after_those_that_they_read(pipeline: StoredPipeline) -> None:
    reads = {
        "a": {"table spark_catalog.default.c": 1},
        "b": {"table spark_catalog.default.c (2)": 1, "stream spark_catalog.default.a": 1},
        "c": {"files /in": {}},
    }
    pipeline.run({key: [ROWS] for key in "abc"}, reads=reads)
    found = statuses(pipeline)
    assert list(found) == ["c", "a", "b"]
    assert [(each.table, each.streaming) for each in found["b"].table.inputs] == [
        (name_of("a"), True),
        (name_of("c"), False),
    ]
    assert {each.health for each in found.values()} == {Health.FRESH}


def test_a_folder_is_listed_once_however_many_tables_read_it(
    pipeline: StoredPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, listed = tmp_path / "in", list[str]()
    put(folder, "1.json")
    put(folder / "day=1", "2.json")
    pipeline.run({key: [ROWS] for key in "abc"}, reads={key: {f"files {folder}": {}} for key in "abc"})
    monkeypatch.setattr(leaves.os, "scandir", lambda path: listed.append(path) or os_scandir(path))
    assert [each.news for each in statuses(pipeline).values()] == [{f"files {folder}": "2 new files"}] * 3
    assert sorted(each for each in listed if str(folder) in str(each)) == [str(folder), f"{folder}/day=1"]


def test_what_runs_have_added_is_told_from_tables(pipeline: StoredPipeline) -> None:
    pipeline.run({"t": [ROWS]})
    entry = pipeline.entries[name_of("t")]
    hidden = {TableName(SNAPSHOTS, "a"): entry, TableName(SHARED, "b"): entry}
    found = known_tables(None, {**pipeline.entries, **hidden}, [])
    assert sorted((each.kind, each.name.is_hidden) for each in found) == [
        ("shared part", True), ("snapshot", True), ("table", False),
    ]  # fmt: skip


def test_a_table_has_news_when_what_it_reads_has_a_newer_version(pipeline: StoredPipeline) -> None:
    reads = {"t": {"table spark_catalog.default.source": 1}}
    pipeline.run({"source": [ROWS], "t": [ROWS]}, reads=reads)
    assert news(pipeline) == [""]
    pipeline.run({"source": [pa.table({"id": [3]})]})
    pipeline.run({"source": [pa.table({"id": [4]})]})
    assert news(pipeline) == ["2 newer versions"]
    assert statuses(pipeline)["t"].health is Health.STALE


def test_what_reads_a_table_that_has_news_is_behind(pipeline: StoredPipeline, tmp_path: Path) -> None:
    reads = {
        "t": {f"files {tmp_path / 'in'}": dict([put(tmp_path / "in", "1.json")])},
        "next": {"table spark_catalog.default.t": 1},
        "last": {"table spark_catalog.default.next": 1},
    }
    pipeline.run({name: [ROWS] for name in reads}, reads=reads)
    assert {each.health for each in statuses(pipeline).values()} == {Health.FRESH}
    put(tmp_path / "in", "2.json")
    found = statuses(pipeline)
    assert [found[name].health for name in reads] == [Health.STALE, Health.BEHIND, Health.BEHIND]


def test_files_have_news_when_they_come_change_or_go(pipeline: StoredPipeline, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    read = dict(put(folder, name) for name in ("1.json", "2.json"))
    reads = {"t": {f"files {folder}": read}, "s": {f"stream of files {folder}": read}}
    pipeline.run({"t": [ROWS], "s": [ROWS]}, reads=reads)
    put(folder, ".3.json.tmp")
    put(folder, "_SUCCESS")
    assert (news(pipeline), news(pipeline, "s")) == ([""], [""])
    put(folder, "3.json")
    put(folder, "1.json", "other")
    (folder / "2.json").unlink()
    assert news(pipeline) == ["1 new file, 1 changed file, 1 file gone"]
    assert news(pipeline, "s") == ["1 new file"]  # A stream reads no file twice.


def test_which_files_a_pattern_finds_only_a_run_can_tell(pipeline: StoredPipeline, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    read = dict([put(folder, "a-1.json")])
    pipeline.run({"t": [ROWS]}, reads={"t": {f"files {folder}/*": read}})
    assert news(pipeline) == [""]
    put(folder, "b-1.json")
    assert news(pipeline) == [None]
    assert statuses(pipeline)["t"].health is Health.FRESH
    put(folder, "a-1.json", "other")
    assert news(pipeline) == ["1 changed file"]


def test_a_delta_table_has_news_when_its_log_is_longer(pipeline: StoredPipeline, tmp_path: Path) -> None:
    table = tmp_path / "delta"
    put(table / "_delta_log", f"{4:020}.json")
    key = f"Delta table {table}"
    positions = {key: "4 of some-id", f"{key}, version 2": "2 of some-id", "rows of a database": "x"}
    pipeline.run({"t": [ROWS]}, reads={"t": positions})
    assert news(pipeline) == ["", "", None]
    put(table / "_delta_log", f"{6:020}.json")
    assert news(pipeline) == ["2 newer versions", "", None]


def test_a_failure_stays_until_the_table_is_brought_up_to_date(pipeline: StoredPipeline) -> None:
    pipeline.run({"t": [ROWS], "after": [ROWS]})
    failed = EventRecord(
        "table", table_name=str(name_of("t")), state="FAILED", error_code="P804", error="why"
    )
    skipped = EventRecord("table", table_name=str(name_of("after")), state="SKIPPED")
    pipeline.run({}, records=[failed, skipped])
    found = statuses(pipeline)
    assert (found["t"].health, found["after"].health) == (Health.FAILED, Health.SKIPPED)
    assert found["t"].failure is not None
    assert (found["t"].failure.error, found["t"].failure.run) == ("why", 2)
    assert found["t"].updated is not None
    pipeline.run({"t": [pa.table({"id": [9]})]})
    assert statuses(pipeline)["t"].health is Health.FRESH
    assert statuses(pipeline)["t"].failure is None


def test_last_changed_is_when_the_version_was_made(pipeline: StoredPipeline) -> None:
    name, then = str(name_of("t")), datetime(2026, 1, 1, tzinfo=UTC)
    done = EventRecord("table", table_name=name, state="COMPLETED", version_before=0, version_after=1)
    later = timestamp(then + timedelta(hours=2))
    pipeline.run({"t": [ROWS]}, records=[replace(done, at=timestamp(then))])
    pipeline.run({}, records=[replace(done, version_before=1, at=later)])
    found = statuses(pipeline)["t"]
    assert found.changed == then.timestamp()
    assert found.updated == then.timestamp() + 7200
    for file in EventLog(pipeline.storage).folder.iterdir():
        file.unlink()
    found = statuses(pipeline)["t"]
    assert found.updated is None
    assert found.changed == pipeline.storage.joinpath("tables/default/t/1").stat().st_mtime


def test_a_run_at_work_and_one_that_died_are_told_apart(pipeline: StoredPipeline) -> None:
    pipeline.run({"t": [ROWS]})
    pipeline.run({}, ends=False)
    holder = {"host": socket.gethostname(), "process": os.getpid()}
    lock = pipeline.storage / "catalog/lease/lock"
    lock.write_text(json.dumps(holder))
    assert statuses(pipeline)["t"].health is Health.RUNNING
    lock.write_text(json.dumps({**holder, "process": 2**22 + 1}))
    assert statuses(pipeline)["t"].health is Health.FRESH


def test_counts_of_expectations_are_of_all_rows(pipeline: StoredPipeline) -> None:
    counts = [{"name": "whole", "passed": 1, "failed": 1}, {"name": "cheap", "passed": 2, "failed": 0}]
    record = EventRecord("table", table_name=str(name_of("t")), state="COMPLETED", method="incremental",
                         version_after=1, expectations=counts)  # fmt: skip
    beside = {"t__headrace_dropped": [pa.table({"id": [7]})], "t__headrace_violations": [ROWS]}
    pipeline.run(
        {"t": [ROWS], **beside},
        failed={"t__headrace_dropped": {"whole": 1}, "t__headrace_violations": {"cheap": 2}},
        records=[record],
    )
    found = statuses(pipeline)
    assert found["t"].totals == {"whole": (2, 1), "cheap": (1, 2)}
    assert found["t__headrace_dropped"].table.beside == name_of("t")


# --- following the log ----------------------------------------------------------------------------


def test_a_follower_reads_each_record_once(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    follower = EventFollower(log, runs=3)
    assert follower.look() is False
    began = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(1, 6):
        writer = log.writer(began + timedelta(days=number // 2), Retention())
        writer.append(EventRecord("run", number, state="RUNNING"))
        assert follower.look() is True
        writer.append(
            EventRecord("table", number, table_name="t"), EventRecord("run", number, state="COMPLETED")
        )
        writer.close()
        assert follower.look() is True
        assert follower.look() is False
        assert follower.records == log.records(last=3)
    assert EventFollower(log, runs=2).records == []
    late = EventFollower(log, runs=2)
    late.look()
    assert {each.run for each in late.records} == {4, 5}


def test_a_follower_waits_for_the_rest_of_a_line_and_notices_erasure(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    follower = EventFollower(log, runs=3)
    writer = log.writer(datetime(2026, 1, 1, tzinfo=UTC), Retention())
    writer.append(EventRecord("table", 1, table_name="t", error="quotes a row"))
    writer.close()
    follower.look()
    line = EventRecord("run", 1, state="FAILED", error="é").to_json().encode()
    (_, file), *_ = log.days()
    with open(file, "ab", buffering=0) as handle:
        handle.write(line[:-3])
        follower.look()
        assert [each.kind for each in follower.records] == ["table"]
        handle.write(line[-3:] + b"\n")
        follower.look()
    assert [each.error for each in follower.records] == ["quotes a row", "é"]
    log.erase_errors()
    follower.look()
    assert [each.error for each in follower.records] == ["", ""]


def test_names_of_tables_may_hold_anything(pipeline: StoredPipeline) -> None:
    pipeline.run({"x (2)": [ROWS], "t": [ROWS]}, reads={"t": {"table spark_catalog.default.x (2)": 1}})
    pipeline.run({"x (2)": [pa.table({"id": [3]})]})
    assert news(pipeline) == ["1 newer version"]
