"""Generated Python source: the operator of each line, the constants it uses, and the functions it calls."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping


INDENT = "    "

RUNTIME: dict[str, Any] = {}
"""Functions that generated code calls beside those of expressions, by name: over compound values of state."""


def register_runtime(functions: Mapping[str, Any]) -> None:
    """Name functions for generated code. Names begin with `x_`; each step has its own."""
    RUNTIME.update(functions)


@dataclass(frozen=True, slots=True)
class Purpose:
    """Purpose of a generated line. node: the operator's id. row: source of each column of its input row."""

    node: int | None = None
    row: tuple[str, ...] = ()


class SourceCode:
    """Lines of generated Python. `purposes[i]` is the purpose of line `i + 1`.

    An exception in generated code carries a line number and nothing else; the
    purpose of that line says which operator it works for, and so which line of
    the user's file, and which row it works on.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.purposes: list[Purpose] = []
        self._depth = 0
        self._purpose = Purpose()

    def line(self, text: str) -> None:
        self.lines.append(INDENT * self._depth + text)
        self.purposes.append(self._purpose)

    def extend(self, other: SourceCode) -> None:
        """Add the lines of `other`, indented to the current depth, with their purposes."""
        self.lines.extend(INDENT * self._depth + line for line in other.lines)
        self.purposes.extend(other.purposes)

    def replace_unused_loop_header(self, at: int, name: str, header: str) -> None:
        """Replace the loop header at line `at` if `name` is used only in the body's first line.

        That line, which unpacks `name` as the new header does, is removed.
        """
        used = re.compile(rf"\b{name}\b")
        body = self.lines[at + 2 :]
        row_sources = (source for purpose in self.purposes[at + 2 :] for source in purpose.row)
        if body and not any(used.search(text) for text in (*body, *row_sources)):
            self.lines[at] = self.lines[at][: -len(self.lines[at].lstrip())] + header
            del self.lines[at + 1], self.purposes[at + 1]

    @contextmanager
    def block(self, header: str) -> Generator[None]:
        """Open a block under `header`, one level deeper."""
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
    def attribute_lines(self, node: int, row: tuple[str, ...] = ()) -> Generator[None]:
        """Attribute the lines written inside to `node` and the row with these column sources."""
        before, self._purpose = self._purpose, Purpose(node, row)
        yield
        self._purpose = before


class Constants:
    """Names of constants; the same object always gets the same name. Lowering adds to `values` too."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}
        self._names: dict[int, str] = {}

    def name(self, prefix: str, value: object) -> str:
        name = self._names.get(id(value))
        if name is None:
            name = f"{prefix}_{len(self.values)}_"
            self.values[name] = value
            self._names[id(value)] = name
        return name
