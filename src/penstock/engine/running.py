"""One run of a flow between its ends: what a tick does with them, and what a run tells of it."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.engine.ends import AnySink, AnySource, open_sinks, open_sources
from penstock.engine.engine import Engine
from penstock.engine.interrupt import Interrupt
from penstock.io.async_rows import AsyncRowsReader

if TYPE_CHECKING:
    from penstock.engine.queue import PerSource
    from penstock.flow.flow import Flow
    from penstock.io import Batch
    from penstock.state.directory import DirectoryState

_LOOK_AGAIN = 0.2
"""Seconds between two looks at files that had nothing new."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a tick did.

    tick:        its number, from 1, counting on after a restart.
    rows_in:     rows taken from all sources. set_aside: rows that went to dead letters.
    changes_out: changes given to all sinks.
    seconds:     from the first row read to the last sink told, commit included.
    """

    tick: int
    rows_in: int
    set_aside: int
    changes_out: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run did, this time.

    last_tick:  the number of the last tick; with a checkpoint, what it holds.
    ticks:      how many there were. The sums are over them.
    stopped_by: the signal that ended the run; None where the input ended.
    """

    last_tick: int
    ticks: int
    rows_in: int
    set_aside: int
    changes_out: int
    stopped_by: signal.Signals | None


class Running:
    """Engine, ends and checkpoint of one run.

    A tick is, in this order: read; compute; prepare the output; commit; publish.
    So what is committed can be published after a crash, and what is not
    committed was never seen.
    """

    def __init__(
        self,
        flow: Flow,
        sources: Mapping[str, AnySource],
        sinks: Mapping[str, AnySink],
        state: DirectoryState | None,
        closing: ExitStack,
        *,
        tick_rows: PerSource,
        max_iterations: int | None,
        follow: bool,
        on_tick: Callable[[Progress], object] | None,
        end: bool,
    ) -> None:
        self._state = state
        self._end = end
        self._on_tick = on_tick
        self._totals = [0, 0, 0, 0]
        self._begins = any(node.operator.runs_first_tick for node in flow.graph().nodes)
        tick = 0 if state is None else state.tick
        slots = None if state is None else state.slots
        self._engine = Engine(flow, state=slots, first_tick=tick, max_iterations=max_iterations)
        positions: Mapping[str, MutableMapping[Any, Any]] = defaultdict(dict) if slots is None else slots
        self._intakes = open_sources(
            self._engine,
            sources,
            positions,
            tick_rows=tick_rows,
            follow=follow,
            durable=state is not None,
            closing=closing,
        )
        self._outlets = open_sinks(self._engine, sinks, state.folder if state else None, closing)
        for outlet in self._outlets:
            outlet.writer.recover(tick)
        for intake in self._intakes:
            if intake.dead_letters:
                intake.dead_letters.recover(tick)
                closing.callback(intake.dead_letters.close)

    # -- to the end -----------------------------------------------------------------------------

    def until_done(self, interrupt: Interrupt) -> RunResult:
        """Ticks until the sources are done and nothing is deferred that starts one, or a signal comes."""
        while interrupt.signal is None:
            if not self._tick():
                if self._done:
                    break
                interrupt.wait(_LOOK_AGAIN)
        return self._result(interrupt)

    async def until_done_async(self, interrupt: Interrupt | None) -> RunResult:
        """`until_done` beside the tasks that bring the rows of async sources, in one event loop.

        Cancelled, it ends between two ticks. The tasks end with it in every case.
        """
        news = asyncio.Event()
        loop = asyncio.get_running_loop()
        if interrupt is not None:
            loop.add_reader(interrupt.woken, news.set)
        tasks = [
            loop.create_task(intake.reader.bring(None if intake.bounded else intake.tick_rows, news.set))
            for intake in self._intakes
            if isinstance(intake.reader, AsyncRowsReader)
        ]
        try:
            await self._until_whole(news, interrupt)
            while interrupt is None or interrupt.signal is None:
                news.clear()
                if self._tick():
                    await asyncio.sleep(0)  # the tasks' turn
                elif self._done:
                    break
                else:
                    await _heard(news, _LOOK_AGAIN if self._must_look_again else None)
        finally:
            if interrupt is not None:
                loop.remove_reader(interrupt.woken)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return self._result(interrupt)

    async def _until_whole(self, news: asyncio.Event, interrupt: Interrupt | None) -> None:
        """Wait for all rows of bounded sources: they belong to the first tick."""
        readers = [i.reader for i in self._intakes if i.bounded and isinstance(i.reader, AsyncRowsReader)]
        while not all(r.ended for r in readers) and (interrupt is None or interrupt.signal is None):
            news.clear()
            await news.wait()

    @property
    def _done(self) -> bool:
        return all(intake.reader.done for intake in self._intakes)

    @property
    def _must_look_again(self) -> bool:
        """Whether a source that is not done tells nobody of its news."""
        return any(
            not (intake.reader.done or isinstance(intake.reader, AsyncRowsReader)) for intake in self._intakes
        )

    def _result(self, interrupt: Interrupt | None) -> RunResult:
        stopped_by = None if interrupt is None else interrupt.signal
        return RunResult(self._engine.ticks, *self._totals, stopped_by=stopped_by)

    # -- a tick ---------------------------------------------------------------------------------

    def _tick(self) -> bool:
        """One tick, if there is input, something deferred, or nothing that came at all; whether there was."""
        start = time.perf_counter()
        batches = self._read()
        ended = self._ended(batches)
        if not batches and not ended and not self._engine.pending and not self._must_begin:
            return False
        rows = {name: batch.rows for name, batch in batches.items()}
        outputs = self._engine.tick_rows(rows, ended=ended)
        tick = self._engine.ticks
        self._prepare(tick, batches, outputs)
        if self._state is not None:
            committed = self._state.commit(positions={})
            assert committed == tick, "engine and checkpoint count alike"
        self._publish(tick)
        self._tell(
            Progress(
                tick,
                sum(len(batch.rows) for batch in batches.values()),
                sum(len(batch.bad) for batch in batches.values()),
                sum(len(outputs.get(outlet.name, ())) for outlet in self._outlets),
                time.perf_counter() - start,
            )
        )
        return True

    @property
    def _must_begin(self) -> bool:
        """Whether the run ends before its first tick, in which an operator has something to say."""
        return self._begins and self._engine.ticks == 0 and self._done

    def _ended(self, batches: Mapping[str, Batch]) -> set[str]:
        """The sources that end with this tick, for operators that wait for it."""
        if not self._end or self._engine.pending:
            return set()
        done = {i.name for i in self._intakes if i.reader.done and i.name not in batches}
        return done & self._engine.awaited_ends

    def _tell(self, progress: Progress) -> None:
        for at, count in enumerate((1, progress.rows_in, progress.set_aside, progress.changes_out)):
            self._totals[at] += count
        if self._on_tick is not None:
            self._on_tick(progress)

    def _read(self) -> dict[str, Batch]:
        batches: dict[str, Batch] = {}
        for intake in self._intakes:
            batch = None if intake.reader.done else intake.read()
            if batch is not None:
                batches[intake.name] = batch
        return batches

    def _prepare(
        self, tick: int, batches: Mapping[str, Batch], outputs: Mapping[str, list[tuple[Any, ...]]]
    ) -> None:
        for outlet in self._outlets:
            outlet.prepare(tick, outputs.get(outlet.name, []))
        for intake in self._intakes:
            if intake.dead_letters and intake.name in batches:
                intake.dead_letters.prepare(tick, batches[intake.name].bad)

    def _publish(self, tick: int) -> None:
        for outlet in self._outlets:
            outlet.writer.publish(tick)
        for intake in self._intakes:
            if intake.dead_letters:
                intake.dead_letters.publish(tick)


async def _heard(news: asyncio.Event, seconds: float | None) -> None:
    """Wait for news, so many seconds at most."""
    try:
        async with asyncio.timeout(seconds):
            await news.wait()
    except TimeoutError:
        pass
