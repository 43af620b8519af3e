"""The extras that a page tells its reader to install, and the packages that are missing then."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

BEGINNING = 15
"""Lines of a page in which it says what to install."""
ALL = "all"


def extras_of(page: Path) -> tuple[str, ...] | None:
    """The extras that a tutorial or a guide names at its beginning; None for other pages."""
    if page.parent.name not in ("tutorials", "how-to"):
        return None
    beginning = "\n".join(page.read_text("utf-8").splitlines()[:BEGINNING])
    told = re.search(r"extras? ((?:`\w+`(?:, | and )?)+)", beginning)
    return None if told is None else tuple(re.findall(r"\w+(?=`)", told[1]))


def missing_packages(extras: Iterable[str]) -> list[str]:
    """Names under which Python imports the packages of all extras but these."""
    gone = _distributions("headrace", ALL) - _distributions("headrace", *extras)
    return sorted(
        name
        for name, owners in packages_distributions().items()
        if {canonicalize_name(o) for o in owners} <= gone
    )


@cache
def _distributions(name: str, *extras: str) -> frozenset[str]:
    found = {canonicalize_name(name)}
    try:
        requirements = [Requirement(each) for each in requires(name) or ()]
    except PackageNotFoundError:
        return frozenset()
    for each in requirements:
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            found |= _distributions(each.name, *sorted(each.extras))
    return frozenset(found)
