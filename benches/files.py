"""Files as rows and as columns against the row parsers alone, in one run.

    python benches/files.py [ROWS]

Bids of Nexmark: seven columns, or three that a flow reads. Microseconds of CPU per row, medians of five.
"row by row" is what a block with an unreadable row costs, "rows" how a flow in this process reads, "columns"
how a task on Spark does. With one bad row in 5,000, every fourth block of JSON is read row by row.
"""

from __future__ import annotations

import csv
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pyarrow.parquet as pq

from headrace.expr.row_classes import schema_of
from headrace.io import CsvFiles, Feed, JsonFiles, ParquetFiles
from headrace.io.arrow import rows_to_table
from headrace.io.files.file_reader import FileFormat, open_format, read_columns, read_rows
from headrace.io.files.file_source import Files


class Bid(NamedTuple):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: datetime
    extra: str


LIVE = frozenset({"auction", "price", "date_time"})


def bids(count: int) -> list[dict[str, Any]]:
    draw = random.Random(1)
    return [
        {
            "auction": draw.randrange(10**6),
            "bidder": draw.randrange(10**5),
            "price": draw.randrange(10**7),
            "channel": draw.choice(["Google", "Apple", "Baidu"]),
            "url": f"https://www.nexmark.com/x/y/item.htm?query={draw.randrange(1000)}",
            "date_time": f"2021-01-01T00:{draw.randrange(10, 60)}:00.{draw.randrange(100, 1000)}",
            "extra": "x" * draw.randrange(30),
        }
        for _ in range(count)
    ]


def write_files(folder: Path, count: int) -> dict[str, Files]:
    rows = bids(count)
    lines = [json.dumps(row) for row in rows]
    (folder / "a.json").write_text("\n".join(lines))
    lines[::5000] = ['{"auction": 1.0}'] * len(lines[::5000])
    (folder / "bad.json").write_text("\n".join(lines))
    for name, dialect in (("a.csv", "excel"), ("quoted.csv", "unix")):
        with (folder / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, Bid._fields, dialect=dialect)
            writer.writeheader()
            writer.writerows(rows)
    schema = schema_of(Bid)
    values = [
        (*list(row.values())[:5], datetime.fromisoformat(row["date_time"] + "Z"), row["extra"])
        for row in rows
    ]
    pq.write_table(rows_to_table(values, schema), folder / "a.parquet")
    return {
        "JSON lines": JsonFiles(folder / "a.json"),
        "JSON lines, one bad in 5,000": JsonFiles(folder / "bad.json"),
        "CSV": CsvFiles(folder / "a.csv"),
        "CSV, all fields quoted": CsvFiles(folder / "quoted.csv"),
        "Parquet": ParquetFiles(folder / "a.parquet"),
    }


def per_row(count: int, run: Callable[[], object]) -> str:
    run()
    spent: list[float] = []
    for _ in range(5):
        begin = time.process_time()
        run()
        spent.append(time.process_time() - begin)
    return f"{statistics.median(spent) / count * 1e6:.2f}"


def main(count: int = 100_000) -> None:
    print("| file | columns read | row by row | rows | columns |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, source in write_files(Path(folder), count).items():
            for live in (None, LIVE):
                feed, path = Feed("bids", schema_of(Bid), live=live), Path(source.path)

                def rows(source: Files = source, feed: Feed = feed, path: Path = path) -> object:
                    return read_rows(open_format(source, feed), path, set_aside=True)

                def columns(source: Files = source, feed: Feed = feed, path: Path = path) -> object:
                    return read_columns(open_format(source, feed), path, set_aside=True)

                with mock.patch.object(FileFormat, "worth_columns", return_value=False):
                    one_by_one = "" if isinstance(source, ParquetFiles) else per_row(count, rows)
                cells = [
                    name,
                    str(len(live or Bid._fields)),
                    one_by_one,
                    per_row(count, rows),
                    per_row(count, columns),
                ]
                print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
