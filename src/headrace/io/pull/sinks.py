"""Sinks as pull-streams: writers receive the two steps of a tick, user sinks receive its changes.

A flow answers a request with `Prepare`. Once every sink has asked again, the flow commits the tick and
answers with `Publish`. Once every sink has asked again, the next tick begins. A slow sink therefore holds
back the sources, and a tick that any sink fails to prepare is published by none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.expr.types import Rows
from headrace.io.outbox import Spool
from headrace.io.pull.sources import CloseOnce
from headrace.io.sink import SinkRequest, Writer
from headrace.io.source import Guarantee, guarantee_of
from headrace.pull import PullSink, PullTransformer
from headrace.pull.edge import PullEdge
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End


class Prepare(NamedTuple):
    """Command to prepare a tick's changes invisibly to readers. Rows end with their weight.

    publish: also publish them at once; no `Publish` follows.
    """

    tick: int
    rows: Rows
    publish: bool = False


class Publish(NamedTuple):
    """Command to publish a prepared tick, which is now committed."""

    tick: int


Step = Prepare | Publish


def writer_sink(name: str, writer: Writer, close: CloseOnce) -> PullSink:
    """Build a sink, for one run, over a recovered writer, which it closes at the end."""

    def open(module: Module, edge: PullEdge) -> None:
        def got(end: End | None, step: Any = None, /) -> None:
            if end is None:
                if step.__class__ is Publish:
                    writer.publish(step.tick)
                else:
                    writer.prepare(step.tick, step.rows)
                    if step.publish:
                        writer.publish(step.tick)
                edge(None, got)
            elif end is True:
                module.done()
            else:
                module.fail(end)

        def closing(_error: Exception | None, closed: Callable[..., object]) -> None:
            close()
            closed()

        module.closing(closing)
        edge(None, got)

    return PullSink.of(name, open)


@guarantee_of.register
def _(end: PullSink) -> Guarantee:
    return Guarantee(
        "at least once",
        "a tick has arrived once the sink asks for more after its last change, otherwise it comes again",
    )


class CommittedTickDelivery:
    """Delivery of committed ticks to a user's pull sink, one `Change` at a time. For one run.

    A tick is delivered when downstream asks again after its last change. Until then a checkpoint keeps the
    tick, and a run that resumes there repeats all of its changes. The last tick before a crash may therefore
    be repeated.
    """

    def __init__(self, sink_request: SinkRequest) -> None:
        self._sink_request = sink_request
        self._spool = None if sink_request.spool is None else Spool(sink_request, sink_request.spool)
        self._ready: deque[Any] = deque()
        self._tick = 0  # the tick whose changes are ready
        self._prepared: Rows = []

    @property
    def only_holds(self) -> bool:
        """Whether `prepare` cannot fail, as `Writer.only_holds`."""
        return self._spool is None

    def recover(self, tick: int) -> None:
        """Recover after `tick`, the last committed one, or 0 for a new run. Called once, first."""
        if self._spool is not None:
            self._spool.drop_others(tick)
            self._show(tick, self._spool.rows_of_tick(tick) or [])

    def transformer(self) -> PullTransformer:
        """Build a transformer from tick steps to changes, asking for a step once all are delivered."""
        return PullTransformer.of("changes", lambda _module, edge: _Changes(self, edge).read, batches=True)

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
        self._ready.extend(self._sink_request.present(rows))

    def drop_delivered(self) -> None:
        """Drop the delivered tick."""
        self._ready.clear()
        if self._spool is not None:
            self._spool.drop(self._tick)

    def some(self, most: int) -> list[Any]:
        """Return up to `most` of the next changes; empty once all are delivered."""
        ready = self._ready
        return [ready.popleft() for _ in range(min(most, len(ready)))]


class _Changes:
    def __init__(self, handover: CommittedTickDelivery, edge: PullEdge) -> None:
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
            self._handover.drop_delivered()  # downstream has enough
        self._edge(abort, answer)

    def _pump(self) -> None:
        asks = self._asks
        while asks and (changes := self._handover.some(asks[0][1])):
            asks.popleft()[0](None, changes)
        if asks and not self._waits:
            self._handover.drop_delivered()
            self._waits = True
            self._edge(None, self._got)

    def _got(self, end: End | None, step: Any = None, /) -> None:
        self._waits = False
        if end is not None:
            if self._asks:  # After a stop, the edge has answered them.
                self._asks.popleft()[0](end)
            return
        self._handover.take(step)
        if isinstance(step, Prepare) and not step.publish:
            self._waits = True
            self._edge(None, self._got)
        else:
            self._pump()
