"""How patient a controller is: with replicas that cannot be reached, that crash, that lag."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """All in milliseconds, but for counts.

    interval:         longest time between two looks at what is due (`maintain`).
    keep:             of the past of collections that stays readable.
    compaction:       between two times that the store is told what may be merged.
    first_retry:      before a replica is tried again that could not be reached; doubled each time.
    longest_retry:    the most of that.
    first_rest:       before a replica is tried again that was lost; doubled with each loss in the window.
    longest_rest:     the most of that.
    window:           losses that are older do not count. All are forgotten by one that was steady.
    lag:              of a replica behind the others, with which it is still as good as they.
    steady:           a replica that has been hydrated and no farther behind for so long is ready, and in no
        crash loop.
    careful_after:    losses in the window, after which a replica builds one thing at a time.
    quarantine_after: losses in the window, after which it is left alone.
    quarantine:       for so long; then it is tried again.
    patience:         for so long the inputs of a lost replica are kept readable from where it was.
    most_behind:      commands that a connection may be behind, before it is cut and told anew.
    remembered_ids:   for so long the ids of writes are remembered, by which a repeated one is known.
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
    most_behind: int = 10_000
    remembered_ids: int = 600_000
