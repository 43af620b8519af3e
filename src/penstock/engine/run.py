"""Run a flow in this process, from sources to sinks."""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.analysis.fingerprint import describe, diff, fingerprint
from penstock.engine.ends import (
    AnySink,
    AnySource,
    check_names,
    open_sinks,
    open_sources,
    positions_slot,
)
from penstock.engine.engine import Engine
from penstock.engine.interrupt import Interrupt
from penstock.errors import BadInput

if TYPE_CHECKING:
    from penstock.flow.flow import Flow
    from penstock.io import Batch
    from penstock.state.directory import DirectoryState

_LOOK_AGAIN = 0.2
"""Seconds between two looks at sources that had nothing new."""


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


def run(
    flow: Flow,
    sources: Mapping[str, AnySource],
    sinks: Mapping[str, AnySink] | None = None,
    *,
    tick_rows: int = 1000,
    checkpoint: str | PathLike[str] | None = None,
    follow: bool = False,
    on_tick: Callable[[Progress], object] | None = None,
) -> RunResult:
    """Run `flow` in this process until its sources are done and nothing is deferred.

    sources:    per name a source of `penstock.io`, or any iterable of rows.
    sinks:      per name a sink of `penstock.io`, a list that `Change`s are appended to, or a
                function of (tick, changes). Sinks that are not named are not written.
    tick_rows:  how many rows a tick takes from each source at most. A bounded source is read
                whole in the first tick; `Rows` and `files_per_tick` cut ticks themselves.
    checkpoint: a folder. State, source positions and output of each tick become durable
                together; a run with the same flow goes on after the last of these ticks.
                Iterables must then bring the same rows again: those that were taken are skipped.
    follow:     look for new files for ever, until Ctrl-C or SIGTERM.
    on_tick:    called after every tick.

    Ctrl-C and SIGTERM end the run after the tick at work, committed; a second one
    acts at once. Sources, sinks and the checkpoint are closed in every case.

    Raises what the analysis of the flow raises; `BadInput`, `BadRow`,
    `UnreadableSource` for input, before its tick began; `FlowChanged`,
    `CheckpointDamaged`, `CheckpointInUse` for the checkpoint; and what fails
    within a tick, nothing of which is then committed or published.
    """
    if tick_rows < 1:
        raise BadInput(f"tick_rows is {tick_rows}", fix="give 1 or more")
    check_names(flow.graph(), sources, sinks or {})
    with ExitStack() as closing:
        state = _open_state(flow, checkpoint, closing)
        running = _Run(flow, sources, sinks or {}, state, follow, closing)
        interrupt = closing.enter_context(Interrupt())
        return running.until_done(interrupt, tick_rows, on_tick)


def _open_state(
    flow: Flow, checkpoint: str | PathLike[str] | None, closing: ExitStack
) -> DirectoryState | None:
    if checkpoint is None:
        return None
    # Only runs with a checkpoint need its codec.
    from penstock.engine.program import compile_program
    from penstock.state.directory import DirectoryState

    graph = flow.graph()
    thaws: dict[str, Callable[[Any], Any] | None] = {s.name: s.thaw for s in compile_program(graph).slots}
    thaws.update({positions_slot(name): None for name in graph.sources})
    return closing.enter_context(
        DirectoryState.open(
            Path(checkpoint),
            fingerprint=fingerprint(graph),
            description=describe(graph),
            slots=thaws,
            diff=diff,
        )
    )


class _Run:
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
        follow: bool,
        closing: ExitStack,
    ) -> None:
        self._state = state
        tick = 0 if state is None else state.tick
        slots = None if state is None else state.slots
        self._engine = Engine(flow, state=slots, first_tick=tick)
        positions: Mapping[str, MutableMapping[Any, Any]] = defaultdict(dict) if slots is None else slots
        durable = state is not None
        self._intakes = open_sources(
            self._engine, sources, positions, follow=follow, durable=durable, closing=closing
        )
        self._outlets = open_sinks(self._engine, sinks, state.folder if state else None, closing)
        for outlet in self._outlets:
            outlet.writer.recover(tick)
        for intake in self._intakes:
            if intake.dead_letters:
                intake.dead_letters.recover(tick)
                closing.callback(intake.dead_letters.close)

    def until_done(
        self, interrupt: Interrupt, tick_rows: int, on_tick: Callable[[Progress], object] | None
    ) -> RunResult:
        totals = [0, 0, 0, 0]
        while interrupt.signal is None:
            progress = self._tick(tick_rows)
            if progress is not None:
                for at, count in enumerate((1, progress.rows_in, progress.set_aside, progress.changes_out)):
                    totals[at] += count
                if on_tick is not None:
                    on_tick(progress)
            elif all(intake.reader.done for intake in self._intakes):
                break
            else:
                interrupt.wait(_LOOK_AGAIN)
        return RunResult(self._engine.ticks, *totals, stopped_by=interrupt.signal)

    def _tick(self, tick_rows: int) -> Progress | None:
        """One tick, if there is input or something deferred."""
        start = time.perf_counter()
        batches = self._read(tick_rows)
        if not batches and not self._engine.pending:
            return None
        outputs = self._engine.tick_rows({name: batch.rows for name, batch in batches.items()})
        tick = self._engine.ticks
        self._prepare(tick, batches, outputs)
        if self._state is not None:
            committed = self._state.commit(positions={})
            assert committed == tick, "engine and checkpoint count alike"
        self._publish(tick)
        return Progress(
            tick,
            sum(len(batch.rows) for batch in batches.values()),
            sum(len(batch.bad) for batch in batches.values()),
            sum(len(outputs.get(outlet.name, ())) for outlet in self._outlets),
            time.perf_counter() - start,
        )

    def _read(self, tick_rows: int) -> dict[str, Batch]:
        batches: dict[str, Batch] = {}
        for intake in self._intakes:
            batch = None if intake.reader.done else intake.read(tick_rows)
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
