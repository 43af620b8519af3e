"""What every sink has in common: changes come in two steps, *prepare* and *publish*.

A sink (`Changelog`, `TableFiles`, `Call`, `Memory`, `Print`) is frozen data.
An engine opens a `Writer` for it and, per tick:

1. `prepare(tick, rows)`: the tick's changes are written down safely, where no reader looks.
2. the engine commits the tick (state, positions) in its checkpoint, if there is one.
3. `publish(tick)`: they become visible, in one step, whole or not at all.

`publish` may be called again for a tick that was published: nothing happens.
After a crash `recover(tick)` is given the last committed tick: what was
prepared for it is published, what was prepared beyond it is thrown away. So
with a checkpoint the output holds each tick exactly once. `Call` and `Print`
hand their changes to something that cannot be asked what it has already seen:
there the last tick may come twice after a crash, with the same number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import Any, ClassVar

from penstock.errors import BadInput
from penstock.expr.types import Schema
from penstock.io.guarantee import Guarantee
from penstock.io.held_back import SHOWN, HeldBack


@dataclass(frozen=True, slots=True)
class Drain:
    """What a flow gives to a sink.

    schema:  of the rows; changes are internal tuples with the weight as last field.
    sources: the table sources that its rows come of, by name: they may take rows back.
    spool:   a folder of the checkpoint where a sink that is no file of its own keeps a prepared
             tick; None without a checkpoint.
    present: internal changes as users see them: a sequence of `Change(row, weight)`.
    """

    name: str
    schema: Schema
    spool: Path | None = None
    present: Callable[[list[tuple[Any, ...]]], Sequence[Any]] = lambda rows: rows
    sources: tuple[str, ...] = ()

    @property
    def durable(self) -> bool:
        """Whether files must survive a power cut: only a checkpoint can go on after one."""
        return self.spool is not None


class Writer(ABC):
    """See the module's text. One thread; `close` is called once, whatever happened.

    only_holds: `prepare` does nothing that can fail, so both steps may be made when it is time to publish.
    """

    only_holds: ClassVar[bool] = False

    @abstractmethod
    def prepare(self, tick: int, rows: list[tuple[Any, ...]]) -> None: ...

    @abstractmethod
    def publish(self, tick: int) -> None: ...

    @abstractmethod
    def recover(self, tick: int) -> None:
        """Called once, first. `tick` is the last committed one, 0 for a new run.

        Raises `BadInput` where the sink holds ticks that this run cannot have written,
        or is new while the run has ticks behind it.
        """

    def held_back(self) -> HeldBack | None:
        """What a table holds back, after the last published tick and also when closed; None of nothing."""
        return None

    def close(self) -> None:
        """Nothing more will come."""
        return


class PartsWriter(Writer):
    """A writer that also takes a tick as parts that tasks have staged."""

    @abstractmethod
    def assemble(self, tick: int, names: Iterable[str]) -> None:
        """As `prepare`, of exactly the parts of these names; repeating it is harmless."""


@dataclass(frozen=True)
class SinkTarget:
    """Base of the sinks."""

    guarantee: ClassVar[Guarantee]

    @property
    def place(self) -> Hashable:
        """Where rows go that no other sink of the run may go to; None where any number may."""
        return None


@singledispatch
def open_sink(sink: object, drain: Drain) -> Writer:
    """A writer to `sink`. Raises `BadInput` for what is no sink, or cannot hold such rows."""
    raise BadInput(
        f"sink {drain.name!r} is {type(sink).__name__}, which is no sink",
        fix="give Changelog(...), TableFiles(...), Call(...), Memory(), Print(), a list or a function",
        sink=drain.name,
    )


def held_back_of(rows: list[tuple[Any, ...]], drain: Drain) -> HeldBack | None:
    """The report of rows that a table holds back, weight last."""
    return HeldBack(len(rows), drain.present(rows[:SHOWN]), drain.sources) if rows else None


def refuse_later_ticks(sink: str, path: Path | str, found: int, tick: int) -> None:
    """Raises `BadInput` if `found`, the latest tick at `path`, is after the committed `tick`."""
    if found <= tick:
        return
    since = f"the checkpoint ends with tick {tick}" if tick else "this run begins with tick 1"
    raise BadInput(
        f"sink {sink!r}: {path} holds tick {found} already",
        why=f"{since}: those rows are of another run, and would be mixed with the new ones.",
        fix="go on with the checkpoint of that run, or give another path, or remove the old output",
        sink=sink,
        path=str(path),
        found=found,
        tick=tick,
    )


def refuse_new(sink: str, path: Path | str, tick: int, is_there: bool) -> None:
    """Raises `BadInput` for output that would begin in the middle of a run: its sums would be wrong."""
    if is_there or tick == 0:
        return
    raise BadInput(
        f"sink {sink!r}: {path} is new, and the checkpoint ends with tick {tick}",
        why=f"the changes of ticks 1 to {tick} were not written there and will not come again.",
        fix="give the path that the runs before had, or begin again with an empty checkpoint folder",
        sink=sink,
        path=str(path),
        tick=tick,
    )
