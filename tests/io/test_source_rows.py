"""Sources of files, rows and times in pipelines without a flow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.errors import BadInput, BadRow
from headrace.io import CsvFiles, JsonFiles, Rows, WallClock, rows_of
from headrace.pull import collect, pull, take
from headrace.testing.pull import VirtualRuntime
from tests.io.feeds import write


class Sale(NamedTuple):
    shop: str
    price: int


def sales(folder: Path, count: int) -> Path:
    for file in range(2):
        write(folder / f"{file}.json", "".join(f'{{"shop": "a", "price": {n}}}\n' for n in range(count)))
    return folder


def test_rows_come_as_objects_of_their_class_file_after_file(tmp_path: Path) -> None:
    found = pull(rows_of(JsonFiles(sales(tmp_path, 5)), Sale, read_rows=2), collect()).run()
    assert found == [Sale("a", n) for n in (*range(5), *range(5))]
    assert type(found[0]) is Sale


def test_each_run_opens_the_source_anew(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "shop,price\nb,7\n")
    pipeline = pull(rows_of(CsvFiles(tmp_path), Sale), collect())
    assert pipeline.run() == pipeline.run() == [Sale("b", 7)]


def test_rows_by_hand_and_single_values_are_sources_too() -> None:
    assert pull(rows_of(Rows([[1], [], [2, 3]]), int), collect()).run() == [1, 2, 3]
    assert pull(rows_of([1, 2], int), take(1), collect()).run() == [1]


def test_a_bad_row_fails_the_pipeline_or_is_set_aside(tmp_path: Path) -> None:
    write(tmp_path / "in/a.json", '{"shop": "a", "price": 1}\n?\n{"shop": "a", "price": 2}\n')
    with pytest.raises(BadRow, match="source 'rows' cannot read row 2"):
        pull(rows_of(JsonFiles(tmp_path / "in"), Sale), collect()).run()
    aside = rows_of(JsonFiles(tmp_path / "in", dead_letter=tmp_path / "dead"), Sale, name="sales")
    assert pull(aside, collect()).run() == [Sale("a", 1), Sale("a", 2)]
    assert [p.name for p in (tmp_path / "dead").glob("*.jsonl")] == ["tick=1-sales.jsonl"]


def test_what_is_no_source_is_refused() -> None:
    with pytest.raises(BadInput, match="is int, which is not a source"):
        pull(rows_of(7, int), collect()).run()


def test_a_clock_waits_until_its_next_time_and_looks_no_oftener() -> None:
    looks = 0
    with VirtualRuntime() as runtime:

        def now() -> datetime:
            nonlocal looks
            looks += 1
            return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=runtime.now() + 0.5)

        times = pull(rows_of(WallClock("10s", now=now), datetime), take(4), collect()).start(runtime).result()
    assert [time.second for time in times] == [0, 10, 20, 30]
    assert looks == 1 + 3 * 2, "once in vain before each time but the first"


def test_new_files_are_followed_until_it_is_enough(tmp_path: Path) -> None:
    sales(tmp_path, 1)
    with VirtualRuntime(passing=False) as runtime:
        run = pull(rows_of(JsonFiles(tmp_path), Sale, follow=True), take(3), collect()).start(runtime)
        runtime.advance(1)
        assert not run.finished
        write(tmp_path / "x.json", '{"shop": "x", "price": 9}\n')
        runtime.advance(1)
        assert run.result()[2] == Sale("x", 9)
