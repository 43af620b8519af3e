"""Input for the pipeline: `python -m examples.pipeline.make_input FOLDER [ORDERS]` adds files to a folder."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CITIES = ("bath", "cork", "dover", "ely", "fife")
_START = np.datetime64("2026-01-01", "us")
_NOTES: Any = pa.array([" gift", "", "urgent ", None])


def add_orders(folder: Path, number: int, count: int, customers: int) -> None:
    """Add a file of orders. number: of the file; it decides the rows."""
    draw = np.random.default_rng(number)
    minutes = draw.integers(60 * 24 * 60, size=count).astype("timedelta64[m]")
    columns: dict[str, Any] = {
        "id": number * 100_000_000 + np.arange(count),
        "customer": draw.integers(customers, size=count, dtype=np.int32),
        "cents": draw.integers(-500, 10_000, size=count),
        "at": pa.array(_START + minutes, pa.timestamp("us", "UTC")),
        "note": _NOTES.take(pa.array(draw.integers(len(_NOTES), size=count))),
    }
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / f"{number}.parquet")


def add_customers(folder: Path, number: int, records: Iterator[dict[str, Any]]) -> None:
    """Add a file of change records."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(record) + "\n" for record in records)
    (folder / f"{number}.json").write_text(text)


def customer_records(number: int, count: int, customers: int) -> Iterator[dict[str, Any]]:
    """Draw change records, out of order; the first file has one of each customer."""
    draw = random.Random(number)
    keys = range(customers) if number == 1 else [draw.randrange(customers) for _ in range(count)]
    for at, key in enumerate(keys):
        late = draw.random() < 0.2
        yield {
            "id": key,
            "name": f"name {draw.randrange(1_000)}",
            "city": draw.choice(CITIES),
            "op": "D" if draw.random() < 0.1 else "U",
            "version": (2 * number - (3 if late else 0)) * 1_000_000 + at,
        }


def main(folder: str, orders: str = "10000") -> None:
    at = Path(folder)
    number = len(list((at / "orders").glob("*.parquet"))) + 1
    count = int(orders)
    customers = 1_000
    add_orders(at / "orders", number, count, customers)
    add_customers(at / "customers", number, customer_records(number, count // 10 + 1, customers))


if __name__ == "__main__":
    main(*sys.argv[1:])
