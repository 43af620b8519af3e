"""Flows on Spark: `session()` for a local Spark, `run(...)` for a flow on it, `Frame(df)` as a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.requirements import import_attribute
from headrace.spark.session import session

if TYPE_CHECKING:
    from headrace.engine.progress import Progress
    from headrace.io.in_process import ArrowTable
    from headrace.spark.examination import doctor
    from headrace.spark.resharding import reshard
    from headrace.spark.run_command import run
    from headrace.spark.sources.opening import Frame
    from headrace.spark.sources.pull_source import Pulled

_LATER = {
    "ArrowTable": "headrace.io.in_process",
    "Frame": "headrace.spark.sources.opening",
    "Progress": "headrace.engine.progress",
    "Pulled": "headrace.spark.sources.pull_source",
    "doctor": "headrace.spark.examination",
    "reshard": "headrace.spark.resharding",
    "run": "headrace.spark.run_command",
}


def __getattr__(name: str) -> Any:
    # A session needs neither Arrow nor an engine.
    if name in _LATER:
        return import_attribute(_LATER[name], name, "spark", f"headrace.spark.{name}")
    raise AttributeError(f"module 'headrace.spark' has no attribute {name!r}")


__all__ = ["ArrowTable", "Frame", "Progress", "Pulled", "doctor", "reshard", "run", "session"]
