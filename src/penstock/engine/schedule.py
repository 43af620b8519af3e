"""Which pieces of a flow are compiled, and which of them a tick runs."""

from __future__ import annotations

from enum import Enum


class Schedule(Enum):
    """In which pieces a flow is compiled, and which of them a tick runs.

    HYBRID:  a piece per region, those that have something to read.
    DYNAMIC: a piece per operator, those that have something to read.
    STATIC:  a piece per operator, all of them.

    The answers and what is activated are the same; the last two are there to compare with.
    """

    HYBRID = "hybrid"
    DYNAMIC = "dynamic"
    STATIC = "static"
