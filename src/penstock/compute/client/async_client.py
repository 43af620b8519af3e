"""The client for programs with an event loop."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from penstock.compute.client.connection_options import ADDRESS_VARIABLE, DEFAULT_ADDRESS, Endpoint
from penstock.compute.client.conversation import Conversation
from penstock.compute.client.dataclass_codec import from_plain
from penstock.compute.client.generated import client_pb2 as pb
from penstock.compute.client.patience import AS_CLIENT, Patience, Wait, seconds_of
from penstock.compute.client.peeks import Reading, check_number, peek_message, rows_of
from penstock.compute.client.rows import Known
from penstock.compute.client.subscription import AsyncSubscription
from penstock.compute.controller.status import ControllerStatus
from penstock.compute.protocol import rows as encoding
from penstock.compute.protocol.commands import RuntimeName
from penstock.compute.transport.credentials import Security
from penstock.expr.durations import duration
from penstock.expr.row_classes import schema_of
from penstock.expr.tree import Expr
from penstock.expr.types import Schema
from penstock.flow.flow import Flow


class AsyncClient:
    """A client of a controller: creates views, writes collections, reads.

    address:  HOST:PORT of the controller; None: what PENSTOCK_CONTROLLER says, else 127.0.0.1:7411.
    security: credentials (`Security.load`); None: the token in PENSTOCK_TOKEN if there is one, and no TLS.
    patience: how long a read waits for its answer, whatever is in the way of it, and how long what can be
        repeated is tried again where the controller is away; None: as long as it takes.

    A read sees every write that was acknowledged, to anybody, before it was asked for (strict
    serializable), unless it says otherwise. To be used in one event loop; close it with `aclose`, or use
    `async with`.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        security: Security | None = None,
        patience: timedelta | str | None = "30s",
    ) -> None:
        security = Security.load() if security is None else security
        endpoint = Endpoint(address or os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS, security)
        self._conversation = Conversation(endpoint, seconds_of(patience))
        self._known: dict[str, Known] = {}

    # --- what there is ------------------------------------------------------------------

    async def create_collection(self, name: str, rows: Any, *, append_only: bool = False) -> None:
        """Create a collection that clients write. Does nothing if an equal one exists.

        rows: a `NamedTuple`, a dataclass, a scalar type, or a `Schema`.
        append_only: no row is ever taken back.
        Raises `AlreadyThere`.
        """
        from penstock.compute.plans import schema_to_bytes

        schema = rows if isinstance(rows, Schema) else schema_of(rows)
        message = pb.CreateCollection(name=name, schema=schema_to_bytes(schema), append_only=append_only)
        await self._ask(pb.Request(create_collection=message))

    async def create_view(
        self,
        name: str,
        flow: Flow,
        *,
        key: str | Sequence[str] = (),
        keep: timedelta | str = "10s",
        into: str | None = None,
        allow_callables: bool = False,
    ) -> None:
        """Create a view of a flow with one sink. Does nothing if an equal one exists.

        Its sources are views and collections of their names; collections that are not there are made.
        key:   columns that it is looked up by; none: the whole row.
        keep:  how much of the past can be read, and how long a subscription may be away.
        into:  a collection to make, which its changes are written to as well: it survives all replicas.
        allow_callables: send the code of Python functions; the replicas must allow it, too.

        Raises `NotServable`, `CallableRefused`, `AlreadyThere`, `UnknownColumn`.
        """
        from penstock.compute.plans import encode

        plan = encode(flow, allow_callables=allow_callables)
        message = pb.CreateView(
            name=name,
            plan=plan.body,
            places=plan.places,
            key=[key] if isinstance(key, str) else key,
            keep=_milliseconds(keep),
            into=into or "",
        )
        self._known.pop(name, None)
        await self._ask(pb.Request(create_view=message))

    async def drop(self, name: str) -> None:
        """Drop a view or a collection. Raises `UnknownName`, `StillInUse`."""
        self._known.pop(name, None)
        await self._ask(pb.Request(drop=pb.Drop(name=name)), repeatable=False)

    async def describe(self, name: str) -> Known:
        """Describe a view or collection: its columns and key. Raises `UnknownName`, `ReadTimeout`."""
        return await self._describe(name, self._conversation.wait())

    async def _describe(self, name: str, wait: Wait) -> Known:
        request = pb.Request(describe=pb.Describe(name=name))
        answer = (await self._conversation.read(request, f"the question what {name!r} is", wait))[0]
        known = self._known[name] = Known.of(name, answer.description)
        return known

    async def _know(self, name: str, wait: Wait | None = None) -> Known:
        return self._known.get(name) or await self._describe(name, wait or self._conversation.wait())

    # --- writing ------------------------------------------------------------------------

    # Rows and keys are read by the caller, and not by the task that is awaited: where they come out of the
    # blocking client, its own thread would wait for itself.

    def insert(self, collection: str, rows: Iterable[Any]) -> Coroutine[Any, Any, int]:
        """Add rows. Returns their time; every later read sees them.

        Raises `UnknownName`, `BadRow`.
        """
        return self._write({collection: list(rows)}, 1)

    def delete(self, collection: str, rows: Iterable[Any]) -> Coroutine[Any, Any, int]:
        """Retract rows, each once. Returns the time from which they are gone.

        Raises `NegativeMultiplicity` where one is not there, `BadRow`; then nothing has happened.
        """
        return self._write({collection: list(rows)}, -1)

    def write(self, changes: Mapping[str, Iterable[Any]]) -> Coroutine[Any, Any, int]:
        """Change several collections atomically. Returns the time.

        changes: by collection, rows that come; or `ps.Change(row, weight)`, `ps.insert(row)`,
            `ps.delete(row)`.
        """
        return self._write({name: list(rows) for name, rows in changes.items()}, 1)

    async def _write(self, rows: Mapping[str, list[Any]], sign: int) -> int:
        # With an id of its own a write is done once, however often it has to be sent.
        id = os.urandom(16)
        while True:
            known = [await self._know(name) for name in rows]
            parts = [_part(each, each.counted(rows[each.name], sign)) for each in known]
            answer = (await self._ask(pb.Request(write=pb.Write(parts=parts, id=id))))[0]
            if answer.WhichOneof("kind") != "description":
                return answer.done.time
            self._known.clear()  # a collection of the name is there, but it is another one

    # --- reading ------------------------------------------------------------------------

    def peek(
        self,
        view: str,
        *,
        key: Any = None,
        keys: Iterable[Any] | None = None,
        where: Expr | None = None,
        order_by: Any = (),
        limit: int | None = None,
        offset: int = 0,
        columns: Sequence[str | Expr] | None = None,
        at: int | None = None,
        staleness: timedelta | str | None = None,
        replica: str | None = None,
        patience: Patience = AS_CLIENT,
    ) -> Coroutine[Any, Any, list[Any]]:
        """The rows of a view or a collection at one time, repeated by their multiplicity.

        key, keys: value, or values, of its key columns (a tuple where there are several columns).
        where:     an expression over its columns. order_by: columns, `col.x.desc()` for downwards.
        columns:   only these.
        at:        a time; without it: that of the last acknowledged write.
        staleness: how far the answer may be behind, if that is faster.
        replica:   the only one that may answer.
        patience:  of this read, instead of the client's. A large answer that is coming may take longer: no
            part of it then comes later than that after the one before.

        Raises `UnknownName`, `SinceViolation` for a time that is no longer kept, `ResultTooLarge`,
        `TargetReplicaLost`, `DataflowFailed`, what the expression raises, and `ReadTimeout` with what was
        missing for an answer.
        """
        given = [key] if key is not None else (None if keys is None else list(keys))
        reading = Reading(given, where, order_by, limit, offset, columns, at, _optional(staleness), replica)
        return self._peek(view, reading, patience)

    async def _peek(self, view: str, reading: Reading, patience: Patience) -> list[Any]:
        wait = self._conversation.wait(patience)
        while True:
            known = await self._know(view, wait)
            message, to_user = peek_message(known, reading)
            answers = await self._conversation.read(pb.Request(peek=message), f"the peek of {view!r}", wait)
            if answers[0].WhichOneof("kind") != "description":
                return rows_of(answers, to_user)
            self._known.pop(view, None)

    def subscribe(
        self,
        view: str,
        *,
        as_of: int | None = None,
        snapshot: bool = True,
        progress: bool = False,
        replica: str | None = None,
        patience: Patience = AS_CLIENT,
    ) -> AsyncSubscription:
        """Subscribe to all changes of a view, in batches by time; the first has the rows at `as_of`.

        as_of:    None: the time of the last acknowledged write.
        snapshot: False: only what comes after `as_of`. progress: batches without changes are given, too.
        patience: how long it waits for its first batch, instead of the client's; then `ReadTimeout`. One
            that has begun waits for as long as it takes, also where replicas are away.
        It goes on by itself where a connection breaks or the controller is started again.
        """
        check_number("as_of", as_of)
        asked = pb.Subscription(view=view, snapshot=snapshot, replica=replica or "")
        if as_of is not None:
            asked.as_of = as_of
        return AsyncSubscription(self._conversation, asked, progress=progress, patience=patience)

    async def copy(self, view: str, file: str, *, patience: Patience = AS_CLIENT) -> int:
        """Write the rows of a view to a file in the folder of a replica. Returns their number.

        file: a plain name that ends with .jsonl or .parquet.
        patience: instead of the client's. While a replica is at work on it, a copy takes as long as it
            takes; `ReadTimeout` where none is.
        """
        request = pb.Request(copy=pb.Copy(view=view, file=file))
        wait = self._conversation.wait(patience)
        what = f"the copy of {view!r}"
        answers = await self._conversation.read(request, what, wait, again=False)
        return answers[-1].done.rows

    # --- operating ----------------------------------------------------------------------

    async def add_replica(
        self, name: str, address: str, *, runtime: RuntimeName = "here", workers: int = 1
    ) -> None:
        """Add a replica. Does nothing if an equal one exists. Raises `AlreadyThere`."""
        message = pb.AddReplica(name=name, address=address, runtime=runtime, workers=workers)
        await self._ask(pb.Request(add_replica=message))

    async def drop_replica(self, name: str) -> None:
        """Remove a replica. Raises `UnknownName`."""
        await self._ask(pb.Request(drop_replica=pb.DropReplica(name=name)), repeatable=False)

    async def release_replica(self, name: str) -> None:
        """End the quarantine of a replica, and retry it at once. Raises `UnknownName`."""
        await self._ask(pb.Request(release_replica=pb.ReleaseReplica(name=name)))

    async def status(self) -> ControllerStatus:
        """The status of all replicas, views, collections and reads."""
        request = pb.Request(status=pb.Status())
        answers = await self._conversation.read(request, "the status", self._conversation.wait())
        return from_plain(ControllerStatus, encoding.decode_values(answers[0].condition.body))

    async def _ask(self, request: pb.Request, *, repeatable: bool = True) -> list[pb.Answer]:
        return await self._conversation.ask(request, repeatable=repeatable)

    async def aclose(self) -> None:
        """End the connection."""
        await self._conversation.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _part(known: Known, changes: Sequence[tuple[tuple[Any, ...], int]]) -> pb.Write.Part:
    return pb.Write.Part(
        collection=known.name,
        id=known.id,
        come=encoding.encode([(row, weight) for row, weight in changes if weight > 0]),
        go=encoding.encode([(row, -weight) for row, weight in changes if weight < 0]),
    )


def _milliseconds(span: timedelta | str) -> int:
    return duration(span) // timedelta(milliseconds=1)


def _optional(span: timedelta | str | None) -> int | None:
    return None if span is None else _milliseconds(span)
