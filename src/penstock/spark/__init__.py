"""Flows on Spark: `session()` for a local Spark, `run(...)` for a flow on it, `Frame(df)` as a source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.requirements import import_attribute
from penstock.spark.session import session

if TYPE_CHECKING:
    from penstock.engine.progress import Progress
    from penstock.spark.checkpoints.reshard import reshard
    from penstock.spark.examination.examine import doctor
    from penstock.spark.run_command import run
    from penstock.spark.sources.opening import Frame
    from penstock.spark.sources.pull_source import Pulled

_LATER = {
    "Frame": "penstock.spark.sources.opening",
    "Progress": "penstock.engine.progress",
    "Pulled": "penstock.spark.sources.pull_source",
    "doctor": "penstock.spark.examination.examine",
    "reshard": "penstock.spark.checkpoints.reshard",
    "run": "penstock.spark.run_command",
}


def __getattr__(name: str) -> Any:
    # A session needs neither Arrow nor an engine.
    if name in _LATER:
        return import_attribute(_LATER[name], name, "spark", f"penstock.spark.{name}")
    raise AttributeError(f"module 'penstock.spark' has no attribute {name!r}")


__all__ = ["Frame", "Progress", "Pulled", "doctor", "reshard", "run", "session"]
