"""Session of one client: its stream of requests to the controller, and the answers.

Writes go through a group commit: those that arrive during a commit are committed together in the next. On a
slow disk each client waits for about one commit, rather than for those of all other clients in turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any, Protocol

from headrace.compute.collections.store import CollectionAppend, Collections
from headrace.compute.controller.controller import Controller
from headrace.compute.controller.pending import PeekAnswer, StashedOnReplica
from headrace.compute.controller.status import to_plain
from headrace.compute.credentials import host_of
from headrace.compute.errors import (
    BadMessage,
    NegativeMultiplicity,
    NotAuthorized,
    PeekCanceled,
    StaleEpoch,
    Unconfirmed,
    problem_of,
    problem_of_any,
)
from headrace.compute.protocol import rows as encoding
from headrace.compute.protocol.client_messages import (
    ANSWER,
    REQUEST,
    AddReplica,
    CancelPeekRequest,
    ClientAnswer,
    ConditionAnswer,
    CopyRequest,
    CreateCollection,
    CreateView,
    DescribeRequest,
    DoneAnswer,
    DropReplica,
    DropRequest,
    GetPlan,
    PeekMessage,
    ReleaseReplica,
    RowsPart,
    StatusRequest,
    WriteRequest,
)
from headrace.compute.protocol.commands import DataflowLimits, PlanBytes, TimelyConfig
from headrace.compute.protocol.responses import Canceled, Counted, Dropped, Problem, RowCount, RowsResponse
from headrace.compute.protocol.rows import encode_chunks
from headrace.errors import HeadraceError

MAX_ROWS = 50_000
"""Limit on the rows of one commit; a single larger write is committed alone."""


@dataclass(frozen=True)
class _Asked:
    """Pending write of a client. id: identifies retries of the write. time: set once it is durable."""

    changes: dict[str, list[Counted]]
    id: bytes
    time: asyncio.Future[int]

    @property
    def rows(self) -> int:
        return sum(map(len, self.changes.values()))

    def fail(self, error: BaseException) -> None:
        if not self.time.done():
            self.time.set_exception(error)


class GroupCommit:
    """Group commit of the writes of all clients, one group at a time.

    open_collections: opens the store, in the thread that appends.
    fenced: called when a later controller has taken over.
    """

    def __init__(
        self,
        controller: Controller,
        open_collections: Callable[[], Collections],
        fenced: Callable[[StaleEpoch], None],
    ) -> None:
        self._controller = controller
        self._open = open_collections
        self._fenced = fenced
        self._store: Collections | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headrace append")
        self._waiting: list[_Asked] = []
        self._asked: dict[bytes, _Asked] = {}
        self._committing: asyncio.Task[None] | None = None

    def write(self, changes: dict[str, list[Counted]], id: bytes) -> asyncio.Future[int]:
        """Queue a write, and return a future of its time, set once it is durable, or of its error.

        A write repeated with the same id, because an answer was lost, is done once.
        """
        again = self._asked.get(id)
        if again is not None:
            return again.time
        asked = _Asked(changes, id, asyncio.get_running_loop().create_future())
        self._asked[id] = asked
        asked.time.add_done_callback(lambda _: self._asked.pop(id, None))
        self._waiting.append(asked)
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit_all())
        return asked.time

    async def close(self) -> None:
        """Finish the current commit, cancel the queued writes, and close the store."""
        for asked in self._waiting:
            asked.time.cancel()
        self._waiting.clear()
        if self._committing is not None:
            await self._committing
        if self._store is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._store.close)
        self._thread.shutdown()

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                await self._commit(self._next_group())
        finally:
            self._committing = None

    def _next_group(self) -> list[_Asked]:
        rows = 0
        for count, asked in enumerate(self._waiting):
            rows += asked.rows
            if count and rows > MAX_ROWS:
                break
        else:
            count = len(self._waiting)
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group

    async def _commit(self, group: list[_Asked]) -> None:
        try:
            group = [asked for asked in group if not self._was_done(asked)]
            if not group:
                return
            time = await self._committed(group)
        except StaleEpoch as error:
            for asked in group:
                asked.fail(error)
            self._fenced(error)
        except HeadraceError as error:
            if len(group) == 1:
                group[0].fail(error)
                return
            # Only one of them is at fault, so retry each by itself.
            for asked in group:
                await self._commit([asked])
        except Exception as error:
            for asked in group:
                asked.fail(error)
        else:
            for asked in group:
                if not asked.time.done():
                    asked.time.set_result(time)

    def _was_done(self, asked: _Asked) -> bool:
        """Return whether the write is already durable; if so, set its time."""
        time = self._controller.time_of_write(asked.id)
        if time is not None and not asked.time.done():
            asked.time.set_result(time)
        return time is not None

    async def _committed(self, group: Sequence[_Asked]) -> int:
        changes: dict[str, list[Counted]] = {}
        for asked in group:
            for name, rows in asked.changes.items():
                changes.setdefault(name, []).extend(rows)
        write = self._controller.begin_write(changes, [asked.id for asked in group])
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._append, write.appends)
        except Exception:
            # Any exception at all: the next write may begin only after this one is settled.
            if not self._controller.fail_write(write):
                raise
        else:
            self._controller.end_write(write)
        return write.time

    def _append(self, appends: Sequence[CollectionAppend]) -> None:
        # Runs in the executor's only thread: a store must be used by the thread that opened it.
        if self._store is None:
            self._store = self._open()
        self._store.append(appends)


log = logging.getLogger("headrace.controller")

MAX_WAITING = 1_000
"""Limit on answers buffered for a client that does not read them; above it, its requests are not read."""
MAX_BYTES = 8 * 1024 * 1024
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


@dataclass(slots=True, eq=False)
class _PendingRequest:
    """Unanswered peek or copy: its cancel function, and the timer of its patience, if it has one."""

    cancel: Callable[[], None]
    timer: asyncio.TimerHandle | None = None


class ClientSession:
    """Requests and answers of one stream, until it ends.

    operator: whether the client may manage replicas.
    """

    def __init__(self, around: SessionHost, *, operator: bool) -> None:
        self._around = around
        self._operator = operator
        self._controller = around.controller
        self._answers: deque[Any] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._pending: dict[int, _PendingRequest] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False

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
                if len(self._answers) < MAX_WAITING // 2 and self._bytes < MAX_BYTES // 2:
                    self._room.set()
            self._arrived.clear()
            await self._arrived.wait()

    def end(self) -> None:
        """End the session, cancelling its peeks and copies. Its writes continue."""
        self._ended = True
        for task in self._tasks:
            task.cancel()
        for number, pending in list(self._pending.items()):
            self._settle(number)
            pending.cancel()

    def _time_out_after(self, number: int, milliseconds: int, time_out: Callable[[], None]) -> None:
        """Call `time_out` unless the request is answered within the given milliseconds."""
        timer = asyncio.get_running_loop().call_later(milliseconds / 1000, time_out)
        self._pending[number].timer = timer

    def _settle(self, number: int) -> None:
        """Forget an answered request, and stop its timer."""
        pending = self._pending.pop(number, None)
        if pending is not None and pending.timer is not None:
            pending.timer.cancel()

    def _answer(self, number: int, content: ClientAnswer) -> None:
        if self._ended:
            return
        answer = ANSWER.to_message(content)
        answer.number = number
        self._answers.append(answer)
        self._bytes += len(answer.rows.rows)
        self._arrived.set()
        if len(self._answers) >= MAX_WAITING or self._bytes >= MAX_BYTES:
            self._room.clear()

    def handle_request(self, message: Any) -> None:
        """Handle a request. Every request gets an answer, a problem if it fails."""
        number: int = message.number
        try:
            if message.WhichOneof("kind") is None:
                raise BadMessage("a request of no kind that is known here", field="kind")
            request = REQUEST.from_message(message)
            _REQUESTS[type(request)](self, number, request)
        except Exception as error:
            self._refuse(number, error)

    def _refuse(self, number: int, error: Exception) -> None:
        if isinstance(error, StaleEpoch):
            self._around.end_fenced(error)
        if not isinstance(error, HeadraceError):
            log.error("a mistake in Headrace", exc_info=error)
        self._answer(number, problem_of_any(error))

    def describe(self, number: int, asked: DescribeRequest) -> None:
        self._answer(number, self._controller.describe(asked.name))

    def get_plan(self, number: int, asked: GetPlan) -> None:
        self._answer(number, self._controller.plan_of(asked.view))

    def create_collection(self, number: int, asked: CreateCollection) -> None:
        id = self._controller.create_collection(asked.name, asked.schema, append_only=asked.append_only)
        self._answer(number, DoneAnswer(id=id))

    def create_view(self, number: int, asked: CreateView) -> None:
        id = self._controller.create_view(
            asked.name,
            PlanBytes(asked.plan, asked.places),
            key=asked.key,
            keep=asked.keep,
            into=asked.into,
            limits=_limits_of(asked),
        )
        self._around.check_due_work()
        self._answer(number, DoneAnswer(id=id))

    def drop(self, number: int, asked: DropRequest) -> None:
        self._controller.drop(asked.name)
        self._answer(number, DoneAnswer())

    def write_rows(self, number: int, asked: WriteRequest) -> None:
        changes: dict[str, list[Counted]] = {}
        for part in asked.parts:
            described = self._controller.describe(part.collection)
            if described.id != part.id:
                self._answer(number, described)
                return
            deleted = ((row, -count) for row, count in part.go)
            changes.setdefault(part.collection, []).extend([*part.come, *deleted])
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
            self._answer(number, DoneAnswer(time=time.result()))

    def peek(self, number: int, asked: PeekMessage) -> None:
        described = self._controller.describe(asked.request.view)
        if described.id != asked.id:
            self._answer(number, described)
            return
        answered = False

        def answer(found: PeekAnswer) -> None:
            nonlocal answered
            answered = True
            self._settle(number)
            self._peeked(number, found)

        uuid = self._controller.peek(asked.request, answer)
        if not answered:
            self._pending[number] = _PendingRequest(lambda: self._controller.cancel_peek(uuid))
            if asked.patience is not None:
                self._time_out_after(number, asked.patience, lambda: self._controller.time_out_peek(uuid))

    def _peeked(self, number: int, found: PeekAnswer) -> None:
        match found:
            case RowsResponse():
                for chunk, more in encode_chunks(found.rows):
                    self._answer(number, RowsPart(chunk, more))
            case StashedOnReplica():
                if not self._ended:
                    task = asyncio.create_task(self._pass_on(number, found))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
            case Problem():
                self._answer(number, found)
            case Canceled():
                error = PeekCanceled("the peek was cancelled", fix="send it again if it is still wanted")
                self._answer(number, problem_of(error))

    async def _pass_on(self, number: int, stash: StashedOnReplica) -> None:
        """Forward all rows stashed at a replica, as fast as the client reads them."""
        try:
            async for chunk in self._around.fetch(stash):
                self._answer(number, RowsPart(chunk, more=True))
                await self._room.wait()
            self._answer(number, RowsPart(encoding.encode(())))
        except Exception as error:
            self._refuse(number, error)

    def cancel_peek(self, number: int, asked: CancelPeekRequest) -> None:
        pending = self._pending.get(asked.peek)
        if pending is not None:
            pending.cancel()

    def copy(self, number: int, asked: CopyRequest) -> None:
        def answer(result: RowCount | Problem | Dropped) -> None:
            self._settle(number)
            match result:
                case RowCount():
                    self._answer(number, DoneAnswer(rows=result.rows))
                case Problem():
                    self._answer(number, result)
                case Dropped():
                    error = PeekCanceled(
                        "the copy was dropped before it was complete",
                        fix="send it again if it is still wanted",
                    )
                    self._answer(number, problem_of(error))

        id = self._controller.copy(asked.view, asked.file, answer)
        self._pending[number] = _PendingRequest(lambda: self._controller.cancel_copy(id))
        patience = asked.patience
        if patience is None:
            return

        def time_out() -> None:
            if not self._controller.time_out_copy(id, patience):
                self._answer(number, RowsPart(more=True))  # tells the client that a replica works on it
                self._time_out_after(number, patience, time_out)

        self._time_out_after(number, patience, time_out)

    def _check_operator(self, doing: str) -> None:
        if not self._operator:
            raise NotAuthorized(
                f"{doing} is a right of operators",
                why="A replica gets all rows, and the controller connects to it with its own credentials.",
                fix="use the credentials of an operator: the controller's options --operator-name and "
                "--operator-token-file say who is one",
            )

    def add_replica(self, number: int, asked: AddReplica) -> None:
        self._check_operator("adding a replica")
        runtime = asked.runtime or "here"
        if runtime not in ("here", "spark"):
            raise BadMessage(f"{runtime!r} is no runtime", field="AddReplica.runtime")
        host_of(asked.address)
        timely = TimelyConfig(runtime, asked.workers or 1)
        self._controller.add_replica(asked.name, asked.address, timely)
        self._around.check_due_work()
        self._answer(number, DoneAnswer())

    def drop_replica(self, number: int, asked: DropReplica) -> None:
        self._check_operator("dropping a replica")
        self._controller.drop_replica(asked.name)
        self._around.check_due_work()
        self._answer(number, DoneAnswer())

    def release_replica(self, number: int, asked: ReleaseReplica) -> None:
        self._check_operator("releasing a replica")
        self._controller.release_replica(asked.name)
        self._around.check_due_work()
        self._answer(number, DoneAnswer())

    def status(self, number: int, asked: StatusRequest) -> None:
        self._answer(number, ConditionAnswer(encoding.encode(to_plain(self._controller.status()))))


_REQUESTS: dict[type[Any], Callable[[ClientSession, int, Any], None]] = {
    DescribeRequest: ClientSession.describe,
    GetPlan: ClientSession.get_plan,
    CreateCollection: ClientSession.create_collection,
    CreateView: ClientSession.create_view,
    DropRequest: ClientSession.drop,
    WriteRequest: ClientSession.write_rows,
    PeekMessage: ClientSession.peek,
    CancelPeekRequest: ClientSession.cancel_peek,
    CopyRequest: ClientSession.copy,
    AddReplica: ClientSession.add_replica,
    DropReplica: ClientSession.drop_replica,
    ReleaseReplica: ClientSession.release_replica,
    StatusRequest: ClientSession.status,
}


def _named(error: Exception, names: Mapping[str, str]) -> Exception:
    """Rewrite a store error, which contains only ids, to name the collection as users do."""
    if not isinstance(error, NegativeMultiplicity) or error.facts["id"] not in names:
        return error
    name, row = names[error.facts["id"]], error.facts["row"]
    return NegativeMultiplicity(
        f"a row of {name!r} is retracted more often than inserted: {row!r:.200}",
        why=error.why,
        fix=error.fix,
        **error.facts,
    )


def _limits_of(asked: CreateView) -> DataflowLimits:
    """Return the limits of a view. Raises `BadMessage` if a limit is 0 or too large for the catalog."""
    named = {f.name: getattr(asked, f.name) for f in fields(DataflowLimits)}
    given = {name: value for name, value in named.items() if value is not None}
    for name, value in given.items():
        if not 0 < value < 2**63:
            raise BadMessage(f"{name} is from 1 to 2**63 - 1, and not {value}", field=f"CreateView.{name}")
    return DataflowLimits(**given)
