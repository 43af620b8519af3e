"""Settings of a controller."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Settings of a controller: times in milliseconds, and counts.

    interval:         longest time between calls of `maintain`.
    keep:             length of the readable past of collections.
    compaction:       time between compactions of the store.
    first_retry:      delay before an unreachable replica is retried; doubled each time.
    longest_retry:    limit of that delay.
    first_rest:       delay before a crashed replica is retried; doubled with each crash in the window.
    longest_rest:     limit of that delay.
    window:           age up to which crashes count. A replica that becomes steady starts over at zero.
    lag:              lag behind the other replicas up to which a replica counts as level with them.
    steady:           time of being hydrated and level after which a replica is ready, and not crash-looping.
    careful_after:    crashes in the window after which a replica hydrates one dataflow at a time.
    quarantine_after: crashes in the window after which a replica is quarantined.
    quarantine:       length of a quarantine, after which the replica is retried.
    patience:         time for which the inputs of a lost replica stay readable from its position on.
    max_lag:          time for which a replica may stay behind the readable past of a hydrated view. Then its
        inputs are no longer kept, and it rebuilds the view.
    most_behind:      commands that a connection may be behind before it is cut, to start over.
    remembered_ids:   time for which the ids of writes are kept, to recognise repeated ones.
    """

    interval: int = 1_000
    keep: int = 10_000
    compaction: int = 5_000
    first_retry: int = 50
    longest_retry: int = 1_000
    first_rest: int = 100
    longest_rest: int = 30_000
    window: int = 600_000
    lag: int = 5_000
    steady: int = 60_000
    careful_after: int = 3
    quarantine_after: int = 8
    quarantine: int = 1_800_000
    patience: int = 60_000
    max_lag: int = 600_000
    most_behind: int = 10_000
    remembered_ids: int = 600_000
