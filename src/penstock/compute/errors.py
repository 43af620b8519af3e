"""Errors of clients, controllers, replicas and collections.

Each is a `PenstockError`, and is sent between processes as a `Problem`
(`penstock.compute.protocol.responses`).
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from penstock.errors import Origin, PenstockError


class ComputeError(PenstockError):
    """Base of the errors of the compute layer.

    retryable: whether the same request may succeed later, unchanged.
    origin:    PROCESS by default, because another replica may succeed; DATA for errors caused by the request
        or by the rows.
    """

    code = "P700"
    origin = Origin.PROCESS
    retryable: ClassVar[bool] = False


class ProtocolViolation(ComputeError):
    """Message that the protocol does not allow in this stage, or with this content.

    Facts: `stage`, `message`.
    """

    code = "P701"
    origin = Origin.DATA


class BadMessage(ComputeError):
    """Undecodable or incomplete message. Facts: `field`."""

    code = "P702"
    origin = Origin.DATA


class MessageTooLarge(ComputeError):
    """Message, plan or row above the size limit. Facts: `size`, `limit`."""

    code = "P703"
    origin = Origin.DATA


class StaleEpoch(ComputeError):
    """Controller or connection superseded by a later one. Facts: `epoch`, `current`."""

    code = "P704"


class VersionMismatch(ComputeError):
    """Raised when the other side has a different protocol version. Facts: `ours`, `theirs`."""

    code = "P705"


class NotAuthorized(ComputeError):
    """Missing or wrong credentials."""

    code = "P706"


class InsecureAddress(ComputeError):
    """Address beyond this machine, used without credentials. Facts: `address`."""

    code = "P707"


class ConnectionBroken(ComputeError):
    """Raised when the other side is gone or unreachable. Facts: `address`."""

    code = "P708"
    retryable = True


class IncompatibleInstance(ComputeError):
    """Raised when a controller asks a running replica for an incompatible configuration.

    The process exits, to be restarted with the new one.
    """

    code = "P709"
    retryable = True


class BadPlan(ComputeError):
    """Undecodable plan, or one that describes an invalid flow. Facts: `part`."""

    code = "P710"
    origin = Origin.DATA


class CallableRefused(ComputeError):
    """Plan with Python functions that one side does not allow. Facts: `operators`."""

    code = "P711"


class NotServable(ComputeError):
    """Flow whose results depend on more than the multiset of input rows at each time. Facts: `operator`."""

    code = "P712"
    origin = Origin.DATA


class SinceViolation(ComputeError):
    """Read at a time before the since. Facts: `id`, `time`, `since`."""

    code = "P720"


class UnknownName(ComputeError):
    """Unknown name of a view, collection or replica. Facts: `name`."""

    code = "P721"


class AlreadyThere(ComputeError):
    """Name that is already taken by something else. Facts: `name`."""

    code = "P722"
    origin = Origin.DATA


class UpperMismatch(ComputeError):
    """Raised when another writer has appended first; nothing was written.

    Facts: `id`, `expected`, `upper`.
    """

    code = "P723"
    retryable = True


class StillInUse(ComputeError):
    """Drop of a view or collection that others still read. Facts: `name`, `readers`."""

    code = "P724"
    origin = Origin.DATA


class NegativeMultiplicity(ComputeError):
    """Write that would give a row a negative multiplicity; nothing was written. Facts: `id`, `row`."""

    code = "P725"
    origin = Origin.DATA


class TimestampNotReady(ComputeError):
    """Read at an unsettled time by a caller that does not wait. Facts: `id`, `time`, `upper`."""

    code = "P726"
    retryable = True


class NotWritable(ComputeError):
    """Write to a collection that does not accept it from clients. Facts: `name`."""

    code = "P727"
    origin = Origin.DATA


class ResultTooLarge(ComputeError):
    """Result of one worker above the size limit in bytes. Facts: `size`, `limit`."""

    code = "P730"
    origin = Origin.DATA


class TotalResultTooLarge(ComputeError):
    """Combined result of several workers above the size limit in bytes. Facts: `size`, `limit`."""

    code = "P731"
    origin = Origin.DATA


class PeekCanceled(ComputeError):
    """Raised for a cancelled peek or copy."""

    code = "P732"
    origin = Origin.DATA


class TargetReplicaLost(ComputeError):
    """Raised when the only replica that may answer fails or is dropped. Facts: `replica`."""

    code = "P734"
    retryable = True


class ResultGone(ComputeError):
    """Raised when the stashed rows of a peek were fetched, expired, or lost with their replica. Retry."""

    code = "P735"
    retryable = True


class DataflowFailed(ComputeError):
    """Raised when a dataflow has failed at some time: it has no results from then on.

    Facts: `id`, `time`, `cause`.
    """

    code = "P736"
    origin = Origin.DATA


class DataflowBroken(DataflowFailed):
    """Raised when one replica cannot continue a dataflow, for a reason other than its rows.

    The dataflow is rebuilt when the replica reconnects. Facts: as for `DataflowFailed`.
    """

    code = "P747"
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

    The request may have been done or not. Facts: `address`.
    """

    code = "P738"


class Missing(Enum):
    """Missing condition for the answer to a read that timed out.

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
    """Read that was not answered within its patience.

    Facts: `missing`, the value of a `Missing`; `replicas`, the names of the connected replicas.
    """

    code = "P746"
    retryable = True


class TooManyPeeks(ComputeError):
    """Peek above the limit on pending peeks. Facts: `limit`."""

    code = "P745"
    retryable = True


class RuntimeLost(ComputeError):
    """Raised when the runtime of a replica dies; the process exits, to be restarted."""

    code = "P739"
    retryable = True


class StoreDamaged(ComputeError):
    """Raised for a store whose contents were not written by Penstock, or are damaged."""

    code = "P740"


class StoreUnavailable(ComputeError):
    """Raised when a store is unreachable or locked."""

    code = "P741"
    retryable = True
