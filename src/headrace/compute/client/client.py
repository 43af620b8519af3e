"""Clients: asynchronous, for programs with an event loop, and blocking, for notebooks and other programs."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from headrace.compute.client.conversation import (
    ADDRESS_VARIABLE,
    AS_CLIENT,
    DEFAULT_ADDRESS,
    Conversation,
    Endpoint,
    Patience,
    Wait,
    patience_seconds,
)
from headrace.compute.client.subscription import (
    AsyncSubscription,
    CachedDescription,
    PeekArguments,
    Subscription,
    check_number,
    decode_peek_answers,
    peek_message,
)
from headrace.compute.controller.status import ControllerStatus, from_plain
from headrace.compute.credentials import Security
from headrace.compute.errors import ConnectionBroken
from headrace.compute.protocol import rows as encoding
from headrace.compute.protocol.client_messages import (
    AddReplica,
    ClientAnswer,
    ConditionAnswer,
    CopyRequest,
    CreateCollection,
    CreateView,
    DescribeRequest,
    Description,
    DoneAnswer,
    DropReplica,
    DropRequest,
    GetPlan,
    ReleaseReplica,
    StatusRequest,
    SubscriptionRequest,
    WritePart,
    WriteRequest,
)
from headrace.compute.protocol.codec_derivation import bad_message
from headrace.compute.protocol.commands import PlanBytes, RuntimeName
from headrace.errors import HeadraceError, SourceLocation
from headrace.expr.row_classes import schema_of
from headrace.expr.time_texts import duration
from headrace.expr.tree import Expr
from headrace.expr.types import Schema
from headrace.flow.flow import Flow


class AsyncClient:
    """Client of a controller, to create views, write collections and read both.

    address:  HOST:PORT of the controller; None: from HEADRACE_CONTROLLER, else 127.0.0.1:7411.
    security: credentials (`Security.load`); None: the token in HEADRACE_TOKEN if set, and no TLS.
    patience: how long a read waits for its answer, and how long repeatable requests are retried while the
        controller is unavailable; None: forever.

    By default, a read sees every write acknowledged to any client before the read was sent (strict
    serializable). Use it in one event loop; close it with `aclose`, or use `async with`.
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
        self._conversation = Conversation(endpoint, patience_seconds(patience))
        self._known: dict[str, CachedDescription] = {}

    async def create_collection(self, name: str, rows: Any, *, append_only: bool = False) -> None:
        """Create a collection that clients write. Does nothing if an equal one exists.

        rows: a `NamedTuple`, a dataclass, a scalar type, or a `Schema`.
        append_only: rows are never deleted.
        Raises `AlreadyThere`.
        """
        schema = rows if isinstance(rows, Schema) else schema_of(rows)
        await self._conversation.ask(CreateCollection(name, schema, append_only))

    async def create_view(
        self,
        name: str,
        flow: Flow,
        *,
        key: str | Sequence[str] = (),
        keep: timedelta | str = "10s",
        into: str | None = None,
        allow_callables: bool = False,
        tick_rows: int | None = None,
        rounds: int | None = None,
        state_bytes: int | None = None,
        tick_seconds: int | None = None,
    ) -> None:
        """Create a view of a flow with one sink. Does nothing if an equal one exists.

        The flow's sources read the views and collections of the same names; missing collections are created.
        key:   columns to look up by; by default the whole row.
        keep:  how much of the past can be read, and how long a subscription may stay disconnected.
        into:  name of a collection to create and write the changes to, which outlives all replicas.
        allow_callables: send the code of Python functions; the replicas must allow it, too.
        tick_rows, rounds, state_bytes, tick_seconds: limits on what the view may use of a replica, instead of
               the defaults (see docs/how-to/serve-views.md#limits). A view that exceeds one fails.

        Raises `NotServable`, `CallableRefused`, `AlreadyThere`, `UnknownColumn`; `BadInput` for a limit that
        is not a positive number.
        """
        from headrace.compute.plans import encode

        limits = {
            "tick_rows": tick_rows,
            "rounds": rounds,
            "state_bytes": state_bytes,
            "tick_seconds": tick_seconds,
        }
        for limit, value in limits.items():
            check_number(limit, value, least=1)
        plan = encode(flow, allow_callables=allow_callables)
        request = CreateView(
            name=name,
            plan=plan.body,
            places=plan.places,
            key=(key,) if isinstance(key, str) else tuple(key),
            keep=_milliseconds(keep),
            into=into,
            **limits,
        )
        self._known.pop(name, None)
        await self._conversation.ask(request)

    async def flow(self, view: str, *, allow_callables: bool = False) -> Flow:
        """Fetch the flow of a view, for example to explain or to draw it.

        allow_callables: load the code of Python functions in it, which runs code of the view's creator.
        Raises `UnknownName`, `CallableRefused`, `ReadTimeout`.
        """
        from headrace.compute.plans import decode

        wait = self._conversation.wait()
        answers = await self._conversation.send_read(GetPlan(view), f"the plan of {view!r}", wait)
        return decode(_first(answers, PlanBytes), allow_callables=allow_callables)

    async def drop(self, name: str) -> None:
        """Drop a view or a collection. Raises `UnknownName`, `StillInUse`."""
        self._known.pop(name, None)
        await self._conversation.ask(DropRequest(name), repeatable=False)

    async def describe(self, name: str) -> CachedDescription:
        """Describe a view or collection: its columns and key. Raises `UnknownName`, `ReadTimeout`."""
        return await self._describe(name, self._conversation.wait())

    async def _describe(self, name: str, wait: Wait) -> CachedDescription:
        what = f"the question what {name!r} is"
        answers = await self._conversation.send_read(DescribeRequest(name), what, wait)
        known = self._known[name] = CachedDescription.of(name, _first(answers, Description))
        return known

    async def _know(self, name: str, wait: Wait | None = None) -> CachedDescription:
        return self._known.get(name) or await self._describe(name, wait or self._conversation.wait())

    # Rows and keys are consumed in the call, not in the awaited task: an iterable that itself uses the
    # blocking client would make the client's thread wait for itself.

    def insert(self, collection: str, rows: Iterable[Any]) -> Coroutine[Any, Any, int]:
        """Insert rows, and return their time. Every later read sees them.

        Raises `UnknownName`, `BadRow`.
        """
        return self._write({collection: list(rows)}, 1)

    def delete(self, collection: str, rows: Iterable[Any]) -> Coroutine[Any, Any, int]:
        """Delete one copy of each row, and return the time of the deletion.

        Raises `NegativeMultiplicity` for a row that is not in the collection, and `BadRow`; neither changes
        anything.
        """
        return self._write({collection: list(rows)}, -1)

    def write(self, changes: Mapping[str, Iterable[Any]]) -> Coroutine[Any, Any, int]:
        """Change several collections atomically, and return the time of the write.

        changes: by collection, rows to insert, or `hr.Change(row, weight)`, `hr.insert(row)`,
            `hr.delete(row)`.
        """
        return self._write({name: list(rows) for name, rows in changes.items()}, 1)

    async def _write(self, rows: Mapping[str, list[Any]], sign: int) -> int:
        # The id makes the write idempotent, however often it is sent.
        id = os.urandom(16)
        while True:
            known = [await self._know(name) for name in rows]
            parts = [_part(each, each.to_weighted_rows(rows[each.name], sign)) for each in known]
            answers = await self._conversation.ask(WriteRequest(tuple(parts), id))
            if not isinstance(answers[0], Description):
                return _first(answers, DoneAnswer).time
            self._known.clear()  # a collection was replaced by another one of the same name

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
        """Read the rows of a view or collection at one time, repeated by their multiplicity.

        key, keys: value, or values, of the key columns (a tuple if there are several columns).
        where:     an expression over the columns. order_by: columns, `col.x.desc()` for descending.
        columns:   the columns to return, instead of all.
        at:        the time to read at; None: that of the last acknowledged write.
        staleness: how far the answer may lag behind, if that makes it faster.
        replica:   the only replica that may answer.
        patience:  of this read, instead of the client's. For a large answer, it limits the wait for each
            part rather than for the whole.

        Raises `UnknownName`, `SinceViolation` for a time that is no longer kept, `ResultTooLarge`,
        `TargetReplicaLost`, `DataflowFailed`, errors of the expression, and `ReadTimeout` naming what an
        answer still lacked.
        """
        given = [key] if key is not None else (None if keys is None else list(keys))
        reading = PeekArguments(
            given, where, order_by, limit, offset, columns, at, _optional(staleness), replica
        )
        return self._peek(view, reading, patience)

    async def _peek(self, view: str, reading: PeekArguments, patience: Patience) -> list[Any]:
        wait = self._conversation.wait(patience)
        while True:
            known = await self._know(view, wait)
            message, schema, to_user = peek_message(known, reading)
            answers = await self._conversation.send_read(message, f"the peek of {view!r}", wait)
            if not isinstance(answers[0], Description):
                return decode_peek_answers(answers, schema, to_user)
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
        """Subscribe to a view's changes, in batches by time; the first batch holds the rows at `as_of`.

        as_of:    None: the time of the last acknowledged write.
        snapshot: False: only changes after `as_of`. progress: deliver batches without changes, too.
        patience: how long to wait for the first batch, instead of the client's; then `ReadTimeout`. Once
            begun, a subscription waits without limit, for replicas and for a controller.
        The subscription resumes by itself after a broken connection or a restart of the controller.
        """
        check_number("as_of", as_of)
        asked = SubscriptionRequest(view, as_of, snapshot, replica)
        return AsyncSubscription(self._conversation, asked, progress=progress, patience=patience)

    async def copy(self, view: str, file: str, *, patience: Patience = AS_CLIENT) -> int:
        """Write a view's rows to a file in a replica's folder, and return the number of rows.

        file: a plain file name ending with .jsonl or .parquet.
        patience: instead of the client's. Raises `ReadTimeout` after that, unless a replica is already
            working on the copy, which may then take as long as it needs.
        """
        wait = self._conversation.wait(patience)
        what = f"the copy of {view!r}"
        answers = await self._conversation.send_read(CopyRequest(view, file), what, wait, again=False)
        return _first(answers[-1:], DoneAnswer).rows

    async def add_replica(
        self, name: str, address: str, *, runtime: RuntimeName = "here", workers: int = 1
    ) -> None:
        """Add a replica. Does nothing if an equal one exists. Raises `AlreadyThere`."""
        await self._conversation.ask(AddReplica(name, address, runtime, workers))

    async def drop_replica(self, name: str) -> None:
        """Remove a replica. Raises `UnknownName`."""
        await self._conversation.ask(DropReplica(name), repeatable=False)

    async def release_replica(self, name: str) -> None:
        """End the quarantine of a replica, and retry it at once. Raises `UnknownName`."""
        await self._conversation.ask(ReleaseReplica(name))

    async def status(self) -> ControllerStatus:
        """Fetch the status of all replicas, views, collections and reads."""
        wait = self._conversation.wait()
        answers = await self._conversation.send_read(StatusRequest(), "the status", wait)
        body = _first(answers, ConditionAnswer).body
        return from_plain(ControllerStatus, encoding.decode_values(body))

    async def aclose(self) -> None:
        """Close the connection."""
        await self._conversation.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _part(known: CachedDescription, changes: Sequence[tuple[tuple[Any, ...], int]]) -> WritePart:
    return WritePart(
        collection=known.name,
        id=known.id,
        come=tuple((row, weight) for row, weight in changes if weight > 0),
        go=tuple((row, -weight) for row, weight in changes if weight < 0),
    )


def _first(answers: Sequence[ClientAnswer], wanted: type[T]) -> T:
    """Return the first answer. Raises `BadMessage` if it is of another kind."""
    if not isinstance(answers[0], wanted):
        raise bad_message("Answer.kind", f"A {wanted.__name__} was expected.")
    return answers[0]


def _milliseconds(span: timedelta | str) -> int:
    return duration(span) // timedelta(milliseconds=1)


def _optional(span: timedelta | str | None) -> int | None:
    return None if span is None else _milliseconds(span)


P = ParamSpec("P")
T = TypeVar("T")
_ASYNCIO = os.path.dirname(asyncio.__file__)


def _blocking(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Wrap a method of the asynchronous client as a blocking one with the same signature and docstring."""

    @wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait(method(self._client, *args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return call


class Client:
    """Blocking, thread-safe version of `AsyncClient`. Close it, or use it in a `with` statement.

    The connection lives in a thread of its own, so it works even where an event loop is already running.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        security: Security | None = None,
        patience: timedelta | str | None = "30s",
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(self._loop,), name="headrace client", daemon=True)
        self._thread.start()
        self._closed = False
        self._finalize = weakref.finalize(self, _stop, self._loop, self._thread)

        async def made() -> AsyncClient:
            return AsyncClient(address, security=security, patience=patience)

        try:
            self._client = self._wait(made())
        except BaseException:
            self._finalize()
            raise

    def _wait(self, asked: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            asked.close()
            raise ConnectionBroken("the client is closed", fix="make a new client", address="")
        answer = asyncio.run_coroutine_threadsafe(asked, self._loop)
        try:
            return answer.result()
        except HeadraceError as error:
            # Raised in the thread of the loop, whose stack has no line of the user.
            error.blaming(_ASYNCIO, SourceLocation.of_caller())
            raise
        except BaseException:
            answer.cancel()  # Ctrl-C while waiting: cancel the request at the controller, too
            raise

    create_collection = _blocking(AsyncClient.create_collection)
    create_view = _blocking(AsyncClient.create_view)
    flow = _blocking(AsyncClient.flow)
    drop = _blocking(AsyncClient.drop)
    describe = _blocking(AsyncClient.describe)
    insert = _blocking(AsyncClient.insert)
    delete = _blocking(AsyncClient.delete)
    write = _blocking(AsyncClient.write)
    peek = _blocking(AsyncClient.peek)
    copy = _blocking(AsyncClient.copy)
    add_replica = _blocking(AsyncClient.add_replica)
    drop_replica = _blocking(AsyncClient.drop_replica)
    release_replica = _blocking(AsyncClient.release_replica)
    status = _blocking(AsyncClient.status)

    def subscribe(
        self,
        view: str,
        *,
        as_of: int | None = None,
        snapshot: bool = True,
        progress: bool = False,
        replica: str | None = None,
        patience: Patience = AS_CLIENT,
    ) -> Subscription:
        """See `AsyncClient.subscribe`."""
        subscription = self._client.subscribe(
            view, as_of=as_of, snapshot=snapshot, progress=progress, replica=replica, patience=patience
        )
        return Subscription(subscription, self._wait)

    def close(self) -> None:
        """Close the connection and its thread; calls pending in other threads raise `ConnectionBroken`."""
        if not self._closed:
            try:
                self._wait(self._client.aclose())
            finally:
                self._closed = True
                self._finalize()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
    if thread is not threading.current_thread():
        thread.join()
