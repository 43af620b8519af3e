"""Values with an encoding of their own in entries of state, for operators that do not use the codec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ASIDE, ERASED = 3, 4
"""Kinds of rows of an arrangement that are put aside, and of those whose values were erased since."""


@dataclass(frozen=True, slots=True)
class Exact:
    """An entry of state with values of any type, which must be restored with their exact types."""

    value: Any


@dataclass(frozen=True, slots=True)
class Erasable:
    """A part of an entry that no output row shows, and that a later record may restore until it is erased.

    value: None once it is erased.
    """

    value: Any
