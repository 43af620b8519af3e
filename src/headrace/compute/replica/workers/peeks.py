"""Peeks answered by several workers: sent to each, and finished when all rows have arrived."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from headrace.compute.errors import ResultGone
from headrace.compute.protocol.commands import CancelPeek, Finishing, Peek
from headrace.compute.protocol.responses import Counted, PeekResponse, Rows, Stashed
from headrace.compute.replica.peek_finishing import PeekFinisher, peek_finisher
from headrace.compute.replica.workers.responses import MergedStash, ResponseMerger
from headrace.compute.replica.workers.worker_link import WorkerLink
from headrace.expr.types import Schema

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
            case Rows(rows):
                finish = peek_finisher(_of_the_whole(asked.finishing), schema)
                return PeekResponse(
                    merged.uuid, Rows(tuple(r for part in _finished(finish, [rows]) for r in part))
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
