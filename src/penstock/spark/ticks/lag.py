"""Backlog behind a tick: arrivals not yet taken, and the connectors' own reports."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.engine.progress import SourceProgress
from penstock.io.files.file_source import finished
from penstock.spark.sources.arrival_files import numbered_files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql.streaming.query import StreamingQuery

_FILES = "FileStreamSource"


@dataclass(slots=True)
class Arrivals:
    """Numbered files of a source, counted without relisting the folder."""

    folder: Path
    count: int = field(init=False)

    def __post_init__(self) -> None:
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        self.count = 1 + max((int(name) for name in names if finished(name)), default=-1)

    def look(self) -> float | None:
        """Update the count; return the newest file's arrival time in seconds since 1970, or None."""
        while numbered_files(self.folder, self.count).exists():
            self.count += 1
        if not self.count:
            return None
        # Their own times are made up, for Spark. When the system noted the name, nobody can make up.
        return numbered_files(self.folder, self.count - 1).stat().st_ctime


@dataclass(slots=True)
class Lag:
    """Observer of source backlogs during a run.

    arrivals: of the sources that arrive as numbered files.
    query:    the one that runs, once there is one.
    """

    arrivals: Mapping[str, Arrivals]
    query: StreamingQuery | None = None

    def of(
        self, names: Iterable[str], rows: Mapping[str, int], taken: Mapping[str, int]
    ) -> dict[str, SourceProgress]:
        """Return the progress of each source in `names`: its rows in this tick, and its backlog.

        taken: number of arrivals read by all ticks so far, per source.
        """
        named = list(names)
        connectors = [] if self.arrivals.keys() >= set(named) else self._connectors()
        # Spark names sources by their connector: which of ours it is shows where there is one of each.
        alone = len(connectors) == 1 and sum(name not in self.arrivals for name in named) == 1
        backlog = connectors[0] if alone else {}
        return {name: self._one(name, rows.get(name, 0), taken.get(name, 0), backlog) for name in named}

    def _one(self, name: str, rows: int, taken: int, backlog: Mapping[str, str]) -> SourceProgress:
        arrivals = self.arrivals.get(name)
        if arrivals is None:
            return SourceProgress(rows, backlog=backlog)
        newest = arrivals.look()
        return SourceProgress(rows, max(0, arrivals.count - taken), newest)

    def _connectors(self) -> list[dict[str, str]]:
        """Return the connectors' reports on the previous batch, for sources that are not arrival folders."""
        last: Any = None if self.query is None else self.query.lastProgress
        sources: list[Any] = [] if last is None else list(last.sources)
        return [_metrics(source) for source in sources if not source.description.startswith(_FILES)]


def _metrics(source: Any) -> dict[str, str]:
    return {str(key): str(value) for key, value in (source.metrics or {}).items()}
