"""Session of one client: its stream of requests to the controller, and the answers.

Most requests are answered immediately, and a peek is answered within the call that delivers the replica's
answer, so no request needs its own task.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import fields
from typing import Any, Protocol

from headrace.compute.client.dataclass_json import to_plain
from headrace.compute.client.generated import client_pb2 as pb
from headrace.compute.controller.controller import Controller
from headrace.compute.controller.ddl import Described
from headrace.compute.controller.peeks import PeekRequest
from headrace.compute.controller.pending import PeekAnswer, StashedOnReplica
from headrace.compute.errors import (
    BadMessage,
    NegativeMultiplicity,
    NotAuthorized,
    PeekCanceled,
    StaleEpoch,
    Unconfirmed,
)
from headrace.compute.plans import schema_from_bytes, schema_to_bytes
from headrace.compute.problem_conversion import problem_of, problem_of_any
from headrace.compute.protocol import rows as encoding
from headrace.compute.protocol.commands import Finishing, TimelyConfig
from headrace.compute.protocol.dataflow import DataflowLimits, Id, Plan
from headrace.compute.protocol.responses import Canceled, Counted, Dropped, Problem, RowCount, Rows
from headrace.compute.protocol.serialization import problem_to_bytes
from headrace.compute.serve.chunks import encode_chunks
from headrace.compute.serve.group_commit import GroupCommit
from headrace.compute.transport.local_addresses import host_of
from headrace.errors import HeadraceError

log = logging.getLogger("headrace.controller")

MOST_WAITING = 1_000
"""Limit on answers buffered for a client that does not read them; above it, its requests are not read."""
MOST_BYTES = 8 * 1024 * 1024
"""Limit on the bytes of rows in them, likewise; the rows of one answer may have more."""


class SessionHost(Protocol):
    """Interface of the controller process for its client sessions."""

    controller: Controller
    writing: GroupCommit

    def fetch(self, stash: StashedOnReplica) -> AsyncIterator[bytes]:
        """Fetch stashed rows from a replica, in encoded chunks. Raises `ResultGone`."""
        ...

    def check_due_work(self) -> None:
        """Check for due work, such as replicas to connect or timers."""
        ...

    def end_fenced(self, error: StaleEpoch) -> None:
        """End the process: a later controller has started."""
        ...


class ClientSession:
    """Requests and answers of one stream, until it ends.

    operator: whether the client may manage replicas.
    """

    def __init__(self, around: SessionHost, *, operator: bool) -> None:
        self._around = around
        self._operator = operator
        self._controller = around.controller
        self._answers: deque[pb.Answer] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._peeks: dict[int, bytes] = {}
        self._copies: set[Id] = set()
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False

    # --- the stream ---------------------------------------------------------------------

    async def read(self, call: Any, end: object) -> None:
        """Handle the requests of a call until it ends."""
        while (request := await call.read()) is not end:
            self.handle_request(request)
            if not self._room.is_set():
                await self._room.wait()

    async def send_answers(self, call: Any) -> None:
        """Send answers to a call as they arrive, until cancelled."""
        while True:
            while self._answers:
                answer = self._answers.popleft()
                await call.write(answer)
                self._bytes -= len(answer.rows.rows)
                if len(self._answers) < MOST_WAITING // 2 and self._bytes < MOST_BYTES // 2:
                    self._room.set()
            self._arrived.clear()
            await self._arrived.wait()

    def end(self) -> None:
        """End the session, cancelling its peeks and copies. Its writes continue."""
        self._ended = True
        for uuid in list(self._peeks.values()):
            self._controller.cancel_peek(uuid)
        for id in list(self._copies):
            self._controller.cancel_copy(id)
        for task in self._tasks:
            task.cancel()
        for timer in self._timers.values():
            timer.cancel()

    def _time_out_after(self, number: int, milliseconds: int, time_out: Callable[[], None]) -> None:
        """Call `time_out` unless the request is answered within the given milliseconds."""
        self._timers[number] = asyncio.get_running_loop().call_later(milliseconds / 1000, time_out)

    def _in_time(self, number: int) -> None:
        """Stop an answered request's timer."""
        timer = self._timers.pop(number, None)
        if timer is not None:
            timer.cancel()

    def _answer(self, number: int, **kind: Any) -> None:
        if self._ended:
            return
        answer = pb.Answer(number=number, **kind)
        self._answers.append(answer)
        self._bytes += len(answer.rows.rows)
        self._arrived.set()
        if len(self._answers) >= MOST_WAITING or self._bytes >= MOST_BYTES:
            self._room.clear()

    # --- requests -----------------------------------------------------------------------

    def handle_request(self, request: pb.Request) -> None:
        """Handle a request. Every request gets an answer, a problem if it fails."""
        kind = request.WhichOneof("kind")
        number = request.number
        try:
            if kind is None:
                raise BadMessage("a request of no kind that is known here", field="kind")
            _REQUESTS[kind](self, number, getattr(request, kind))
        except Exception as error:
            self._refuse(number, error)

    def _refuse(self, number: int, error: Exception) -> None:
        if isinstance(error, StaleEpoch):
            self._around.end_fenced(error)
        if not isinstance(error, HeadraceError):
            log.error("a mistake in Headrace", exc_info=error)
        self._answer(number, problem=problem_to_bytes(problem_of_any(error)))

    def describe(self, number: int, asked: pb.Describe) -> None:
        described = self._controller.describe(asked.name)
        self._answer(number, description=encode_description(described))

    def get_plan(self, number: int, asked: pb.GetPlan) -> None:
        plan = self._controller.plan_of(asked.view)
        self._answer(number, plan=pb.ViewPlan(body=plan.body, places=plan.places))

    def create_collection(self, number: int, asked: pb.CreateCollection) -> None:
        schema = schema_from_bytes(asked.schema)
        id = self._controller.create_collection(asked.name, schema, append_only=asked.append_only)
        self._answer(number, done=pb.Done(id=id))

    def create_view(self, number: int, asked: pb.CreateView) -> None:
        id = self._controller.create_view(
            asked.name,
            Plan(asked.plan, asked.places),
            key=tuple(asked.key),
            keep=asked.keep,
            into=asked.into or None,
            limits=_limits_of(asked),
        )
        self._around.check_due_work()
        self._answer(number, done=pb.Done(id=id))

    def drop(self, number: int, asked: pb.Drop) -> None:
        self._controller.drop(asked.name)
        self._answer(number, done=pb.Done())

    def write_rows(self, number: int, asked: pb.Write) -> None:
        changes: dict[str, list[Counted]] = {}
        for part in asked.parts:
            described = self._controller.describe(part.collection)
            if described.id != part.id:
                self._answer(number, description=encode_description(described))
                return
            changes.setdefault(part.collection, []).extend(_changes(part))
        if len(asked.id) != 16:
            raise BadMessage("a write has an id of 16 bytes", field="Write.id")
        names = {part.id: part.collection for part in asked.parts}
        written = self._around.writing.write(changes, asked.id)
        written.add_done_callback(lambda time: self._written(number, time, names))

    def _written(self, number: int, time: asyncio.Future[int], names: Mapping[str, str]) -> None:
        if time.cancelled():
            self._refuse(number, Unconfirmed("the controller ends", address=""))
        elif (error := time.exception()) is not None:
            failed = error if isinstance(error, Exception) else Exception(str(error))
            self._refuse(number, _named(failed, names))
        else:
            self._answer(number, done=pb.Done(time=time.result()))

    def peek(self, number: int, asked: pb.Peek) -> None:
        described = self._controller.describe(asked.view)
        if described.id != asked.id:
            self._answer(number, description=encode_description(described))
            return
        request = PeekRequest(
            view=asked.view,
            keys=None if asked.all else encoding.decode_keys(asked.keys, "Peek.keys"),
            at=asked.at if asked.HasField("at") else None,
            predicate=asked.predicate or None,
            finishing=_finishing(asked),
            replica=asked.replica or None,
            staleness=asked.staleness if asked.HasField("staleness") else None,
        )
        answered = False

        def answer(found: PeekAnswer) -> None:
            nonlocal answered
            answered = True
            self._peeks.pop(number, None)
            self._in_time(number)
            self._peeked(number, found)

        uuid = self._controller.peek(request, answer)
        if not answered:
            self._peeks[number] = uuid
            if asked.HasField("patience"):
                self._time_out_after(number, asked.patience, lambda: self._controller.time_out_peek(uuid))

    def _peeked(self, number: int, found: PeekAnswer) -> None:
        match found:
            case Rows():
                for chunk, more in encode_chunks(found.rows):
                    self._answer(number, rows=pb.Rows(rows=chunk, more=more))
            case StashedOnReplica():
                if not self._ended:
                    self._start(self._pass_on(number, found))
            case Problem():
                self._answer(number, problem=problem_to_bytes(found))
            case Canceled():
                error = PeekCanceled("the peek was cancelled", fix="send it again if it is still wanted")
                self._answer(number, problem=problem_to_bytes(problem_of(error)))

    async def _pass_on(self, number: int, stash: StashedOnReplica) -> None:
        """Pass on all rows stashed at a replica, as fast as the client reads them."""
        try:
            async for chunk in self._around.fetch(stash):
                self._answer(number, rows=pb.Rows(rows=chunk, more=True))
                await self._room.wait()
            self._answer(number, rows=pb.Rows(rows=encoding.encode(())))
        except Exception as error:
            self._refuse(number, error)

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel_peek(self, number: int, asked: pb.CancelPeek) -> None:
        uuid = self._peeks.get(asked.peek)
        if uuid is not None:
            self._controller.cancel_peek(uuid)

    def copy(self, number: int, asked: pb.Copy) -> None:
        id: Id | None = None

        def answer(result: RowCount | Problem | Dropped) -> None:
            if id is not None:
                self._copies.discard(id)
            self._in_time(number)
            match result:
                case RowCount():
                    self._answer(number, done=pb.Done(rows=result.rows))
                case Problem():
                    self._answer(number, problem=problem_to_bytes(result))
                case Dropped():
                    error = PeekCanceled(
                        "the copy was dropped before it was complete",
                        fix="send it again if it is still wanted",
                    )
                    self._answer(number, problem=problem_to_bytes(problem_of(error)))

        id = copied = self._controller.copy(asked.view, asked.file, answer)
        self._copies.add(id)

        def time_out() -> None:
            if not self._controller.time_out_copy(copied, asked.patience):
                self._answer(number, rows=pb.Rows(more=True))  # tells the client that a replica works on it
                self._time_out_after(number, asked.patience, time_out)

        if asked.HasField("patience"):
            self._time_out_after(number, asked.patience, time_out)

    def _check_operator(self, doing: str) -> None:
        if not self._operator:
            raise NotAuthorized(
                f"{doing} is a right of operators",
                why="A replica gets all rows, and the controller connects to it with its own credentials.",
                fix="use the credentials of an operator: the controller's options --operator-name and "
                "--operator-token-file say who is one",
            )

    def add_replica(self, number: int, asked: pb.AddReplica) -> None:
        self._check_operator("adding a replica")
        runtime = asked.runtime or "here"
        if runtime not in ("here", "spark"):
            raise BadMessage(f"{runtime!r} is no runtime", field="AddReplica.runtime")
        host_of(asked.address)
        timely = TimelyConfig(runtime, asked.workers or 1)
        self._controller.add_replica(asked.name, asked.address, timely)
        self._around.check_due_work()
        self._answer(number, done=pb.Done())

    def drop_replica(self, number: int, asked: pb.DropReplica) -> None:
        self._check_operator("dropping a replica")
        self._controller.drop_replica(asked.name)
        self._around.check_due_work()
        self._answer(number, done=pb.Done())

    def release_replica(self, number: int, asked: pb.ReleaseReplica) -> None:
        self._check_operator("releasing a replica")
        self._controller.release_replica(asked.name)
        self._around.check_due_work()
        self._answer(number, done=pb.Done())

    def status(self, number: int, asked: pb.Status) -> None:
        body = encoding.encode(to_plain(self._controller.status()))
        self._answer(number, condition=pb.Condition(body=body))


_REQUESTS: dict[str, Callable[[ClientSession, int, Any], None]] = {
    "describe": ClientSession.describe,
    "get_plan": ClientSession.get_plan,
    "create_collection": ClientSession.create_collection,
    "create_view": ClientSession.create_view,
    "drop": ClientSession.drop,
    "write": ClientSession.write_rows,
    "peek": ClientSession.peek,
    "cancel_peek": ClientSession.cancel_peek,
    "copy": ClientSession.copy,
    "add_replica": ClientSession.add_replica,
    "drop_replica": ClientSession.drop_replica,
    "release_replica": ClientSession.release_replica,
    "status": ClientSession.status,
}


def _named(error: Exception, names: Mapping[str, str]) -> Exception:
    """Rewrite an error of the store, which knows only ids, to name the collection as users do."""
    if not isinstance(error, NegativeMultiplicity) or error.facts["id"] not in names:
        return error
    name, row = names[error.facts["id"]], error.facts["row"]
    return NegativeMultiplicity(
        f"a row of {name!r} is retracted more often than inserted: {row!r:.200}",
        why=error.why,
        fix=error.fix,
        **error.facts,
    )


def _changes(part: pb.Write.Part) -> list[Counted]:
    come = encoding.decode_counted(part.come, "Write.come") if part.come else ()
    go = encoding.decode_counted(part.go, "Write.go") if part.go else ()
    return [*come, *((row, -count) for row, count in go)]


def _finishing(asked: pb.Peek) -> Finishing:
    return Finishing(
        order_by=tuple((order.column, order.descending) for order in asked.order_by),
        limit=asked.limit if asked.HasField("limit") else None,
        offset=asked.offset,
        project=tuple(asked.project) if asked.projected else None,
    )


def encode_description(described: Described) -> pb.Description:
    """Encode the description of a view or collection for clients."""
    return pb.Description(
        id=described.id,
        view=described.view,
        schema=schema_to_bytes(described.schema),
        key=described.key,
        append_only=described.append_only,
    )


def _limits_of(asked: pb.CreateView) -> DataflowLimits:
    """Return the limits of a view. Raises `BadMessage` for one that is 0 or too large for the catalog."""
    given = {f.name: getattr(asked, f.name) for f in fields(DataflowLimits) if asked.HasField(f.name)}
    for name, value in given.items():
        if not 0 < value < 2**63:
            raise BadMessage(f"{name} is from 1 to 2**63 - 1, and not {value}", field=f"CreateView.{name}")
    return DataflowLimits(**given)
