"""However often a run over arrangements is killed, its sinks hold what DuckDB computes of the whole input."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.state.killed_join import ticks

duckdb: Any = pytest.importorskip("duckdb")

QUERIES = {
    "sums": "SELECT owner, sum(price)::BIGINT AS sum, count(*) AS n FROM bids JOIN items USING (item)"
    " GROUP BY owner",
    "left": "SELECT DISTINCT bids.item, price, owner FROM bids LEFT JOIN items USING (item)",
    "top": "SELECT item, price, owner FROM bids JOIN items USING (item) QUALIFY row_number() OVER"
    " (PARTITION BY owner ORDER BY price DESC, item, owner) <= 2",
}


@pytest.mark.parametrize(
    ("seed", "kills"), [(1, 2), *(pytest.param(s, 10, marks=pytest.mark.verify) for s in (2, 3))]
)
def test_the_sinks_hold_what_duckdb_computes(tmp_path: Path, seed: int, kills: int) -> None:
    command = [sys.executable, "-m", "tests.state.killed_join", str(tmp_path), str(seed), str(kills)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= min(kills, 2)
    tables = {name: held(rows) for name, rows in ticks(seed).items()}
    connection = duckdb.connect()
    for name, rows in tables.items():
        connection.register(name, pa.Table.from_pylist([row._asdict() for row in rows]))
    for sink, query in QUERIES.items():
        assert in_log(tmp_path / sink) == Counter(map(tuple, connection.execute(query).fetchall()))


def held(made: list[list[Any]]) -> list[Any]:
    rows: Counter[Any] = Counter()
    for tick in made:
        for row, weight in tick:
            rows[row] += weight
    return [*rows.elements()]


def in_log(folder: Path) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for file in folder.glob("tick=*/*.parquet"):
        for row in pq.ParquetFile(file).read().to_pylist():
            weight = row.pop("weight")
            row.pop("tick", None)
            found[tuple(row.values())] += weight
    return +found
