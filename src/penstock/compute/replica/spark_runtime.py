"""The Spark runtime of a replica: views kept by Spark, with state and versions in a folder.

The replica's thread never waits here. Threads of a crew advance dataflows, each by one at a time; others
read for peeks; one watches the collections. What they find is told by `answers` and `frontiers`, after a
`wake`. Where Spark itself dies, the replica ends, and goes on from the folder when it is started again.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.compute.collections.store import Collections
from penstock.compute.errors import ComputeError, RuntimeLost, StoreUnavailable, UnknownName
from penstock.compute.frontier import END, Frontier
from penstock.compute.plans import schema_from_bytes
from penstock.compute.protocol.commands import InstanceConfig, Parameters, Peek
from penstock.compute.protocol.dataflow import Dataflow, Id
from penstock.compute.protocol.responses import Counted, PeekResponse, Stashed
from penstock.compute.replica.export_writer import ExportWriter
from penstock.compute.replica.peek_stash import PeekStash
from penstock.compute.replica.plans import Plans
from penstock.compute.replica.runtime import Answer, Reached, Runtime
from penstock.compute.replica.spark_building import Built, SparkBuilder, SparkIndex
from penstock.compute.replica.spark_peeks import SparkPeeks
from penstock.compute.replica.spark_threads import SparkThreads, Stores
from penstock.compute.replica.writing import CollectionOutlet
from penstock.errors import PenstockError, SparkProcessDied, SparkUnavailable
from penstock.expr.types import Schema
from penstock.spark.ticks.deaths import quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADVANCING = 2
"""Threads that advance dataflows: more would only wait for each other's jobs."""
PEEKING = 4
LOOK_EVERY = 0.2
"""Seconds between two looks at the collections where nothing is heard of them."""
_ENDED = Reached(END, END, END, END)


@dataclass(slots=True)
class _Work:
    """A dataflow at work. left: exports that are not dropped, and those not scheduled."""

    built: Built
    left: set[Id]
    unscheduled: set[Id]
    busy: bool = False
    again: bool = False
    closing: bool = False

    def wait_no_more(self, id: Id) -> None:
        """An export is scheduled, or is dropped: the dataflow starts when it waits for none."""
        self.unscheduled.discard(id)
        if self.left and not self.unscheduled:
            self.built.running.started = True


class SparkRuntime(Runtime):
    """See the module's text.

    state:  a folder that outlives the process; no other replica has it.
    spark:  the session to use, which is then left as it is; without one a session is started, and ended.
    copies: the folder that copies are written to; `state`/copies where none is given.
    clock:  milliseconds. timer: seconds.
    """

    def __init__(
        self,
        config: InstanceConfig,
        wake: Callable[[], None],
        *,
        state: Path,
        spark: SparkSession | None = None,
        copies: Path | None = None,
        allow_callables: bool = False,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(config, wake)
        self._lock = threading.RLock()
        self._told: deque[Answer] = deque()
        self._parameters = Parameters()
        self._lost: PenstockError | None = None
        self._closed = threading.Event()
        self._indexes: dict[Id, SparkIndex] = {}
        self._work: list[_Work] = []
        self._by_id: dict[Id, _Work] = {}
        self._ended: set[Id] = set()
        self._session = _Session(spark)
        self._stash = PeekStash(state / "stash", clock)
        self._folder = state / "dataflows"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._found = set(self._folder.iterdir())
        self._stepped = False
        plans = Plans(allow_callables)
        self._builder = SparkBuilder(
            config, self._folder, copies or state / "copies", plans, self._indexes, self._settings,
            self._tell, timer,
        )  # fmt: skip
        self._advancing = SparkThreads("advance", ADVANCING, config.collections)
        self._peeking = SparkThreads("peek", PEEKING, config.collections)
        self._watching = SparkThreads("watch", 1, config.collections)
        self._peeks = SparkPeeks(
            self._peeking,
            self._indexes,
            _schema_of,
            plans,
            self._settings,
            self._stash,
            self._tell,
            self._session.get,
        )
        self._watching.do(self._watch)

    # -- commands -------------------------------------------------------------------------------

    def configure(self, parameters: Parameters) -> None:
        self._parameters = parameters

    def create_dataflow(self, dataflow: Dataflow) -> None:
        built = self._builder.build(dataflow)
        work = _Work(built, set(dataflow.export_ids), set(dataflow.export_ids))
        with self._lock:
            self._found.discard(built.folder)
            self._indexes.update(built.indexes)
            self._work.append(work)
            self._by_id.update(dict.fromkeys(dataflow.export_ids, work))

    def schedule(self, id: Id) -> None:
        work = self._by_id[id]
        work.wait_no_more(id)
        if work.built.running.started:
            self._advance_soon(work)

    def allow_writes(self, id: Id) -> None:
        work = self._by_id[id]
        outlet = work.built.outlets.get(id)
        if isinstance(outlet, CollectionOutlet):
            outlet.allow()
            self._advance_soon(work)

    def allow_compaction(self, id: Id, frontier: Frontier) -> None:
        work = self._by_id.get(id)
        if work is None or id not in work.left:
            return
        index = work.built.indexes.get(id)
        if index is not None:
            index.allow_compaction(frontier)
        elif (hold := work.built.holds.get(id)) is not None and frontier.time is not None:
            hold.move(frontier.time)
        if frontier.ended:
            self._drop(work, id)

    def peek(self, peek: Peek) -> None:
        self._peeks.ask(peek)

    def cancel_peek(self, uuid: bytes) -> None:
        self._peeks.cancel(uuid)

    def forget_answers(self) -> None:
        self._peeks.forget()
        for answer in self.answers():
            if isinstance(answer, PeekResponse) and isinstance(answer.answer, Stashed):
                self._stash.forget(answer.answer.token)

    def forget(self, id: Id) -> None:
        self._ended.discard(id)

    # -- what there is to tell ------------------------------------------------------------------

    def step(self, seconds: float) -> bool:
        self._stepped = True
        self._stash.expire()
        self._check_not_lost()
        return False

    def frontiers(self) -> Mapping[Id, Reached]:
        found: dict[Id, Reached] = dict.fromkeys(self._ended, _ENDED)
        for work in list(self._work):
            running = work.built.running
            read = running.read_upper
            for id in work.left:
                index = work.built.indexes.get(id)
                if index is not None:
                    upper = index.versions.upper
                    found[id] = Reached(upper, read, upper, index.since)
                else:
                    outlet = work.built.outlets[id]
                    reached = outlet.reached(running.upper, read)
                    if reached is not None:
                        found[id] = reached
        return found

    def answers(self) -> list[Answer]:
        with self._lock:
            told = list(self._told)
            self._told.clear()
        return told

    def fetch(self, token: bytes) -> Iterator[list[Counted]]:
        """Stashed rows. Raises `ResultGone`."""
        return self._stash.fetch(token)

    def close(self) -> None:
        self._closed.set()
        self._peeks.forget()
        self._session.cancel_all()
        for crew in (self._watching, self._advancing, self._peeking):
            crew.close()
        for work in self._work:
            work.built.running.close(remove=False)
            work.built.store.close()
        self._stash.close()
        self._session.close()

    # -- dataflows ------------------------------------------------------------------------------

    def _drop(self, work: _Work, id: Id) -> None:
        outlet: ExportWriter | None = work.built.outlets.get(id)
        with self._lock:
            work.left.discard(id)
            work.wait_no_more(id)
            self._by_id.pop(id, None)
            self._indexes.pop(id, None)
            if id in work.built.indexes or id in work.built.holds:
                self._ended.add(id)
        if outlet is not None:
            work.built.running.drop(outlet)
            hold = work.built.holds.get(id)
            if hold is not None:
                hold.release()
        self._peeks.dropped(id)
        self._advance_soon(work)

    def _advance_soon(self, work: _Work) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            if work.busy:
                work.again = True
                return
            work.busy = True
        self._advancing.do(partial(self._advance, work))

    def _advance(self, work: _Work, stores: Stores) -> None:
        more, running = False, work.built.running
        before = running.upper
        try:
            if not work.left and not running.versions_wanted:
                self._close_work(work)
            elif running.started:
                if not running.ended:
                    more = running.advance(stores(), self._session.get)
                more |= running.work_outlets()
        except StoreUnavailable:
            pass
        except (SparkProcessDied, SparkUnavailable) as error:
            self._lose(error)
        except PenstockError as error:
            running.fail(error)
        with self._lock:
            work.busy = False
            more, work.again = more or work.again, False
        if running.upper != before or running.failed is not None:
            self._news(work)
        if more:
            self._advance_soon(work)

    def _news(self, work: _Work) -> None:
        """It has advanced: who waited for that goes on."""
        self._peeks.wake()
        with self._lock:
            others = [other for other in self._work if other is not work]
        for other in others:
            if other.built.running.reads(work.built.running):
                self._advance_soon(other)
        self.wake()

    def _close_work(self, work: _Work) -> None:
        with self._lock:
            if work not in self._work:
                return
            self._work.remove(work)
        work.built.running.close(remove=True)
        work.built.store.close()

    def _watch(self, stores: Stores) -> None:
        while not self._closed.is_set():
            try:
                stores().wait(LOOK_EVERY)
            except ComputeError:
                self._closed.wait(LOOK_EVERY)
            with self._lock:
                work = list(self._work)
            for one in work:
                if one.left or not one.busy:
                    self._advance_soon(one)
            self._peeks.wake()
            if self._stepped:
                self._forget_found()

    def _forget_found(self) -> None:
        """Nobody has asked for these dataflows before the first step: they were dropped meanwhile."""
        with self._lock:
            found, self._found = self._found, set[Path]()
        for folder in found:
            shutil.rmtree(folder, ignore_errors=True)

    # -- for all threads ------------------------------------------------------------------------

    def _tell(self, answer: Answer) -> None:
        with self._lock:
            self._told.append(answer)
        self.wake()

    def _settings(self) -> Parameters:
        return self._parameters

    def _lose(self, error: PenstockError) -> None:
        self._lost = error
        self.wake()

    def _check_not_lost(self) -> None:
        lost = self._lost
        if lost is not None:
            raise RuntimeLost(
                "Spark is gone, and with it the runtime of this replica",
                why=f"{lost.what}. {lost.why}",
                fix="start the replica again with the same folder: it goes on from there",
            ) from lost


def _schema_of(store: Collections, id: Id) -> Schema:
    """The schema of a collection. Raises `UnknownName` where there is none."""
    description = store.all().get(id)
    if description is None:
        raise UnknownName(f"there is no collection {id}", name=id)
    return schema_from_bytes(description)


class _Session:
    """The Spark session: one that is given, or one of our own, which starts while others can work already."""

    def __init__(self, given: SparkSession | None) -> None:
        self._given = given
        self._started: SparkSession | None = None
        self._quiet = ExitStack()
        self._lock = threading.Lock()
        self._starting = threading.Thread(target=self._start, name="start Spark", daemon=True)
        if given is None:
            self._starting.start()

    def _start(self) -> None:
        with suppress(PenstockError):  # `get` tries again, and raises it
            self.get()

    def get(self) -> SparkSession:
        """It. Raises `SparkUnavailable`."""
        if self._given is not None:
            return self._given
        with self._lock:
            if self._started is None:
                from penstock.spark.session import session

                self._started = session()
                self._quiet.enter_context(quiet(self._started))
            return self._started

    def cancel_all(self) -> None:
        """End the jobs of a session of our own."""
        started: Any = self._started
        if started is not None:
            with _gone_already():
                started.sparkContext.cancelAllJobs()

    def close(self) -> None:
        if self._given is None:
            self._starting.join()
        if self._started is not None:
            with _gone_already():
                self._started.stop()
            self._quiet.close()


@contextmanager
def _gone_already() -> Generator[None]:
    """What cannot be ended because it has died is ended."""
    from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]

    with suppress(Py4JError, OSError):
        yield


__all__ = ["SparkRuntime"]
