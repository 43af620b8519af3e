"""The runtime of the in-process engine: all dataflows of a replica in one thread, a slice at a time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir

from penstock.compute.collections.store import Collections
from penstock.compute.errors import StoreUnavailable
from penstock.compute.frontier import END, Frontier
from penstock.compute.protocol.commands import InstanceConfig, Parameters, Peek
from penstock.compute.protocol.dataflow import Dataflow, Id
from penstock.compute.protocol.responses import Counted, PeekResponse, Stashed, Status
from penstock.compute.replica.arrangement import Arrangement
from penstock.compute.replica.building import Builder
from penstock.compute.replica.dataflows import RunningDataflow
from penstock.compute.replica.export_writer import ExportWriter
from penstock.compute.replica.feeds import Feeds
from penstock.compute.replica.gc_policy import GcPolicy
from penstock.compute.replica.index_export import IndexOutlet
from penstock.compute.replica.introspection import Introspection
from penstock.compute.replica.peek_stash import PeekStash
from penstock.compute.replica.peeks import Peeks
from penstock.compute.replica.plans import Plans
from penstock.compute.replica.runtime import Answer, Reached, Runtime
from penstock.compute.replica.scheduler import DataflowScheduler
from penstock.compute.replica.tick_executor import ChooseTicking
from penstock.compute.replica.watching import Watcher
from penstock.compute.replica.writing import CollectionOutlet

PEEK_SLICE = 0.002
"""Seconds that a peek works before the dataflows have their turn."""


def milliseconds() -> int:
    """The time of the wall clock."""
    return time.time_ns() // 1_000_000


_GONE = Reached(END, END, END, END)


class InProcessRuntime(Runtime):
    """Runs dataflows on the in-process engine.

    collections: that they read and write; used by this thread only.
    folder:  for copies (`copies/`) and large results (`stash/`); by default a temporary one,
        made when it is needed.
    watched: somebody calls `noticed` when collections may have changed; else every step looks.
    clock:   milliseconds. timer: seconds, by which work is divided into slices.
    memory:  the bytes that the process has, where that is to be told.
    choose_engine: what runs the flow of a dataflow; where it is left out, or says None, an engine whose joins
        read indexes in place.
    """

    def __init__(
        self,
        config: InstanceConfig,
        wake: Callable[[], None],
        *,
        collections: Collections,
        folder: Path | None = None,
        copies: Path | None = None,
        clock: Callable[[], int] = milliseconds,
        timer: Callable[[], float] = time.perf_counter,
        plans: Plans | None = None,
        watched: bool = False,
        memory: Callable[[], int] | None = None,
        choose_engine: ChooseTicking | None = None,
    ) -> None:
        super().__init__(config, wake)
        self._store = collections
        self._temporary = Path(gettempdir()) / f"penstock-replica-{token_hex(8)}" if folder is None else None
        folder = folder or self._temporary
        assert folder is not None
        self._timer = timer
        self._parameters = Parameters()
        self._answers: list[Answer] = []
        self._feeds = Feeds(collections)
        self._indexes: dict[Id, Arrangement] = {}
        self._stash = PeekStash(folder / "stash", clock)
        plans = plans or Plans()
        self._peeks = Peeks(
            self._indexes,
            self._feeds,
            plans,
            lambda: self._parameters,
            self._stash,
            self._answers.append,
            timer,
        )
        self._builder = Builder(
            plans,
            self._feeds,
            self._indexes,
            copies or folder / "copies",
            lambda: self._parameters,
            self._answers.append,
            lambda id, text: self._answers.append(Status(id, text)),
            timer,
            choose_engine,
        )
        self._turns = DataflowScheduler(timer)
        self._exports: dict[Id, tuple[RunningDataflow, ExportWriter]] = {}
        self._unscheduled: dict[Id, RunningDataflow] = {}
        self._watched = watched
        self._watcher: Watcher | None = None
        self._rubbish: GcPolicy | None = None
        self._news = True
        self._introspection = Introspection(config.introspection, clock, memory)
        self._last_step = 0.0

    # -- commands -------------------------------------------------------------------------------

    def configure(self, parameters: Parameters) -> None:
        self._parameters = parameters

    def create_dataflow(self, dataflow: Dataflow) -> None:
        running = self._builder.build(dataflow)
        self._turns.add(running)
        self._turns.moved = True
        for outlet in running.outlets:
            self._exports[outlet.id] = (running, outlet)
            self._unscheduled[outlet.id] = running
            if isinstance(outlet, IndexOutlet):
                self._indexes[outlet.id] = outlet.index

    def schedule(self, id: Id) -> None:
        running = self._unscheduled.pop(id, None)
        if running is not None:
            self._start_if_scheduled(running)

    def _start_if_scheduled(self, running: RunningDataflow) -> None:
        """Let it run, unless an export that is wanted has still to be scheduled."""
        if not running.dataflow.export_ids & self._unscheduled.keys():
            running.start()
            self._turns.give(running)

    def allow_writes(self, id: Id) -> None:
        running, outlet = self._exports[id]
        if isinstance(outlet, CollectionOutlet):
            outlet.allow()
            self._turns.give(running)

    def allow_compaction(self, id: Id, frontier: Frontier) -> None:
        running, outlet = self._exports[id]
        if frontier.ended:
            self._drop(running, outlet)
        elif isinstance(outlet, IndexOutlet):
            outlet.index.allow_compaction(frontier)
            self._turns.tidy(outlet.index)

    def _drop(self, running: RunningDataflow, outlet: ExportWriter) -> None:
        if outlet.id not in running.wanted:
            return
        self._turns.moved = True
        running.wanted.discard(outlet.id)
        was_waited_for = self._unscheduled.pop(outlet.id, None) is not None
        outlet.drop()
        if isinstance(outlet, IndexOutlet):
            outlet.index.allow_compaction(END)
            del self._indexes[outlet.id]
            self._peeks.dropped(outlet.id)
        if not running.wanted:
            self._turns.end(running)
            if self._rubbish is not None and running.makes:
                self._rubbish.dropped()
        elif was_waited_for:
            self._start_if_scheduled(running)

    def peek(self, peek: Peek) -> None:
        self._peeks.ask(peek)

    def cancel_peek(self, uuid: bytes) -> None:
        if self._peeks.cancel(uuid):
            # While a step works, nobody can cancel anything.
            self._introspection.canceled(self._last_step)

    def forget_answers(self) -> None:
        self._peeks.forget()
        for answer in self._answers:
            if isinstance(answer, PeekResponse) and isinstance(answer.answer, Stashed):
                self._stash.forget(answer.answer.token)
        self._answers.clear()

    def forget(self, id: Id) -> None:
        self._exports.pop(id, None)

    def fetch(self, token: bytes) -> Iterator[list[Counted]]:
        """The rows of a stashed result, in parts; then it is gone. Raises `ResultGone`."""
        return self._stash.fetch(token)

    # -- work -----------------------------------------------------------------------------------

    def watch(self, watcher: Watcher) -> None:
        """Let a thread call `noticed`, until this is closed."""
        self._watcher = watcher

    def collect(self, rubbish: GcPolicy) -> None:
        """Look after the garbage of the process, until this is closed."""
        self._rubbish = rubbish

    def noticed(self) -> None:
        """Collections may have changed. May be called by any thread."""
        self._news = True
        self.wake()

    def moved(self) -> bool:
        return self._turns.moved

    def step(self, seconds: float) -> bool:
        began = self._timer()
        until = began + seconds
        self._stash.expire()
        if self._news or not self._watched:
            self._look()
        while True:
            worked = self._peeks.slice(PEEK_SLICE)
            worked |= self._turns.slice()
            worked |= self._turns.tidy_slice()
            if self._rubbish is not None:
                self._rubbish.slice(worked)
            now = self._timer()
            if not worked or now > until:
                break
        self._last_step = now - began
        self._answers += self._introspection.look((r for r, _ in self._exports.values()), len(self._peeks))
        return worked

    def _look(self) -> None:
        self._feeds.keep(self._turns.collections | self._peeks.collections)
        self._news = False
        try:
            self._turns.risen(self._feeds.look())
        except StoreUnavailable:
            self._news = True

    # -- what there is to tell ------------------------------------------------------------------

    def frontiers(self) -> Mapping[Id, Reached]:
        self._turns.moved = False
        found: dict[Id, Reached] = {}
        for id, (running, outlet) in self._exports.items():
            reached = outlet.reached(running.upper, running.read_upper)
            if reached is not None:
                found[id] = reached if id in running.wanted else _GONE
        return found

    def answers(self) -> list[Answer]:
        answers = list(self._answers)
        self._answers.clear()
        return answers

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.stop()
        if self._rubbish is not None:
            self._rubbish.close()
        self._peeks.forget()
        self._stash.close()
        self._store.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def broken(self) -> Sequence[Id]:
        if self._news or not self._watched:
            self._look()
        return [id for id, (running, _) in self._exports.items() if running.broken and id in running.wanted]
