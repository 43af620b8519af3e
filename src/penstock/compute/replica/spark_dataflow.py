"""A dataflow on Spark: it takes what is new in its inputs, a tick of several times after the other.

Its folder holds the checkpoint of the flow and the files of its sinks. The commit of a tick says up to which
time that goes (this binds ticks to times) and which files count; so a process that was killed goes on
there, and nothing is computed twice. Each time is told apart within a tick, so a peek at any time is right.
Used by one thread at a time; what others look at changes in one step.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.compute.collections.store import Collections
from penstock.compute.errors import ComputeError, SinceViolation, StoreUnavailable
from penstock.compute.frontier import END, Frontier, meet
from penstock.compute.protocol.dataflow import Dataflow
from penstock.compute.protocol.responses import Counted, Update
from penstock.compute.replica.failed import Failed, failed
from penstock.compute.replica.outlet import Outlet
from penstock.compute.replica.spark_imports import FromVersions, Import
from penstock.compute.replica.spark_versions import Versions
from penstock.compute.replica.writing import CollectionOutlet
from penstock.errors import BadInput, CheckpointDamaged, FlowChanged, PenstockError, SparkProcessDied
from penstock.spark.driven import Driven, Given
from penstock.spark.versions.files import ChangeFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.flow.flow import Flow

MOST_CHANGES = 200_000
"""So many changes of inputs a tick takes, but for those of one time."""
MOST_TIMES = 4096
RETRY = 0.1
"""Seconds after which a store that could not be reached is tried again."""
_ATTEMPTS = 3
"""How often a process of Spark may die within the same tick."""


@dataclass(frozen=True, slots=True)
class _Version:
    """What is new in one source at one time."""

    source: str
    time: int
    changes: Sequence[Counted]


class SparkDataflow:
    """It does nothing before it is started.

    versions: per sink what it was.
    outlets:  exports that are told of changes, and are no index; used while `telling` is held.
    identity: what must be equal in a folder for it to be gone on with.
    upper:    it is computed before it.
    restored: whether it has gone on from what its folder had.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        flow: Flow | None,
        folder: Path,
        identity: Mapping[str, Any],
        imports: Sequence[Import],
        versions: Mapping[str, Versions],
        outlets: Sequence[Outlet],
        timer: Callable[[], float],
    ) -> None:
        assert dataflow.as_of.time is not None
        self.dataflow = dataflow
        self.as_of = dataflow.as_of.time
        self.upper = dataflow.as_of
        self.failed: Failed | None = None
        self.hydrated = self.ended = self.started = self.restored = False
        self.versions = versions
        self.outlets = list(outlets)
        self.telling = threading.Lock()
        self._flow = flow
        self.folder = folder
        self._identity = json.dumps(identity, sort_keys=True)
        self._imports = tuple(imports)
        self._timer = timer
        self._driven: Driven | None = None
        self._told_upper: Frontier | None = None
        self._most_times = MOST_TIMES
        self._times = 0
        self._deaths = 0
        self._retry_at = 0.0

    def reads(self, other: SparkDataflow) -> bool:
        """Whether it reads what another one makes."""
        made = list(other.versions.values())
        return any(isinstance(one, FromVersions) and one.versions in made for one in self._imports)

    @property
    def read_upper(self) -> Frontier:
        """It has read its inputs before it, and will not read them there again."""
        return END if self.ended or self.failed is not None else self.upper

    # -- what is to be done ---------------------------------------------------------------------

    def advance(self, store: Collections, spark: SparkSession) -> bool:
        """Compute a tick of what there is to compute; whether there may be more to do at once.

        Raises `SparkProcessDied` where Spark itself is gone, which nothing can go on without.
        """
        if not self.started or self.ended or self._timer() < self._retry_at:
            return False
        try:
            more = self._advance(store, spark)
            self._deaths = 0
        except StoreUnavailable:
            self._retry_at = self._timer() + RETRY
            return False
        except SparkProcessDied as error:
            self._close_driven()
            self._deaths += 1
            if error.facts.get("process") in ("jvm", "context"):
                raise
            if self._deaths < _ATTEMPTS:
                return True
            self.fail(error)
            return False
        except MemoryError:
            raise
        except Exception as error:
            return self._narrow(error)
        return more

    def work_outlets(self) -> bool:
        """Have outlets do a slice of what is left to do; whether there is more. Also after the end.

        Raises what the store raises.
        """
        more = False
        with self.telling:
            for outlet in self.outlets:
                if isinstance(outlet, CollectionOutlet):
                    outlet.feed.refresh()
                outlet.flush()
                more |= outlet.work()
        return more

    def _advance(self, store: Collections, spark: SparkSession) -> bool:
        failure = self._failed_input()
        if not self.hydrated:
            if failure is not None and failure.time <= self.as_of:
                return self._pass_on(failure)
            if not all(one.upper(store).passed(self.as_of) for one in self._imports):
                return False
        if self._driven is None:
            self._open(store, spark)
        if not self.hydrated:
            self._run(self._snapshot(store), [self.as_of], Frontier(self.as_of + 1))
            self.hydrated = True
            if self.outlets and not self.versions_wanted and all(outlet.once for outlet in self.outlets):
                self._end()
            return True
        bound = self._bound(store, failure)
        if self.upper < bound:
            bound, news = self._news(store, bound)
            if news:
                times = sorted({version.time for version in news})
                # Where it fails, it is at the first of these times, and not before.
                self._settle(Frontier(times[0]))
                self._run(self._given(news, times), times, bound)
                self._most_times = min(MOST_TIMES, self._most_times * 2)
            else:
                self._settle(bound)
        if self.upper >= self.dataflow.until or self.upper.ended:
            return self._finish()
        if failure is not None and self.upper >= Frontier(failure.time):
            return self._pass_on(failure)
        return self.upper < self._bound(store, failure)

    @property
    def versions_wanted(self) -> bool:
        """Whether somebody may still read what its sinks were."""
        return any(not versions.least.ended for versions in self.versions.values())

    def _bound(self, store: Collections, failure: Failed | None) -> Frontier:
        bound = min(meet(one.upper(store) for one in self._imports), self.dataflow.until)
        return bound if failure is None else min(bound, Frontier(failure.time))

    def _failed_input(self) -> Failed | None:
        failures = [one.failed for one in self._imports if one.failed is not None]
        return min(failures, key=lambda failure: failure.time, default=None)

    # -- inputs ---------------------------------------------------------------------------------

    def _snapshot(self, store: Collections) -> Iterator[Given]:
        for one in self._imports:
            for part in one.snapshot(store, self.as_of):
                yield one.source, 0, self._internal(one.source, part)

    def _given(self, news: Iterable[_Version], times: Sequence[int]) -> Iterator[Given]:
        numbers = {time: number for number, time in enumerate(times)}
        for version in news:
            yield version.source, numbers[version.time], self._internal(version.source, version.changes)

    def _news(self, store: Collections, bound: Frontier) -> tuple[Frontier, list[_Version]]:
        """What is new from the upper on, whole times, and up to where that is everything."""
        assert self.upper.time is not None
        found: list[_Version] = []
        for one in self._imports:
            versions, bound = _versions(one, one.changes(store, self.upper.time, bound), bound)
            found += versions
        times = sorted({version.time for version in found})
        if len(times) > self._most_times:
            bound = min(bound, Frontier(times[self._most_times]))
        return bound, [version for version in found if bound.passed(version.time)]

    def _internal(self, source: str, changes: Sequence[Counted]) -> list[tuple[Any, ...]]:
        driven = self._driven
        assert driven is not None
        if not driven.append[source]:
            return [(*row, weight) for row, weight in changes]
        for row, weight in changes:
            if weight < 0:
                raise BadInput(
                    f"source {source!r} takes no row back, and {row} was taken back",
                    fix="make it a table source, table=True, or append only",
                    source=source,
                )
        return [row for row, weight in changes for _ in range(weight)]

    # -- ticks ----------------------------------------------------------------------------------

    def _run(self, given: Iterable[Given], times: Sequence[int], upper: Frontier) -> None:
        driven = self._driven
        assert driven is not None
        self._times = len(times)
        for versions in self.versions.values():
            versions.merge(driven.tick + 1)
        sinks = {
            sink: {"files": versions.names, "merged_to": versions.merged_to}
            for sink, versions in self.versions.items()
        }
        driven.run(given, times, {"upper": upper.time, "sinks": sinks})
        for sink, versions in self.versions.items():
            versions.add(driven.outputs.get(sink, ()))
        self._times = 0
        self._settle(upper)

    def _settle(self, upper: Frontier) -> None:
        """Everything before `upper` has been computed and is in the files."""
        self._tell(upper)
        for versions in self.versions.values():
            versions.upper = upper
        for one in self._imports:
            one.settled(upper)
        self.upper = upper

    def _tell(self, upper: Frontier) -> None:
        begin, self._told_upper = self._told_upper, upper
        with self.telling:
            for outlet in self.outlets:
                versions = self.versions[outlet.sink]
                if begin is None:
                    outlet.add(versions.scan(self.as_of), self.as_of)
                    outlet.advance(Frontier(self.as_of + 1))
                first = self.as_of + 1 if begin is None or begin.time is None else begin.time
                for version in _by_time(outlet.sink, versions.changes(first, upper)):
                    outlet.add(version.changes, version.time)
                    outlet.advance(Frontier(version.time + 1))
                if Frontier(first) < upper:
                    outlet.advance(upper)

    def drop(self, outlet: Outlet) -> None:
        """An export is not wanted any more. May be called by any thread."""
        with self.telling:
            if outlet in self.outlets:
                self.outlets.remove(outlet)
                outlet.drop()

    # -- its folder -----------------------------------------------------------------------------

    def _open(self, store: Collections, spark: SparkSession) -> None:
        try:
            self._driven = self._driven_in(store, spark)
        except (FlowChanged, CheckpointDamaged):
            shutil.rmtree(self.folder, ignore_errors=True)
            self._driven = self._driven_in(store, spark)

    def _driven_in(self, store: Collections, spark: SparkSession) -> Driven:
        described = self.folder / "dataflow.json"
        if not self.hydrated and not (described.is_file() and described.read_text() == self._identity):
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            described.write_text(self._identity)
        assert self._flow is not None, "what has no flow has failed"
        targets = {sink: ChangeFiles(str(v.folder), v.key) for sink, v in self.versions.items()}
        driven = Driven(self._flow, spark, self.folder / "engine", targets)
        if driven.tick and not self._restore(driven, store):
            driven.close()
            shutil.rmtree(self.folder)
            return self._driven_in(store, spark)
        return driven

    def _restore(self, driven: Driven, store: Collections) -> bool:
        """Go on after the last tick; whether that can be done."""
        positions: dict[str, Any] = driven.positions
        upper = Frontier(positions["upper"])
        sinks: dict[str, dict[str, Any]] = positions["sinks"]
        if not self.hydrated and not (
            all(sinks[sink]["merged_to"] <= self.as_of for sink in self.versions)
            and all(self._goes_on(one, store, upper) for one in self._imports)
        ):
            return False
        for sink, versions in self.versions.items():
            versions.merged_to = sinks[sink]["merged_to"]
            versions.restore([*sinks[sink]["files"], *driven.outputs.get(sink, ())])
        self.hydrated = self.restored = True
        self._settle(max(upper, self.upper))
        return True

    def _goes_on(self, one: Import, store: Collections, upper: Frontier) -> bool:
        """Whether what comes after `upper` can be read."""
        if one.upper(store) < upper:
            return False
        try:
            if upper.time is not None:
                next(iter(one.changes(store, upper.time, upper)), None)
        except SinceViolation:
            return False
        return True

    # -- how it ends ----------------------------------------------------------------------------

    def _narrow(self, error: Exception) -> bool:
        """Something failed in a tick: find out at which of its times; whether there is more to try."""
        self._close_driven()
        if self._times > 1:
            self._most_times = max(1, self._times // 4)
            return True
        self.fail(error)
        return False

    def fail(self, cause: Exception) -> None:
        """From its upper on, its answer is an error."""
        lasting = isinstance(cause, PenstockError) and not isinstance(cause, ComputeError)
        time = self.as_of if self.upper.time is None else self.upper.time
        self._fail(failed(self._first_id, self.dataflow.name, time, cause, lasting=lasting))

    @property
    def _first_id(self) -> str:
        return min(export.id for export in self.dataflow.exports)

    def _pass_on(self, failure: Failed) -> bool:
        time = max(failure.time, self.as_of)
        self._fail(failed(self._first_id, self.dataflow.name, time, failure.error, lasting=failure.lasting))
        return False

    def _fail(self, failure: Failed) -> None:
        self.failed = failure
        with self.telling:
            for outlet in self.outlets:
                outlet.fail(failure)
        for versions in self.versions.values():
            versions.fail(failure)
        self.upper = Frontier(failure.time + 1)
        self._end()

    def _finish(self) -> bool:
        with self.telling:
            for outlet in self.outlets:
                outlet.finish()
        self._end()
        return False

    def _end(self) -> None:
        self.ended = True
        self._close_driven()
        for one in self._imports:
            one.close()

    def _close_driven(self) -> None:
        driven, self._driven = self._driven, None
        if driven is not None:
            driven.close()

    def close(self, *, remove: bool) -> None:
        """Nothing is computed any more. remove: and its folder is not wanted."""
        self._end()
        if remove:
            shutil.rmtree(self.folder, ignore_errors=True)


def _versions(
    one: Import, parts: Iterable[Sequence[Update]], bound: Frontier
) -> tuple[list[_Version], Frontier]:
    """Whole times of an input, about `MOST_CHANGES` changes, and up to where that is everything."""
    updates: list[Update] = []
    for part in parts:
        updates += part
        last = part[-1][1] if part else None
        if last is not None and len(updates) > MOST_CHANGES and updates[0][1] < last:
            bound = Frontier(last)
            break
    return _by_time(one.source, [update for update in updates if bound.passed(update[1])]), bound


def _by_time(source: str, updates: Iterable[Update]) -> list[_Version]:
    """Updates in order of time as versions."""
    found: list[_Version] = []
    changes: list[Counted] = []
    for row, time, weight in updates:
        if not found or found[-1].time != time:
            changes = []
            found.append(_Version(source, time, changes))
        changes.append((row, weight))
    return found
