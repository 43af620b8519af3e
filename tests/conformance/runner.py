"""Runner of conformance files, one case after another."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from headrace.errors import HeadraceError
from tests.conformance.case_format import AnyKind, BadCase, Fields, Outcome, shown
from tests.conformance.compute_cases import COMPUTE
from tests.conformance.error_cases import ERRORS
from tests.conformance.pull_cases import PULL
from tests.conformance.signal_cases import PROPAGATION
from tests.conformance.tick_cases import TICKS

KINDS: Mapping[str, AnyKind] = {
    "ticks": TICKS,
    "errors": ERRORS,
    "propagation": PROPAGATION,
    "pull": PULL,
    "compute": COMPUTE,
}
"""Kinds of cases, by their name on the command line."""


def run_file(
    kind: str, path: str | Path, on_outcome: Callable[[Outcome], object] | None = None
) -> list[Outcome]:
    """Run all cases of a file, a JSON array of cases with a `name` each.

    on_outcome: called after each case.

    Cases in words are not run, and counted separately. A case with an invalid format fails with an
    explanation, and the others run. Raises `BadCase` for an unknown kind, and for a file that is unreadable
    or not such an array.
    """
    if kind not in KINDS:
        raise BadCase(f"there is no kind of cases {kind!r}", fix=f"one of {', '.join(KINDS)}")
    outcomes: list[Outcome] = []
    for number, value in enumerate(_read(Path(path)), 1):
        outcomes.append(_run(KINDS[kind], number, value))
        if on_outcome is not None:
            on_outcome(outcomes[-1])
    return outcomes


def _run(kind: AnyKind, number: int, value: object) -> Outcome:
    name = f"number {number}"
    try:
        name = Fields(value, name).text("name")
        case = kind.read(Fields(value, name))
        return Outcome(name, in_words=True) if kind.in_words(case) else Outcome(name, kind.run(case))
    except Exception as error:  # A failing case must not hide the others.
        text = error.what if isinstance(error, HeadraceError | BadCase) else str(error)
        text = " ".join(text.split()).removeprefix(f"case {name!r}: ")
        return Outcome(name, f"{type(error).__name__}: {text}")


def _read(path: Path) -> list[Any]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadCase(f"{path} cannot be read: {reason}", fix="name a file of cases") from None
    try:
        cases = json.loads(text)
    except ValueError as error:
        raise BadCase(f"{path} is not JSON: {error}") from None
    if not isinstance(cases, list):
        raise BadCase(f"{path} holds {shown(cases)}, not an array of cases")
    return cast("list[Any]", cases)
