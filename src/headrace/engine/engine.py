"""The in-process engine: ticks over rows of the user's classes."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Never, cast, overload

from headrace.analysis.column_lineage import columns_read, live_graph
from headrace.columns.columns import is_frame, read_whole
from headrace.engine.change import SinkChanges, TickOutput
from headrace.engine.columnar.columnar_option import ColumnarName, begins_arranged, parse_columnar
from headrace.engine.event_time import EventTime
from headrace.engine.flow_parts import PartSchedule
from headrace.engine.live_rows import TickListeners
from headrace.engine.machine import Machine
from headrace.engine.program import compile_program, limit_loop_rounds
from headrace.engine.queue import QUEUE_ROWS, PerSource, Queues, check_limits, limit_for
from headrace.engine.row_intake import (
    FrameIntake,
    check_iterable,
    source_intake,
    unknown_source,
    unnamed_rows,
)
from headrace.engine.signals.engine_mixin import RunsSignals
from headrace.engine.spilling import StateInMemory, parse_memory_limit
from headrace.errors import BadInput, EngineStopped, SourceLocation
from headrace.expr.row_classes import to_user
from headrace.expr.types import Rows
from headrace.graph.node import graph_of
from headrace.operators.endpoints import TICK_TIME, SourceOperator
from headrace.operators.signals.earlier_values import SignalSource
from headrace.shown import Shown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from headrace.engine.machine import RegionTimer
    from headrace.engine.progress import Time
    from headrace.flow.flow import Flow
    from headrace.lowering.slot import SlotMapping
    from headrace.state.arranged_store import ArrangedForm


ScheduleName = Literal["hybrid", "dynamic", "static"]
_NO_ROWS: Rows = []
_TICKS_BETWEEN_LOOKS = 32
"""Number of ticks between two measurements of the state's size."""


class Engine(Shown, RunsSignals, TickListeners):
    """A flow running in this process, tick by tick.

    `tick` runs one tick on the given rows. Alternatively, `feed` queues rows as they arrive, and `run_tick`
    and `run_available` run ticks on the queued rows. An engine must be used from one thread.

    tick_rows:  limit on the queued rows that a tick takes from each source: one number for all, or one per
           name; by default unlimited. A bounded source is always taken whole, and a signal one value at a
           time.
    queue_rows: limit on the rows of each source that may wait for ticks, given likewise; 100,000 by default.
    max_iterations: limit on the rounds of every loop within one tick, which overrides the limits of the
           flow's feedbacks.
    state: a mapping per slot name, to keep state outside memory or to continue an earlier run; new dicts by
           default. `Engine(flow).slots` has the names: node number and purpose, the same for equal flows.
    shared: slots that are stored elsewhere, by name (see `headrace.engine.external_join_sides`). Their rows
           are complete, so the flow runs with all columns. Requires that no `state` is given.
    first_tick: number of the first tick; above 0 to continue an earlier run.
    schedule: granularity of compilation and scheduling. "hybrid": regions, run if they have input. "dynamic":
           single operators, likewise. "static": single operators, all run in every tick. For comparison; the
           results are the same.
    memory: approximate limit on the state in memory, in bytes or as text such as "512 MB". State beyond it
           goes to a scratch file, from which it is read on demand.
    columnar: whether large ticks whose rows come in a frame run on Polars, as far as the flow consists of
           expressions: "auto" if Polars is installed, "never", or "always", for tests, rows that come as such
           included. The results are the same. See docs/explanation/in-process-engine.md.
    columnar_rows: number of rows from all sources that makes a tick large; 20,000 by default.
    trusted: sources whose rows are taken without a check, which can cost as much as a light flow. Their
           rows must be of exactly the declared types, as Headrace gives them out; others give wrong
           answers, or errors without a place.
    count_activations: maintain the counts in `activations`, at a small cost.

    The constructor raises the errors of the flow's analysis.
    """

    def __init__(
        self,
        flow: Flow,
        *,
        state: Mapping[str, SlotMapping] | None = None,
        shared: Mapping[str, SlotMapping] | None = None,
        first_tick: int = 0,
        schedule: ScheduleName = "hybrid",
        count_activations: bool = False,
        memory: int | str | None = None,
        tick_rows: PerSource = None,
        queue_rows: PerSource = QUEUE_ROWS,
        max_iterations: int | None = None,
        columnar: ColumnarName = "auto",
        columnar_rows: int | None = None,
        trusted: Collection[str] = (),
    ) -> None:
        graph = limit_loop_rounds(graph_of(flow, "Engine"), max_iterations)
        if shared is None:
            graph = live_graph(graph, at_sources=False)
        self.program = compile_program(graph, schedule=PartSchedule(schedule), counting=count_activations)
        self._memory: StateInMemory | None = None
        keeps_signals = state is not None
        # Others that keep the state must find all of it in the slots that they gave.
        own_state = state is None and memory is None
        if state is None:
            bound = None if memory is None else parse_memory_limit(memory)
            self._memory = StateInMemory.of(
                self.program.slots, shared or {}, bound, self._rebind, self._stored_forms
            )
            state = {**self._memory.state, **(shared or {})}
        elif memory is not None:
            raise BadInput(
                "a memory bound is given for state that is kept elsewhere",
                fix="leave out memory=, or state=; a run with a checkpoint has its state on disk",
            )
        elif missing := [name for name in self.slots if name not in state]:
            raise BadInput(
                f"state has no mapping for {', '.join(map(repr, missing))}",
                where=[SourceLocation.of_caller()],
                why=f"The slots of this flow are {', '.join(map(repr, self.slots))}.",
                fix="give one for each, empty where there is nothing yet: "
                "{name: {} for name in hr.Engine(flow).slots}",
            )
        self._flow = flow
        arranged = own_state or begins_arranged(state.values())
        large = parse_columnar(columnar, columnar_rows, release=self._release if arranged else None)
        self._machine = Machine(self.program, state, large)
        if keeps_signals:
            for signal_part in self._machine.signal_parts.values():
                signal_part.keep_in(state)
        self._event_time = EventTime(graph, state)
        self._ticks = first_tick
        self._failure: BaseException | None = None
        self._bounded_memory = memory is not None
        self._until_settled = 0
        self._intake: dict[str, Callable[[Iterable[Any]], Rows]] = {
            name: source_intake(graph.nodes[node].operator, self.program.source_append[name], name in trusted)
            for name, node in graph.sources.items()
        }
        self._frame_intakes: dict[str, FrameIntake] = {}
        for name in trusted:
            if name not in self._intake:
                raise unknown_source(name, self._intake)
        self._signals = {
            n for n, i in graph.sources.items() if isinstance(graph.nodes[i].operator, SignalSource)
        }
        self._bounded = {
            name for name, node in graph.sources.items() if _is_bounded(graph.nodes[node].operator)
        }
        locations = {name: graph.nodes[node].location for name, node in graph.sources.items()}
        limits = {n: 1 if n in self._signals else limit_for(tick_rows, n) for n in graph.sources}
        check_limits("tick_rows", tick_rows, graph.sources)
        taken = {n: rows for n, rows in limits.items() if rows is not None}
        self._queues = Queues(locations, self._bounded, taken, queue_rows)
        self._outlets = [
            (name, self.program.sink_append[name], to_user(schema), schema)
            for name, schema in ((n, graph.nodes[at].schema) for n, at in graph.sinks.items())
        ]

    def __repr__(self) -> str:
        return f"Engine({self._flow.name!r}, {self._ticks:,} ticks)"

    @property
    def code(self) -> str:
        """Generated Python code."""
        return self.program.source_code

    @property
    def ticks(self) -> int:
        """Number of finished ticks; the number of the next tick."""
        return self._ticks

    @property
    def activations(self) -> dict[str, int]:
        """Activations per operator name: number of ticks in which a row reached it.

        Sources and delays count ticks in which they had rows. All counts are 0 without `count_activations`.
        Signals count calls of their function or, without one, firings.
        """
        counts = dict(enumerate(self._machine.activations))
        for signal_part in self._machine.signal_parts.values():
            counts.update(signal_part.machine.activations)
        return {node.name: counts[node.id] for node in self.program.graph.nodes}

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the slots for operator state, which `state=` must provide.

        >>> import headrace as hr
        >>> flow = hr.Flow("total")
        >>> flow.sink("total", flow.source("n", int).group_by().agg(sum=hr.sum(hr.col.value)))
        >>> hr.Engine(flow).slots
        ('1.groups',)
        """
        return tuple(slot.name for slot in self.program.slots)

    def state_bytes(self) -> int:
        """Estimate the memory of the state, from samples."""
        return self._machine.state_bytes()

    @property
    def spilled_slots(self) -> tuple[str, ...]:
        """Names of the slots moved to a file because of the memory limit."""
        return () if self._memory is None else self._memory.spilled

    @property
    def pending(self) -> bool:
        """Return whether waiting deferred rows will start another tick (rows of a lazy delay do not)."""
        return self._machine.pending

    @property
    def queued(self) -> dict[str, int]:
        """Number of queued rows per source, not yet taken by a tick."""
        return self._queues.lengths()

    # -- a tick with its rows ---------------------------------------------------------------

    def tick(self, /, *unnamed: Never, **inputs: Iterable[Any]) -> TickOutput:
        """Run one tick with these rows per source; return the changes per sink, including empty ones.

        Rows queued by `feed` wait for `run_tick`. Append sources take rows; table sources take rows or
        `Change(row, weight)`. Either kind also takes a frame with the columns of its rows (a Polars
        `DataFrame`, a pyarrow `Table`), for a table optionally with their weights in a column `weight`.
        `now=` gives the time of the tick to a source `tick_time`.

        Raises `BadInput` for a name that is no source and for rows of a bounded source after the first tick,
        `BadRow` for a row of the wrong type: both before anything changed. Raises `UserFunctionFailed`,
        `EvaluationError`, `NoFixpoint` from within the tick; further calls then raise `EngineStopped`.
        """
        if unnamed:
            raise unnamed_rows("tick", self._intake)
        return self._output(self.tick_columns(self._checked(inputs, in_columns=True)))

    def _checked(self, inputs: Mapping[str, Iterable[Any]], *, in_columns: bool = False) -> dict[str, Rows]:
        """Convert to internal rows per source. in_columns: whether a large frame may stay in columns."""
        rows: dict[str, Rows] = {}
        for name, given in inputs.items():
            intake = self._intake.get(name)
            if intake is None and name == "now" and TICK_TIME in self._intake:
                name, given, intake = TICK_TIME, [given], self._intake[TICK_TIME]
            if intake is None:
                raise unknown_source(name, self._intake)
            if name in self._signals:
                # A tick has one value of a signal; what is fed are values for as many ticks.
                if in_columns:
                    given = (given,)
                else:
                    check_iterable(name, given)
            elif given.__class__ is not list:
                if is_frame(given):
                    rows[name] = self._from_frame(name, given, in_columns=in_columns)
                    continue
                check_iterable(name, given)
            elif in_columns and len(cast("list[Any]", given)) >= self._machine.least:
                columns = self._in_columns(name, given)
                if columns is not None:
                    rows[name] = columns
                    continue
            rows[name] = intake(given)
        return rows

    def _in_columns(self, name: str, frame: Any) -> Any:
        """Convert a source's frame or list to columns; None if its rows must be validated one by one."""
        large = self._machine.large_ticks()
        return None if large is None or self._event_time.ended else large.to_columns(name, frame)

    def _from_frame(self, name: str, frame: Any, *, in_columns: bool) -> Any:
        frame, intake = read_whole(frame), self._frame_intake(name)
        if in_columns and len(frame) >= self._machine.least and not intake.is_keyed:
            columns = self._in_columns(name, frame)
            if columns is not None:  # rows of weight 0 are no rows
                return columns if len(columns) >= self._machine.least else columns.rows()
        return intake(frame)

    def _frame_intake(self, name: str) -> FrameIntake:
        found = self._frame_intakes.get(name)
        if found is None:
            graph, rows = self.program.graph, self._intake[name]
            operator = cast("SourceOperator", graph.nodes[graph.sources[name]].operator)
            unread = frozenset(operator.schema.names) - self.columns_read(name)
            found = FrameIntake(operator, self.program.source_append[name], rows, unread)
            self._frame_intakes[name] = found
        return found

    def _output(self, made: Mapping[str, Rows]) -> TickOutput:
        outputs = TickOutput()
        for name, append, user, schema in self._outlets:
            outputs[name] = SinkChanges(made.get(name, _NO_ROWS), append, user, schema)
        return outputs

    def end(self, *sources: str) -> TickOutput:
        """Run one tick that ends these sources, or all of them: they accept no more rows.

        The watermark of what they brought rises to the end of time, so windows close.
        Raises `BadInput` for a name that is no source, and while rows wait for a tick that
        were fed to one of them or deferred; and what `tick` raises from within the tick.
        """
        self._check_alive()
        for name in sources:
            if name not in self._intake:
                raise unknown_source(name, self._intake)
        ended = sources or tuple(self._intake)
        waiting = [name for name, rows in self.queued.items() if rows and name in ended]
        if waiting or self.pending:
            what = f"rows of source {waiting[0]!r}" if waiting else "deferred rows"
            raise BadInput(f"sources are to end, and {what} wait for a tick", fix="run_available() before it")
        return self._output(self.tick_columns({}, ended=ended))

    @property
    def late_rows(self) -> dict[str, int]:
        """Number of late rows so far, by name of the operator that detects them."""
        return self._event_time.late_rows()

    @property
    def watermarks(self) -> dict[str, Time]:
        """Current watermarks, by name of the operator that detects late rows; none before its first row."""
        return self._event_time.watermarks()

    # -- rows that wait for ticks -------------------------------------------------------------

    def feed(self, /, *unnamed: Never, **inputs: Iterable[Any]) -> None:
        """Queue rows per source for later ticks, without running a tick.

        Raises `QueueFull` if more rows would wait than `queue_rows` allows, and the errors of `tick` for
        invalid rows; nothing is queued then.
        """
        if unnamed:
            raise unnamed_rows("feed", self._intake)
        self._queues.add(self._for_later(inputs))

    async def feed_when_free(self, /, *unnamed: Never, **inputs: Iterable[Any]) -> None:
        """Queue rows like `feed`, but wait for capacity: they are queued in portions as it becomes available.

        Ticks free capacity; they must run in another task of the same event loop. If this call is cancelled,
        rows already queued stay queued. Raises the errors of `feed` except `QueueFull`, and `EngineStopped`
        if the engine fails in the meantime.
        """
        if unnamed:
            raise unnamed_rows("feed_when_free", self._intake)
        for name, rows in self._for_later(inputs).items():
            left = self._queues.add_some(name, rows)
            while left:
                await self._queues.wait_until_taken()
                self._check_alive()
                left = self._queues.add_some(name, left)

    def run_tick(self) -> TickOutput:
        """Run exactly one tick on the queued rows, up to the limits of `tick_rows`, even if there are none.

        Raises the errors that `tick` raises from within a tick.
        """
        return self._output(self.tick_columns(self._queues.take()))

    @overload
    def run_available(self, on_tick: None = None, *, max_ticks: int | None = None) -> list[TickOutput]: ...
    @overload
    def run_available(
        self, on_tick: Callable[[int, TickOutput], object], *, max_ticks: int | None = None
    ) -> None: ...
    def run_available(
        self, on_tick: Callable[[int, TickOutput], object] | None = None, *, max_ticks: int | None = None
    ) -> list[TickOutput] | None:
        """Run at least one tick, and more while rows are queued or deferred rows start a tick.

        on_tick:   called after each tick with its number (as `ticks` counts, from 1) and its
                   changes; then none are collected. Without it: the changes of every tick.
        max_ticks: stop after so many, whatever still waits; `pending` and `queued` tell.
                   A flow that always defers something ends in no other way.

        Raises the errors of `run_tick`.
        """
        if max_ticks is not None and max_ticks < 1:
            raise BadInput(f"max_ticks is {max_ticks}", fix="give 1 or more: one tick always runs")
        outputs: list[TickOutput] = []
        last = None if max_ticks is None else self._ticks + max_ticks
        while True:
            output = self.run_tick()
            if on_tick is None:
                outputs.append(output)
            else:
                on_tick(self._ticks, output)
            if self._ticks == last or not (self._queues or self.pending):
                return outputs if on_tick is None else None

    def _for_later(self, inputs: Mapping[str, Iterable[Any]]) -> dict[str, Rows]:
        self._check_alive()
        rows = self._checked(inputs)
        if self._ticks and self._bounded:
            self._refuse_late_rows(rows)
        return rows

    # -- for runs -----------------------------------------------------------------------------

    @property
    def awaited_ends(self) -> set[str]:
        """Sources that have not ended and whose end would close windows."""
        return self._event_time.awaited_sources

    def tick_rows(
        self, inputs: Mapping[str, Rows], *, ended: Iterable[str] = (), timer: RegionTimer | None = None
    ) -> dict[str, Rows]:
        """`tick` on internal rows, unchecked: tuples, with the weight last unless the source is append-only.

        ended: sources that end with this tick. timer: receives the time of each region.
        """
        self._machine.region_timer = timer
        made = self.tick_columns(inputs, ended=ended)
        return {name: rows if rows.__class__ is list else rows.rows() for name, rows in made.items()}

    @property
    def takes_columns(self) -> bool:
        """Return whether `tick_columns` accepts columns."""
        return self._machine.large_ticks() is not None

    def tick_columns(self, inputs: Mapping[str, Any], *, ended: Iterable[str] = ()) -> dict[str, Any]:
        """`tick_rows` with rows or columns, in and out."""
        if self._failure is not None:
            self._check_alive()
        if self._ticks and self._bounded:
            self._refuse_late_rows(inputs)
        if self._event_time.ended:
            self._event_time.check_not_ended(inputs)
        if ended:
            inputs = {**inputs, **self._event_time.end_sources(ended)}
        collects = gc.isenabled()
        gc.disable()
        try:
            self._machine.context.tick = self._ticks
            outputs = self._machine.tick(inputs)
            self._until_settled -= 1
            if self._until_settled < 0:
                self._settle(sum(map(len, inputs.values())))
        except BaseException as error:  # Ctrl-C, too, leaves half a tick behind
            self._failure = error
            self._queues.wake()
            raise
        finally:
            if collects:
                gc.enable()
        self._ticks += 1
        if self._listeners:
            self._notify(outputs)
        return outputs

    def _check_alive(self) -> None:
        if self._failure is not None:
            failure = str(self._failure).partition("\n")[0] or type(self._failure).__name__
            raise EngineStopped(
                f"the engine failed in tick {self._ticks}",
                why=f"Its state is incomplete. The failure was: {failure}",
                fix="make a new engine, or restore the last checkpoint",
            ) from self._failure

    def _settle(self, came: int = 0) -> None:
        # A bound is kept after each tick; to divide what grows, a look now and then will do.
        self._until_settled = 0 if self._bounded_memory else _TICKS_BETWEEN_LOOKS
        if self._memory is not None:
            self._memory.settle(came)

    def _release(self, slot: str) -> None:
        if self._memory is not None:
            self._memory.release(slot)

    def _stored_forms(self, mappings: Mapping[str, SlotMapping]) -> Mapping[str, ArrangedForm]:
        # Polars is imported only if memory is bounded.
        from headrace.engine.columnar.columnar_flow import stored_forms

        return stored_forms(self.program, mappings)

    def _rebind(self, slot: str, mapping: SlotMapping) -> None:
        self._machine.rebind(slot, mapping)

    def _refuse_late_rows(self, inputs: Mapping[str, Rows]) -> None:
        for name in self._bounded:
            if inputs.get(name):
                raise BadInput(
                    f"source {name!r} is bounded, and tick {self._ticks} brings more rows",
                    why="answers that were final at the end of the first tick would change.",
                    fix="give all its rows to the first tick, or declare the source unbounded",
                    source=name,
                )

    def next_due(self, time: datetime) -> datetime | None:
        """Return the time of the next changes of temporal filters after `now=time` (see `DueTimes`)."""
        return self._machine.next_due(time)

    def intake_of(self, name: str) -> Callable[[Iterable[Any]], Rows]:
        """Return the converter from a source's rows to `tick_rows` input; it raises `BadRow` like `tick`."""
        return self._intake[name]

    def columns_read(self, source: str) -> frozenset[str]:
        """Return the columns of a source that some sink depends on; a reader may skip all others."""
        return self._columns_read[source]

    @cached_property
    def _columns_read(self) -> Mapping[str, frozenset[str]]:
        return columns_read(self.program.graph)

    def internal_rows(self, name: str, rows: Iterable[Any]) -> Rows:
        """Convert rows as taken by `tick` to internal rows for `tick_rows`.

        Raises `BadInput` and `BadRow` like `tick`.
        """
        intake = self._intake.get(name)
        if intake is None:
            raise unknown_source(name, self._intake)
        check_iterable(name, rows)
        return intake(rows)


def _is_bounded(operator: object) -> bool:
    return isinstance(operator, SourceOperator) and operator.bounded
