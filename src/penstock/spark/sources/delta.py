"""Delta table as a source on Spark: the driver files a ticket for each version, and tasks read them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.io.delta import DeltaRows, check_delta
from penstock.io.files.file_source import finished
from penstock.io.source import Feed
from penstock.spark.sources.arrival_files import publish_numbered
from penstock.spark.sources.opening import (
    OpenedSource,
    Opening,
    open_on_spark,
    open_ticketed_source,
    static_paths,
)
from penstock.spark.ticks.intake import Rows, Taken, read_file
from penstock.spark.ticks.plan import Input

_WHOLE, _CHANGES = "whole", "changes"


@dataclass(frozen=True, slots=True)
class Versions:
    """Reading of a ticket: all rows of a version, or the changes it made."""

    table: DeltaRows


@dataclass(slots=True)
class VersionTickets:
    """Discovered versions of a table, each with a ticket. `look` finds more."""

    versions: Any
    folder: Path
    _last: int | None = field(default=None, init=False)
    _count: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        tickets = sorted(ticket for ticket in self.folder.iterdir() if finished(ticket.name))
        self._count = len(tickets)
        if tickets:
            self._last = json.loads(tickets[-1].read_text())[1]

    def look(self, *, may_be_none: bool) -> None:
        """File a ticket for each new version. Raises `UnreadableSource` if the table cannot be read."""
        if self._last is None:
            self._file(_WHOLE, self.versions.first())
        assert self._last is not None
        for version in range(self._last + 1, self.versions.newest() + 1):
            self._file(_CHANGES, version)

    def _file(self, what: str, version: int) -> None:
        publish_numbered(self.folder, self._count, json.dumps([what, version]).encode())
        self._count += 1
        self._last = version


@open_on_spark.register
def _(source: DeltaRows, opening: Opening) -> OpenedSource:
    check_delta(source, f"source {opening.name!r}", opening.operator.schema)
    from penstock.io.delta.version_reader import DeltaVersions

    feed = Feed(opening.name, opening.operator.schema, append=opening.append)
    feed.refuse_weight_column()
    versions = DeltaVersions(source, feed)
    if opening.operator.bounded:
        opening.spool.mkdir(parents=True, exist_ok=True)
        publish_numbered(opening.spool, 0, json.dumps([_WHOLE, versions.first()]).encode())
        paths = [str(path) for path in opening.spool.iterdir() if finished(path.name)]
        return OpenedSource(opening.input(Versions(source)), static_paths(opening, paths), static=True)
    tickets = VersionTickets(versions, opening.spool)
    tickets.look(may_be_none=opening.follow)
    return open_ticketed_source(opening, Versions(source), tickets, source.versions_per_tick)


@read_file.register
def _(reading: Versions, path: Path, source: Input, taken: Taken) -> Rows:
    from penstock.io.delta.version_reader import DeltaVersions

    what, version = json.loads(path.read_text())
    versions = DeltaVersions(reading.table, Feed(source.name, source.schema, append=source.append))
    return versions.rows(version) if what == _WHOLE else versions.changes(version)
