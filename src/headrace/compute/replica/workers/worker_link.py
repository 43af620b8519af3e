"""Replica's end of a worker: its process, and the messages exchanged over a pipe.

A worker receives the commands of the protocol and the calls of a runtime. Each is counted, and a worker
reports how many it has received, so that a response can be ordered against the commands sent so far.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import TypeAlias

from headrace.compute.errors import ConnectionBroken, ResultGone
from headrace.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    Dataflow,
    Id,
    InstanceConfig,
    Peek,
    Schedule,
    UpdateConfiguration,
)
from headrace.compute.protocol.responses import Counted
from headrace.compute.replica.runtime import Answer, ReachedFrontiers


@dataclass(frozen=True, slots=True)
class BeginWorker:
    """First message to a worker: its number and configuration."""

    number: int
    workers: int
    config: InstanceConfig
    folder: Path
    copies: Path
    allow_callables: bool


@dataclass(frozen=True, slots=True)
class BuildDataflow:
    """Create a dataflow. divided: whether it runs on all workers, each with a share of the rows."""

    dataflow: Dataflow
    divided: bool


@dataclass(frozen=True, slots=True)
class ForgetAnswers:
    """Drop pending answers because the replica has a new connection."""


@dataclass(frozen=True, slots=True)
class ForgetExport:
    """Forget a dropped export whose final frontiers have been reported."""

    id: Id


@dataclass(frozen=True, slots=True)
class FetchStashed:
    """Request for the rows of a stashed result. number: number of the request."""

    number: int
    token: bytes


ToWorker: TypeAlias = (
    BeginWorker
    | BuildDataflow
    | Schedule
    | AllowWrites
    | AllowCompaction
    | Peek
    | CancelPeek
    | UpdateConfiguration
    | ForgetAnswers
    | ForgetExport
    | FetchStashed
)


@dataclass(frozen=True, slots=True)
class WorkerResponse:
    """Response of a worker.

    heard:     number of messages that the worker had received.
    frontiers: frontiers of all its exports, or None if unchanged. broken: see `Runtime.broken_exports`.
    """

    heard: int
    answers: Sequence[Answer]
    frontiers: Mapping[Id, ReachedFrontiers] | None = None
    broken: Mapping[Id, bool] = field(default_factory=dict[Id, bool])


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """Chunk of a stashed result's rows; None at the end, or if the result does not exist (`gone`)."""

    number: int
    rows: Sequence[Counted] | None
    gone: bool = False


FromWorker: TypeAlias = WorkerResponse | FetchedRows


_LAST_WORDS = 5.0
"""Seconds for a worker to exit on its own before it is killed."""


class WorkerLink:
    """Started worker process. Used by one thread, unless stated otherwise.

    wake: called from another thread when a response has arrived or the worker has ended.
    sent: number of messages sent to the worker. heard: number it had received at its last response.
    frontiers, broken: state of all its exports as of its last responses.
    """

    def __init__(self, begin: BeginWorker, wake: Callable[[], None]) -> None:
        self.sent = 0
        self.heard = 0
        self.frontiers: Mapping[Id, ReachedFrontiers] = {}
        self.broken: Mapping[Id, bool] = {}
        self._number = begin.number
        self._wake = wake
        self._received: deque[WorkerResponse] = deque()
        self._fetching: dict[int, SimpleQueue[FetchedRows | None]] = {}
        self._ended = threading.Event()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "headrace.compute.replica.workers.process",
                    str(theirs.fileno()),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )
        self._socket = ours
        self._connection = Connection(os.dup(ours.fileno()))
        self._thread = threading.Thread(target=self._listen, name="headrace-worker", daemon=True)
        self._thread.start()
        self._send(begin)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: ToWorker) -> None:
        """Send a message. Raises `ConnectionBroken` if the worker has ended."""
        self.sent += 1
        self._send(message)

    def take(self) -> list[WorkerResponse]:
        """Take the responses since the last call.

        Raises `ConnectionBroken` if the worker has ended; then the replica must end, too.
        """
        if self._ended.is_set():
            raise self._gone()
        taken: list[WorkerResponse] = []
        while self._received:
            response = self._received.popleft()
            taken.append(response)
            self.heard, self.broken = response.heard, response.broken
            if response.frontiers is not None:
                self.frontiers = response.frontiers
        return taken

    def fetch(self, token: bytes) -> Iterator[Sequence[Counted]]:
        """Read the rows of a stashed result. Raises `ResultGone`, `ConnectionBroken`."""
        number = self.sent
        parts = self._fetching[number] = SimpleQueue[FetchedRows | None]()
        try:
            self.send(FetchStashed(number, token))
            while (part := parts.get()) is not None:
                if part.gone:
                    raise ResultGone(
                        "the rows of this result are not here any more", fix="send the peek again"
                    )
                if part.rows is None:
                    return
                yield part.rows
            raise self._gone()
        finally:
            del self._fetching[number]

    def close(self) -> None:
        """End the worker and wait for its exit."""
        # The listening thread has a duplicate of the socket: only a shutdown reaches both ends.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_LAST_WORDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()
        self._connection.close()
        self._socket.close()

    def _send(self, message: ToWorker) -> None:
        try:
            self._connection.send(message)
        except OSError:
            raise self._gone() from None

    def _listen(self) -> None:
        try:
            while True:
                message: FromWorker = self._connection.recv()
                if isinstance(message, WorkerResponse):
                    self._received.append(message)
                    self._wake()
                elif (parts := self._fetching.get(message.number)) is not None:
                    parts.put(message)
        except (EOFError, OSError):
            pass
        self._ended.set()
        for parts in list(self._fetching.values()):
            parts.put(None)
        self._wake()

    def _gone(self) -> ConnectionBroken:
        return ConnectionBroken(
            f"worker {self._number} of the replica has ended",
            why="a replica has all of its workers or none",
            fix="restart the replica; its controller restores its dataflows",
            address=f"process {self.pid}",
        )
