"""Exit codes of errors and signals; `headrace.cli` has the table."""

from __future__ import annotations

import signal

from headrace.errors import (
    BadRow,
    CheckpointDamaged,
    DiskFull,
    DuplicateKey,
    EngineStopped,
    EvaluationError,
    HeadraceError,
    NoFixpoint,
    UnreadableSource,
    UserFunctionFailed,
)

FAILED = 1
REFUSED = 2
CANNOT_TELL = 3

_FAILURES = (
    BadRow,
    CheckpointDamaged,
    DiskFull,
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
        "P749",  # FellBehind
    }
)
"""Error codes of compute failures, so that unrelated commands need not import the error classes."""


def exit_code(error: HeadraceError) -> int:
    """Return the exit code for an error: failed on its data, or refused before it ran."""
    return FAILED if isinstance(error, _FAILURES) or error.code in _FAILURES_BY_CODE else REFUSED


def signal_code(stopped_by: signal.Signals) -> int:
    """Return the exit code a shell expects of a process terminated by a signal."""
    return 128 + stopped_by
