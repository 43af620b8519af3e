"""Peeks on Spark: threads read the files of an index, or have Spark read them where they are large.

A peek waits until its time is settled, and holds that time meanwhile. One of several keys, or of a small
index, is read here; a scan of a large one is a job of Spark, in a group of its own that can be cancelled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.compute.collections.store import Collections
from penstock.compute.errors import RuntimeLost, UnknownName
from penstock.compute.frontier import Frontier
from penstock.compute.problems import problem_of
from penstock.compute.protocol.commands import CollectionTarget, Parameters, Peek
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import Canceled, Counted, PeekResponse, Problem, Rows, Stashed
from penstock.compute.replica.peek_run import PeekRun, below_since, collection_parts
from penstock.compute.replica.peek_stash import PeekStash
from penstock.compute.replica.plans import Plans
from penstock.compute.replica.request_checks import check_keys
from penstock.compute.replica.spark_building import SparkIndex
from penstock.compute.replica.spark_scan import scan
from penstock.compute.replica.spark_threads import SparkThreads, Stores
from penstock.compute.replica.spark_versions import Hold
from penstock.errors import PenstockError
from penstock.expr.types import DataType, Float64Type, Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW_CHANGES = 100_000
"""An index of so many changes is read faster here than Spark begins."""
_PART = 4096


@dataclass(slots=True)
class _Pending:
    """A peek that is not answered. index: None for a collection. at_work: a thread reads for it."""

    peek: Peek
    index: SparkIndex | None
    hold: Hold | None
    at_work: bool = False
    cancelled: bool = False

    @property
    def group(self) -> str:
        """The name of its jobs on Spark."""
        return f"peek {self.peek.uuid.hex()}"


@dataclass(slots=True)
class SparkPeeks:
    """The peeks that wait or are being answered. tell: takes answers; each peek has one, at most."""

    crew: SparkThreads
    indexes: Mapping[Id, SparkIndex]
    schema_of_collection: Callable[[Collections, Id], Schema]
    plans: Plans
    settings: Callable[[], Parameters]
    stash: PeekStash
    tell: Callable[[PeekResponse], None]
    spark: Callable[[], SparkSession]
    _pending: dict[bytes, _Pending] = field(default_factory=dict[bytes, "_Pending"])
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __len__(self) -> int:
        return len(self._pending)

    def ask(self, peek: Peek) -> None:
        """Take on a peek."""
        try:
            pending = _Pending(peek, *self._target(peek))
        except PenstockError as error:
            self.tell(PeekResponse(peek.uuid, self._problem(peek, error)))
            return
        with self._lock:
            self._pending[peek.uuid] = pending
        self._begin(pending)

    def _target(self, peek: Peek) -> tuple[SparkIndex | None, Hold | None]:
        if isinstance(peek.target, CollectionTarget):
            return None, None
        index = self.indexes.get(peek.target.id)
        if index is None:
            raise UnknownName(f"the replica has no index {peek.target.id}", name=peek.target.id)
        if index.since > Frontier(peek.time):
            raise below_since(index.id, peek.time, index.since)
        failed = index.versions.failed
        if failed is not None and peek.time >= failed.time:
            raise failed.error
        check_keys(peek, len(index.key) or len(index.schema.fields))
        return index, index.versions.hold(peek.time)

    def cancel(self, uuid: bytes) -> None:
        """Answer `Canceled`, unless it is answered."""
        pending = self._take(uuid)
        if pending is not None:
            self.tell(PeekResponse(uuid, Canceled()))
            self._stop(pending)

    def forget(self) -> None:
        """Drop all, without a word."""
        with self._lock:
            dropped = list(self._pending)
        for uuid in dropped:
            pending = self._take(uuid)
            if pending is not None:
                self._stop(pending)

    def dropped(self, id: Id) -> None:
        """An index is dropped: peeks that wait for it have no answer. Those that read it go on."""
        with self._lock:
            found = [
                p
                for p in self._pending.values()
                if p.index is not None and p.index.id == id and not p.at_work
            ]
        for pending in found:
            error = UnknownName(
                f"the index {id} was dropped before the time of the peek was settled", name=id
            )
            self._end(pending, self._problem(pending.peek, error))

    def wake(self) -> None:
        """Begin with those whose time is settled now."""
        with self._lock:
            waiting = [pending for pending in self._pending.values() if not pending.at_work]
        for pending in waiting:
            self._begin(pending)

    # -- at work --------------------------------------------------------------------------------

    def _begin(self, pending: _Pending) -> None:
        with self._lock:
            if pending.at_work or not self._is_settled(pending):
                return
            pending.at_work = True
        self.crew.do(partial(self._answer, pending))

    def _is_settled(self, pending: _Pending) -> bool:
        """Whether there is something to do; of a collection a thread must look."""
        if pending.index is None:
            return True
        versions, time = pending.index.versions, pending.peek.time
        return versions.upper.passed(time) or (versions.failed is not None and time >= versions.failed.time)

    def _answer(self, pending: _Pending, stores: Stores) -> None:
        if pending.cancelled:
            return
        try:
            answer = self._read(pending, stores)
        except PenstockError as error:
            answer = self._problem(pending.peek, error)
        except Exception as error:
            if pending.cancelled:
                # The end of its job is what was wanted.
                return
            answer = self._problem(pending.peek, _unread(error))
        if answer is None:
            with self._lock:
                pending.at_work = False
        else:
            self._end(pending, answer)

    def _read(self, pending: _Pending, stores: Stores) -> Rows | Stashed | Problem | None:
        """The answer; None where the time of the peek is not settled."""
        peek, index = pending.peek, pending.index
        if index is None:
            store = stores()
            (bounds,) = store.bounds([peek.target.id])
            if bounds.since > Frontier(peek.time):
                raise below_since(peek.target.id, peek.time, bounds.since)
            schema = self.schema_of_collection(store, peek.target.id)
            check_keys(peek, len(schema.fields))
            if not bounds.upper.passed(peek.time):
                return None
            parts: Iterator[Iterable[Counted]] = collection_parts(store, peek)
        else:
            failed = index.versions.failed
            if failed is not None and peek.time >= failed.time:
                raise failed.error
            schema, parts = index.schema, self._parts(pending, index)
        predicate = None if peek.predicate is None else self.plans.predicate(peek.predicate, schema)
        run = PeekRun(peek, parts, schema, predicate, self.settings, self.stash)
        for _ in run.slices():
            if pending.cancelled:
                run.cancel()
                return None
        return run.answer

    def _parts(self, pending: _Pending, index: SparkIndex) -> Iterator[Iterable[Counted]]:
        peek, versions = pending.peek, index.versions
        if peek.keys is not None and index.key == versions.key:
            types = [index.schema.fields[at].type for at in index.key] or [
                f.type for f in index.schema.fields
            ]
            for values in dict.fromkeys(peek.keys):
                filed = tuple(map(_as_filed, values, types))
                yield versions.at(filed, peek.time)
        elif peek.keys is None and versions.count > FEW_CHANGES:
            yield from scan(self.spark(), versions, peek, index.schema, self.settings(), pending.group)
        else:
            wanted = None if peek.keys is None else set(peek.keys)
            rows = versions.scan(peek.time)
            for at in range(0, len(rows), _PART):
                part = rows[at : at + _PART]
                yield (
                    part
                    if wanted is None
                    else [r for r in part if tuple(r[0][k] for k in index.key) in wanted]
                )

    # -- ended ----------------------------------------------------------------------------------

    def _end(self, pending: _Pending, answer: Rows | Stashed | Problem) -> None:
        if self._take(pending.peek.uuid) is not None:
            self.tell(PeekResponse(pending.peek.uuid, answer))
        elif isinstance(answer, Stashed):
            self.stash.forget(answer.token)

    def _take(self, uuid: bytes) -> _Pending | None:
        with self._lock:
            pending = self._pending.pop(uuid, None)
            if pending is None:
                return None
            pending.cancelled = True
        if pending.hold is not None:
            pending.hold.release()
        return pending

    def _stop(self, pending: _Pending) -> None:
        index = pending.index
        if pending.at_work and index is not None and index.versions.count > FEW_CHANGES:
            self.spark().sparkContext.cancelJobGroup(pending.group)

    def _problem(self, peek: Peek, error: PenstockError) -> Problem:
        return problem_of(error, id=peek.target.id, time=peek.time)


def _unread(error: Exception) -> RuntimeLost:
    first = str(error).strip().partition("\n")[0]
    return RuntimeLost(
        "Spark could not read the index", why=f"{type(error).__name__}: {first}", fix="ask again"
    )


def _as_filed(value: Any, type: DataType) -> Any:
    """A value of a key as the column has it: 1 is 1.0 where that holds floats, as it is in-process."""
    return float(value) if isinstance(type, Float64Type) and isinstance(value, int) else value
