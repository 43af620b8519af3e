"""The controller: what clients, a transport and a clock may ask of it.

It has no sockets, threads, clock or randomness of its own: it is told the time, and what replicas say,
and everything that follows is a function of that. Not for several threads at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from penstock.compute.collections.store import Collections
from penstock.compute.controller.connection import ReplicaConnection
from penstock.compute.controller.durable import ControllerState
from penstock.compute.controller.requests import Described, PeekAnswer, PeekRequest, Write
from penstock.compute.controller.settings import Settings
from penstock.compute.controller.status import ControllerStatus
from penstock.compute.errors import ComputeError
from penstock.compute.protocol.commands import InstanceConfig, Parameters, TimelyConfig
from penstock.compute.protocol.dataflow import Id, Plan
from penstock.compute.protocol.responses import Batch, Counted, Dropped, DroppedAt, Problem, RowCount
from penstock.expr.types import Schema

DEFAULT_KEEP = 10_000
"""Milliseconds of the past of a view that stay readable, where nothing else is asked for."""


class Controller:
    """Knows what is wanted, tells replicas, and keeps what they say together.

    state:       what it must not forget; a later controller on the same state supersedes this one.
    collections: where the rows are. Used by the thread that calls the controller.
    clock:       milliseconds since 1970.
    parameters:  what replicas are told of limits and intervals.
    instance:    what all dataflows of a replica have in common; its `collections` is the URI of the store.

    Raises `StoreDamaged`, `StoreUnavailable`. Every method that changes something raises `StaleEpoch` once a
    later controller has started on the same state.
    """

    epoch: int

    def __init__(
        self,
        state: ControllerState,
        collections: Collections,
        *,
        clock: Callable[[], int],
        random: random.Random,
        parameters: Parameters = Parameters(),
        instance: InstanceConfig = InstanceConfig(""),
        settings: Settings = Settings(),
    ) -> None:
        raise NotImplementedError

    # --- names ----------------------------------------------------------------------

    def create_collection(self, name: str, schema: Schema, *, append_only: bool) -> Id:
        """A collection that clients write. Does nothing where an equal one is there.

        Raises `AlreadyThere`.
        """
        raise NotImplementedError

    def create_view(
        self,
        name: str,
        plan: Plan,
        *,
        key: Sequence[str] = (),
        keep: int = DEFAULT_KEEP,
        into: str | None = None,
    ) -> Id:
        """Keep the answer of a flow with one sink up to date. Does nothing where an equal one is there.

        Sources are views or collections of the same name; collections that are not there are made.
        key:  columns that it is looked up by; none: by the whole row.
        keep: milliseconds of its past that stay readable.
        into: name of a collection to make, which its changes are written to as well.

        Raises `AlreadyThere`, `NotServable`, `BadPlan`, `CallableRefused`, `UnknownColumn`.
        """
        raise NotImplementedError

    def drop(self, name: str) -> None:
        """Forget a view, with the collection that it is written into, or a collection.

        Its subscriptions end; peeks that were accepted are answered. Raises `UnknownName`, `StillInUse`.
        """
        raise NotImplementedError

    def describe(self, name: str) -> Described:
        """What a name stands for. Raises `UnknownName`."""
        raise NotImplementedError

    # --- writing --------------------------------------------------------------------

    def begin_write(self, writes: Mapping[str, Sequence[Counted]], ids: Sequence[bytes] = ()) -> Write:
        """A group commit: gives it a time. One at a time; the caller appends `Write.appends`, in any thread,
        then calls `end_write` or `fail_write`.

        Raises `UnknownName`, and `BadRow` for rows that do not fit.
        """
        raise NotImplementedError

    def end_write(self, write: Write) -> None:
        """It is durable: from now on strict reads see it, and it may be acknowledged.

        Raises `StaleEpoch` where it may not be, because a later controller has started meanwhile.
        """
        raise NotImplementedError

    def fail_write(self, write: Write, error: ComputeError) -> bool:
        """The append raised. Whether it is durable all the same: then it is as after `end_write`."""
        raise NotImplementedError

    # --- reading --------------------------------------------------------------------

    def peek(self, request: PeekRequest, answer: Callable[[PeekAnswer], None]) -> bytes:
        """Ask all replicas; the first answer is passed on. The uuid of the peek.

        Raises `UnknownName`, `SinceViolation`, `TargetReplicaLost`, `BadMessage`.
        """
        raise NotImplementedError

    def cancel_peek(self, uuid: bytes) -> None:
        """`Canceled` is answered at once; does nothing where it is answered already."""
        raise NotImplementedError

    def subscribe(
        self,
        view: str,
        deliver: Callable[[Batch | DroppedAt], None],
        *,
        as_of: int | None = None,
        snapshot: bool = True,
        replica: str | None = None,
    ) -> Id:
        """See all changes from a time on, each once, in order of time.

        as_of: None: the time of the last acknowledged write. To go on after a batch with `upper`, say
            as_of=upper-1 and snapshot=False.
        Ends with `DroppedAt`, or with a batch that is a `Problem`. Raises `UnknownName`, `SinceViolation`,
        `TargetReplicaLost`.
        """
        raise NotImplementedError

    def unsubscribe(self, id: Id) -> None:
        """Stop it: delivers `DroppedAt`; does nothing where it has ended."""
        raise NotImplementedError

    def copy(
        self,
        view: str,
        file: str,
        answer: Callable[[RowCount | Problem | Dropped], None],
        *,
        at: int | None = None,
        replica: str | None = None,
    ) -> Id:
        """Write the rows at a time (None: of the last acknowledged write) to a file at the replicas."""
        raise NotImplementedError

    def cancel_copy(self, id: Id) -> None:
        """`Dropped` is answered at once; does nothing where it is answered already."""
        raise NotImplementedError

    # --- replicas -------------------------------------------------------------------

    def add_replica(self, name: str, address: str, timely: TimelyConfig = TimelyConfig()) -> None:
        """Use a replica. Does nothing where an equal one is there. Raises `AlreadyThere`."""
        raise NotImplementedError

    def drop_replica(self, name: str) -> None:
        """Use it no more; its connection ends. Raises `UnknownName`."""
        raise NotImplementedError

    def release_replica(self, name: str) -> None:
        """End its quarantine, forget its deaths, try it at once. Raises `UnknownName`."""
        raise NotImplementedError

    def due(self) -> list[tuple[str, str]]:
        """Name and address of the replicas that are not connected and should be tried now."""
        raise NotImplementedError

    def retry_in(self, name: str) -> int | None:
        """Milliseconds until a replica should be tried; None: it is connected, quarantined, or dropped."""
        raise NotImplementedError

    def connected(self, name: str) -> ReplicaConnection:
        """A stream to it stands. An earlier connection of it is over. Raises `UnknownName`."""
        raise NotImplementedError

    def unreachable(self, name: str, error: ComputeError) -> None:
        """No stream could be had: it is tried again later, see `retry_in`."""
        raise NotImplementedError

    # --- time passes ----------------------------------------------------------------

    def maintain(self) -> int:
        """What becomes due: history given up, dataflows scheduled, replicas to try. Milliseconds until it
        wants to be called again; earlier does no harm."""
        raise NotImplementedError

    def status(self) -> ControllerStatus:
        """What there is, and how far it is."""
        raise NotImplementedError

    def check(self) -> None:
        """Assert the invariants: no hold below a since, no since above a hold, inputs readable."""
        raise NotImplementedError
