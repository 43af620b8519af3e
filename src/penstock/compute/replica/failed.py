"""A dataflow that met an error: from a time on it has no answers, and all who read it fail alike."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.compute.errors import DataflowBroken, DataflowFailed
from penstock.compute.problems import origin_of
from penstock.compute.protocol.dataflow import Id
from penstock.errors import Origin, PenstockError


@dataclass(frozen=True, slots=True)
class Failed:
    """From `time` on the answer is `error`."""

    time: int
    error: DataflowFailed

    @property
    def lasting(self) -> bool:
        """Whether a fresh replica would meet it, too. Else something around the dataflow has failed, and who
        builds it again may succeed."""
        return self.error.origin is Origin.DATA


def failed(id: Id, name: str, time: int, cause: Exception) -> Failed:
    """A dataflow that has failed because of `cause`, which may be the failure of one that it reads."""
    told = cause if isinstance(cause, PenstockError) else None
    what = told.what if told is not None else f"{type(cause).__name__}: {cause}"
    lasting = origin_of(cause) is Origin.DATA
    error = (DataflowFailed if lasting else DataflowBroken)(
        f"{name or id} failed at time {time}: {what}",
        where=() if told is None else told.where,
        why=told.why if told is not None else "",
        fix=told.fix if told is not None and told.fix else _TAKE_BACK if lasting else _SEE_TO,
        id=id,
        time=time,
        cause=type(cause).__name__ if told is None else told.code,
    )
    error.__cause__ = cause
    return Failed(time, error)


_TAKE_BACK = "take back the rows that cause it, and create it again"
_SEE_TO = "see to the replica; it builds the dataflow anew when it is connected again"
