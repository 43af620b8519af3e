"""Errors for methods that an object does not have, with a guess at the one that is meant."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from penstock.errors import PenstockError
from penstock.source_location import SourceLocation


class UnknownMethod(PenstockError, AttributeError):
    """A stream, a group or an expression has no method of this name."""

    code = "P013"


def missing_attribute(
    owner: object, what: str, name: str, elsewhere: Mapping[str, str], fix: str
) -> AttributeError:
    """Build the error for a missing attribute.

    elsewhere: ways out by names that other libraries use. fix: the way out if nothing is near.
    """
    if name.startswith("_"):  # asked by Python and by tools
        return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
    known = [each for each in dir(type(owner)) if not each.startswith("_")]
    near = get_close_matches(name, known, 1)
    advice = elsewhere.get(name) or (f"did you mean .{near[0]}(...)?" if near else fix)
    return UnknownMethod(
        f"{what} has no method {name!r}", where=[SourceLocation.of_caller()], fix=advice, method=name
    )
