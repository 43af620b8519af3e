"""Where an error points to: the nearest line that is not ours."""

from __future__ import annotations

import functools
from pathlib import Path

import headrace
from headrace.errors import SourceLocation, Step

PACKAGE = Path(headrace.__file__).parent


def place_seen_from(file: str, source: str) -> SourceLocation:
    namespace: dict[str, object] = {"SourceLocation": SourceLocation, "functools": functools}
    exec(compile(source, file, "exec"), namespace)
    found = namespace["found"]
    assert isinstance(found, SourceLocation)
    return found


def test_a_folder_whose_name_begins_like_ours_is_the_users() -> None:
    file = str(PACKAGE.with_name("headrace_flows") / "billing.py")
    assert place_seen_from(file, "\n\nfound = SourceLocation.of_caller()\n") == SourceLocation(
        file, 3, "<module>"
    )


def test_frames_of_ours_and_of_single_dispatch_between_them_are_passed_over() -> None:
    inside = str(PACKAGE / "expr" / "check.py")
    ours = {"SourceLocation": SourceLocation, "functools": functools}
    source = "@functools.singledispatch\ndef check(value):\n    return SourceLocation.of_caller()\n"
    exec(compile(source, inside, "exec"), ours)
    check = ours["check"]
    here = check(1)  # type: ignore[operator]
    assert Path(here.file) == Path(__file__)
    assert here.text == "here = check(1)  # type: ignore[operator]"


def test_a_place_without_text_has_its_note() -> None:
    step = Step(SourceLocation("a.py", 7), "why")
    assert step.line(10) == "  a.py:7      <- why"
