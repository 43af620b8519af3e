"""Findings as text for people, as annotations for GitHub, and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.analysis.flow_report import Finding
    from headrace.errors import SourceLocation


class OutputFormat(Enum):
    """Output format of findings."""

    TEXT = "text"
    GITHUB = "github"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class PlacedFinding:
    """A finding with the file it is about.

    file: relative to the current folder if it lies below it. line: None for a file as a whole.
    """

    severity: str
    code: str
    name: str
    file: str
    line: int | None
    what: str
    why: str
    fix: str
    where: tuple[tuple[str, int, str], ...]

    @classmethod
    def of(cls, finding: Finding, file: str) -> PlacedFinding:
        """Place a finding. file: for one without a location."""
        error, at = finding.error, finding.location
        return cls(
            finding.severity.value,
            error.code,
            type(error).__name__,
            _shown(at) if at else file,
            at.line if at else None,
            error.what,
            error.why,
            error.fix,
            tuple((_shown(step.location), step.location.line, step.note) for step in error.where),
        )

    def as_text(self) -> str:
        place = _in_one_line(self.file) + ("" if self.line is None else f":{self.line}")
        steps = [f"{_in_one_line(file)}:{line}   {note}".rstrip() for file, line, note in self.where]
        show_steps = len(steps) > 1 or any(note for *_, note in self.where)
        parts = [
            "\n".join(steps) if show_steps else "",
            self.why,
            f"Fix: {self.fix}" if self.fix else "",
        ]
        rest = "\n".join(part for part in parts if part).replace("\n", "\n    ")
        return (
            f"{place}: {self.severity}: {self.code} {self.name}: {_in_one_line(self.what)}"
            + f"\n    {rest}" * bool(rest)
        )

    def as_annotation(self) -> str:
        """Return a workflow command of GitHub, with the escapes that GitHub documents."""
        title = f"{self.code} {self.name}"
        properties = {"file": self.file, "line": self.line, "title": title}
        given = ",".join(
            f"{key}={_property(value)}" for key, value in properties.items() if value is not None
        )
        parts = (self.what, self.why, f"Fix: {self.fix}" if self.fix else "")
        return f"::{self.severity} {given}::{_data(chr(10).join(part for part in parts if part))}"

    def as_json(self) -> Mapping[str, Any]:
        """Return the stable form, which docs/how-to/check-in-ci.md lists. New keys may be added."""
        keys = ("severity", "code", "name", "file", "line", "what", "why", "fix")
        where = [{"file": file, "line": line, "note": note} for file, line, note in self.where]
        return {**{key: getattr(self, key) for key in keys}, "where": where}


def lines_of(findings: Iterable[PlacedFinding], output_format: OutputFormat) -> Iterator[str]:
    """Yield the lines of standard output: for JSON, one list, also without findings."""
    if output_format is OutputFormat.JSON:
        yield json.dumps([finding.as_json() for finding in findings], indent=2)
    for finding in findings if output_format is not OutputFormat.JSON else ():
        yield finding.as_annotation() if output_format is OutputFormat.GITHUB else finding.as_text()


def _in_one_line(text: str) -> str:
    """Escape line breaks and control characters, which names of files may have."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _shown(location: SourceLocation) -> str:
    path = Path(location.file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else location.file


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: object) -> str:
    return _data(str(value)).replace(":", "%3A").replace(",", "%2C")
