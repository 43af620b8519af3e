"""The page docs/reference/errors.md: every error code, from the classes and their messages."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from functools import cache

import headrace
from headrace.errors import HeadraceError
from tests.docs.pages import GENERATED, ROOT

HEAD = f"""\
# Errors

{GENERATED}

Every error that a user can meet is a `headrace.HeadraceError`. It has a `code`, the `where` of your program
or file, a reason, and a `fix`. A message reads

    CODE Name: what is wrong

      file:line   your line

    the reason

    Fix: the way out

The command line prints the same text. It exits with 2 if it refused before anything ran, and with 1 if a run
failed.
"""
GROUPS = {
    "P0": "Expressions and types",
    "P1": "Flows",
    "P2": "Rows and ticks",
    "P3": "Sources, sinks and checkpoints",
    "P4": "Spark",
    "P5": "Traces",
    "P6": "Pull-streams",
    "P7": "Serving",
    "P8": "Pipelines",
    "P9": "Conformance",
}
# Goldens below tests/ that go before shorter ones of the same code.
TYPICAL = [
    "errors/cases/compare_number_and_text.txt",
    "newcomer/cases/another_flow_on_a_checkpoint.txt",
]


def page() -> str:
    """The page as Markdown."""
    lines, group = [HEAD], ""
    for cls in sorted(error_classes(), key=lambda c: c.code):
        if cls.code[:2] != group:
            group = cls.code[:2]
            lines += [f"## {GROUPS[group]}", ""]
        lines += [f"### {cls.code} {cls.__name__} {{ #{cls.code.lower()} }}", ""]
        lines += [f"{_cause(cls)} `{cls.__module__}.{cls.__name__}`", ""]
        if message := messages().get(cls.code):
            lines += ["```text", message, "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def error_classes() -> set[type[HeadraceError]]:
    """All classes with a code of their own."""
    for module in pkgutil.walk_packages(headrace.__path__, "headrace."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found: set[type[HeadraceError]] = set()
    waiting = [HeadraceError]
    while waiting:
        subclasses = waiting.pop().__subclasses__()
        waiting += subclasses
        found |= {c for c in subclasses if "code" in vars(c) and c.__module__.startswith("headrace.")}
    return found


def _cause(cls: type[HeadraceError]) -> str:
    paragraphs = [" ".join(p.split()) for p in (inspect.getdoc(cls) or "").split("\n\n")]
    text = " ".join(re.sub(r"Carries [^.]*\.", "", p).strip() for p in paragraphs)
    return text.strip()


@cache
def messages() -> dict[str, str]:
    """A typical whole message of each code, or the shortest of the tested ones; those of flows go first."""
    tests, flows = ROOT / "tests", ROOT / "tests" / "errors" / "cases"
    by_size = sorted(tests.rglob("*.txt"), key=lambda p: (p.parent != flows, p.stat().st_size, p))
    chosen: dict[str, str] = {}
    for path in [tests / name for name in TYPICAL] + by_size:
        for found in _MESSAGE.finditer(path.read_text("utf-8", errors="replace")):
            chosen.setdefault(found["code"], found[0].strip())
    return chosen


# A whole message: printed by itself, or as `headrace check` prints it, indented behind its place.
_MESSAGE = re.compile(
    r"^(?:\S+:\d+: \w+: )?(?P<code>P\d{3}) \w+: (?:(?!^\S*(?:: \w+: )?P\d{3} )[\s\S])*?"
    r"^(?P<indent> *)Fix: .*(?:\n(?P=indent)(?![\s`$\[]|\S+:\d+: |\d+ files? ).+)*",
    re.MULTILINE,
)
