"""From errors and signals to exit codes; the table is in `penstock.cli`."""

from __future__ import annotations

import signal

from penstock.errors import (
    BadRow,
    CheckpointDamaged,
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
    EngineStopped,
    EvaluationError,
    NoFixpoint,
    UnreadableSource,
    UserFunctionFailed,
)


def exit_code(error: PenstockError) -> int:
    """Whether the run failed on its data, or was refused before it began."""
    return FAILED if isinstance(error, _FAILURES) else REFUSED


def signal_code(stopped_by: signal.Signals) -> int:
    """What a shell expects of a process that a signal ended."""
    return 128 + stopped_by
