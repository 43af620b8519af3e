"""What the process of a replica and its workers say to each other, over a pipe of their own.

To a worker: the commands of the protocol, and the calls of a runtime that are none. Each is counted, and a
worker says how many it has heard, so that what it said before a command is told from what it says after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from penstock.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    InstanceConfig,
    Peek,
    Schedule,
    UpdateConfiguration,
)
from penstock.compute.protocol.dataflow import Dataflow, Id
from penstock.compute.protocol.responses import Counted
from penstock.compute.replica.runtime import Answer, Reached


@dataclass(frozen=True, slots=True)
class Begin:
    """The first message. Which of the workers it is, and what it needs."""

    number: int
    workers: int
    config: InstanceConfig
    folder: Path
    copies: Path
    allow_callables: bool


@dataclass(frozen=True, slots=True)
class Build:
    """Create a dataflow. divided: it runs on all workers, and this one has its share of the rows."""

    dataflow: Dataflow
    divided: bool


@dataclass(frozen=True, slots=True)
class ForgetAnswers:
    """The connection of the replica is another one."""


@dataclass(frozen=True, slots=True)
class Forget:
    """An export that was dropped and whose frontiers have been told."""

    id: Id


@dataclass(frozen=True, slots=True)
class Fetch:
    """Send the rows of a stashed result. number: of the request."""

    number: int
    token: bytes


ToWorker: TypeAlias = (
    Begin
    | Build
    | Schedule
    | AllowWrites
    | AllowCompaction
    | Peek
    | CancelPeek
    | UpdateConfiguration
    | ForgetAnswers
    | Forget
    | Fetch
)


@dataclass(frozen=True, slots=True)
class WorkerResponse:
    """What a worker has to tell.

    heard:     how many messages it had heard.
    frontiers: of all its exports; None: as before. broken: exports that are to be built anew.
    """

    heard: int
    answers: Sequence[Answer]
    frontiers: Mapping[Id, Reached] | None = None
    broken: Sequence[Id] = ()


@dataclass(frozen=True, slots=True)
class Fetched:
    """A part of the rows of a stashed result; None: that was all, or `gone`: it is not there."""

    number: int
    rows: Sequence[Counted] | None
    gone: bool = False


FromWorker: TypeAlias = WorkerResponse | Fetched
