"""Pages of documentation as sequences of code blocks and pictures.

A page is a Markdown file. What its fences mean to `tests.docs.run_page`:

| fence | meaning |
|---|---|
| `python` | runs in the page's namespace; a `text` fence directly after it holds what it prints |
| `pycon` | a doctest in the page's namespace |
| `console` | `$ command` lines for one shell, each followed by what it prints |
| `ticks` | a tick table of the variable `flow` |
| any with `title="name"` | the content of that file |
| `<!-- picture: name.svg of flow -->` | the variable `flow`, drawn to `pictures/name.svg` |

`...` in an output stands for any text. Other fences, and those below `<!-- not run: reason -->`, don't run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GENERATED = "<!-- made by tests/docs: HEADRACE_WRITE_GOLDEN=1 pytest tests/docs -->"
RUN = ("python", "pycon", "console", "ticks")

_ITEM = re.compile(
    r"^(?P<indent> *)(?:<!-- (?P<note>picture|not run): (?P<said>.*?) -->$"
    r"|(?P<fence>```+)(?P<language>\w*)(?P<options>[^\n]*)\n(?P<text>.*?)^(?P=indent)(?P=fence)$)",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. line: of its first line of text. reason: why it doesn't run, where the page says so."""

    line: int
    language: str
    title: str | None
    text: str
    output: str | None = None
    reason: str | None = None

    @property
    def runs(self) -> bool:
        return self.reason is None and (self.title is not None or self.language in RUN)


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture that the page shows of one of its variables."""

    line: int
    file: str
    variable: str


def read_page(path: Path) -> list[Block | Drawing]:
    """The blocks and pictures of a page, in order; an output belongs to the block before it."""
    text = path.read_text("utf-8")
    items: list[Block | Drawing] = []
    reason, end = None, 0
    for found in _ITEM.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        adjacent = not text[end : found.start()].strip()
        end = found.end()
        if found["note"] == "not run":
            reason = found["said"]
        elif found["note"]:
            file, variable = found["said"].split(" of ")
            items.append(Drawing(line, file, variable))
        else:
            block = _block(found, line + 1, reason)
            last = items[-1] if items else None
            follows = adjacent and isinstance(last, Block) and last.language == "python" and last.runs
            if block.language == "text" and follows and last.title is None and reason is None:
                items[-1] = Block(last.line, "python", None, last.text, block.text)
            else:
                items.append(block)
            reason = None
    return items


def _block(found: re.Match[str], line: int, reason: str | None) -> Block:
    lines = found["text"].splitlines(keepends=True)
    text = "".join(one.removeprefix(found["indent"]) for one in lines)
    title = re.search(r'title="([^"]+)"', found["options"])
    return Block(line, found["language"], title[1] if title else None, text, reason=reason)


def pages() -> list[Path]:
    """The README and all pages that are written by hand."""
    written = [p for p in sorted(DOCS.rglob("*.md")) if GENERATED not in p.read_text("utf-8")]
    return [ROOT / "README.md", *written]
