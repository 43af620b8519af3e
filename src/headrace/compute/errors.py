"""Errors of clients, controllers, replicas and collections, and their conversion to `Problem`s and back.

A `Problem` travels between processes, so that another one raises the same class. The code identifies the
class, so no text is parsed. Paths of another machine are shown but never opened here: an error shows the
line of its source location, so a path from the network could expose any local file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar, cast

from headrace.compute.frontier import LAST_TIME
from headrace.compute.protocol.commands import Id
from headrace.compute.protocol.responses import Problem
from headrace.errors import HeadraceError, Origin, causes


class ComputeError(HeadraceError):
    """Base of the errors of the compute layer; catch it to handle all of them.

    retryable: whether the same request may succeed later, unchanged.
    origin:    PROCESS by default, because another replica may succeed; DATA for errors caused by the request
        or by the rows.
    """

    code = "P700"
    origin = Origin.PROCESS
    retryable: ClassVar[bool] = False


class ProtocolViolation(ComputeError):
    """Raised for a message that the protocol forbids in this stage or with this content.

    Carries `stage` and `message`.
    """

    code = "P701"
    origin = Origin.DATA


class BadMessage(ComputeError):
    """Raised for an undecodable or incomplete message. Carries `field`."""

    code = "P702"
    origin = Origin.DATA


class MessageTooLarge(ComputeError):
    """Raised for a message, plan or row above its size limit. Carries `size` and `limit`."""

    code = "P703"
    origin = Origin.DATA


class StaleEpoch(ComputeError):
    """Raised when a later controller or connection has taken over. Carries `epoch` and `current`."""

    code = "P704"


class VersionMismatch(ComputeError):
    """Raised when the other side has a different protocol version. Carries `ours` and `theirs`."""

    code = "P705"


class NotAuthorized(ComputeError):
    """Raised for missing or wrong credentials."""

    code = "P706"


class InsecureAddress(ComputeError):
    """Raised when a non-local address is used without credentials. Carries `address`."""

    code = "P707"


class ConnectionBroken(ComputeError):
    """Raised when the connection is closed or the peer is unreachable. Carries `address`."""

    code = "P708"
    retryable = True


class IncompatibleInstance(ComputeError):
    """Raised when a controller asks a running replica for an incompatible configuration.

    The process exits, to be restarted with the new one.
    """

    code = "P709"
    retryable = True


class BadPlan(ComputeError):
    """Raised for a plan that cannot be decoded or describes an invalid flow. Carries `part`."""

    code = "P710"
    origin = Origin.DATA


class CallableRefused(ComputeError):
    """Raised for a plan with Python functions that one side does not allow. Carries `operators`."""

    code = "P711"


class NotServable(ComputeError):
    """Raised for a flow whose results depend on more than the multisets of its inputs. Carries `operator`."""

    code = "P712"
    origin = Origin.DATA


class SinceViolation(ComputeError):
    """Raised for a read at a time before the since. Carries `id`, `time` and `since`."""

    code = "P720"


class UnknownName(ComputeError):
    """Raised for an unknown view, collection or replica name. Carries `name`."""

    code = "P721"


class AlreadyThere(ComputeError):
    """Raised when a name is already taken by something else. Carries `name`."""

    code = "P722"
    origin = Origin.DATA


class UpperMismatch(ComputeError):
    """Raised when another writer has appended first; nothing was written.

    Carries `id`, `expected` and `upper`.
    """

    code = "P723"
    retryable = True


class StillInUse(ComputeError):
    """Raised when dropping a view or collection that others still read. Carries `name` and `readers`."""

    code = "P724"
    origin = Origin.DATA


class NegativeMultiplicity(ComputeError):
    """Raised for a write that would make a multiplicity negative; writes nothing. Carries `id` and `row`."""

    code = "P725"
    origin = Origin.DATA


class TimestampNotReady(ComputeError):
    """Raised for a non-waiting read at a time that is not complete yet. Carries `id`, `time` and `upper`."""

    code = "P726"
    retryable = True


class NotWritable(ComputeError):
    """Raised for a client's write to a collection that clients cannot write. Carries `name`."""

    code = "P727"
    origin = Origin.DATA


class ResultTooLarge(ComputeError):
    """Raised when one worker's result exceeds the size limit in bytes. Carries `size` and `limit`."""

    code = "P730"
    origin = Origin.DATA


class TotalResultTooLarge(ComputeError):
    """Raised when the combined result of all workers exceeds the size limit. Carries `size` and `limit`."""

    code = "P731"
    origin = Origin.DATA


class PeekCanceled(ComputeError):
    """Raised for a cancelled peek or copy. Send it again if it is still wanted."""

    code = "P732"
    origin = Origin.DATA


class TargetReplicaLost(ComputeError):
    """Raised when the only replica that may answer fails or is dropped. Carries `replica`."""

    code = "P734"
    retryable = True


class ResultGone(ComputeError):
    """Raised when the stashed rows of a peek were fetched, expired, or lost with their replica. Retry."""

    code = "P735"
    retryable = True


class DataflowFailed(ComputeError):
    """Raised when a dataflow has failed at some time: it has no results from then on.

    Correct its flow or its input, then drop the view and create it again.

    Carries `id`, `time` and `cause`.
    """

    code = "P736"
    origin = Origin.DATA


class DataflowBroken(DataflowFailed):
    """Raised when one replica cannot continue a dataflow, for a reason other than its rows.

    The replica rebuilds the dataflow when it reconnects: restart it. Carries the same facts as
    `DataflowFailed`.
    """

    code = "P747"
    origin = Origin.PROCESS


class FellBehind(ComputeError):
    """Raised by a replica that has fallen so far behind that changes it has yet to read are compacted.

    It ends its connection. On the next one it rebuilds these dataflows and goes on with the others. Carries
    `ids`.
    """

    code = "P749"
    retryable = True


class ViewQuarantined(ComputeError):
    """Raised for a view that a replica no longer computes, having crashed twice while computing it.

    Carries `deaths`.
    """

    code = "P752"
    origin = Origin.PROCESS


class OutOfMemory(ComputeError):
    """Raised when a replica lacks the memory for a result."""

    code = "P748"
    retryable = True


class ReplicaExpired(ComputeError):
    """Raised when a replica process reaches its maximum age, and exits."""

    code = "P737"
    retryable = True


class Unconfirmed(ComputeError):
    """Raised when the connection breaks before the answer to a request that must not be repeated.

    The request may have been done or not. Carries `address`.
    """

    code = "P738"


class Missing(Enum):
    """Condition that a read was still waiting for when it timed out.

    CONTROLLER: a reply from the controller itself. REPLICA: a connected replica. HYDRATION: a replica that
    has hydrated the view. TIME: a replica that has reached the time of the read. WRITE: a write, since the
    time is in the future. HEALTH: a connected replica that can answer and responds. ANSWER: only the answer
    itself, from replicas that could give it.
    """

    CONTROLLER = "controller"
    REPLICA = "replica"
    HYDRATION = "hydration"
    TIME = "time"
    WRITE = "write"
    HEALTH = "health"
    ANSWER = "answer"


class ReadTimeout(ComputeError):
    """Raised when a read is not answered within its patience.

    Carries `missing`, the value of a `Missing`, and `replicas`, the names of the connected replicas.
    """

    code = "P746"
    retryable = True


class TooManyPeeks(ComputeError):
    """Raised for a peek above the limit on pending peeks. Carries `limit`."""

    code = "P745"
    retryable = True


class RuntimeLost(ComputeError):
    """Raised when the runtime of a replica dies; the process exits, to be restarted."""

    code = "P739"
    retryable = True


class StoreDamaged(ComputeError):
    """Raised for a store whose contents were not written by Headrace, or are damaged."""

    code = "P740"


class StoreUnavailable(ComputeError):
    """Raised when a store is unreachable or locked."""

    code = "P741"
    retryable = True


def problem_of(error: HeadraceError, *, id: Id | None = None, time: int | None = None) -> Problem:
    """Convert an error to a `Problem`. id, time: defaults for facts that the error lacks.

    Facts that are not plain values are converted to text.
    """
    facts = dict(error.facts)
    if isinstance(facts.get("id"), str):
        id = facts.pop("id")
    if _is_time(facts.get("time")):
        time = facts.pop("time")
    return Problem(
        code=error.code,
        message=error.what,
        retryable=isinstance(error, ComputeError) and error.retryable,
        why=error.why,
        fix=error.fix,
        id=id,
        time=time,
        facts=tuple((name, _plain(value)) for name, value in facts.items()),
        where=error.where,
        origin=origin_of(error),
    )


def origin_of(error: BaseException) -> Origin:
    """Determine the origin of an error. Unexpected and out-of-memory errors are attributed to the process."""
    if any(isinstance(cause, MemoryError) for cause in causes(error)):
        return Origin.PROCESS
    return error.origin if isinstance(error, HeadraceError) else Origin.PROCESS


def problem_of_any(error: BaseException, *, id: Id | None = None, time: int | None = None) -> Problem:
    """Convert any exception to a `Problem`; an unexpected one is described by its type and text."""
    if isinstance(error, HeadraceError):
        return problem_of(error, id=id, time=time)
    return Problem(
        ComputeError.code,
        f"{type(error).__name__}: {error}",
        why="This is a mistake in Headrace.",
        fix="please report it, with the log of the process that met it",
        id=id,
        time=time,
        origin=origin_of(error),
    )


def error_of(problem: Problem) -> HeadraceError:
    """Convert a problem from another process back to an error."""
    found = error_class(problem.code)
    facts = {name: value for name, value in problem.facts if _is_fact(found, name)}
    facts |= {
        name: value for name, value in (("id", problem.id), ("time", problem.time)) if value is not None
    }
    if found.code != problem.code:
        facts |= {"code": problem.code, "retryable": problem.retryable}
    return found(problem.message, where=problem.where, why=problem.why, fix=problem.fix, **facts)


def _is_fact(found: type[HeadraceError], name: str) -> bool:
    # Facts become attributes, and their names may come from an untrusted process.
    reserved = name in ("what", "where", "why", "fix", "facts", "self") or hasattr(found, name)
    return name.isidentifier() and not name.startswith("_") and not reserved


def _is_time(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LAST_TIME


def _plain(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(_plain(part) for part in cast("tuple[Any, ...]", value))
    return value if type(value) in _PLAIN else str(value)


_PLAIN = frozenset({type(None), bool, int, float, str, bytes, Decimal})


def error_class(code: str) -> type[HeadraceError]:
    """Return the class of an error code; `ComputeError` for an unknown code."""
    return next((found for found in _classes(HeadraceError) if found.code == code), ComputeError)


def _classes(base: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    yield base
    for below in base.__subclasses__():
        yield from _classes(below)


def file_name(path: str) -> str:
    """Return the name of a file without its folders.

    >>> file_name("/home/somebody/q4.py"), file_name("<q4.py>")
    ('q4.py', 'q4.py')
    """
    return re.split(r"[/\\]", path)[-1].removeprefix("<").removesuffix(">")


def mark_remote_file(path: str) -> str:
    """Mark a file as being on another machine: a name in `<>` is never opened here.

    >>> mark_remote_file("/etc/passwd")
    '<passwd>'
    """
    return f"<{file_name(path)}>"
