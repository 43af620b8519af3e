"""What runs the dataflows of a replica: the in-process engine or Spark. The replica's shell does not know
which.

The shell has checked the stage and order of commands, has reconciled, and guards what frontiers are
reported. A runtime is told what to build and is asked to `step`; it tells its frontiers as they are, and
its other answers once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.compute.errors import ResultGone
from penstock.compute.frontier import Frontier
from penstock.compute.protocol.commands import InstanceConfig, Parameters, Peek
from penstock.compute.protocol.dataflow import Dataflow, Id
from penstock.compute.protocol.responses import (
    CopyToResponse,
    Counted,
    PeekResponse,
    Status,
    SubscribeResponse,
)


@dataclass(frozen=True, slots=True)
class Reached:
    """How far an export has come, of each kind (see `Frontiers`), and from when on it can be read."""

    write: Frontier
    input: Frontier
    output: Frontier
    since: Frontier


Answer = PeekResponse | SubscribeResponse | CopyToResponse | Status


class Runtime(ABC):
    """Builds dataflows, keeps their exports, answers peeks. Used by one thread.

    config: of the instance. wake: called, from any thread, when there is something to `step` for without a
        command.
    A method raises only for what is the replica's end (`ComputeError`); a dataflow that fails becomes answers
    (`DataflowFailed`), and the others go on.
    """

    def __init__(self, config: InstanceConfig, wake: Callable[[], None]) -> None:
        self.config = config
        self.wake = wake

    @abstractmethod
    def configure(self, parameters: Parameters) -> None:
        """Settings for everything, also for what is there already. All of them, merged."""

    @abstractmethod
    def create_dataflow(self, dataflow: Dataflow) -> None:
        """Make it known. It does not run before each of its exports is scheduled or dropped.

        A dataflow that cannot be built (a bad plan, an import that is gone) is there all the same, as one
        that has failed.
        """

    @abstractmethod
    def schedule(self, id: Id) -> None:
        """Let an export run."""

    @abstractmethod
    def allow_writes(self, id: Id) -> None:
        """Let an export write its collection."""

    @abstractmethod
    def allow_compaction(self, id: Id, frontier: Frontier) -> None:
        """Times below it need not be told apart. END: stop it and give back what it has; then `frontiers`
        tells END of each kind, until `forget`. Other dataflows that read it are served as long as they do."""

    @abstractmethod
    def peek(self, peek: Peek) -> None:
        """Answer it when its time is settled, in slices."""

    @abstractmethod
    def cancel_peek(self, uuid: bytes) -> None:
        """Answer `Canceled` at once, if it is not answered."""

    @abstractmethod
    def forget_answers(self) -> None:
        """The connection is another one: drop pending peeks and untold answers, without a word."""

    @abstractmethod
    def forget(self, id: Id) -> None:
        """An export that was dropped and whose frontiers have been told."""

    @abstractmethod
    def step(self, seconds: float) -> bool:
        """Work for about so long, peeks and inputs in turn. Whether there is more to do at once."""

    @abstractmethod
    def frontiers(self) -> Mapping[Id, Reached]:
        """Of all indexes and collection exports that it knows."""

    @abstractmethod
    def answers(self) -> list[Answer]:
        """What there is to tell since the last time, in order."""

    def moved(self) -> bool:
        """Whether `frontiers` may differ from what they were when they were last asked for."""
        return True

    def broken(self) -> Sequence[Id]:
        """Exports that have failed by something around them, such as a collection that went on without them,
        or are about to, where a fresh replica may succeed."""
        return ()

    def fetch(self, token: bytes) -> Iterator[list[Counted]]:
        """The rows of a stashed result, in parts; then it is gone. Raises `ResultGone`."""
        raise ResultGone("the rows of this result are not here any more", fix="ask again")

    @abstractmethod
    def close(self) -> None:
        """Stop everything."""
