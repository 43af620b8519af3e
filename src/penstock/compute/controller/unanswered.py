"""Why a read has no answer yet: what is missing, and how each replica stands with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.compute.controller.catalog import ViewEntry
from penstock.compute.controller.connection import ReplicaConnection
from penstock.compute.controller.instance import Instance
from penstock.compute.controller.oracle import Oracle
from penstock.compute.controller.replicas import Replica, Replicas
from penstock.compute.controller.status import ReplicaState
from penstock.compute.controller.timestamp_selection import Entry
from penstock.compute.errors import Missing, ReadTimeout
from penstock.compute.frontier import START
from penstock.compute.protocol.responses import Problem


@dataclass(frozen=True, slots=True)
class Read:
    """A read that waits.

    what:   the read, as a noun. reads: what it reads; None: that is dropped.
    target: the only replica that may answer; None: any.
    since:  ms of the clock when it was asked. unable: by replica, why it cannot answer.
    """

    what: str
    reads: Entry | None
    time: int
    target: str | None
    since: int
    unable: Mapping[str, Problem]


class Unanswered:
    """Explains reads of one controller."""

    def __init__(self, instance: Instance, oracle: Oracle, replicas: Replicas) -> None:
        self._instance = instance
        self._oracle = oracle
        self._replicas = replicas

    def error(self, read: Read, now: int) -> ReadTimeout:
        """That a read was given up, and what was missing."""
        replicas = [r for r in self._replicas if read.target in (None, r.name)]
        connected = [r.connection for r in replicas if r.connection is not None]
        missing = self._missing(read, connected)
        waited = (now - read.since) / 1000
        return ReadTimeout(
            f"{read.what} was not answered within {waited:.1f} s: {_SHORT[missing]}",
            why="\n".join(f"{r.name}: {self._standing(read, r, now)}" for r in replicas)
            or "There is no replica.",
            fix=_FIX[missing],
            missing=missing.value,
            replicas=tuple(c.replica for c in connected),
        )

    def could_answer(self, read: Read, heard_since: int) -> bool:
        """Whether a replica that has all that the read needs has said something, of whatever, since then."""
        return any(
            r.connection is not None
            and r.connection.heard >= heard_since
            and r.name not in read.unable
            and self._lacks(read, r.connection) is None
            for r in self._replicas
            if read.target in (None, r.name)
        )

    def _missing(self, read: Read, connected: list[ReplicaConnection]) -> Missing:
        if not connected:
            return Missing.REPLICA
        lacking = [self._lacks(read, c) for c in connected if c.replica not in read.unable]
        if not lacking or None in lacking:
            return Missing.HEALTH if read.unable else Missing.ANSWER
        if read.time > self._oracle.last:
            return Missing.WRITE
        return Missing.TIME if Missing.TIME in lacking else Missing.HYDRATION

    def _lacks(self, read: Read, connection: ReplicaConnection) -> Missing | None:
        """What one replica lacks for an answer."""
        if not isinstance(read.reads, ViewEntry):
            upper = self._instance.upper(read.reads.id) if read.reads else START
            return None if read.reads is None or upper.passed(read.time) else Missing.TIME
        tracked = connection.tracking.exports.get(read.reads.id)
        if tracked is None or not tracked.hydrated:
            return Missing.HYDRATION
        return None if tracked.write.passed(read.time) else Missing.TIME

    def _standing(self, read: Read, replica: Replica, now: int) -> str:
        connection = replica.connection
        if connection is None:
            if replica.state(now) is ReplicaState.QUARANTINED:
                return "left alone, because it died too often"
            return f"not connected; {replica.problem or 'it was not reached yet'}"
        if (problem := read.unable.get(replica.name)) is not None:
            return f"cannot answer: {problem.message}"
        silent = f"it has said nothing for {(now - connection.heard) / 1000:.1f} s"
        match self._lacks(read, connection):
            case Missing.HYDRATION:
                return f"still builds the view; {silent}"
            case Missing.TIME:
                return f"is not as far as time {read.time}; {silent}"
            case _:
                return f"has what is asked for, and does not answer; {silent}"


_SHORT = {
    Missing.REPLICA: "no replica is connected",
    Missing.HYDRATION: "no replica has built the view yet",
    Missing.TIME: "no replica is as far as the time of the read",
    Missing.WRITE: "nothing has been written up to that time yet",
    Missing.HEALTH: "some replicas cannot answer, the others do not",
    Missing.ANSWER: "the replicas do not answer",
}
_PATIENCE = "or be more patient: Client(patience=...)"
_FIX = {
    Missing.REPLICA: "start a replica, or add one by `penstock replicas add NAME=HOST:PORT`",
    Missing.HYDRATION: f"ask again when `penstock status` shows the view as ready, {_PATIENCE}",
    Missing.TIME: f"ask again, {_PATIENCE}; with staleness= a read takes what is there",
    Missing.WRITE: f"read an earlier time, {_PATIENCE}",
    Missing.HEALTH: "see to the replicas; `penstock status` shows their problems",
    Missing.ANSWER: f"see whether the replicas still work, {_PATIENCE}",
}
