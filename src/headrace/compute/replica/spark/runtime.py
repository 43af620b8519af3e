"""Spark runtime of a replica: views maintained by Spark, with state and versions in a folder.

The replica's thread never waits here. A pool of threads advances dataflows, each by one thread at a time;
others read for peeks; one watches the collections. `answers` and `frontiers` return their results, after a
`wake`. If Spark itself dies, the replica ends, and resumes from the folder when it is started again.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.compute.errors import ComputeError, RuntimeLost, StoreUnavailable
from headrace.compute.protocol.commands import InstanceConfig
from headrace.compute.protocol.dataflow import Dataflow
from headrace.compute.replica.building import PlanDecoder
from headrace.compute.replica.runtime import Answer
from headrace.compute.replica.runtime_core import RuntimeCore, wall_clock_milliseconds
from headrace.compute.replica.spark.dataflow import LazyStore, SparkBuild, SparkDataflow, SparkIndex
from headrace.compute.replica.spark.peeks import SparkPeeks
from headrace.compute.replica.spark.threads import SparkThreads, Stores
from headrace.errors import HeadraceError, SparkProcessDied, SparkUnavailable
from headrace.spark.ticks.failures import quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADVANCING = 2
"""Number of threads that advance dataflows; more would only wait for each other's jobs."""
PEEKING = 4
LOOK_EVERY = 0.2
"""Interval in seconds at which collections are polled if no notification arrives."""


class SparkRuntime(RuntimeCore[SparkIndex, SparkDataflow]):
    """Runtime on Spark; see the module docstring.

    state:  folder that outlives the process, for this replica alone.
    spark:  session to use, which is not stopped; by default a session is started and stopped.
    copies: folder for copies; `state`/copies by default.
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
        clock: Callable[[], int] = wall_clock_milliseconds,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(config, wake, state, copies, PlanDecoder(allow_callables), clock, timer)
        self._lock = threading.RLock()
        self._lost: HeadraceError | None = None
        self._closed = threading.Event()
        self._running: list[SparkDataflow] = []
        self._busy: set[SparkDataflow] = set()
        self._again: set[SparkDataflow] = set()
        self._session = _Session(spark)
        self._store = LazyStore(config.collections)
        self._folder = state / "dataflows"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._found = set(self._folder.iterdir())
        self._stepped = False
        self._advancing = SparkThreads("advance", ADVANCING, config.collections)
        self._peeking = SparkThreads("peek", PEEKING, config.collections)
        self._watching = SparkThreads("watch", 1, config.collections)
        self._peeks = self._spark_peeks = SparkPeeks(
            self._around, self._stash, self._peeking, self._session.get
        )
        self._watching.run_job(self._watch)

    # -- commands -------------------------------------------------------------------------------

    def _build(self, dataflow: Dataflow) -> SparkDataflow:
        uri = self.config.collections
        running = SparkBuild(self._around, dataflow, uri, self._folder, self._store).build()
        with self._lock:
            self._found.discard(running.folder)
            self._running.append(running)
        return running

    def _end(self, running: SparkDataflow) -> None:
        self._advance_soon(running)

    def step(self, seconds: float) -> bool:
        self._stepped = True
        self._stash.expire()
        self._check_not_lost()
        return False

    def close(self) -> None:
        self._closed.set()
        self._peeks.drop_all()
        self._session.cancel_all()
        for threads in (self._watching, self._advancing, self._peeking):
            threads.close()
        for running in self._running:
            running.close(remove=False)
        self._store.close()
        self._stash.close()
        self._session.close()

    # -- dataflows ------------------------------------------------------------------------------

    def _advance_soon(self, running: SparkDataflow) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            if running in self._busy:
                self._again.add(running)
                return
            self._busy.add(running)
        self._advancing.run_job(partial(self._advance, running))

    def _advance(self, running: SparkDataflow, stores: Stores) -> None:
        more, before = False, running.upper
        try:
            if not running.wanted and not running.versions_wanted:
                self._close_one(running)
            elif running.started and not self._waits_for_folder(running):
                if not running.ended:
                    more = running.advance(stores(), self._session.get)
                more |= running.work_exports()
        except StoreUnavailable:
            pass
        except (SparkProcessDied, SparkUnavailable) as error:
            self._lose(error)
        except HeadraceError as error:
            running.fail(error)
        with self._lock:
            self._busy.discard(running)
            more |= running in self._again
            self._again.discard(running)
        if running.upper != before or running.failed is not None:
            self._advanced(running)
        if more:
            self._advance_soon(running)

    def _waits_for_folder(self, running: SparkDataflow) -> bool:
        """Return whether an earlier, dropped dataflow of the same exports must still remove the folder."""
        with self._lock:
            earlier = self._running[: self._running.index(running)]
        return any(other.folder == running.folder for other in earlier)

    def _advanced(self, running: SparkDataflow) -> None:
        """Wake the peeks and dataflows that wait for a dataflow's progress."""
        self._spark_peeks.wake()
        with self._lock:
            others = [other for other in self._running if other is not running]
        for other in others:
            if other.reads(running):
                self._advance_soon(other)
        self.wake()

    def _close_one(self, running: SparkDataflow) -> None:
        with self._lock:
            if running not in self._running:
                return
        running.close(remove=True)
        with self._lock:
            self._running.remove(running)

    def _watch(self, stores: Stores) -> None:
        while not self._closed.is_set():
            try:
                stores().wait(LOOK_EVERY)
            except ComputeError:
                self._closed.wait(LOOK_EVERY)
            with self._lock:
                due = [each for each in self._running if each.wanted or each not in self._busy]
            for running in due:
                self._advance_soon(running)
            self._spark_peeks.wake()
            if self._stepped:
                self._forget_found()

    def _forget_found(self) -> None:
        """Delete stored dataflows not requested before the first step: they were dropped meanwhile."""
        with self._lock:
            found, self._found = self._found, set[Path]()
        for folder in found:
            shutil.rmtree(folder, ignore_errors=True)

    # -- for all threads ------------------------------------------------------------------------

    def _respond(self, answer: Answer) -> None:
        super()._respond(answer)
        self.wake()

    def _lose(self, error: HeadraceError) -> None:
        self._lost = error
        self.wake()

    def _check_not_lost(self) -> None:
        lost = self._lost
        if lost is not None:
            raise RuntimeLost(
                "Spark died, and with it the runtime of this replica",
                why=f"{lost.what}. {lost.why}",
                fix="restart the replica with the same folder: it resumes from there",
            ) from lost


class _Session:
    """Spark session that is either given or started in the background by the runtime."""

    def __init__(self, given: SparkSession | None) -> None:
        self._given = given
        self._started: SparkSession | None = None
        self._quiet = ExitStack()
        self._lock = threading.Lock()
        self._starting = threading.Thread(target=self._start, name="start Spark", daemon=True)
        if given is None:
            self._starting.start()

    def _start(self) -> None:
        with suppress(HeadraceError):  # `get` tries again, and raises it
            self.get()

    def get(self) -> SparkSession:
        """Return the session, waiting for its start."""
        if self._given is not None:
            return self._given
        with self._lock:
            if self._started is None:
                from headrace.spark.session import session

                self._started = session()
                self._quiet.enter_context(quiet(self._started))
            return self._started

    def cancel_all(self) -> None:
        """Cancel the jobs of a session started by the runtime."""
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
    """Ignore errors from stopping a Spark session that has already died."""
    from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]

    with suppress(Py4JError, OSError):
        yield


__all__ = ["SparkRuntime"]
