"""Errors common to all stores of collections, with the same wording."""

from __future__ import annotations

from headrace.compute.collections.store import Bounds
from headrace.compute.errors import (
    AlreadyThere,
    SinceViolation,
    TimestampNotReady,
    UnknownName,
    UpperMismatch,
)
from headrace.compute.frontier import START, Frontier
from headrace.compute.protocol.dataflow import Id


def unknown_collection_error(id: Id) -> UnknownName:
    return UnknownName(
        f"there is no collection {id!r}", fix="create it first; it may have been dropped", name=id
    )


def is_valid_collection_id(id: Id) -> bool:
    """Return whether every store accepts the id."""
    return 0 < len(id) <= 200 and id.isprintable()


def check_id(id: Id) -> None:
    if not is_valid_collection_id(id):
        raise ValueError(f"{id!r} is no id of a collection")


def check_same_collection(id: Id, description: bytes, there: bytes) -> None:
    """Raise `AlreadyThere` if the existing collection has another description."""
    if description != there:
        raise AlreadyThere(
            f"a different collection {id!r} already exists",
            fix="use another id, or drop that collection first",
            name=id,
        )


def check_expected(id: Id, expected: Frontier, upper: Frontier) -> None:
    if expected != upper:
        raise UpperMismatch(
            f"another writer has appended to {id!r}; nothing was written",
            why=f"the append expected upper {expected}; the upper is {upper}",
            fix="read the upper again, and append from there",
            id=id,
            expected=expected,
            upper=upper,
        )


def check_readable(id: Id, bounds: Bounds, at: int) -> None:
    if bounds.since.has_passed(at):
        raise _compacted(id, at, bounds.since)
    if not bounds.upper.has_passed(at):
        raise _not_yet(id, at, bounds.upper)


def check_changes(id: Id, bounds: Bounds, lower: Frontier, upper: Frontier) -> None:
    if lower <= bounds.since and bounds.since != START:
        raise _compacted(id, lower.time, bounds.since)
    if upper > bounds.upper:
        raise _not_yet(id, upper.time, bounds.upper)


def _compacted(id: Id, time: int | None, since: Frontier) -> SinceViolation:
    return SinceViolation(
        f"time {time} of {id!r} can no longer be read",
        why=f"its changes are compacted up to {since}",
        fix="read at a later time, or keep a longer history",
        id=id,
        time=time,
        since=since,
    )


def _not_yet(id: Id, time: int | None, upper: Frontier) -> TimestampNotReady:
    return TimestampNotReady(
        f"{id!r} is not complete up to {'its end' if time is None else f'time {time}'}",
        why=f"its upper is {upper}",
        fix="wait until its upper is beyond that time",
        id=id,
        time=time,
        upper=upper,
    )
