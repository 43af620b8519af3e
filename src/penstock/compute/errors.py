"""What can go wrong between clients, controllers, replicas and collections.

Each is a `PenstockError`, and travels between processes as a `Problem`
(`penstock.compute.protocol.responses`).
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from penstock.errors import Origin, PenstockError


class ComputeError(PenstockError):
    """Base of the errors of the compute protocol and what surrounds it.

    retryable: whether the same request may succeed later without anybody changing it.
    origin:    of a problem of which nothing is known, another replica may know better: so PROCESS, and
        those that lie in what was asked for or in its rows say so.
    """

    code = "P700"
    origin = Origin.PROCESS
    retryable: ClassVar[bool] = False


class ProtocolViolation(ComputeError):
    """A message that may not be sent at this point, or not with this content. Facts: `stage`, `message`."""

    code = "P701"
    origin = Origin.DATA


class BadMessage(ComputeError):
    """Bytes that are no message, or a message without what it must have. Facts: `field`."""

    code = "P702"
    origin = Origin.DATA


class MessageTooLarge(ComputeError):
    """A message, plan or row above the limit. Facts: `size`, `limit`."""

    code = "P703"
    origin = Origin.DATA


class StaleEpoch(ComputeError):
    """A controller or connection that has been superseded. Facts: `epoch`, `current`."""

    code = "P704"


class VersionMismatch(ComputeError):
    """The other side speaks another version of the protocol. Facts: `ours`, `theirs`."""

    code = "P705"


class NotAuthorized(ComputeError):
    """No credentials, or wrong ones."""

    code = "P706"


class InsecureAddress(ComputeError):
    """An address beyond this machine without credentials. Facts: `address`."""

    code = "P707"


class ConnectionBroken(ComputeError):
    """The other side is gone or cannot be reached. Facts: `address`."""

    code = "P708"
    retryable = True


class IncompatibleInstance(ComputeError):
    """A replica runs with a configuration that the new one does not agree with; it ends itself to start
    afresh."""

    code = "P709"
    retryable = True


class BadPlan(ComputeError):
    """A plan that cannot be read, or is no flow that could have been written. Facts: `part`."""

    code = "P710"
    origin = Origin.DATA


class CallableRefused(ComputeError):
    """A plan with Python functions where one side does not allow them. Facts: `operators`."""

    code = "P711"


class NotServable(ComputeError):
    """A flow whose answers depend on more than the bag of its rows at a time. Facts: `operator`."""

    code = "P712"
    origin = Origin.DATA


class SinceViolation(ComputeError):
    """A time that can no longer be read. Facts: `id`, `time`, `since`."""

    code = "P720"


class UnknownName(ComputeError):
    """No view, collection or replica of that name. Facts: `name`."""

    code = "P721"


class AlreadyThere(ComputeError):
    """The name is taken by something else. Facts: `name`."""

    code = "P722"
    origin = Origin.DATA


class UpperMismatch(ComputeError):
    """Somebody else has appended first; nothing was written. Facts: `id`, `expected`, `upper`."""

    code = "P723"
    retryable = True


class StillInUse(ComputeError):
    """It cannot be dropped while others read it. Facts: `name`, `readers`."""

    code = "P724"
    origin = Origin.DATA


class NegativeMultiplicity(ComputeError):
    """A row is taken back more often than it is there; nothing was written. Facts: `id`, `row`."""

    code = "P725"
    origin = Origin.DATA


class TimestampNotReady(ComputeError):
    """A time that is not settled, where nobody waits. Facts: `id`, `time`, `upper`."""

    code = "P726"
    retryable = True


class NotWritable(ComputeError):
    """A collection that clients cannot write, or not so. Facts: `name`."""

    code = "P727"
    origin = Origin.DATA


class ResultTooLarge(ComputeError):
    """The rows of one answer are more bytes than allowed. Facts: `size`, `limit`."""

    code = "P730"
    origin = Origin.DATA


class TotalResultTooLarge(ComputeError):
    """The answers of several workers together are more bytes than allowed. Facts: `size`, `limit`."""

    code = "P731"
    origin = Origin.DATA


class PeekCanceled(ComputeError):
    """The peek was cancelled."""

    code = "P732"
    origin = Origin.DATA


class TargetReplicaLost(ComputeError):
    """The replica that was asked for failed or was dropped. Facts: `replica`."""

    code = "P734"
    retryable = True


class ResultGone(ComputeError):
    """The stashed rows of a peek were fetched, expired, or went with their replica. Ask again."""

    code = "P735"
    retryable = True


class DataflowFailed(ComputeError):
    """A dataflow met an error at some time; from that time on it has no answers. Facts: `id`, `time`,
    `cause`."""

    code = "P736"
    origin = Origin.DATA


class DataflowBroken(DataflowFailed):
    """A dataflow that one replica could not go on with: what failed lies around it, not in its rows. It is
    built anew when the replica is connected again. Facts: as of `DataflowFailed`."""

    code = "P747"
    origin = Origin.PROCESS


class OutOfMemory(ComputeError):
    """A replica has not the memory for an answer."""

    code = "P748"
    retryable = True


class ReplicaExpired(ComputeError):
    """The process has reached the age at which it ends itself."""

    code = "P737"
    retryable = True


class Unconfirmed(ComputeError):
    """The connection broke before the answer to a request that must not be repeated: it may have been done.
    Facts: `address`."""

    code = "P738"


class Missing(Enum):
    """What a read still lacked when its patience was over.

    CONTROLLER: an answer of the controller itself. REPLICA: a replica that is connected. HYDRATION: a replica
    that has the view as a whole. TIME: a replica that is as far as the time of the read. WRITE: a write; the
    time lies in the future. HEALTH: those that are connected cannot, or do not, answer. ANSWER: the word of
    those that could answer.
    """

    CONTROLLER = "controller"
    REPLICA = "replica"
    HYDRATION = "hydration"
    TIME = "time"
    WRITE = "write"
    HEALTH = "health"
    ANSWER = "answer"


class ReadTimeout(ComputeError):
    """A read that was not answered within its patience. Facts: `missing`, the value of a `Missing`;
    `replicas`, the names of those that were connected."""

    code = "P746"
    retryable = True


class TooManyPeeks(ComputeError):
    """More peeks wait for their answer than one connection may have. Facts: `limit`."""

    code = "P745"
    retryable = True


class RuntimeLost(ComputeError):
    """What runs the dataflows of a replica has died; the process ends itself to start afresh."""

    code = "P739"
    retryable = True


class StoreDamaged(ComputeError):
    """A store holds what was not written by us."""

    code = "P740"


class StoreUnavailable(ComputeError):
    """A store cannot be reached or is locked."""

    code = "P741"
    retryable = True
