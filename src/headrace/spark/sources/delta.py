"""Delta table as a source on Spark: the driver finds new versions, and tasks read them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.expr.types import Rows
from headrace.io.delta import DeltaRows, check_delta, versions_of
from headrace.io.source import Feed
from headrace.spark.sources.arrivals import Arrivals, FoundInput, Positions
from headrace.spark.sources.opening import OpenedSource, Opening, open_arrivals, open_on_spark
from headrace.spark.ticks.intake import Taken, read_file
from headrace.spark.ticks.plan import Input

if TYPE_CHECKING:
    from headrace.io.versioned_tables import SourceVersions


VERSION = "version"
_WHOLE, _CHANGES = "whole", "changes"


@dataclass(frozen=True, slots=True)
class VersionReading:
    """Reading of a location: all rows of a version, or the changes it made."""

    table: DeltaRows


class VersionArrivals(Arrivals):
    """Versions of a table, at most `per_tick` in a tick: the first one whole, of later ones their changes."""

    def __init__(self, versions: SourceVersions, positions: Positions, per_tick: int | None) -> None:
        self._versions = versions
        self._positions = positions
        self._per_tick = per_tick
        self._newest = -1
        self.look()

    def look(self) -> None:
        newest = self._versions.newest()
        if newest != self._newest:
            self._newest, self.newest = newest, time.time()

    def take(self) -> list[FoundInput]:
        found: list[str] = []
        last: int | None = self._positions.get(VERSION)
        while self._per_tick is None or len(found) < self._per_tick:
            if last is None:
                last = self._versions.first()
                found.append(f"{_WHOLE}:{last}")
            elif last < self._newest:
                last += 1
                found.append(f"{_CHANGES}:{last}")
            else:
                break
        if found:
            self._positions[VERSION] = last
        return [*map(FoundInput, found)]

    def take_all(self) -> list[FoundInput]:
        # A bounded source is one version.
        return self.take()

    @property
    def waiting(self) -> int:
        last: int | None = self._positions.get(VERSION)
        return max(0, self._newest - (self._versions.first() - 1 if last is None else last))


@open_on_spark.register
def _(source: DeltaRows, opening: Opening) -> OpenedSource:
    check_delta(source, f"source {opening.name!r}", opening.operator.schema)
    feed = Feed(opening.name, opening.operator.schema, append=opening.append)
    feed.refuse_weight_column()
    versions = versions_of(source, feed)
    per_tick = 1 if opening.operator.bounded else source.versions_per_tick
    return open_arrivals(
        opening, VersionReading(source), VersionArrivals(versions, opening.positions, per_tick)
    )


@read_file.register
def _(reading: VersionReading, location: str, source: Input, taken: Taken) -> Rows:
    what, _, version = location.partition(":")
    versions = versions_of(reading.table, Feed(source.name, source.schema, append=source.append))
    return versions.rows(int(version)) if what == _WHOLE else versions.changes(int(version))
