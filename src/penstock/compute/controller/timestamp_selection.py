"""Reads: what they read, and at which time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from penstock.compute.controller.catalog import CollectionEntry, ViewEntry
from penstock.compute.controller.holds import ReadHold
from penstock.compute.controller.instance import Instance
from penstock.compute.controller.oracle import Oracle
from penstock.compute.controller.requests import AS_THEY_ARE, PeekRequest
from penstock.compute.errors import BadMessage, SinceViolation
from penstock.compute.frontier import END, LAST_TIME, Frontier
from penstock.compute.protocol.commands import CollectionTarget, IndexTarget
from penstock.compute.protocol.dataflow import Id
from penstock.expr.types import Schema

Entry: TypeAlias = CollectionEntry | ViewEntry


class Reading:
    """Chooses the times of reads.

    fence: raises `StaleEpoch` where another controller may have acknowledged writes that this one does not
        know of.
    settled: the latest upper of something that a connected replica has, START where none has.
    """

    def __init__(
        self,
        instance: Instance,
        oracle: Oracle,
        fence: Callable[[], None],
        settled: Callable[[Id], Frontier],
    ) -> None:
        self._instance = instance
        self._oracle = oracle
        self._fence = fence
        self._settled = settled

    def time_of(self, request: PeekRequest, entry: Entry) -> int:
        """The time of a peek. Raises `SinceViolation`, `BadMessage`, `StaleEpoch`."""
        if request.at is not None:
            if request.staleness is not None:
                raise BadMessage("a read has a time or a bound on its staleness, not both", field="staleness")
            return self.given(request.at, entry)
        if request.staleness is not None:
            if request.staleness < 0:
                raise BadMessage(f"staleness of {request.staleness} ms", field="staleness")
            self._fence()
            settled = self._fresh_enough(entry.id, request.staleness)
            if settled is not None:
                return settled
        return self.strict(entry)

    def given(self, time: int, entry: Entry) -> int:
        """A time that a client gives. Raises `SinceViolation` where it is gone, `BadMessage`."""
        if not 0 <= time < LAST_TIME:
            raise BadMessage(f"{time} is no time", field="at")
        since = self._instance.holds.since(entry.id)
        if since.passed(time):
            raise SinceViolation(
                f"time {time} of {entry.name!r} can no longer be read",
                why=f"It can be read from time {since.time} on."
                if since.time is not None
                else "It is complete.",
                fix="read a later time, or make the view with a greater `keep`",
                id=entry.id,
                time=time,
                since=since,
            )
        return time

    def strict(self, entry: Entry) -> int:
        """The time of the last acknowledged write. Raises `StaleEpoch`, `SinceViolation`."""
        self._fence()
        since = self._instance.holds.since(entry.id).time
        if since is None:
            raise SinceViolation(
                f"{entry.name!r} is complete, and can no longer be read",
                fix="read the collection that it is written into",
                id=entry.id,
                since=END,
            )
        return max(self._oracle.read, since)

    def hold(self, id: Id, time: int) -> ReadHold:
        """Keeps something readable at a time from its since on."""
        hold = self._instance.holds.acquire(id)
        hold.downgrade(Frontier(time))
        return hold

    def _fresh_enough(self, id: Id, staleness: int) -> int | None:
        settled = self._settled(id).time
        since = self._instance.holds.since(id).time
        if not settled or since is None:
            return None
        time = min(settled - 1, self._oracle.read)
        return time if time >= since and self._oracle.is_within(staleness, time) else None


def target_of(entry: Entry) -> IndexTarget | CollectionTarget:
    """What a peek of it reads."""
    return IndexTarget(entry.id) if isinstance(entry, ViewEntry) else CollectionTarget(entry.id)


def check_request(request: PeekRequest, entry: Entry) -> None:
    """Raises `BadMessage` for keys and columns that are not there."""
    if request.keys is not None:
        _check_keys(request.keys, entry)
    finishing = request.finishing
    if finishing == AS_THEY_ARE:
        return
    width = len(entry.schema.fields)
    asked = [at for at, _ in finishing.order_by] + list(finishing.project or ())
    if any(not 0 <= at < width for at in asked):
        raise BadMessage(
            f"{entry.name!r} has {width} columns, not all that were asked for", field="finishing"
        )
    if finishing.offset < 0 or (finishing.limit is not None and finishing.limit < 0):
        raise BadMessage("a limit or an offset is below 0", field="finishing")


def has_no_rows(request: PeekRequest) -> bool:
    """Whether nothing is asked for."""
    return request.keys is not None and not request.keys


def key_columns(schema: Schema, key: Sequence[str]) -> tuple[str, ...]:
    """The columns that something is looked up by: all of them where it has no key."""
    return tuple(key) if key else schema.names


def _check_keys(keys: Sequence[tuple[Any, ...]], entry: Entry) -> None:
    if not isinstance(entry, ViewEntry):
        raise BadMessage(
            f"{entry.name!r} is a collection, and has no keys",
            fix="filter its rows by a predicate, or make a view over it with a key",
            field="keys",
        )
    columns = key_columns(entry.schema, entry.key)
    if any(len(key) != len(columns) for key in keys):
        raise BadMessage(
            f"keys of {entry.name!r} are rows of the columns {', '.join(columns)}",
            fix="give one value for each of them; a key of one column is a row of one value",
            field="keys",
        )
