"""Findings of an examination: one sentence each, with the command or setting that fixes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """Severity of a finding.

    OK:      as it should be.
    SLOW:    works, but costs time or space.
    MEANING: works, and may answer otherwise than the flow means, in the cases told.
    BROKEN:  flows do not run on Spark like this.
    """

    OK = "ok"
    SLOW = "slow"
    MEANING = "meaning"
    BROKEN = "broken"


_WIDTH = 8


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. about: its subject. text: the observation. fix: a line to copy, empty if not needed."""

    about: str
    level: Level
    text: str
    fix: str = ""

    def __str__(self) -> str:
        fix = f"\n{'':<{_WIDTH}}  {self.fix}" if self.fix else ""
        return f"{self.level.value:<{_WIDTH}} {self.about}: {self.text}{fix}"

    def to_json(self) -> dict[str, str]:
        return {"about": self.about, "level": self.level.value, "text": self.text, "fix": self.fix}


@dataclass(frozen=True, slots=True)
class Examination:
    """All findings, in the order of the examination."""

    findings: tuple[Finding, ...]

    @property
    def broken(self) -> bool:
        """Return whether a finding prevents flows from running on Spark."""
        return any(finding.level is Level.BROKEN for finding in self.findings)

    def at(self, *levels: Level) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.level in levels)

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))


def ok(about: str, text: str) -> Finding:
    return Finding(about, Level.OK, text)


def examination(*parts: Iterable[Finding]) -> Examination:
    return Examination(tuple(finding for part in parts for finding in part))
