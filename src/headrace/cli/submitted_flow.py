"""Entry point of a flow submitted to Spark, called by the `main.py` of `headrace package`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.exit_codes import exit_code, signal_code
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The settings of `headrace.spark.session`, except those that concern a single machine.
_SETTINGS = {
    "spark.sql.caseSensitive": "true",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.optimizer.excludedRules": (
        "org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator"
    ),
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
}


def run_submitted(
    flow: str,
    *,
    sources: Mapping[str, str],
    sinks: Mapping[str, str],
    checkpoint: str | None,
    follow: bool,
    end: bool | None,
    shards: int | None,
    environment: Sequence[str],
) -> int:
    """Run a flow between sources and sinks given as URIs, and return the exit code.

    flow:        module:flow, in the shipped modules.
    environment: package folders for workers; missing ones are ignored.
    """
    from headrace.cli.load_flow import load_flow
    from headrace.engine.progress_display import SECONDS_BETWEEN_LINES, ThrottledLinePrinter
    from headrace.io import parse_sink, parse_source
    from headrace.io.keyed_tables import report_lines
    from headrace.spark import run

    spark: SparkSession | None = None
    try:
        loaded = load_flow(flow)
        spark = _session(loaded.graph().name, environment)
        result = run(
            loaded,
            spark,
            sources={name: parse_source(uri) for name, uri in sources.items()},
            sinks={name: parse_sink(uri) for name, uri in sinks.items()},
            checkpoint=checkpoint,
            follow=follow,
            end=end,
            shards=shards,
            on_tick=ThrottledLinePrinter(sys.stderr, SECONDS_BETWEEN_LINES),
        )
    except HeadraceError as error:
        sys.stderr.write(f"{error}\n")
        return exit_code(error)
    finally:
        if spark is not None:
            spark.stop()
    sys.stderr.writelines(f"{line}\n" for line in report_lines(result.held_back))
    sys.stderr.write(
        f"{result.ticks:,} ticks up to {result.last_tick:,}: "
        f"{result.rows_in:,} rows in, {result.changes_out:,} changes out\n"
    )
    return 0 if result.stopped_by is None else signal_code(result.stopped_by)


def _session(name: str, environment: Sequence[str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    if environment:
        builder = builder.config("spark.executorEnv.PYTHONPATH", os.pathsep.join(environment))
    return builder.getOrCreate()


def add_packed_environment(main: str) -> list[str]:
    """List the folders that may hold the packages of `env.tar.gz`, and add them to this process's path.

    Spark unpacks archives below the working folder; otherwise they are beside `main.py`.
    """
    beside = Path(main).resolve().parent / "env"
    places = ["env", str(beside)]
    for location in places:
        if Path(location).is_dir():
            sys.path.insert(1, str(Path(location).resolve()))
            break
    return places
