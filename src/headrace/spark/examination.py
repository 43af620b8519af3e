"""Examination of the machine and a session for obstacles to running flows, each with its fix.

The session is examined for settings that affect speed or semantics, and for its workers."""

from __future__ import annotations

import importlib.metadata
import shlex
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.file_system import local_path
from headrace.spark.host_examination import (
    Examination,
    Level,
    SparkFinding,
    examination,
    examine_machine,
    ok,
    python_findings,
    without_spark,
)
from headrace.spark.session import is_remote

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


__all__ = [
    "Examination",
    "Level",
    "SparkFinding",
    "doctor",
]

_REORDER = "org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator"
_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")
_MANY_PARTITIONS = 64


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting to examine.

    default:  value if the setting is not set. fits: whether a value is suitable.
    wanted:   from the value that it has, the one to give it.
    at_start: it counts only when a session's JVM is started.
    why:      what comes of another value.
    """

    key: str
    default: str
    fits: Callable[[str], bool]
    wanted: Callable[[str], str]
    level: Level
    why: str
    at_start: bool = False


def _must_be(
    key: str, value: str, default: str, level: Level, why: str, *, at_start: bool = False
) -> Setting:
    return Setting(key, default, lambda found: found == value, lambda _: value, level, why, at_start)


def _with_reorder(found: str) -> str:
    return ",".join([*(rule for rule in found.split(",") if rule), _REORDER])


def _is_utc(found: str) -> bool:
    return found in _UTC


def _few_partitions(found: str) -> bool:
    return not found.isdigit() or int(found) <= _MANY_PARTITIONS


SETTINGS = (
    _must_be(
        "spark.sql.ansi.enabled", "true", "true", Level.BROKEN,
        "native columns would give null or wrap around where the flow means an error; runs refuse it",
    ),
    _must_be(
        "spark.sql.caseSensitive", "true", "false", Level.MEANING,
        "columns whose names differ in case only are one, or an error",
    ),
    Setting(
        "spark.sql.session.timeZone", "of the JVM", _is_utc, lambda _: "UTC", Level.MEANING,
        "days, hours and texts of timestamps that native columns make are in that zone, elsewhere in UTC",
    ),
    Setting(
        "spark.sql.optimizer.excludedRules", "", lambda found: _REORDER in found.split(","), _with_reorder,
        Level.MEANING,
        "constants are added up first, and raise where they overflow alone (x + -1 + smallest int)",
    ),
    _must_be(
        "spark.python.unix.domain.socket.enabled", "true", "false", Level.SLOW,
        "each Python stage of a tick waits some 40 ms for TCP", at_start=True,
    ),
    _must_be(
        "spark.sql.adaptive.enabled", "false", "true", Level.SLOW,
        "small ticks are planned twice, some 30 ms each; for large batches it is good",
    ),
    _must_be(
        "spark.sql.streaming.checkpointFileManagerClass", _FILES, "", Level.SLOW,
        "on a local disk each micro-batch starts some 30 processes (chmod, readlink); on HDFS or S3 leave it",
    ),
    _must_be(
        "spark.sql.execution.arrow.localRelationThreshold", "0", "48MB", Level.SLOW,
        "rows handed over by Python are copied into the plan",
    ),
    _must_be(
        "spark.python.sql.dataFrameDebugging.enabled", "false", "true", Level.SLOW,
        "every native column looks for its call site, 2 ms each",
    ),
    _must_be(
        "spark.sql.dataFrameQueryContext.enabled", "false", "true", Level.SLOW,
        "every native column carries its call site",
    ),
    Setting(
        "spark.sql.shuffle.partitions", "200", _few_partitions, lambda _: "8", Level.SLOW,
        "a batch is cut into so many tasks; about twice the cores is enough",
    ),
    _must_be(
        "spark.python.udf.pipelined.enabled", "false", "false", Level.BROKEN,
        "with Unix sockets, stages that follow each other fail (ClosedChannelException)", at_start=True,
    ),
)  # fmt: skip
"""The examined settings, the gravest first."""


def examine_settings(
    get: Callable[[str, str], str], modifiable: Callable[[str], bool] = lambda _: False
) -> Iterator[SparkFinding]:
    """Yield findings about settings.

    get:        a setting's value, or the given default.
    modifiable: whether the session takes another value while it runs; else it must be started with it.
    """
    good = 0
    for setting in SETTINGS:
        found = get(setting.key, setting.default)
        if setting.fits(found):
            good += 1
            continue
        value = setting.wanted(found if found != setting.default else "")
        if modifiable(setting.key) and not setting.at_start:
            fix = f'spark.conf.set("{setting.key}", "{value}")'
        else:
            fix = "--conf " + shlex.quote(f"{setting.key}={value}")
        yield SparkFinding(setting.key, setting.level, f"is {found or 'not set'}: {setting.why}", fix)
    yield ok("settings", f"{good} of {len(SETTINGS)} as they should be")


def examine_given(settings: Mapping[str, str]) -> Iterator[SparkFinding]:
    """Return findings about the settings for a session to be started."""
    return examine_settings(lambda key, default: settings.get(key, default))


def examine_session(spark: SparkSession, checkpoint: str | Path | None = None) -> Iterator[SparkFinding]:
    """Yield findings about a running session, whose workers are probed with one small job.

    checkpoint: a folder that runs would keep their state in; workers must see what this process writes there.
    """
    yield session_kind(spark)
    yield from examine_settings(lambda key, default: _setting(spark, key, default), spark.conf.isModifiable)
    folder = None if checkpoint is None else Path(local_path(checkpoint, "checkpoint"))
    yield from _examine_workers(spark, folder)


def session_kind(spark: SparkSession) -> SparkFinding:
    kind = f"Spark {spark.version}, {_setting(spark, 'spark.master', 'master unknown')}"
    if is_remote(spark):
        text = f"{kind}, by Spark Connect: streaming DataFrames are no sources, and a tick takes longer"
        return SparkFinding(
            "session", Level.SLOW, text, "start the driver where the cluster is: headrace package"
        )
    return ok("session", kind)


def _setting(spark: SparkSession, key: str, default: str) -> str:
    try:
        # Given no default, Spark tells its own: the zone of its JVM, say.
        found: Any = spark.conf.get(key)
    except Exception:
        return default
    return default if found is None else str(found)


def _examine_workers(spark: SparkSession, checkpoint: Path | None) -> Iterator[SparkFinding]:
    mark = None if checkpoint is None else checkpoint / f".headrace-doctor-{uuid.uuid4().hex}"
    try:
        if mark is not None:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.write_text("seen")
        reports = _ask(spark, mark)
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        text = f"a small Python job failed: {reason[:200]}"
        yield SparkFinding(
            "workers", Level.BROKEN, text, "--conf spark.pyspark.python=/the/python/of/your/workers"
        )
        return
    finally:
        if mark is not None:
            mark.unlink(missing_ok=True)
    yield from worker_findings(reports)
    if mark is not None:
        blind = sorted({worker["host"] for worker in reports if worker["sees"] != "yes"})
        if blind:
            text = f"{mark.parent} is not the same folder on {', '.join(blind)}"
            yield SparkFinding(
                "checkpoint", Level.BROKEN, text, "give a folder on a file system that all hosts mount"
            )
        else:
            yield ok("checkpoint", f"{mark.parent} is seen by {len(reports)} of {len(reports)} tasks")


def worker_findings(reports: Iterable[Mapping[str, str]]) -> Iterator[SparkFinding]:
    """Yield findings about workers, from the reports of their tasks."""
    workers = list(reports)
    here = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}", "headrace": _version("headrace")}
    hosts = sorted({worker["host"] for worker in workers})
    for what, mine in here.items():
        others = sorted({worker[what] for worker in workers} - {mine})
        if others:
            text = f"have {what} {', '.join(others)}, and this process has {mine}"
            yield SparkFinding("workers", Level.BROKEN, text, "ship the environment: headrace package")
    for what in ("pyarrow", "polars", "msgpack", "xxhash"):
        if any(worker[what] == "missing" for worker in workers):
            yield SparkFinding(
                "workers", Level.BROKEN, f"have no {what}", "ship the environment: headrace package"
            )
    pythons = ", ".join(sorted({worker["program"] for worker in workers}))
    yield ok("workers", f"on {', '.join(hosts)}: {pythons}")


def _ask(spark: SparkSession, mark: Path | None) -> list[dict[str, str]]:
    path = None if mark is None else str(mark)
    columns = ("host", "program", "python", "headrace", "pyarrow", "polars", "msgpack", "xxhash", "sees")

    # Nothing of ours is imported in it: whether the workers have that is the question.
    def probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib.metadata as metadata
        import os
        import socket
        import sys

        import pyarrow

        for batch in batches:
            if not batch.num_rows:
                continue
            versions: list[str] = []
            for name in ("headrace", "pyarrow", "polars", "msgpack", "xxhash"):
                try:
                    versions.append(getattr(__import__(name), "__version__", None) or metadata.version(name))
                except Exception:
                    versions.append("missing")
            python = f"{sys.version_info[0]}.{sys.version_info[1]}"
            sees = "yes" if path is not None and os.path.exists(path) else "no"
            said = [socket.gethostname(), sys.executable, python, *versions, sees]
            yield pyarrow.RecordBatch.from_arrays([pyarrow.array([v]) for v in said], names=list(columns))

    frame = spark.range(0, 8, 1, 4).mapInArrow(probe, ", ".join(f"{name} string" for name in columns))
    return [row.asDict() for row in frame.collect()]


def _version(name: str) -> str:
    try:
        return str(getattr(__import__(name), "__version__", None) or importlib.metadata.version(name))
    except (ImportError, importlib.metadata.PackageNotFoundError):
        return "missing"


def doctor(
    spark: SparkSession | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    needed: bool = True,
) -> Examination:
    """Examine this machine, and a running session or the settings for one, without changing anything.

    spark:      a running session: its settings, and by one small job its workers.
    settings:   of a session that is not started yet.
    checkpoint: a folder for runs of `spark`; its workers must see what this process writes there.
    needed:     whether it is a problem if PySpark is not installed.

    Works where PySpark or Java are missing, and says so. `str` of the answer is a report;
    `broken` tells whether flows do not run like this.
    """
    if not needed and find_spec("pyspark") is None:
        return Examination((python_findings(), without_spark()))
    parts = [examine_machine()]
    if settings is not None:
        parts.append(examine_given(settings))
    if spark is not None:
        parts.append(examine_session(spark, None if checkpoint is None else str(checkpoint)))
    return examination(*parts)
