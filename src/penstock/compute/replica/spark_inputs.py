"""The inputs of a dataflow on Spark, as ticks take them: snapshots, and changes of whole times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.compute.collections.store import Collections
from penstock.compute.frontier import Frontier, meet
from penstock.compute.protocol.responses import Counted, Update
from penstock.compute.replica.failed import Failed
from penstock.compute.replica.spark_imports import Import, Seen
from penstock.errors import BadInput
from penstock.spark.external_ticks import Given

MOST_CHANGES = 200_000
"""So many changes of an input a tick takes, but for those of one time."""


@dataclass(frozen=True, slots=True)
class Version:
    """What is new in one source at one time."""

    source: str
    time: int
    changes: Sequence[Counted]


class Inputs:
    """What a dataflow reads. Used by one thread at a time.

    seen: per source what the last tick that read something of it has read, by which it is known again.
    """

    def __init__(self, imports: Sequence[Import]) -> None:
        self.imports = tuple(imports)
        self.seen: dict[str, Seen] = {}

    def ready(self, store: Collections, at: int) -> bool:
        """Whether snapshots at a time can be read."""
        return all(one.upper(store).passed(at) for one in self.imports)

    def bound(self, store: Collections) -> Frontier:
        """Up to where all of them can be read."""
        return meet(one.upper(store) for one in self.imports)

    @property
    def failed(self) -> Failed | None:
        """Where what they read has failed first."""
        failures = [one.failed for one in self.imports if one.failed is not None]
        return min(failures, key=lambda failure: failure.time, default=None)

    def settled(self, upper: Frontier) -> None:
        """Times before `upper` have been computed and are not read again."""
        for one in self.imports:
            one.settled(upper)

    def close(self) -> None:
        for one in self.imports:
            one.close()

    # -- for ticks ------------------------------------------------------------------------------

    def snapshot(self, store: Collections, at: int, append: Mapping[str, bool]) -> Iterator[Given]:
        """All rows at a time. `seen` is right when all have been taken. append: see `Driven`."""
        for one in self.imports:
            count = weight = 0
            for part in one.snapshot(store, at):
                count, weight = count + len(part), weight + sum(times for _, times in part)
                yield one.source, 0, _internal(one.source, part, append[one.source])
            self.seen[one.source] = Seen(None, at + 1, count, weight)

    def news(
        self, store: Collections, lower: int, bound: Frontier, most_times: int
    ) -> tuple[Frontier, list[Version]]:
        """What is new from `lower` on, whole times, and up to where that is everything."""
        found: list[Version] = []
        for one in self.imports:
            versions, bound = _read(one, one.changes(store, lower, bound), bound)
            found += versions
        times = sorted({version.time for version in found})
        if len(times) > most_times:
            bound = min(bound, Frontier(times[most_times]))
        return bound, [version for version in found if bound.passed(version.time)]

    def given(
        self, news: Iterable[Version], times: Sequence[int], append: Mapping[str, bool]
    ) -> Iterator[Given]:
        """What a tick of these times takes."""
        numbers = {time: number for number, time in enumerate(times)}
        for version in news:
            yield (
                version.source,
                numbers[version.time],
                _internal(version.source, version.changes, append[version.source]),
            )

    def have_seen(self, news: Iterable[Version]) -> None:
        """A tick takes these."""
        by_source: dict[str, list[Version]] = {}
        for version in news:
            by_source.setdefault(version.source, []).append(version)
        for source, versions in by_source.items():
            self.seen[source] = Seen(
                versions[0].time,
                versions[-1].time + 1,
                sum(len(version.changes) for version in versions),
                sum(weight for version in versions for _, weight in version.changes),
            )


def by_time(source: str, updates: Iterable[Update]) -> list[Version]:
    """Updates in order of time as versions."""
    found: list[Version] = []
    changes: list[Counted] = []
    for row, time, weight in updates:
        if not found or found[-1].time != time:
            changes = []
            found.append(Version(source, time, changes))
        changes.append((row, weight))
    return found


def _read(one: Import, parts: Iterable[Sequence[Update]], bound: Frontier) -> tuple[list[Version], Frontier]:
    updates: list[Update] = []
    for part in parts:
        updates += part
        if len(updates) > MOST_CHANGES and updates[0][1] < updates[-1][1]:
            bound = Frontier(updates[-1][1])
            break
    return by_time(one.source, [update for update in updates if bound.passed(update[1])]), bound


def _internal(source: str, changes: Sequence[Counted], append: bool) -> list[tuple[Any, ...]]:
    """Changes as an engine takes them: with the weight last, or each copy by itself."""
    if not append:
        return [(*row, weight) for row, weight in changes]
    for row, weight in changes:
        if weight < 0:
            raise BadInput(
                f"source {source!r} takes no row back, and {row} was taken back",
                fix="make it a table source, table=True, or append only",
                source=source,
            )
    return [row for row, weight in changes for _ in range(weight)]
