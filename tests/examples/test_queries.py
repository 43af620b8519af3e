"""A query in a file: the plan that is kept is what Spark plans now. `test_readme.py` runs the file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("google.protobuf")

from headrace.queries.query_file import QueryFile, plan_is_kept, save_flow
from tests.examples.readme import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

FILE = ROOT / "examples" / "queries" / "revenue.sql"


@pytest.mark.spark
def test_the_plan_that_is_kept_is_what_spark_plans_now(spark: SparkSession, tmp_path: Path) -> None:
    query = QueryFile.read(FILE)
    assert plan_is_kept(query)
    planned = query.plan()
    assert {str(node.location) for node in planned.nodes} == {"revenue.sql:4"}
    save_flow(planned, tmp_path / "now.plan", query=query.text)
    assert json.loads((tmp_path / "now.plan").read_text()) == json.loads(query.kept_plan.read_text())
