"""A dataflow that met an error: from a time on it has no answers, and all who read it fail alike."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.compute.errors import DataflowFailed
from penstock.compute.protocol.dataflow import Id
from penstock.errors import PenstockError


@dataclass(frozen=True, slots=True)
class Failed:
    """From `time` on the answer is `error`.

    lasting: a fresh replica would meet it, too: it lies in the plan or in the data. Else something around
        the dataflow has failed, and the replica that builds it again may succeed.
    """

    time: int
    error: DataflowFailed
    lasting: bool = True


def failed(id: Id, name: str, time: int, cause: Exception, *, lasting: bool = True) -> Failed:
    """A dataflow that has failed because of `cause`, which may be the failure of one that it reads."""
    told = cause if isinstance(cause, PenstockError) else None
    what = told.what if told is not None else f"{type(cause).__name__}: {cause}"
    error = DataflowFailed(
        f"{name or id} failed at time {time}: {what}",
        where=() if told is None else told.where,
        why=told.why if told is not None else "",
        fix=told.fix
        if told is not None and told.fix
        else "take back the rows that cause it, and create it again",
        id=id,
        time=time,
        cause=type(cause).__name__ if told is None else told.code,
    )
    error.__cause__ = cause
    return Failed(time, error, lasting)
