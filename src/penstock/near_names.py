"""Guesses at the name that a user meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str], shown: Callable[[str], str] = repr) -> str:
    """Return "did you mean 'x'?" for the known name nearest to `name`, or "" if none is near.

    shown: text of the guess, as in `".filter(...)"`.
    """
    near = nearest(name, known)
    return "" if near is None else f"did you mean {shown(near)}?"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name nearest to `name`, or None if none is near."""
    return next(iter(get_close_matches(name, list(known), 1)), None)
