"""Examination of the machine and a session for obstacles to running flows, each with its fix."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from os import PathLike
from typing import TYPE_CHECKING

from headrace.spark.examination.finding import Examination, Finding, Level, examination
from headrace.spark.examination.host import examine_machine, python_findings, without_spark
from headrace.spark.examination.session import examine_given, examine_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


__all__ = ["Examination", "Finding", "Level", "doctor"]
