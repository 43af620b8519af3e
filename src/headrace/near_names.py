"""Guesses at the name that a user meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches


def did_you_mean(name: object, known: Iterable[str], shown: Callable[[str], str] = repr) -> str:
    """Return "did you mean 'x'?" for the known name nearest to `name`, or "" if none is near.

    shown: text of the guess, as in `".filter(...)"`. What is no text is near to nothing.
    """
    near = nearest(name, known)
    return "" if near is None else f"did you mean {shown(near)}?"


def nearest(name: object, known: Iterable[str]) -> str | None:
    """Return the known name nearest to `name`, or None if none is near."""
    near = get_close_matches(name, list(known), 1) if isinstance(name, str) else []
    return near[0] if near else None
