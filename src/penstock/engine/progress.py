"""What a run tells: after each tick, and in the end."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Progress:
    """What a tick did.

    tick:        its number, from 1, counting on after a restart.
    rows_in:     rows taken from all sources. set_aside: rows that went to dead letters.
    changes_out: changes given to all sinks.
    seconds:     from the first row read to the last sink told, commit included.
    """

    tick: int
    rows_in: int
    set_aside: int
    changes_out: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run did, this time.

    last_tick:  the number of the last tick; with a checkpoint, what it holds.
    ticks:      how many there were. The sums are over them.
    stopped_by: the signal that ended the run; None where the input ended, or all sinks had enough.
    results:    of the sinks that are pull-streams what each ended with, by name.
    """

    last_tick: int
    ticks: int
    rows_in: int
    set_aside: int
    changes_out: int
    stopped_by: signal.Signals | None
    results: Mapping[str, Any] = field(default_factory=dict[str, Any])
