"""A running flow as a module among others: it reads from its sources, and its sinks read from it.

A tick begins when every sink has asked for more. It is, in this order: ask the
sources; compute; have the sinks prepare the output; commit; have them publish it. So
what is committed can be published after a crash, what is not committed was never
seen, and a sink that is slow holds back the sources.

A tick takes from each source what it has answered when there is nothing left to do
but to wait: all of those that answer at once, and of the others those that have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.engine.progress import Progress
from penstock.io.pull_sink import Prepare, Publish

if TYPE_CHECKING:
    from penstock.engine.engine import Engine
    from penstock.engine.inlet import Inlet, Outlet
    from penstock.engine.interrupt import Interrupt
    from penstock.pull.module import Module
    from penstock.pull.protocol import AnswerTo, End
    from penstock.state.directory import DirectoryState

Rows = list[tuple[Any, ...]]


class Running:
    """See the module's text.

    totals: ticks, rows taken, rows set aside, changes given to sinks.
    """

    def __init__(
        self,
        module: Module,
        engine: Engine,
        state: DirectoryState | None,
        interrupt: Interrupt | None,
        *,
        begins: bool,
        end: bool,
        on_tick: Callable[[Progress], object] | None,
    ) -> None:
        self._module = module
        self._runtime = module.run.runtime
        self._engine = engine
        self._state = state
        self._interrupt = interrupt
        self._begins = begins
        self._end = end
        self._on_tick = on_tick
        self.totals = [0, 0, 0, 0]
        self._inlets: Sequence[Inlet] = ()
        self._outlets: Sequence[Outlet] = ()
        self._waits = 0  # inlets that were asked and have not answered
        self._resting = False  # `at_rest` will call
        self._busy = 0  # outlets that have not left and have not asked
        self._next: Callable[[], object] | None = self._gather  # when no outlet is busy
        self._gathering = False
        self._ending = False
        self._began: float | None = None

    def connect(self, inlets: Sequence[Inlet], outlets: Sequence[Outlet]) -> None:
        """Called once, before anything asks. Without sinks the flow asks by itself."""
        self._inlets = inlets
        self._outlets = outlets
        self._busy = len(outlets)
        if not outlets:
            self._module.enter(self._go_on)

    # -- sinks ----------------------------------------------------------------------------------

    def read(self, outlet: Outlet, abort: End | None, answer: AnswerTo) -> None:
        """What a sink asks the flow for."""
        if isinstance(abort, Exception):
            self._module.crash(abort)
        elif abort:
            self._leave(outlet, answer)
        elif self._module.failure is None:
            outlet.ask = answer
            self._busy -= 1
            if not self._busy:
                self._go_on()

    def _leave(self, outlet: Outlet, answer: AnswerTo) -> None:
        """A sink has enough: stop the sources that nobody else reads."""
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
        # Emptied first: what Ctrl-C interrupts is not gone on with.
        then, self._next = self._next, None
        if then is not None:
            then()

    def _answer(self, step: Callable[[Outlet], Prepare | Publish], then: Callable[[], object]) -> None:
        """Give each sink its step, and go on when all have done it."""
        self._next = then
        for outlet in self._outlets:
            if not outlet.left:
                assert outlet.ask is not None
                ask, outlet.ask = outlet.ask, None
                self._busy += 1
                ask(None, step(outlet))
        if not self._busy:
            self._go_on()

    # -- sources --------------------------------------------------------------------------------

    def _gather(self) -> None:
        """Ask the sources for the next tick."""
        if self._ending or (self._interrupt is not None and self._interrupt.signal is not None):
            self._stop()
            return
        self._gathering = True
        self._began = time.perf_counter()
        for inlet in self._inlets:
            if not (inlet.asked or inlet.ended or inlet.batch is not None):
                inlet.asked = True
                self._waits += 1
                inlet.edge(None, partial(self._came, inlet))
        if self._waits:
            self._look_at_rest()
        else:
            self._module.enter(self._look)

    def _came(self, inlet: Inlet, end: End | None, batch: Any = None, /) -> None:
        """What a source answers."""
        inlet.asked = False
        self._waits -= 1
        if isinstance(end, Exception):
            self._module.crash(end)
            return
        if end:
            inlet.ended = True
        else:
            inlet.batch = batch
        if self._began is None:
            self._began = time.perf_counter()
        if not self._waits:
            self._look()
        else:
            self._look_at_rest()

    def _look_at_rest(self) -> None:
        if not self._resting:
            self._resting = True
            self._runtime.at_rest(self._module.guard, self._rests)

    def _rests(self) -> None:
        self._resting = False
        self._look()

    def _look(self) -> None:
        """Run a tick, if there is input, something deferred, or nothing that came at all."""
        if not self._gathering or (self._waits and any(i.bounded and i.asked for i in self._inlets)):
            return
        taken = [inlet for inlet in self._inlets if inlet.batch is not None]
        ended = self._ended() if self._end else ()
        pending = self._engine.pending
        all_ended = not self._waits and not taken
        if taken or ended or pending or (all_ended and self._begins and self._engine.ticks == 0):
            self._gathering = False
            self._tick(taken, ended)
        elif all_ended:
            self._stop()
        else:
            self._began = None
            self._watch_interrupt()

    def _ended(self) -> set[str]:
        """The sources that end with this tick, for operators that wait for it."""
        if self._engine.pending:
            return set()
        done = {i.name for i in self._inlets if i.ended and not i.unwanted and i.batch is None}
        return done & self._engine.awaited_ends if done else done

    # -- a tick ---------------------------------------------------------------------------------

    def _tick(self, taken: Sequence[Inlet], ended: Any) -> None:
        rows = {inlet.name: inlet.batch.rows for inlet in taken if inlet.batch is not None}
        outputs = self._engine.tick_rows(rows, ended=ended)
        tick = self._engine.ticks
        took, set_aside = self._note(tick, taken)
        given = sum([len(outputs.get(outlet.name, ())) for outlet in self._outlets])
        done = partial(self._done, tick, took, set_aside, given)
        if self._state is None and len(self._outlets) == 1 and not set_aside:
            self._answer(partial(_prepare, tick, outputs, True), done)
        else:
            self._answer(partial(_prepare, tick, outputs, False), partial(self._commit, tick, done))

    def _note(self, tick: int, taken: Sequence[Inlet]) -> tuple[int, int]:
        """Take the batches: positions, and what was set aside. How many rows of each there are."""
        took = set_aside = 0
        for inlet in taken:
            batch, inlet.batch = inlet.batch, None
            assert batch is not None
            took += len(batch.rows)
            if inlet.positions is not None:
                for name, position in batch.positions.items():
                    inlet.positions[name] = position
            if batch.bad:
                set_aside += len(batch.bad)
                if inlet.dead_letters is not None:
                    inlet.dead_letters.prepare(tick, batch.bad)
        return took, set_aside

    def _commit(self, tick: int, done: Callable[[], object]) -> None:
        if self._state is not None:
            committed = self._state.commit(positions={})
            assert committed == tick, "engine and checkpoint count alike"
        for inlet in self._inlets:
            if inlet.dead_letters is not None:
                inlet.dead_letters.publish(tick)
        self._answer(lambda _outlet: Publish(tick), done)

    def _done(self, tick: int, took: int, set_aside: int, given: int) -> None:
        totals = self.totals
        totals[0] += 1
        totals[1] += took
        totals[2] += set_aside
        totals[3] += given
        if self._on_tick is not None:
            assert self._began is not None
            seconds = time.perf_counter() - self._began
            self._on_tick(Progress(tick, took, set_aside, given, seconds))
        self._next = self._gather
        if self._runtime.has_loop:
            self._module.later(0, self._go_on)  # the turn of the loop's other tasks
        else:
            self._go_on()

    # -- the end --------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the run after the tick at work; at once, where it waits for sources."""
        self._ending = True
        if self._gathering:
            self._stop()

    def _stop(self) -> None:
        """Stop what has not ended, and then tell the sinks."""
        self._gathering = False
        self._next = None
        self._stop_inlets([inlet for inlet in self._inlets if not inlet.ended], self._finish)

    def _stop_inlets(self, inlets: Sequence[Inlet], then: Callable[[], object]) -> None:
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
        """Hear of a signal while the event loop waits."""
        if self._interrupt is not None and self._runtime.has_loop:
            self._runtime.loop.add_reader(self._interrupt.woken, self._module.enter, self.stop)


def _prepare(tick: int, outputs: Mapping[str, Rows], alone: bool, outlet: Outlet) -> Prepare:
    rows = outputs.get(outlet.name, [])
    return Prepare(tick, [(*row, 1) for row in rows] if outlet.append else rows, alone)
