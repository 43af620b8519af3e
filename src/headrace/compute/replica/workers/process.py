"""Worker process: runs its share of a replica's dataflows on a runtime of its own.

Started by `workers`, with a socket to the replica's process as its only argument. It ends when the socket is
closed, also because the other process was killed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import singledispatchmethod
from multiprocessing.connection import Connection, wait

from headrace.compute.collections.opening import open_collections
from headrace.compute.errors import ResultGone
from headrace.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    Dataflow,
    Id,
    Peek,
    Schedule,
    UpdateConfiguration,
)
from headrace.compute.replica.building import PlanDecoder
from headrace.compute.replica.feeds import StoreWatcher
from headrace.compute.replica.in_process.runtime import InProcessRuntime
from headrace.compute.replica.in_process.ticking import MakeTickExecutor
from headrace.compute.replica.runtime import ReachedFrontiers
from headrace.compute.replica.work_watch import DeathRecord, WorkWatch
from headrace.compute.replica.workers.shard import WorkerShard, divide_flow
from headrace.compute.replica.workers.worker_link import (
    BeginWorker,
    BuildDataflow,
    FetchedRows,
    FetchStashed,
    ForgetAnswers,
    ForgetExport,
    ToWorker,
    WorkerResponse,
)
from headrace.file_system import make_private_folder
from headrace.flow.flow import Flow

SLICE = 0.005
"""Seconds of work between checks for messages."""
IDLE = 0.1
"""Seconds after which an idle worker checks for unsignalled work, such as a store to retry."""


class Worker:
    """Body of a worker process: handles messages, works, and sends responses.

    begin: the configuration. connection: to the replica. bell: becomes readable when collections have
    changed. watch: watch over the work of this thread.
    """

    def __init__(
        self, begin: BeginWorker, connection: Connection, bell: PipeWakeup, watch: WorkWatch
    ) -> None:
        self._begin = begin
        self._connection = connection
        self._divided: set[frozenset[Id]] = set()
        self._heard = 0
        self._reported: Mapping[Id, ReachedFrontiers] = {}
        self._broken: Mapping[Id, bool] = {}
        self._here = InProcessRuntime(
            begin.config,
            bell.ring,
            collections=open_collections(begin.config.collections),
            folder=begin.folder,
            copies=begin.copies,
            plans=PlanDecoder(begin.allow_callables),
            watched=True,
            choose_engine=self._share,
            watch=watch,
        )
        self._here.attach_watcher(StoreWatcher(begin.config.collections, self._here.noticed))

    def handle_message(self, message: ToWorker) -> None:
        """Handle a message from the replica."""
        self._heard += 1
        self._do(message)

    def work(self) -> bool:
        """Work briefly and send new responses. Returns whether there is more to do at once."""
        here = self._here
        busy = here.step(SLICE)
        answers, frontiers = here.take_answers(), dict(here.frontiers())
        broken = here.broken_exports()
        if answers or frontiers != self._reported or broken != self._broken:
            changed = None if frontiers == self._reported else frontiers
            self._connection.send(WorkerResponse(self._heard, answers, changed, broken))
            self._reported, self._broken = frontiers, broken
        return busy

    def close(self) -> None:
        self._here.close()

    def _share(self, dataflow: Dataflow, flow: Flow) -> MakeTickExecutor | None:
        """Return the engine factory for a divided dataflow, or None for an undivided one."""
        if dataflow.export_ids not in self._divided:
            return None
        division = divide_flow(flow, self._begin.workers)
        assert division is not None, "it could be divided when that was decided"
        given = frozenset(i.source for i in dataflow.indexes)
        return lambda _dataflow, _flow: WorkerShard(division, self._begin.number, given)

    @singledispatchmethod
    def _do(self, message: ToWorker) -> None:
        raise AssertionError(f"no message to a worker: {message!r}")

    @_do.register
    def _(self, message: BuildDataflow) -> None:
        ids = message.dataflow.export_ids
        (self._divided.add if message.divided else self._divided.discard)(ids)
        self._here.create_dataflow(message.dataflow)

    @_do.register
    def _(self, message: Schedule) -> None:
        self._here.schedule(message.id)

    @_do.register
    def _(self, message: AllowWrites) -> None:
        self._here.allow_writes(message.id)

    @_do.register
    def _(self, message: AllowCompaction) -> None:
        self._here.allow_compaction(message.id, message.frontier)

    @_do.register
    def _(self, message: Peek) -> None:
        self._here.peek(message)

    @_do.register
    def _(self, message: CancelPeek) -> None:
        self._here.cancel_peek(message.uuid)

    @_do.register
    def _(self, message: UpdateConfiguration) -> None:
        self._here.configure(message.parameters)

    @_do.register
    def _(self, message: ForgetAnswers) -> None:
        self._here.forget_answers()

    @_do.register
    def _(self, message: ForgetExport) -> None:
        self._here.forget(message.id)

    @_do.register
    def _(self, message: FetchStashed) -> None:
        try:
            for rows in self._here.fetch(message.token):
                self._connection.send(FetchedRows(message.number, rows))
        except ResultGone:
            self._connection.send(FetchedRows(message.number, None, gone=True))
            return
        self._connection.send(FetchedRows(message.number, None))


class PipeWakeup:
    """Wakeup callable from any thread, visible to `multiprocessing.connection.wait`."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe()
        os.set_blocking(self._out, False)
        os.set_blocking(self._in, False)

    def fileno(self) -> int:
        return self._out

    def ring(self) -> None:
        with suppress(BlockingIOError):  # it rings already
            os.write(self._in, b"!")

    def silence(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._out, 4096):
                pass


def run(connection: Connection) -> None:
    """Run a worker until the other end of its connection closes."""
    begin = connection.recv()
    assert isinstance(begin, BeginWorker)
    bell = PipeWakeup()
    make_private_folder(begin.folder)
    watch = WorkWatch(deaths=DeathRecord(begin.folder))
    worker = Worker(begin, connection, bell, watch)
    with watch.installed(stops=False):
        _work(worker, connection, bell)


def _work(worker: Worker, connection: Connection, bell: PipeWakeup) -> None:
    try:
        busy = False
        while True:
            wait([connection, bell.fileno()], 0 if busy else IDLE)
            bell.silence()
            while connection.poll():
                worker.handle_message(connection.recv())
            busy = worker.work()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the replica is gone
    finally:
        worker.close()


if __name__ == "__main__":
    # Ctrl-C is for the process of the replica; when that ends, this one does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run(Connection(int(sys.argv[1])))
