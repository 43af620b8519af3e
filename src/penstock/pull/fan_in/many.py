"""many: several streams as one, to which more can be added while it runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import AlreadyUsed, SourceLocation
from penstock.pull.fan_in.joined import Joined
from penstock.pull.module import Module
from penstock.pull.piece_checks import only
from penstock.pull.pieces import Source, SourcePart
from penstock.pull.protocol import BatchRead


def many(sources: Iterable[Source] = (), *, open_ended: bool = False) -> Many:
    """The values of several sources as they come, as `merge` gives them, and the handle to add more.

    open_ended: it does not end with its sources: `add(source)` adds more, until `cap()`.

    >>> from penstock.pull import collect, pull, values
    >>> letters = many([values("ace"), values("b")], open_ended=True)
    >>> letters.add(values("d"))
    >>> letters.cap()
    >>> pull(letters, collect()).run()
    ['a', 'b', 'd', 'c', 'e']
    """
    location = SourceLocation.of_caller()
    door = _Door(only(Source, "many", sources), open_ended)
    return Many(SourcePart("many", location, door.open, batches=True), door)


class Many(Source):
    """A source that is also the handle to add sources to it; see `many`.

    It may run several times: each run reads the sources that it was made of. What is added goes to all
    runs at work; where there is none, to the next.
    """

    __slots__ = ("_door",)
    _door: _Door

    def __init__(self, part: SourcePart, door: _Door) -> None:
        super().__init__(part)
        object.__setattr__(self, "_door", door)

    @property
    def capped(self) -> bool:
        """Whether no source can be added."""
        return self._door.capped

    def add(self, source: Source) -> None:
        """One more source, from now on. Raises `AlreadyUsed` after `cap`, and without `open_ended`."""
        self._door.add(*only(Source, "add", [source]))

    def cap(self) -> None:
        """No source will be added: it ends with those it has. Later calls do nothing."""
        self._door.cap()


class _Door:
    """Brings what is added to the runs at work."""

    def __init__(self, sources: tuple[Source, ...], open_ended: bool) -> None:
        self.capped = not open_ended
        self._sources = sources
        self._waiting: list[Source] = []
        self.at_work: dict[_AtWork, None] = {}

    def open(self, module: Module) -> BatchRead:
        waiting, self._waiting = self._waiting, []
        joined = Joined(module, (*self._sources, *waiting), capped=self.capped)
        entry = _AtWork(self, module, joined)
        self.at_work[entry] = None
        module.hold(entry)
        return joined.read

    def add(self, source: Source) -> None:
        if self.capped:
            raise AlreadyUsed(
                "no source can be added to many() any more",
                where=[SourceLocation.of_caller()],
                why="It is capped: it ends with the sources that it has.",
                fix="many(sources, open_ended=True), and cap() after the last add()",
            )
        if not self.at_work:
            self._waiting.append(source)
        for entry in tuple(self.at_work):
            entry.module.enter(entry.joined.add, source)

    def cap(self) -> None:
        self.capped = True
        for entry in tuple(self.at_work):
            entry.module.enter(entry.joined.cap)


@dataclass(frozen=True, eq=False, slots=True)
class _AtWork:
    """One run, from when it opened the source until that has ended or the run was given up."""

    door: _Door
    module: Module
    joined: Joined

    def cancel(self) -> None:
        self.door.at_work.pop(self, None)
