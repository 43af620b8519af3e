"""Source locations: the user's lines that errors, explanations and pictures show."""

from __future__ import annotations

import functools
import linecache
import os
import sys
from dataclasses import dataclass
from types import FrameType

_PACKAGE = os.path.dirname(__file__) + os.sep  # `pathlib` would be a twentieth of the time of the import
# Single dispatch puts frames of its own between ours.
_DISPATCH = functools.__file__


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line of a user's file that added an operator or called the package."""

    file: str
    line: int
    function: str = ""

    @property
    def text(self) -> str:
        """The source line, stripped; empty where the source cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"

    @classmethod
    def of_caller(cls) -> SourceLocation:
        """Return the nearest frame outside the package: the user's line that called us."""
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        while frame.f_back is not None and _is_ours(frame):
            frame = frame.f_back
        return cls(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def _is_ours(frame: FrameType) -> bool:
    """Whether a frame runs code of the package, or code that `dataclass` wrote for it."""
    file = frame.f_code.co_filename
    if file == "<string>":
        return str(frame.f_globals.get("__name__")).startswith(f"{__package__}.")
    return file.startswith((_PACKAGE, _DISPATCH))


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the path shown in an error: a source location, and its part in the error."""

    location: SourceLocation
    note: str = ""

    def line(self, width: int = 0) -> str:
        """The location, padded to `width`, the text of its line, and the note."""
        line = f"  {self.location!s:<{width}}   {self.location.text}".rstrip()
        return f"{line}      <- {self.note}" if self.note else line
