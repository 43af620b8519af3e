"""Replicas that cannot answer a request, for reasons of their own: a full disk, too little memory.

What one replica cannot do another may. So a problem of a replica's health is no answer while some connected
replica has yet to speak; it is the answer when none is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.compute.protocol.responses import Problem
from penstock.errors import Origin


class Unable:
    """The replicas that cannot answer one request, with their problems.

    what:      the request, as a noun.
    connected: the names of the replicas that are connected now.
    note:      told what a replica cannot do, which its clients may never see.
    """

    __slots__ = ("_connected", "_note", "problems", "what")

    def __init__(
        self, what: str, connected: Callable[[], Iterable[str]], note: Callable[[str, str], None]
    ) -> None:
        self.problems: dict[str, Problem] = {}
        self.what = what
        self._connected = connected
        self._note = note

    def hear(self, replica: str, problem: Problem) -> Problem | None:
        """A replica answers with a problem. The problem to be passed on, if any."""
        if problem.origin is Origin.DATA:
            return problem
        self._note(replica, f"it cannot answer a {self.what}: {problem.message}")
        self.problems[replica] = problem
        return self.verdict()

    def lost(self, replica: str) -> Problem | None:
        """A replica is gone: it is asked again when it is back. The problem to be passed on, if any."""
        self.problems.pop(replica, None)
        return self.verdict()

    def verdict(self) -> Problem | None:
        """The problem that was told first, where no connected replica is left that may still answer."""
        if not self.problems or any(name not in self.problems for name in self._connected()):
            return None
        return next(iter(self.problems.values()))
