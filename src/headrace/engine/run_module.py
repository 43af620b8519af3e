"""Running flow as a pull-stream module: it reads from its sources, and its sinks read from it.

A tick begins when every sink has asked for more. Its steps are, in this order: ask the sources; compute; let
the sinks prepare the output; commit; let them publish it. So committed output can be published after a crash,
uncommitted output was never visible, and a slow sink holds back the sources. A tick takes whatever the
sources have answered when nothing is left to do but wait: all of the sources that answer at once, and those
of the others that have answered.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.engine.machine import RegionTimer
from headrace.engine.progress import Progress, SourceProgress
from headrace.expr.types import Rows
from headrace.io.pull_streams import Prepare, Publish

if TYPE_CHECKING:
    from headrace.engine.checkpointed_state import CheckpointedState
    from headrace.engine.endpoints import SinkEndpoint, SourceEndpoint
    from headrace.engine.engine import Engine
    from headrace.engine.interrupt import Interrupt
    from headrace.engine.progress import Observer
    from headrace.pull.module_context import Module
    from headrace.pull.protocol import AnswerTo, End


_NONE: AbstractSet[str] = frozenset()


class RunModule:
    """Pull-stream module of a running flow, as described at the top of this file.

    ticks, rows_in, set_aside, changes_out: totals so far, as in `RunResult`.
    """

    def __init__(
        self,
        module: Module,
        engine: Engine,
        state: CheckpointedState | None,
        interrupt: Interrupt | None,
        *,
        begins: bool,
        end: bool,
        on_tick: Callable[[Progress], object] | None,
        observer: Observer | None = None,
    ) -> None:
        self._module = module
        self._runtime = module.run.runtime
        self._engine = engine
        self._state = state
        self._interrupt = interrupt
        self._begins = begins
        self._end = end
        self._on_tick = on_tick
        self._observer = observer
        self._timer: RegionTimer | None = None  # of the tick at work, if its regions are timed
        self._sampled = -math.inf
        self._changes: dict[str, Rows] = {}  # of the tick at work, if somebody observes
        self.ticks = self.rows_in = self.set_aside = self.changes_out = 0
        self._inlets: Sequence[SourceEndpoint] = ()
        self._with_dead_letters: Sequence[SourceEndpoint] = ()  # that set rows aside
        self._outlets: Sequence[SinkEndpoint] = ()
        self._waits = 0  # inlets that were asked and have not answered
        self._resting = False  # `at_rest` will call
        self._busy = 0  # outlets that have not left and have not asked
        self._next: Callable[[], object] | None = self._gather  # when no outlet is busy
        self._gathering = False
        self._ending = False
        self._some_ended = False
        self._watched = False  # the event loop listens for a signal
        self._done = 0, 0, 0  # of the tick at work: rows taken, rows set aside, changes
        self._took: dict[str, int] = {}  # rows of the tick at work, if somebody wants to know
        self._began: float | None = None

    def connect(self, inlets: Sequence[SourceEndpoint], outlets: Sequence[SinkEndpoint]) -> None:
        """Connect the endpoints, once, before any ask. Without sinks, the flow asks by itself."""
        self._inlets = inlets
        for inlet in inlets:
            inlet.came = partial(self._came, inlet)
        self._with_dead_letters = [inlet for inlet in inlets if inlet.dead_letters is not None]
        if self._state is None and len(outlets) == 1 and not self._with_dead_letters:
            outlets[0].at_once = True  # nothing has to happen together with it
        self._outlets = outlets
        self._busy = len(outlets)
        if not outlets:
            self._module.enter(self._go_on)

    # -- sinks ----------------------------------------------------------------------------------

    def read(self, outlet: SinkEndpoint, abort: End | None, answer: AnswerTo) -> None:
        """Answer a sink's ask."""
        if isinstance(abort, Exception):
            self._module.crash(abort)
        elif abort:
            self._leave(outlet, answer)
        elif self._module.failure is None:
            outlet.ask = answer
            self._busy -= 1
            if not self._busy and self._next is not None:
                # Emptied first: what Ctrl-C interrupts is not gone on with.
                then, self._next = self._next, None
                then()

    def _leave(self, outlet: SinkEndpoint, answer: AnswerTo) -> None:
        """Handle a sink's abort: stop the sources without other readers."""
        outlet.left = True
        if outlet.ask is None:
            self._busy -= 1
        outlet.ask = None
        left = {o.name for o in self._outlets if o.left}
        if len(left) == len(self._outlets):
            self._ending = True  # its end is the confirmation
            if self._gathering or self._next is None:
                self._stop()
                return
        else:
            unread = [i for i in self._inlets if not i.ended and i.readers and i.readers <= left]
            self._stop_inlets(unread, partial(answer, True))
        if not self._busy:
            self._go_on()

    def _go_on(self) -> None:
        then, self._next = self._next, None
        if then is not None:
            then()

    # -- sources --------------------------------------------------------------------------------

    def _gather(self) -> None:
        """Ask the sources for the next tick."""
        if self._ending or (self._interrupt is not None and self._interrupt.signal is not None):
            self._stop()
            return
        self._gathering = True
        if self._on_tick is not None:
            self._began = time.perf_counter()
        for inlet in self._inlets:
            if not (inlet.asked or inlet.ended or inlet.batch is not None):
                inlet.asked = True
                self._waits += 1
                inlet.edge(None, inlet.came)
        if not self._waits:
            self._module.enter(self._look)
        elif not self._resting:
            self._look_at_rest()

    def _came(self, inlet: SourceEndpoint, end: End | None, batch: Any = None, /) -> None:
        """Handle a source's answer."""
        inlet.asked = False
        self._waits -= 1
        if end is None:
            inlet.batch = batch
        elif end is True:
            inlet.ended = self._some_ended = True
        else:
            self._module.crash(end)
            return
        if self._began is None and self._on_tick is not None:
            self._began = time.perf_counter()
        if not self._waits:
            self._look()
        elif not self._resting:
            self._look_at_rest()

    def _look_at_rest(self) -> None:
        self._resting = True
        self._runtime.when_at_rest(self._module.guard, self._rests)

    def _rests(self) -> None:
        self._resting = False
        self._look()

    def _look(self) -> None:
        """Run a tick if there is input or a deferred row, or if none has run yet."""
        if not self._gathering:
            return
        if self._waits and any(i.bounded and i.asked for i in self._inlets):
            self._watch_interrupt()
            return
        taken = [inlet for inlet in self._inlets if inlet.batch is not None]
        ended = self._ended() if self._some_ended and self._end else _NONE
        if taken or ended or self._engine.pending or self._owes_first_tick:
            self._gathering = False
            self._tick(taken, ended)
        elif self._waits:
            self._began = None
            self._watch_interrupt()
        else:
            self._stop()

    @property
    def _owes_first_tick(self) -> bool:
        """Return whether the run would end without a first tick although an operator must emit in it."""
        return self._begins and not self._waits and self._engine.ticks == 0

    def _ended(self) -> set[str]:
        """Return the sources that end with this tick, for operators that await their end."""
        if self._engine.pending:
            return set()
        done = {i.name for i in self._inlets if i.ended and not i.unwanted and i.batch is None}
        return done & self._engine.awaited_ends if done else done

    # -- a tick ---------------------------------------------------------------------------------

    def _tick(self, taken: Sequence[SourceEndpoint], ended: AbstractSet[str]) -> None:
        rows: dict[str, Rows] = {}
        took = set_aside = given = 0
        for inlet in taken:
            batch = inlet.batch
            assert batch is not None
            rows[inlet.name] = batch.rows
            took += len(batch.rows)
            set_aside += len(batch.bad)
        if self._on_tick is not None:
            self._took = {inlet.name: len(rows.get(inlet.name, ())) for inlet in self._inlets}
        if self._observer is not None:
            self._timer = self._sample(self._observer)
            self._changes = {}
        outputs = self._engine.tick_rows(rows, ended=ended, timer=self._timer)
        self._note(taken)
        self._next = self._commit
        for outlet in self._outlets:
            made = outputs.get(outlet.name)
            if made is None:
                made = []
            given += len(made)
            if outlet.append:
                made = [(*row, 1) for row in made]
            if self._observer is not None:
                self._changes[outlet.name] = made
            if outlet.at_once:
                outlet.rows = made
            elif outlet.ask is not None:
                self._answer(outlet, Prepare(self._engine.ticks, made))
        self._done = took, set_aside, given
        if not self._busy:
            self._go_on()

    def _sample(self, observer: Observer) -> RegionTimer | None:
        """Return a timer for the tick if the last timed tick is long enough ago."""
        now = time.perf_counter()
        if now - self._sampled < observer.region_interval:
            return None
        self._sampled = now
        return RegionTimer(self._engine.program)

    def _note(self, taken: Sequence[SourceEndpoint]) -> None:
        """Record the positions and rejected rows of the batches taken."""
        for inlet in taken:
            batch, inlet.batch = inlet.batch, None
            assert batch is not None
            if inlet.positions is not None and batch.positions is not None:
                for name, position in batch.positions.items():
                    inlet.positions[name] = position
            if batch.bad and inlet.dead_letters is not None:
                inlet.dead_letters.prepare(self._engine.ticks, batch.bad)

    def _commit(self) -> None:
        tick = self._engine.ticks
        if self._state is not None:
            committed = self._state.commit()
            assert committed == tick, "engine and checkpoint count alike"
        self._next = self._report
        for outlet in self._outlets:
            rows, outlet.rows = outlet.rows, None
            if outlet.ask is not None:
                self._answer(outlet, Publish(tick) if rows is None else Prepare(tick, rows, True))
        for inlet in self._with_dead_letters:
            assert inlet.dead_letters is not None
            inlet.dead_letters.publish(tick)
        if not self._busy:
            self._go_on()

    def _answer(self, outlet: SinkEndpoint, step: Prepare | Publish) -> None:
        ask, outlet.ask = outlet.ask, None
        assert ask is not None
        self._busy += 1
        ask(None, step)

    def _report(self) -> None:
        """Report the end of a tick."""
        took, set_aside, given = self._done
        self.ticks += 1
        self.rows_in += took
        self.set_aside += set_aside
        self.changes_out += given
        if self._observer is not None:
            self._observer.on_changes(self._engine.ticks, self._changes)
        if self._on_tick is not None:
            assert self._began is not None
            seconds = time.perf_counter() - self._began
            self._on_tick(
                Progress(
                    self._engine.ticks,
                    took,
                    set_aside,
                    given,
                    seconds,
                    sources={name: SourceProgress(rows) for name, rows in self._took.items()},
                    watermarks=self._engine.watermarks,
                    late=self._engine.late_rows,
                    state_bytes=None if self._state is None else self._state.bytes,
                    regions=() if self._timer is None else tuple(self._timer.found),
                )
            )
        if self._runtime.has_loop:
            self._next = self._gather
            self._module.later(0, self._go_on)  # the turn of the loop's other tasks
        else:
            self._gather()

    # -- the end --------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the run after the current tick, or at once if it is waiting for sources."""
        self._ending = True
        if self._gathering:
            self._stop()

    def _stop(self) -> None:
        """Stop the sources that have not ended, then end the sinks."""
        self._gathering = False
        self._next = None
        self._stop_inlets([inlet for inlet in self._inlets if not inlet.ended], self._finish)

    def _stop_inlets(self, inlets: Sequence[SourceEndpoint], then: Callable[[], object]) -> None:
        left = len(inlets)

        def confirmed(end: End | None, _value: Any = None, /) -> None:
            nonlocal left
            left -= 1
            if isinstance(end, Exception):
                self._module.crash(end)
            elif not left and self._module.failure is None:
                then()

        for inlet in inlets:
            inlet.unwanted = True
            inlet.batch = None
            inlet.stop(True, confirmed)
        if not inlets:
            then()

    def _finish(self) -> None:
        for outlet in self._outlets:
            outlet.edge.finish(True)
        self._module.done()

    def _watch_interrupt(self) -> None:
        """Handle a signal while the event loop waits."""
        if self._interrupt is not None and self._runtime.has_loop and not self._watched:
            self._watched = True
            self._runtime.loop.add_reader(self._interrupt.signal_descriptor, self._woken)

    def _woken(self) -> None:
        assert self._interrupt is not None
        self._runtime.loop.remove_reader(self._interrupt.signal_descriptor)  # nobody empties it
        self._module.enter(self.stop)
