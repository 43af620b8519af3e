"""The example's tables, made by `headrace pipeline` and by PySpark's own `spark-pipelines`."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipelines.peer import PATH, Peer
from tests.pipelines.test_example import EXPECTED, add_input, assert_right, copied
from tests.pipelines.test_kills import run_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AUTO_CDC = {"customers", "customer_versions"}
"""Tables that fail there. `assert_right` compares ours with DuckDB, as it does all others."""

# Processes of their own, but comparing reads what a project knows, which has a session.
pytestmark = [pytest.mark.spark, pytest.mark.verify(ci=False)]


def test_both_runners_make_the_same_tables(tmp_path: Path, spark: SparkSession) -> None:
    peer = Peer.there()
    if not peer.path.exists():
        pytest.skip(f"there is no {peer.path}; {PATH} may name another one")
    if missing := peer.missing_packages():
        pytest.skip(f"{peer.path} lacks {', '.join(missing)}; {PATH} may name one with pyspark[pipelines]")
    ours, theirs = copied(tmp_path, spark), tmp_path / "theirs"
    add_input(ours.root, 1, 400, 30)
    peer.prepare(ours.root, theirs)
    for number, orders, records in ((1, 400, 30), (2, 60, 8)):
        if number > 1:
            add_input(ours.root, number, orders, records)
        assert run_process(ours.root, None) == 0
        run_peer(peer, theirs)
        assert_right(ours)
        for table in EXPECTED.keys() - AUTO_CDC:
            assert ours.rows(table) == rows_of_peer(theirs, table), (number, table)


def run_peer(peer: Peer, root: Path) -> None:
    done = subprocess.run(
        [*peer.command, "run"], cwd=root, env=peer.environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2_000:]


def rows_of_peer(root: Path, table: str) -> Counter[tuple[Any, ...]]:
    import duckdb

    files = f"{root}/spark-warehouse/{table}/*.parquet"
    return Counter(duckdb.sql(f"SELECT * FROM read_parquet('{files}')").fetchall())
