"""The page docs/reference/errors.md: every error code, from the classes and their messages."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cache

import penstock
from penstock.errors import PenstockError
from tests.docs.pages import GENERATED, ROOT

HEAD = f"""\
# Errors

{GENERATED}

Every error that a user can meet is a `penstock.PenstockError`. It has a `code`, the `where` of your program
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
MOST_FIXES = 4


def page() -> str:
    """The page as Markdown."""
    lines, group = [HEAD], ""
    for cls in sorted(error_classes(), key=lambda c: c.code):
        if cls.code[:2] != group:
            group = cls.code[:2]
            lines += [f"## {GROUPS[group]}", ""]
        lines += [f"### {cls.code} {cls.__name__} {{ #{cls.code.lower()} }}", ""]
        lines += [f"{_cause(cls)} `{cls.__module__}.{cls.__name__}`", "", *_way_out(cls), ""]
    return "\n".join(lines).rstrip() + "\n"


def error_classes() -> set[type[PenstockError]]:
    """All classes with a code of their own."""
    for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found: set[type[PenstockError]] = set()
    waiting = [PenstockError]
    while waiting:
        subclasses = waiting.pop().__subclasses__()
        waiting += subclasses
        found |= {c for c in subclasses if "code" in vars(c) and c.__module__.startswith("penstock.")}
    return found


def _cause(cls: type[PenstockError]) -> str:
    paragraphs = [" ".join(p.split()) for p in (inspect.getdoc(cls) or "").split("\n\n")]
    text = " ".join(re.sub(r"Carries [^.]*\.", "", p).strip() for p in paragraphs)
    return text.strip()


def _way_out(cls: type[PenstockError]) -> list[str]:
    message = messages().get(cls.code)
    if message:
        return ["```text", message, "```"]
    fixes = list(dict.fromkeys(fixes_of().get(cls.__name__, [])))[:MOST_FIXES]
    return [f"- Fix: {fix}" for fix in fixes]


def says_a_way_out(cls: type[PenstockError]) -> bool:
    """Whether the page has a way out: a tested message, what the code advises, or a sentence of the class."""
    return bool(_way_out(cls)) or ". " in _cause(cls)


@cache
def messages() -> dict[str, str]:
    """The shortest whole message of each code among the tested ones; those of flows go first."""
    shortest: dict[str, str] = {}
    flows = ROOT / "tests" / "errors" / "cases"
    for path in sorted(
        (ROOT / "tests").rglob("*.txt"), key=lambda p: (p.parent != flows, p.stat().st_size, p)
    ):
        text = path.read_text("utf-8", errors="replace").strip()
        found = re.match(r"(P\d{3}) \w+: ", text)
        if found and "\nFix: " in text:
            shortest.setdefault(found[1], text)
    return shortest


@cache
def fixes_of() -> dict[str, list[str]]:
    """The ways out that the code gives, per name of an error class."""
    fixes: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src" / "penstock").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func).rpartition(".")[2]
                fixes.setdefault(name, []).extend(_texts(k.value) for k in node.keywords if k.arg == "fix")
    return {name: [fix for fix in found if fix] for name, found in fixes.items()}


def _texts(node: ast.expr) -> str:
    return "".join(_pieces(node))


def _pieces(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=values):
            for value in values:
                yield _texts(value) if isinstance(value, ast.Constant) else "…"
        case ast.BoolOp(values=[*_, value]):
            yield _texts(value)
        case _:
            return
