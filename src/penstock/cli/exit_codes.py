"""From errors and signals to exit codes; the table is in `penstock.cli`."""

from __future__ import annotations

import signal

from penstock.errors import (
    BadRow,
    CheckpointDamaged,
    DuplicateKey,
    EngineStopped,
    EvaluationError,
    NoFixpoint,
    PenstockError,
    UnreadableSource,
    UserFunctionFailed,
)

FAILED = 1
REFUSED = 2

_FAILURES = (
    BadRow,
    CheckpointDamaged,
    DuplicateKey,
    EngineStopped,
    EvaluationError,
    NoFixpoint,
    UnreadableSource,
    UserFunctionFailed,
)


_FAILURES_BY_CODE = frozenset(
    {
        "P704",  # StaleEpoch: another controller has taken over
        "P708",  # ConnectionBroken
        "P709",  # IncompatibleInstance
        "P734",  # TargetReplicaLost
        "P736",  # DataflowFailed
        "P737",  # ReplicaExpired
        "P738",  # Unconfirmed
        "P740",  # StoreDamaged
        "P741",  # StoreUnavailable
        "P746",  # ReadTimeout
        "P747",  # DataflowBroken
        "P748",  # OutOfMemory
    }
)
"""Of the compute protocol, whose classes need not be imported by commands that have nothing to do with it."""


def exit_code(error: PenstockError) -> int:
    """Whether the run failed on its data, or was refused before it began."""
    return FAILED if isinstance(error, _FAILURES) or error.code in _FAILURES_BY_CODE else REFUSED


def signal_code(stopped_by: signal.Signals) -> int:
    """What a shell expects of a process that a signal ended."""
    return 128 + stopped_by
