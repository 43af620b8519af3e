"""Core of the runtimes that execute dataflows: commands, exports, frontiers, peeks, responses.

A subclass provides the store of indexes, and runs the dataflows in the replica's thread or on Spark.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from headrace.compute.frontier import END, Frontier
from headrace.compute.protocol.commands import Dataflow, Id, InstanceConfig, Parameters, Peek
from headrace.compute.protocol.responses import Counted, PeekResponse, Stashed
from headrace.compute.replica.building import PlanDecoder, RuntimeContext
from headrace.compute.replica.durable_exports import CollectionWriter
from headrace.compute.replica.exports import ExportWriter, Index, IndexWriter
from headrace.compute.replica.feeds import DataflowRun
from headrace.compute.replica.peeks import PeekStash, PendingPeeks
from headrace.compute.replica.runtime import Answer, ReachedFrontiers, ReplicaRuntime
from headrace.compute.replica.work_watch import WorkWatch

IndexT = TypeVar("IndexT", bound=Index)
RunT = TypeVar("RunT", bound=DataflowRun)
_DROPPED = ReachedFrontiers(END, END, END, END)


def wall_clock_milliseconds() -> int:
    """Return the wall-clock time in milliseconds."""
    return time.time_ns() // 1_000_000


class RuntimeCore(ReplicaRuntime, Generic[IndexT, RunT]):
    """Core shared by runtimes. Commands come from one thread, responses from any.

    folder: for copies (`copies/`) and large results (`stash/`). clock: milliseconds. timer: seconds.
    """

    _peeks: PendingPeeks[IndexT, Any]

    def __init__(
        self,
        config: InstanceConfig,
        wake: Callable[[], None],
        folder: Path,
        copies: Path | None,
        plans: PlanDecoder,
        clock: Callable[[], int],
        timer: Callable[[], float],
        watch: WorkWatch | None = None,
    ) -> None:
        super().__init__(config, wake)
        self._parameters = Parameters()
        self._responses: deque[Answer] = deque()
        self._indexes: dict[Id, IndexT] = {}
        self._exports: dict[Id, tuple[RunT, ExportWriter]] = {}
        self._unscheduled: dict[Id, RunT] = {}
        self._stash = PeekStash(folder / "stash", clock)
        self._around = RuntimeContext(
            plans,
            self._indexes,
            copies or folder / "copies",
            lambda: self._parameters,
            self._respond,
            timer,
            watch or WorkWatch(),
        )

    @abstractmethod
    def _build(self, dataflow: Dataflow) -> RunT:
        """Build a dataflow without starting it; build a failed one if an error occurs."""

    @abstractmethod
    def _advance_soon(self, running: RunT) -> None:
        """Schedule a dataflow that may have work."""

    @abstractmethod
    def _end(self, running: RunT) -> None:
        """End a dataflow whose exports are all dropped, once it has no readers."""

    def _index_of(self, export: ExportWriter) -> IndexT | None:
        return export.index if isinstance(export, IndexWriter) else None  # type: ignore[return-value]

    def configure(self, parameters: Parameters) -> None:
        self._parameters = parameters

    def create_dataflow(self, dataflow: Dataflow) -> None:
        running = self._build(dataflow)
        for export in running.exports:
            self._exports[export.id] = (running, export)
            self._unscheduled[export.id] = running
            if (index := self._index_of(export)) is not None:
                self._indexes[export.id] = index

    def schedule(self, id: Id) -> None:
        running = self._unscheduled.pop(id, None)
        if running is not None:
            self._start_if_scheduled(running)

    def _start_if_scheduled(self, running: RunT) -> None:
        """Start a dataflow once all its exports are scheduled."""
        if not running.dataflow.export_ids & self._unscheduled.keys():
            running.started = True
            self._advance_soon(running)

    def allow_writes(self, id: Id) -> None:
        running, export = self._exports[id]
        if isinstance(export, CollectionWriter):
            export.allow_writes()
            self._advance_soon(running)

    def allow_compaction(self, id: Id, frontier: Frontier) -> None:
        running, export = self._exports[id]
        if id not in running.wanted:
            return
        export.allow_compaction(frontier)
        if frontier.ended:
            self._drop(running, export)

    def _drop(self, running: RunT, export: ExportWriter) -> None:
        id = export.id
        was_waited_for = self._unscheduled.pop(id, None) is not None
        running.drop(export)
        if self._indexes.pop(id, None) is not None:
            self._peeks.refuse_dropped(id)
        if not running.wanted:
            self._end(running)
        elif was_waited_for:
            self._start_if_scheduled(running)

    def peek(self, peek: Peek) -> None:
        self._peeks.ask(peek)

    def cancel_peek(self, uuid: bytes) -> None:
        self._peeks.cancel(uuid)

    def forget_answers(self) -> None:
        self._peeks.drop_all()
        for answer in self.take_answers():
            if isinstance(answer, PeekResponse) and isinstance(answer.answer, Stashed):
                self._stash.forget(answer.answer.token)

    def forget(self, id: Id) -> None:
        self._exports.pop(id, None)

    def frontiers(self) -> Mapping[Id, ReachedFrontiers]:
        found: dict[Id, ReachedFrontiers] = {}
        for id, (running, export) in self._exports.items():
            reached = export.reached_frontiers(running.upper, running.read_upper)
            if reached is not None:
                found[id] = reached if id in running.wanted else _DROPPED
        return found

    def take_answers(self) -> list[Answer]:
        # Popped one by one: other threads may add to it meanwhile.
        return [self._responses.popleft() for _ in range(len(self._responses))]

    def broken_exports(self) -> Mapping[Id, bool]:
        return {
            id: running.fell_behind
            for id, (running, _) in self._exports.items()
            if running.broken and id in running.wanted
        }

    def fetch(self, token: bytes) -> Iterator[Sequence[Counted]]:
        """Read the rows of a stashed result in parts, once. Raises `ResultGone`."""
        return self._stash.fetch(token)

    def _respond(self, answer: Answer) -> None:
        self._responses.append(answer)
