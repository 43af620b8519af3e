"""Stored state of a dataflow on Spark, and whether a later process can resume from it.

    dataflow.json        identity of the dataflow
    engine/              the checkpoint of its flow
    sinks/<sink>/        the files of a sink

A tick's commit records the time it reaches, the current files, and what was read last, so a tick and its
times are committed atomically.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.compute.collections.store import Collections
from headrace.compute.frontier import Frontier
from headrace.compute.protocol.commands import DataflowLimits
from headrace.compute.protocol.responses import Counted, Update
from headrace.compute.replica.spark.inputs import Inputs, ReadSummary, Resumability, Versions
from headrace.errors import CheckpointDamaged, FlowChanged
from headrace.expr.typing_rules import CodeBounds
from headrace.flow.flow import Flow
from headrace.operators.endpoints import SourceOperator
from headrace.spark.external_ticks import DrivenFlow, Session, TimedRows
from headrace.spark.ticks.output import ChangeFiles
from headrace.tables.change_files import LAST_HASH


class StoredState:
    """Stored state of a dataflow, in a folder. Used by one thread at a time.

    identity: description that must be equal for a process to resume from the state.
    limits:   those of rows and rounds are kept to.
    is_open:  whether it can be run. upper: frontier reached when it was opened; None for a new state.
    """

    def __init__(
        self,
        folder: Path,
        identity: Mapping[str, Any],
        flow: Flow,
        inputs: Inputs,
        versions: Mapping[str, Versions],
        as_of: int,
        limits: DataflowLimits = DataflowLimits(),
    ) -> None:
        self.folder = folder
        self.is_open = False
        self.upper: Frontier | None = None
        self._identity = json.dumps(identity, sort_keys=True)
        self._flow = flow
        self._inputs = inputs
        self._versions = versions
        self._as_of = as_of
        self._bounds = CodeBounds(limits.tick_rows, limits.rounds)
        self._driven: DrivenFlow | None = None
        self._begun = False

    @property
    def append(self) -> Mapping[str, bool]:
        """Append-only flag of each source, by name."""
        assert self._driven is not None
        return self._driven.append

    def open(self, store: Collections, spark: Session) -> bool:
        """Prepare to run. Returns False if the inputs have not caught up with the state's position.

        At the first call, state that cannot be resumed is removed. Raises `CheckpointDamaged` later on.
        """
        if self._begun:
            self._open_again(spark)
            return True
        described = self.folder / "dataflow.json"
        if not (described.is_file() and described.read_text() == self._identity):
            self._make_new()
        goes_on = self._try(store, spark)
        if goes_on is Resumability.NO:
            self._make_new()
            goes_on = self._try(store, spark)
        self._begun = self.is_open = goes_on is Resumability.YES
        return self.is_open

    def run(self, spark: Session, given: Iterable[TimedRows], times: Sequence[int], upper: Frontier) -> None:
        """Run a tick up to `upper`. After an exception, close the state and open it again."""
        driven = self._driven
        assert driven is not None
        for versions in self._versions.values():
            versions.merge(spark, driven.last_tick + 1)
        sinks = {
            sink: {"files": versions.file_names, "merged_to": versions.merged_to}
            for sink, versions in self._versions.items()
        }
        # What is seen is known when all is given, which is before the commit.
        driven.run(given, times, {"upper": upper.time, "sinks": sinks, "seen": self._inputs.seen})
        for sink, versions in self._versions.items():
            versions.add(driven.outputs.get(sink, ()))

    def close(self) -> None:
        self.is_open = False
        driven, self._driven = self._driven, None
        if driven is not None:
            driven.close()

    def remove(self) -> None:
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make_new(self) -> None:
        self.remove()
        self.folder.mkdir(parents=True)
        (self.folder / "dataflow.json").write_text(self._identity)

    def _try(self, store: Collections, spark: Session) -> Resumability:
        try:
            driven = self._driven = self._driven or self._new_driven(spark)
            if not driven.last_tick:
                return Resumability.YES
            goes_on = self._goes_on(driven.positions, store)
            if goes_on is Resumability.YES:
                self._restore(driven)
            return goes_on
        except (FlowChanged, CheckpointDamaged):
            return Resumability.NO

    def _goes_on(self, positions: Mapping[str, Any], store: Collections) -> Resumability:
        if any(positions["sinks"][sink]["merged_to"] > self._as_of for sink in self._versions):
            return Resumability.NO
        seen = {source: ReadSummary(*read) for source, read in positions["seen"].items()}
        upper = Frontier(positions["upper"])
        found = [one.can_resume(store, upper, seen.get(one.source)) for one in self._inputs.imports]
        return max(found, key=lambda one: one.value, default=Resumability.YES)

    def _open_again(self, spark: Session) -> None:
        driven = self._driven = self._new_driven(spark)
        if driven.last_tick:
            self._restore(driven)
        self.is_open = True

    def _new_driven(self, spark: Session) -> DrivenFlow:
        targets = {sink: ChangeFiles(str(v.folder), v.key) for sink, v in self._versions.items()}
        return DrivenFlow(self._flow, spark, self.folder / "engine", targets, bounds=self._bounds)

    def _restore(self, driven: DrivenFlow) -> None:
        positions: dict[str, Any] = driven.positions
        for sink, versions in self._versions.items():
            kept = positions["sinks"][sink]
            versions.restore([*kept["files"], *driven.outputs.get(sink, ())], kept["merged_to"])
        self._inputs.seen.update({source: ReadSummary(*read) for source, read in positions["seen"].items()})
        self.upper = Frontier(positions["upper"])


def passthrough_sources(flow: Flow) -> dict[str, str] | None:
    """Map each sink to the source it copies unchanged; None if the flow does anything else."""
    graph = flow.graph()
    found: dict[str, str] = {}
    for sink, node in graph.sinks.items():
        (above,) = graph.nodes[node].inputs
        operator = graph.nodes[above].operator
        if not isinstance(operator, SourceOperator) or operator.append:
            return None
        found[sink] = operator.name
    return found


class LastTickChanges(Versions):
    """Changes of the last tick, for exports that consume them at once. Nothing else reads them."""

    def __init__(self, as_of: int) -> None:
        super().__init__(Path(), (), as_of)
        self.updates: list[Update] = []

    def scan(self, time: int, low: int = 0, high: int = LAST_HASH) -> list[Counted]:
        return [(row, weight) for row, at, weight in self.updates if at <= time]

    def changes(self, lower: int, upper: Frontier) -> list[Update]:
        return [update for update in self.updates if lower <= update[1] and upper.has_passed(update[1])]


class PassthroughState(StoredState):
    """State of a pass-through dataflow, which stores nothing: its exports restart with each connection."""

    def __init__(
        self,
        flow: Flow,
        inputs: Inputs,
        versions: Mapping[str, LastTickChanges],
        sources: Mapping[str, str],
        as_of: int,
    ) -> None:
        super().__init__(Path(), {}, flow, inputs, versions, as_of)
        self._passed = [(source, versions[sink]) for sink, source in sources.items() if sink in versions]
        self._sources = frozenset(one.source for one in inputs.imports)

    @property
    def append(self) -> Mapping[str, bool]:
        return dict.fromkeys(self._sources, False)

    def open(self, store: Collections, spark: Session) -> bool:
        self.is_open = True
        return True

    def run(self, spark: Session, given: Iterable[TimedRows], times: Sequence[int], upper: Frontier) -> None:
        found: dict[str, list[Update]] = {source: [] for source in self._sources}
        for source, number, rows in given:
            found[source] += [(row[:-1], times[number], row[-1]) for row in rows]
        for source, versions in self._passed:
            versions.updates = sorted(found[source], key=lambda update: update[1])

    def remove(self) -> None:
        self.close()
