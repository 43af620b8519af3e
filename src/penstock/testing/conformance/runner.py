"""Runs the cases of a file, one after the other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.errors import BadCase, PenstockError
from penstock.testing.conformance.error_cases import ERRORS
from penstock.testing.conformance.fields import Fields, shown
from penstock.testing.conformance.kind import AnyKind, Outcome
from penstock.testing.conformance.propagation import PROPAGATION
from penstock.testing.conformance.tick_cases import TICKS

KINDS: Mapping[str, AnyKind] = {"ticks": TICKS, "errors": ERRORS, "propagation": PROPAGATION}
"""The kinds of cases, by the name that the command takes."""


def run_file(
    kind: str, path: str | Path, on_outcome: Callable[[Outcome], object] | None = None
) -> list[Outcome]:
    """Run all cases of a file, a JSON array of cases with a `name` each.

    on_outcome: called after each case.

    Raises `BadCase` for an unknown kind, a file that cannot be read or is no such
    array, and a case that does not fit its format: before any case has run.
    """
    if kind not in KINDS:
        raise BadCase(f"there is no kind of cases {kind!r}", fix=f"one of {', '.join(KINDS)}", kind=kind)
    chosen = KINDS[kind]
    cases = [(fields.case, chosen.read(fields)) for fields in _read(Path(path))]
    outcomes: list[Outcome] = []
    for name, case in cases:
        outcomes.append(Outcome(name, _run(chosen, case)))
        if on_outcome is not None:
            on_outcome(outcomes[-1])
    return outcomes


def _run(kind: AnyKind, case: Any) -> str:
    try:
        return kind.run(case)
    except Exception as error:  # one case that fails, however it does, must not hide the others
        text = error.what if isinstance(error, PenstockError) else str(error)
        return f"{type(error).__name__}: {' '.join(text.split())}"


def _read(path: Path) -> list[Fields]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadCase(
            f"{path} cannot be read: {reason}", fix="name a file of cases", file=str(path)
        ) from None
    try:
        cases = json.loads(text)
    except ValueError as error:
        raise BadCase(f"{path} is not JSON: {error}", fix="correct the file", file=str(path)) from None
    if not isinstance(cases, list):
        raise BadCase(
            f"{path} holds {shown(cases)}, not an array of cases", fix="correct the file", file=str(path)
        )
    return _named(path, cases)


def _named(path: Path, cases: list[Any]) -> list[Fields]:
    found: list[Fields] = []
    names: set[str] = set()
    for at, value in enumerate(cases):
        name = Fields(value, f"number {at} of {path}").text("name")
        if name in names:
            raise BadCase(
                f"{path} has two cases {name!r}", fix="rename one of them", file=str(path), case=name
            )
        names.add(name)
        found.append(Fields(value, name))
    return found
