"""Griffe extension: parameters in a docstring become a list, doctests become code blocks."""

from __future__ import annotations

import re
from typing import Any

import griffe

_PARAMETER = re.compile(r"^(\w+(?:, \w+)*):\s+(?=\S)")


class DocstringParameters(griffe.Extension):
    """Turns `name: text` lines that name parameters into Google's `Args:` section, and fences doctests."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a class or function."""
        if obj.docstring is None:
            return
        function = obj.members.get("__init__") if isinstance(obj, griffe.Class) else obj
        names = {p.name for p in getattr(function, "parameters", ())} | set(obj.members)
        paragraphs = obj.docstring.value.split("\n\n")
        obj.docstring.value = "\n\n".join(_section(p, names) for p in paragraphs)


def _section(paragraph: str, names: set[str]) -> str:
    if paragraph.startswith(">>> "):
        return f"```pycon\n{paragraph}\n```"  # Markdown would quote it three deep
    first = _PARAMETER.match(paragraph)
    if not first or not set(first[1].split(", ")) <= names:
        return paragraph
    lines = ["Args:"]
    for line in paragraph.splitlines():
        begins = _PARAMETER.match(line)
        lines.append(f"    {begins[1]}: {line[begins.end() :]}" if begins else f"        {line.strip()}")
    return "\n".join(lines)
