"""Contract between the server and what a page shows. All answers are JSON values."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, Protocol, TypeAlias

Json: TypeAlias = "dict[str, Any]"


WHY_SECONDS = 40
"""Limit on the time of a question why a row is there: loading and reading take time, too."""


class Page(Protocol):
    """Subject of a page: a run, a checkpoint, or a controller. The server calls it from its own threads."""

    def overview(self) -> Json:
        """Return what never changes: kind, title, picture, plan, sources and sinks."""
        ...

    def flow(self, view: str) -> Json:
        """Return picture, explanation and generated code of the flow that computes a view.

        view: empty for a run's only flow, and for a picture of all views of a controller.
        """
        ...

    def refresh(self) -> None:
        """Take in what has happened since the last call. Called a few times a second."""
        ...

    def version(self) -> int:
        """Return a number that rises with every change of `status`."""
        ...

    def status(self, after: int) -> Json:
        """Return the current status, with the ticks after tick number `after`."""
        ...

    def state(self) -> Json:
        """Return the state's size by operator, or under "why_not" the reason why it is unknown."""
        ...

    def state_of_key(self, operator: str, key: str) -> Json:
        """Return what an operator has stored for a key, given as JSON."""
        ...

    def rows(self, view: str, search: str, offset: int) -> Json:
        """Return a page of a view's rows that contain a text."""
        ...

    def dead_letters(self) -> Json:
        """Return the latest rows that were set aside, per source."""
        ...

    def why(self, view: str, row: str) -> Json:
        """Return the source rows that a view's row, as JSON, came from."""
        ...


class OneAtATime:
    """Answers questions why a row is there, one at a time: a search takes seconds of processor time."""

    def __init__(self, find: Callable[[str, str], Json]) -> None:
        self._find = find
        self._lock = Lock()

    def __call__(self, view: str, row: str) -> Json:
        """Return the answer, or why there is none while another question is being answered."""
        if not self._lock.acquire(blocking=False):
            return {"why_not": "Another question is being answered. Ask again when it is done."}
        try:
            return self._find(view, row)
        finally:
            self._lock.release()
