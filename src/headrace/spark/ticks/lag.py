"""Backlog behind a tick: input found and not taken yet, and the connectors' own reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.engine.progress import SourceProgress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.spark.sources.arrivals import Arrivals


@dataclass(slots=True)
class Lag:
    """Observer of source backlogs during a run.

    arrivals: of the sources whose input the driver finds.
    query:    the one that runs, once there is one.
    """

    arrivals: Mapping[str, Arrivals]
    query: StreamingQuery | None = None

    def by_source(self, names: Iterable[str], rows: Mapping[str, int]) -> dict[str, SourceProgress]:
        """Return the progress of each source in `names`: its rows in this tick, and its backlog."""
        named = list(names)
        connectors = [] if self.arrivals.keys() >= set(named) else self._connectors()
        # Spark names sources by their connector: which of ours it is shows where there is one of each.
        alone = len(connectors) == 1 and sum(name not in self.arrivals for name in named) == 1
        backlog = connectors[0] if alone else {}
        return {name: self._one(name, rows.get(name, 0), backlog) for name in named}

    def _one(self, name: str, rows: int, backlog: Mapping[str, str]) -> SourceProgress:
        arrivals = self.arrivals.get(name)
        if arrivals is None:
            return SourceProgress(rows, backlog=backlog)
        return SourceProgress(rows, arrivals.waiting, arrivals.newest)

    def _connectors(self) -> list[dict[str, str]]:
        """Return the connectors' reports on the previous batch."""
        last: Any = None if self.query is None else self.query.lastProgress
        return [] if last is None else [_metrics(source) for source in last.sources]


def _metrics(source: Any) -> dict[str, str]:
    return {str(key): str(value) for key, value in (source.metrics or {}).items()}
