"""Crash loops: a replica that dies again and again is first made careful, then left alone.

What kills it is mostly what it is asked to build: asked for the same again it dies again, and all the while
its inputs cannot be compacted. So it builds one thing at a time, which tells what it is, and at last it
is left alone, so that the others go on serving.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.compute.controller.settings import Settings
from penstock.compute.protocol.dataflow import Id


@dataclass(slots=True)
class CrashRecord:
    """The deaths of one replica that still count.

    deaths:    ms of the clock.
    hydrating: what it was building at the last one.
    until:     it is left alone until then; None: it is not.
    probation: it was left alone before: one more death is one too many.
    """

    deaths: list[int] = field(default_factory=list[int])
    hydrating: tuple[Id, ...] = ()
    until: int | None = None
    probation: bool = False

    def died(self, now: int, hydrating: Iterable[Id], settings: Settings) -> None:
        """It is lost. With the one that is too many its quarantine begins."""
        self.deaths = [at for at in self.deaths if at > now - settings.window] + [now]
        self.hydrating = tuple(hydrating)
        if self.probation or len(self.deaths) >= settings.quarantine_after:
            self.until = now + settings.quarantine

    def recent(self, now: int, settings: Settings) -> int:
        """How many deaths count still."""
        return sum(at > now - settings.window for at in self.deaths)

    def careful(self, now: int, settings: Settings) -> bool:
        """Whether it should build one thing at a time."""
        return self.probation or self.recent(now, settings) >= settings.careful_after

    def quarantined(self, now: int) -> bool:
        """Whether it is left alone. After its time it gets one more try, not all of them again."""
        if self.until is not None and now >= self.until:
            self.until, self.probation = None, True
        return self.until is not None

    def forgive(self) -> None:
        """It was whole for long enough, or somebody says that it is repaired."""
        self.deaths, self.hydrating, self.until, self.probation = [], (), None, False
