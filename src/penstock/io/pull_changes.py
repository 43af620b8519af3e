"""Changes one by one: what a flow gives to a sink that is a pull-stream of the user's."""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.io.guarantee import Guarantee, guarantee_of
from penstock.io.pull_sink import Prepare, Publish, Rows
from penstock.io.sink import Drain
from penstock.io.sink_spool import Spool
from penstock.pull import Sink as SomeSink
from penstock.pull import Transformer
from penstock.pull.edge import Edge
from penstock.pull.protocol import AnswerTo, End


@guarantee_of.register
def _(end: SomeSink) -> Guarantee:
    return Guarantee(
        "at least once",
        "a tick has arrived when the sink asks for more after its last change, else it comes again",
    )


class Handover:
    """Hands the changes of committed ticks on, each as one `Change`; for one run.

    A tick counts as arrived when downstream asks for more after its last change; until then a
    checkpoint keeps it, and a run that goes on from there begins with all of its changes. So after
    a crash the last tick comes once more, if any of it may be missing.
    """

    def __init__(self, drain: Drain) -> None:
        self._drain = drain
        self._spool = None if drain.spool is None else Spool(drain, drain.spool)
        self._ready: deque[Any] = deque()
        self._tick = 0  # whose changes are ready
        self._prepared: Rows = []

    @property
    def only_holds(self) -> bool:
        """As `Writer.only_holds`."""
        return self._spool is None

    def recover(self, tick: int) -> None:
        """Called once, first: `tick` is the last committed one, 0 for a new run."""
        if self._spool is not None:
            self._spool.drop_others(tick)
            self._show(tick, self._spool.kept(tick) or [])

    def transformer(self) -> Transformer:
        """From the steps of ticks to their changes. It asks for the next step when all changes are gone."""
        return Transformer.of("changes", lambda _module, edge: _Changes(self, edge).read, batches=True)

    # -- for its module -------------------------------------------------------------------------

    def take(self, step: Prepare | Publish) -> None:
        if isinstance(step, Publish):
            self._show(step.tick, self._prepared)
            return
        if self._spool is not None:
            self._spool.keep(step.tick, step.rows)
        self._prepared = step.rows
        if step.publish:
            self._show(step.tick, step.rows)

    def _show(self, tick: int, rows: Rows) -> None:
        self._tick = tick
        self._prepared = []
        self._ready.extend(self._drain.present(rows))

    def arrived(self) -> None:
        """Nothing of the tick will be asked for again."""
        self._ready.clear()
        if self._spool is not None:
            self._spool.drop(self._tick)

    def some(self, most: int) -> list[Any]:
        """The next changes, `most` at most; empty when all are gone."""
        ready = self._ready
        return [ready.popleft() for _ in range(min(most, len(ready)))]


class _Changes:
    def __init__(self, handover: Handover, edge: Edge) -> None:
        self._handover = handover
        self._edge = edge
        self._asks: deque[tuple[AnswerTo, int]] = deque()
        self._waits = False

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is None:
            self._asks.append((answer, most))
            self._pump()
            return
        self._asks.clear()
        if abort is True:
            self._handover.arrived()  # it has enough
        self._edge(abort, answer)

    def _pump(self) -> None:
        asks = self._asks
        while asks and (changes := self._handover.some(asks[0][1])):
            asks.popleft()[0](None, changes)
        if asks and not self._waits:
            self._handover.arrived()
            self._waits = True
            self._edge(None, self._got)

    def _got(self, end: End | None, step: Any = None, /) -> None:
        self._waits = False
        if end is not None:
            if self._asks:  # the edge has answered them where it was told to stop
                self._asks.popleft()[0](end)
            return
        self._handover.take(step)
        if isinstance(step, Prepare) and not step.publish:
            self._waits = True
            self._edge(None, self._got)
        else:
            self._pump()
