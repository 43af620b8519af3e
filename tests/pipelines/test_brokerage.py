"""The warehouse of a brokerage, all tables incremental, against Spark's answers after each batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from benches.tpcdi import measure


@pytest.mark.verify(ci=False)
@pytest.mark.spark
def test_the_tables_of_a_brokerage_are_those_of_spark(tmp_path: Path) -> None:
    assert measure(tmp_path, customers=200)
