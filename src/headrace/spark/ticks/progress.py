"""Progress recorded in a tick's commit: watermarks and late rows."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.expr.code_runtime import EPOCH
from headrace.operators.event_time.late_rows import OnTime
from headrace.operators.event_time.watermark import Watermark

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.engine.progress import Time
    from headrace.spark.placing.stages import StagePlan
    from headrace.state.commit import Commit


def watermarks(commit: Commit, timestamps: frozenset[str]) -> dict[str, Time]:
    """Return the current watermarks, by operator name.

    timestamps: operators whose watermarks are timestamps, which a commit has in microseconds since 1970.
    """
    found: Mapping[str, int | float] = commit.counters.get("watermarks") or {}
    return {
        name: EPOCH + timedelta(microseconds=value) if name in timestamps else value
        for name, value in found.items()
    }


def late_rows(commit: Commit) -> dict[str, int]:
    """Return the number of late rows so far, per watermark."""
    return dict(commit.counters.get("late") or {})


def timestamps_of(plan: StagePlan) -> frozenset[str]:
    """Return the operators of a flow whose watermark is a timestamp rather than a number."""
    return frozenset(
        node.name
        for stage in plan.stages
        for node in stage.graph.nodes
        if isinstance(node.operator, OnTime | Watermark)
        and isinstance(node.operator.clock.lateness, timedelta)
    )
