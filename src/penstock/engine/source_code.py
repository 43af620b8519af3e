"""A writer of Python source that remembers which operator each line belongs to."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

INDENT = "    "


class SourceCode:
    """Lines of generated Python. `owners[i]` is the node that line `i + 1` works for.

    An exception in generated code carries a line number and nothing else; the
    owner of that line says which operator, and so which line of the user's file.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.owners: list[int | None] = []
        self._depth = 0
        self._owner: int | None = None

    def line(self, text: str) -> None:
        self.lines.append(INDENT * self._depth + text)
        self.owners.append(self._owner)

    @contextmanager
    def block(self, header: str) -> Generator[None]:
        """Lines written inside stand one level deeper under `header`."""
        self.line(header)
        with self.deeper():
            yield

    @contextmanager
    def deeper(self) -> Generator[None]:
        depth = self._depth
        self._depth = depth + 1
        at = len(self.lines)
        yield
        if len(self.lines) == at:
            self.line("pass")
        self._depth = depth

    @contextmanager
    def working_for(self, node: int) -> Generator[None]:
        """Lines written inside belong to `node`."""
        before, self._owner = self._owner, node
        yield
        self._owner = before

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"
