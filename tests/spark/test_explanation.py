"""`headrace explain --on spark`: stages, routes, what is native, where state is; as whole texts."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import headrace as hr
from examples.nexmark.queries import q4
from headrace import Flow, col, io
from headrace.cli.main import app
from headrace.spark.explanation import explain_on_spark, physical_plan
from tests.golden import assert_golden

HERE = Path(__file__).parent / "explanations"


class Visit(NamedTuple):
    at: datetime
    page: str


def shout(visit: Visit) -> str:
    return visit.page.upper()


def minutes() -> Flow:
    flow = Flow("minutes")
    visits = flow.source("visits", Visit).filter(col.page != "/health").watermark(col.at, lateness="10s")
    counts = visits.group_by(page=col.page, window=hr.tumbling(col.at, "1m")).agg(n=hr.count())
    flow.sink("minutes", counts)
    flow.sink("shouted", visits.map(shout))
    flow.sink("numbered", flow.source("later", Visit).enumerate())
    return flow


def test_nexmark_q4_has_a_stage_per_key() -> None:
    sinks = {"q4": io.TableFiles("out", key="category")}
    assert_golden(HERE / "q4.txt", explain_on_spark(q4().graph(), shards=4, sinks=sinks))


def test_windows_get_the_watermark_by_broadcast_and_order_forces_one_shard() -> None:
    sinks: dict[str, object] = {"minutes": io.Changelog("out"), "shouted": print, "numbered": []}
    assert_golden(HERE / "minutes.txt", explain_on_spark(minutes().graph(), sinks=sinks))


def test_rows_of_a_python_function_keep_all_cores_busy_sooner() -> None:
    def text(rows: Any) -> str:
        flow = hr.Flow("counts")
        numbers = rows(flow.source("numbers", int))
        flow.sink("counts", numbers.group_by(n=col.value).agg(count=hr.count()))
        return explain_on_spark(flow.graph())

    assert "a tick of up to 250,000 rows in one task" in text(lambda numbers: numbers)
    assert "a tick of up to 20,000 rows in one task" in text(lambda numbers: numbers.map(abs, returns=int))


def test_with_one_shard_nothing_is_said_of_one_shard() -> None:
    text = explain_on_spark(minutes().graph(), shards=1)
    assert "on one shard" not in text
    assert "1 shard\n" in text


@pytest.mark.spark
def test_the_physical_plan_shows_a_shuffle_per_stage_and_native_columns(spark: Any) -> None:
    plan = physical_plan(minutes(), spark, shards=2, sinks={})
    assert plan.startswith("== Physical Plan ==")
    stages = explain_on_spark(minutes().graph()).count("\nStage ")
    assert plan.count("\nArguments: task(") == stages
    assert plan.count("REPARTITION_BY_NUM") == stages - 1
    assert "NOT (page" in plan, "the filter is Spark's"


def test_options_of_spark_are_refused_elsewhere_and_unknown_sinks_named(tmp_path: Path) -> None:
    (tmp_path / "some_flow.py").write_text(
        "import headrace as hr\nflow = hr.Flow('f')\nflow.sink('out', flow.source('in', int))\n"
    )
    flow = f"{tmp_path}/some_flow.py:flow"
    invoke = CliRunner().invoke
    assert "--shards requires --on spark" in invoke(app, ["explain", flow, "--shards", "2"]).stderr
    assert "--physical requires --on spark" in invoke(app, ["explain", flow, "--physical"]).stderr
    unknown = invoke(app, ["explain", flow, "--on", "spark", "--sink", "nowhere=-"])
    assert (unknown.exit_code, "no sink 'nowhere'" in unknown.stderr) == (2, True)
    found = invoke(app, ["explain", flow, "--on", "spark", "--sink", "out=-"])
    assert (found.exit_code, "out  at least once: " in found.stdout) == (0, True)
