"""Multi-worker runtime: each dataflow runs on one worker process, or divided among all.

The workers' responses are merged (`responses`), so that the replica looks undivided from outside. If one
worker ends, the replica ends, since an answer needs the rows of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.compute.errors import ResultGone
from headrace.compute.frontier import END, LAST_TIME, START, Frontier, join, meet
from headrace.compute.plans import sinks_of
from headrace.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    CopyToExport,
    Dataflow,
    Finishing,
    Id,
    IndexExport,
    IndexTarget,
    InstanceConfig,
    Parameters,
    Peek,
    Schedule,
    SubscribeExport,
    UpdateConfiguration,
)
from headrace.compute.protocol.responses import (
    BatchResponse,
    CopyToResponse,
    Counted,
    DroppedAt,
    PeekResponse,
    RowsResponse,
    Stashed,
    Status,
    SubscribeResponse,
)
from headrace.compute.protocol.rows import row_size
from headrace.compute.replica.building import PlanDecoder
from headrace.compute.replica.peek_finishing import PeekFinisher, peek_finisher
from headrace.compute.replica.runtime import Answer, ReachedFrontiers, ReplicaRuntime
from headrace.compute.replica.workers.responses import MergedStash, ResponseMerger, choose_reading_worker
from headrace.compute.replica.workers.shard import HostedDataflow, choose_workers
from headrace.compute.replica.workers.worker_link import (
    BeginWorker,
    BuildDataflow,
    ForgetAnswers,
    ForgetExport,
    ToWorker,
    WorkerLink,
    WorkerResponse,
)
from headrace.errors import HeadraceError
from headrace.expr.types import Schema
from headrace.flow.flow import Flow

_STASHES = 100
"""Limit on large results waiting to be fetched; beyond it, the oldest are discarded."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """Pending peek. schema: schema of the rows, if the replica finishes the answers of several workers."""

    workers: tuple[int, ...]
    finishing: Finishing
    schema: Schema | None


class WorkerPeeks:
    """Peeks of a multi-worker replica, and large results waiting to be fetched.

    links: links to the workers. merged: merger of their responses.
    """

    def __init__(self, links: Sequence[WorkerLink], merged: ResponseMerger) -> None:
        self._links = links
        self._merged = merged
        self._asked: dict[bytes, _Asked] = {}
        self._stashes: dict[bytes, tuple[_Asked, MergedStash]] = {}

    def ask(self, peek: Peek, workers: tuple[int, ...], schema: Schema | None = None) -> None:
        """Send a peek to the workers. schema: schema of the rows, or None if one worker has all rows."""
        self._asked[peek.uuid] = _Asked(workers, peek.finishing, schema)
        if schema is not None:
            peek = replace(peek, finishing=_of_a_part(peek.finishing))
        for worker in workers:
            self._links[worker].send(peek)

    def cancel(self, uuid: bytes) -> None:
        """Cancel a peek on the workers if it is pending."""
        if uuid in self._asked:
            for worker in self._asked[uuid].workers:
                self._links[worker].send(CancelPeek(uuid))

    def drop_all(self) -> None:
        """Drop all peeks because a new connection begins."""
        self._asked.clear()
        self._stashes.clear()

    def merge_answer(self, worker: int, answer: PeekResponse) -> PeekResponse | None:
        """Take one worker's answer. Returns the replica's answer, or None if there is none yet."""
        asked = self._asked.get(answer.uuid)
        if asked is None:
            return None
        if asked.schema is None:
            del self._asked[answer.uuid]
            if isinstance(answer.answer, Stashed):
                self._keep(answer.answer, asked, MergedStash((), {worker: answer.answer.token}))
            return answer
        merged = self._merged.merge_response(worker, answer)
        if not isinstance(merged, PeekResponse):
            return None
        del self._asked[answer.uuid]
        return self._finished(merged, asked, asked.schema)

    def _finished(self, merged: PeekResponse, asked: _Asked, schema: Schema) -> PeekResponse:
        match merged.answer:
            case RowsResponse(rows):
                finish = peek_finisher(_of_the_whole(asked.finishing), schema)
                return PeekResponse(
                    merged.uuid, RowsResponse(tuple(r for part in _finished(finish, [rows]) for r in part))
                )
            case Stashed() as stashed:
                whole = self._merged.take_stash(stashed.token)
                assert whole is not None
                if _ends_together(asked.finishing):
                    stashed = replace(stashed, inline=())  # which rows are the first ones is not known yet
                self._keep(stashed, asked, whole)
                return PeekResponse(merged.uuid, stashed)
            case _:
                return merged

    def _keep(self, stashed: Stashed, asked: _Asked, whole: MergedStash) -> None:
        self._stashes[stashed.token] = (asked, whole)
        while len(self._stashes) > _STASHES:
            del self._stashes[next(iter(self._stashes))]

    def fetch(self, token: bytes) -> Iterator[Sequence[Counted]]:
        """Read the rows of a large result in parts, once. Raises `ResultGone`."""
        found = self._stashes.pop(token, None)
        if found is None:
            raise ResultGone("the rows of this result are not here any more", fix="send the peek again")
        asked, whole = found
        rows = self._fetched(whole)
        if asked.schema is None or not _ends_together(asked.finishing):
            return rows
        return _finished(peek_finisher(_of_the_whole(asked.finishing), asked.schema), rows)

    def _fetched(self, whole: MergedStash) -> Iterator[Sequence[Counted]]:
        yield whole.loose
        for worker, token in whole.tokens.items():
            yield from self._links[worker].fetch(token)


def _finished(finish: PeekFinisher, parts: Iterable[Sequence[Counted]]) -> Iterator[Sequence[Counted]]:
    for part in parts:
        goes_on = finish.add_rows(part)
        yield from finish.ready()
        if not goes_on:
            break
    yield from finish.rows()


def _ends_together(finishing: Finishing) -> bool:
    """Return whether the rows to send, or their order, depend on the rows of all workers."""
    return bool(finishing.order_by or finishing.offset) or finishing.limit is not None


def _of_a_part(finishing: Finishing) -> Finishing:
    """Return the finishing for each worker, which keeps enough rows to order and cut the whole."""
    limit = None if finishing.limit is None else finishing.limit + finishing.offset
    project = None if finishing.order_by else finishing.project
    return Finishing(finishing.order_by, limit, 0, project)


def _of_the_whole(finishing: Finishing) -> Finishing:
    """Return the finishing that remains for the workers' combined rows."""
    return finishing if finishing.order_by else replace(finishing, project=None)


@dataclass(frozen=True, slots=True)
class _Export:
    """Export with its dataflow. schema: schema of the rows, if the plan can be decoded.

    since_heard: by worker, the number of messages after which its reports concern this export.
    """

    hosted: HostedDataflow
    schema: Schema | None
    since_heard: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _Speaker:
    """Subscription or copy. speaking: workers with an outstanding last event."""

    divided: bool
    speaking: set[int]


class Workers(ReplicaRuntime):
    """Runtime on worker processes, which start with the runtime and end at `close`.

    number: number of workers. folder: for copies (`copies/`) and each worker's own files (`worker-0/`, ...).
    """

    def __init__(
        self,
        config: InstanceConfig,
        wake: Callable[[], None],
        *,
        number: int,
        folder: Path,
        allow_callables: bool = False,
    ) -> None:
        super().__init__(config, wake)
        self._plans = PlanDecoder(allow_callables)
        self._links = [
            WorkerLink(
                BeginWorker(n, number, config, folder / f"worker-{n}", folder / "copies", allow_callables),
                wake,
            )
            for n in range(number)
        ]
        self._merged = ResponseMerger(number, row_size)
        self._exports: dict[Id, _Export] = {}
        self._hosted: dict[Id, HostedDataflow] = {}
        self._wanted: dict[frozenset[Id], set[Id]] = {}
        self._unscheduled: dict[frozenset[Id], set[Id]] = {}
        self._peeks = WorkerPeeks(self._links, self._merged)
        self._speakers: dict[Id, _Speaker] = {}
        self._uppers: dict[Id, Frontier] = {}
        self._barrier = [0] * number
        self._seen: list[Mapping[str, float]] = [{}] * number
        self._answers: list[Answer] = []
        self._moved = True

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [link.pid for link in self._links]

    def configure(self, parameters: Parameters) -> None:
        self._merged.max_result_size = parameters.max_result_size
        self._send(range(len(self._links)), UpdateConfiguration(parameters))

    def create_dataflow(self, dataflow: Dataflow) -> None:
        flow = self._flow(dataflow)
        hosted = choose_workers(dataflow, flow, len(self._links), self._hosted)
        schemas = {} if flow is None else {sink.name: sink.schema for sink in sinks_of(flow)}
        for copy in hosted.copies:
            self._send(hosted.workers, BuildDataflow(copy, divided=False))
        self._send(hosted.workers, BuildDataflow(hosted.built, hosted.divided))
        heard = {worker: self._links[worker].sent for worker in hosted.workers}
        for id in hosted.copied_ids:
            # Nobody else asks for it, and its reader holds what it reads.
            self._send(hosted.workers, AllowCompaction(id, Frontier(LAST_TIME)))
        ids = dataflow.export_ids
        self._wanted[ids], self._unscheduled[ids] = set(ids), set(ids)
        for export in dataflow.exports:
            self._exports[export.id] = _Export(hosted, schemas.get(export.sink), heard)
            if isinstance(export, SubscribeExport | CopyToExport):
                self._speakers[export.id] = _Speaker(hosted.divided, set(hosted.workers))
            if isinstance(export, IndexExport):
                self._hosted[export.id] = hosted

    def _flow(self, dataflow: Dataflow) -> Flow | None:
        """Decode a dataflow's plan; None if invalid, which the building worker reports."""
        try:
            return self._plans.flow(dataflow.plan)
        except HeadraceError:
            return None

    def schedule(self, id: Id) -> None:
        hosted = self._exports[id].hosted
        self._schedule_copies(hosted, id)
        self._send(hosted.workers, Schedule(id))

    def _schedule_copies(self, hosted: HostedDataflow, id: Id) -> None:
        """Schedule a dataflow's internal copies once no export but this one is waiting."""
        waiting = self._unscheduled[hosted.dataflow.export_ids]
        if waiting == {id}:
            for copy in hosted.copied_ids:
                self._send(hosted.workers, Schedule(copy))
        waiting.discard(id)

    def allow_writes(self, id: Id) -> None:
        self._send(self._exports[id].hosted.workers, AllowWrites(id))

    def allow_compaction(self, id: Id, frontier: Frontier) -> None:
        hosted = self._exports[id].hosted
        ids = hosted.dataflow.export_ids
        if frontier.ended and self._wanted[ids] != {id}:
            self._schedule_copies(hosted, id)
        self._send(hosted.workers, AllowCompaction(id, frontier))
        if not frontier.ended:
            return
        self._hosted.pop(id, None)
        self._unscheduled[ids].discard(id)
        self._wanted[ids].discard(id)
        if not self._wanted[ids]:
            del self._wanted[ids], self._unscheduled[ids]
            for copy in hosted.copied_ids:
                self._send(hosted.workers, AllowCompaction(copy, END))
                self._send(hosted.workers, ForgetExport(copy))

    def peek(self, peek: Peek) -> None:
        export = self._exports.get(peek.target.id) if isinstance(peek.target, IndexTarget) else None
        if export is not None and export.hosted.divided and export.schema is not None:
            self._peeks.ask(peek, export.hosted.workers, export.schema)
        else:
            on = export.hosted.workers if export else (choose_reading_worker(peek.uuid, len(self._links)),)
            self._peeks.ask(peek, on)

    def cancel_peek(self, uuid: bytes) -> None:
        self._peeks.cancel(uuid)

    def forget_answers(self) -> None:
        self._send(range(len(self._links)), ForgetAnswers())
        self._barrier = [link.sent for link in self._links]
        self._merged.reset()
        self._speakers.clear()
        self._uppers.clear()
        self._peeks.drop_all()
        self._answers.clear()

    def forget(self, id: Id) -> None:
        export = self._exports.pop(id, None)
        if export is not None:
            self._send(export.hosted.workers, ForgetExport(id))
            self._hosted.pop(id, None)

    def _send(self, workers: Sequence[int], message: ToWorker) -> None:
        for worker in workers:
            self._links[worker].send(message)

    def step(self, seconds: float) -> bool:
        for worker, link in enumerate(self._links):
            for response in link.take():
                self._moved |= response.frontiers is not None
                self._hear(worker, response)
        return False

    def _hear(self, worker: int, response: WorkerResponse) -> None:
        if response.heard < self._barrier[worker]:
            return  # to another connection
        for answer in response.answers:
            answered = self._answer(worker, answer)
            if answered is not None:
                self._answers.append(answered)

    def _answer(self, worker: int, answer: Answer) -> Answer | None:
        match answer:
            case PeekResponse():
                return self._peeks.merge_answer(worker, answer)
            case SubscribeResponse(id) | CopyToResponse(id):
                return self._spoken(id, worker, answer) if id in self._speakers else None
            case Status(None, text, values):
                self._seen[worker] = dict(values)
                return Status(None, text, _seen_together(self._seen))
            case Status(id):
                return answer if id in self._exports else None

    def _spoken(self, id: Id, worker: int, answer: SubscribeResponse | CopyToResponse) -> Answer | None:
        speaker = self._speakers[id]
        answered = self._event(worker, answer) if speaker.divided else answer
        if _is_last(answer):
            speaker.speaking.discard(worker)
            if not speaker.speaking:
                del self._speakers[id]
                self._uppers.pop(id, None)
        return answered

    def _event(self, worker: int, answer: SubscribeResponse | CopyToResponse) -> Answer | None:
        merged = self._merged.merge_response(worker, answer)
        match merged:
            case SubscribeResponse(id, BatchResponse() as batch):
                self._uppers[id] = batch.upper
                return merged
            case SubscribeResponse(id, DroppedAt()):
                # The worker that was dropped first was not where all were.
                return SubscribeResponse(id, DroppedAt(self._uppers.get(id, START)))
            case CopyToResponse() | None:
                return merged
            case _:
                raise AssertionError(f"not of an export: {merged!r}")

    def take_answers(self) -> list[Answer]:
        answers = list(self._answers)
        self._answers.clear()
        return answers

    def fetch(self, token: bytes) -> Iterator[Sequence[Counted]]:
        return self._peeks.fetch(token)

    def frontiers(self) -> Mapping[Id, ReachedFrontiers]:
        self._moved = False
        found: dict[Id, ReachedFrontiers] = {}
        for id, export in self._exports.items():
            parts = [self._reached(worker, id, export) for worker in export.hosted.workers]
            known = [part for part in parts if part is not None]
            if len(known) == len(parts):
                found[id] = _together(known)
        return found

    def _reached(self, worker: int, id: Id, export: _Export) -> ReachedFrontiers | None:
        """Return an export's progress on a worker, or None if the worker has not reported on it yet."""
        link = self._links[worker]
        return link.frontiers.get(id) if link.heard >= export.since_heard[worker] else None

    def frontiers_moved(self) -> bool:
        return self._moved

    def broken_exports(self) -> Mapping[Id, bool]:
        found: dict[Id, bool] = {}
        for id, export in self._exports.items():
            for worker, heard in export.since_heard.items():
                link = self._links[worker]
                if link.heard >= heard and id in link.broken:
                    found[id] = found.get(id, False) or link.broken[id]
        return found

    def close(self) -> None:
        for link in self._links:
            link.close()


def _is_last(answer: SubscribeResponse | CopyToResponse) -> bool:
    """Return whether an answer is the last of its export."""
    match answer:
        case SubscribeResponse(_, BatchResponse() as batch):
            return batch.upper.ended
        case _:
            return True


def _seen_together(seen: Sequence[Mapping[str, float]]) -> tuple[tuple[str, float], ...]:
    """Combine the workers' metrics: the slowest duration, the sum of all others."""
    names = dict.fromkeys(name for values in seen for name in values)
    found = {name: [values[name] for values in seen if name in values] for name in names}
    return tuple((name, max(v) if "_ms" in name else sum(v)) for name, v in found.items())


def _together(parts: Sequence[ReachedFrontiers]) -> ReachedFrontiers:
    return ReachedFrontiers(
        meet(part.write for part in parts),
        meet(part.input for part in parts),
        meet(part.output for part in parts),
        join(part.since for part in parts),
    )
