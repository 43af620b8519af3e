"""Interface of a replica's runtimes: in process, on workers, or on Spark.

The replica has checked the stage and order of commands, has reconciled, and guards which frontiers are
reported. A runtime receives commands and is stepped; it returns its current frontiers, and every other answer
once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.compute.errors import ResultGone
from headrace.compute.frontier import Frontier
from headrace.compute.protocol.commands import Dataflow, Id, InstanceConfig, Parameters, Peek
from headrace.compute.protocol.responses import (
    CopyToResponse,
    Counted,
    PeekResponse,
    Status,
    SubscribeResponse,
)


@dataclass(frozen=True, slots=True)
class ReachedFrontiers:
    """Frontiers of an export (see `Frontiers`), and its since."""

    write: Frontier
    input: Frontier
    output: Frontier
    since: Frontier


Answer = PeekResponse | SubscribeResponse | CopyToResponse | Status


class ReplicaRuntime(ABC):
    """Runtime of a replica: builds dataflows, maintains their exports, answers peeks. Used by one thread.

    config: configuration of the instance. wake: called from any thread when there is work for `step`
        without a command.
    Methods raise `ComputeError` only for failures that end the replica. A failed dataflow is reported in
    answers (`DataflowFailed`), and the others continue.
    """

    def __init__(self, config: InstanceConfig, wake: Callable[[], None]) -> None:
        self.config = config
        self.wake = wake

    @abstractmethod
    def configure(self, parameters: Parameters) -> None:
        """Apply merged settings to new and existing dataflows."""

    @abstractmethod
    def create_dataflow(self, dataflow: Dataflow) -> None:
        """Create a dataflow. It does not run before each of its exports is scheduled or dropped.

        A dataflow that cannot be built (a bad plan, a missing import) exists nevertheless, as a failed one.
        """

    @abstractmethod
    def schedule(self, id: Id) -> None:
        """Start the computation of an export."""

    @abstractmethod
    def allow_writes(self, id: Id) -> None:
        """Allow an export to write its collection."""

    @abstractmethod
    def allow_compaction(self, id: Id, frontier: Frontier) -> None:
        """Allow an export to merge times before `frontier`. END: drop it.

        A dropped export reports END of each kind in `frontiers`, until `forget`, and stays readable for the
        dataflows that already read it.
        """

    @abstractmethod
    def peek(self, peek: Peek) -> None:
        """Answer a peek once its time is settled, in slices."""

    @abstractmethod
    def cancel_peek(self, uuid: bytes) -> None:
        """Answer `Canceled` at once if the peek is pending."""

    @abstractmethod
    def forget_answers(self) -> None:
        """Drop pending peeks and answers because a new connection begins."""

    @abstractmethod
    def forget(self, id: Id) -> None:
        """Forget a dropped export whose final frontiers have been reported."""

    @abstractmethod
    def step(self, seconds: float) -> bool:
        """Work for about `seconds`, alternating between peeks and inputs.

        Returns whether there is more to do at once.
        """

    @abstractmethod
    def frontiers(self) -> Mapping[Id, ReachedFrontiers]:
        """Return the frontiers of all index and collection exports."""

    @abstractmethod
    def take_answers(self) -> list[Answer]:
        """Take the answers since the last call, in order."""

    def frontiers_moved(self) -> bool:
        """Return whether `frontiers` may have changed since the last call."""
        return True

    def broken_exports(self) -> Mapping[Id, bool]:
        """Return the exports that have failed or will fail, though a fresh replica may succeed.

        The cause is outside the dataflow, such as a full disk. The values tell whether it is that unread
        changes are compacted, which a rebuild repairs in any case.
        """
        return {}

    def fetch(self, token: bytes) -> Iterator[Sequence[Counted]]:
        """Read the rows of a stashed result in parts, once. Raises `ResultGone`."""
        raise ResultGone("the rows of this result are not here any more", fix="send the peek again")

    @abstractmethod
    def close(self) -> None:
        """Stop the runtime."""
