"""Later: what a deferred piece will be, and the modules that wait to hear it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.errors import AlreadyUsed, NotComposable, SourceLocation, WrongThread
from penstock.pull.compose import describe
from penstock.pull.module import Module
from penstock.pull.pieces import Duplex, Piece, Sink, Source, Transformer

P = TypeVar("P", Source, Transformer, Sink, Duplex)


class Later(Generic[P]):
    """A piece of one kind, to be told once. Runs are connected then, later ones at their start."""

    def __init__(self, kind: type[P], location: SourceLocation) -> None:
        self._kind = kind
        self._location = location
        self._piece: P | None = None
        self._waiting: dict[_Waiting[P], None] = {}

    def when(self, module: Module, connect: Callable[[P], object]) -> None:
        """Have `connect(piece)` called for a module: now if the piece is known, else when it is."""
        if self._piece is not None:
            connect(self._piece)
        else:
            entry = _Waiting(self._waiting, threading.get_ident(), module, connect)
            self._waiting[entry] = None
            module.hold(entry)

    def resolve(self, piece: P) -> None:
        """Say what the piece is. Raises `NotComposable` for another kind, `AlreadyUsed` the second time,
        `WrongThread` where a run that waits works in another thread."""
        self._check(piece)
        self._piece = piece
        for entry in tuple(self._waiting):
            entry.cancel()
            entry.module.enter(entry.connect, piece)

    def _check(self, piece: P) -> None:
        where = [SourceLocation.of_caller(), self._location]
        kind = self._kind.__name__
        if not isinstance(piece, self._kind):  # pyright: ignore[reportUnnecessaryIsInstance]
            found = describe(piece) if isinstance(piece, Piece) else f"a value of type {type(piece).__name__}"
            raise NotComposable(
                f"defer({kind}) cannot become {found}",
                where=where,
                why=f"It stands in its pipelines as a {kind.lower()}.",
                fix=f"resolve it with a {kind.lower()}",
            )
        if self._piece is not None:
            raise AlreadyUsed(
                f"defer({kind}) is resolved or aborted a second time",
                where=where,
                why="Pipelines may be connected with the first piece already.",
                fix="make a defer() for each piece",
            )
        if any(entry.thread != threading.get_ident() for entry in self._waiting):
            raise WrongThread(
                f"defer({kind}) is resolved in a thread other than that of its pipeline",
                where=where,
                why="Two threads would work on the pipeline at once.",
                fix="loop.call_soon_threadsafe(handle.resolve, piece), with the loop of the pipeline",
            )


@dataclass(frozen=True, eq=False, slots=True)
class _Waiting(Generic[P]):
    """A module that waits, until it is connected, has ended, or its run was given up."""

    among: dict[_Waiting[P], None]
    thread: int
    module: Module
    connect: Callable[[P], object]

    def cancel(self) -> None:
        self.among.pop(self, None)
