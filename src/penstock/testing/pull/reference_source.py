"""The reference source: 1, 2, 3, ... and an end, with everything a source may do as a parameter."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from penstock.pull.module import Module
from penstock.pull.pieces import Source
from penstock.pull.protocol import AnswerTo, End

Pending = Literal["ends", "values", "left"]
"""What becomes of asks that pend when the source is told to stop: it answers them by the end, or still
by their values, or leaves them to the edge."""


@dataclass(frozen=True, slots=True)
class SourceCase:
    """count:  of values. end: what comes after them.
    sync:    whether it answers at once, or a second after it was asked, one ask after the other.
    pending: see `Pending`; for `sync=False`.
    confirms_done: whether it confirms an error by done, and not by the same error.
    """

    count: int
    end: End = True
    sync: bool = True
    pending: Pending = "ends"
    confirms_done: bool = False

    def __str__(self) -> str:
        end = "done" if self.end is True else f"error({self.end})"
        how = "sync" if self.sync else f"async, pending asks: {self.pending}"
        return f"source({self.count} values, {end}, {how}{', confirms done' if self.confirms_done else ''})"


def reference_source(
    count: int,
    end: End = True,
    *,
    sync: bool = True,
    pending: Pending = "ends",
    confirms_done: bool = False,
) -> Source:
    """A source of 1 to `count` and then `end` for ever. Parameters: see `SourceCase`.

    >>> from penstock.pull import collect, pull
    >>> pull(reference_source(3), collect()).run()
    [1, 2, 3]
    """
    return source_of(SourceCase(count, end, sync, pending, confirms_done))


def source_of(case: SourceCase) -> Source:
    """The reference source with these parameters."""
    return Source.of("reference source", lambda module: _Reference(module, case).read)


class _Reference:
    def __init__(self, module: Module, case: SourceCase) -> None:
        self._module = module
        self._case = case
        self._given = 0
        self._pending: deque[AnswerTo] = deque()

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is None:
            self._pending.append(answer)
            self._when_due(self._answer_oldest)
        else:
            pending, self._pending = self._pending, deque()
            self._when_due(self._stop, abort, answer, pending)

    def _when_due(self, call: object, *args: object) -> None:
        if self._case.sync:
            call(*args)  # type: ignore[operator]
        else:
            self._module.later(1.0, call, *args)  # type: ignore[arg-type]

    def _answer_oldest(self) -> None:
        if self._pending:  # else it was told to stop meanwhile
            self._answer(self._pending.popleft())

    def _answer(self, answer: AnswerTo) -> None:
        if self._given < self._case.count:
            self._given += 1
            answer(None, self._given)
        else:
            answer(self._case.end)

    def _stop(self, abort: End, answer: AnswerTo, pending: deque[AnswerTo]) -> None:
        confirmation: End = True if self._case.confirms_done else abort
        for asked in pending:
            if self._case.pending == "ends":
                asked(confirmation)
            elif self._case.pending == "values":
                self._answer(asked)
        answer(confirmation)
