"""Cell: one stage on one shard, with its own state.

Cells are numbered stage x shards + shard; commits use these numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

from headrace.columns.columns import Columns
from headrace.engine.columnar.columnar_flow import large_ticks_code, stored_forms
from headrace.engine.columnar.columnar_intake import columns_of_frame
from headrace.engine.columnar.columnar_option import COLUMNAR_ROWS, Columnar
from headrace.engine.columnar.runner import as_rows
from headrace.engine.machine import Machine
from headrace.expr.types import Rows
from headrace.io.arrow import with_weight
from headrace.spark.placing.row_placement import Divide
from headrace.spark.placing.stages import Exchange
from headrace.spark.ticks.columnar_stage import leaving
from headrace.spark.ticks.messages import rows_of
from headrace.spark.ticks.plan import Compiled, CompiledStage
from headrace.state.chain import BatchChain
from headrace.state.lazy_slots import Form
from headrace.state.shard import ShardState

if TYPE_CHECKING:
    import pyarrow as pa


CellInput: TypeAlias = Rows | Columns
"""Rows of a source of a stage."""
Leaving: TypeAlias = "Rows | pa.Table"
"""Rows that leave a stage."""
Send: TypeAlias = "Callable[[int, Exchange, Divide, Leaving], None]"
"""Function that sends rows; its arguments are the exchange's number, itself, its divider, and rows."""


ARRANGED = Columnar(COLUMNAR_ROWS, release=lambda name: None)
"""Choice of the ticks that run on columns. State of cells lies in columns from the beginning."""


def cell_number(stage: int, shard: int, shards: int) -> int:
    return stage * shards + shard


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """Result of a cell's work in a tick.

    chain:   of the state that the tick would make. files: new ones of it.
    pending: deferred rows wait that start a tick; waiting: rows that come with the next one.
    clocks:  per operator that watches for late rows, by name, where its watermark stands, None
             before the first row, and how many rows were late so far.
    seconds_loading: time spent loading state while the cell ran.
    """

    chain: BatchChain
    pending: bool
    waiting: bool
    files: tuple[Path, ...] = ()
    clocks: tuple[tuple[str, Any, int], ...] = ()
    seconds_loading: float = 0.0


def run_stateless(
    of: CompiledStage, inputs: Mapping[str, Rows], send: Send, shard: int = 0
) -> dict[str, Leaving]:
    """Run a stateless stage on some rows; return the weighted rows for its sinks."""
    state: dict[str, dict[Any, Any]] = {slot.name: {} for slot in of.program.slots}
    return pass_on(of, _tick(of, Machine(of.program, state, owns_unkeyed=shard == 0), inputs), send)


def open_stage_on_shard(
    plan: Compiled, stage: int, shard: int, chain: BatchChain, tick: int
) -> OpenCell | StatelessCell:
    """Open a stage on a shard with the state of `chain`; the caller closes it."""
    if not plan.stages[stage].slots:
        return StatelessCell(plan.stages[stage], shard, chain)
    return OpenCell(plan, stage, shard, chain, tick)


@dataclass(frozen=True, slots=True)
class StatelessCell:
    """A cell without state."""

    of: CompiledStage
    shard: int
    chain: BatchChain

    takes_columns: ClassVar[bool] = False

    def run(self, inputs: Mapping[str, CellInput], send: Send) -> dict[str, Leaving]:
        return run_stateless(
            self.of, {name: as_rows(rows) for name, rows in inputs.items()}, send, self.shard
        )

    def finish(self, attempt: str) -> CellOutcome:
        return CellOutcome(self.chain, False, False)

    def close(self) -> None:
        return


class OpenCell:
    """An open cell with state: run one or more times, then finished."""

    def __init__(self, plan: Compiled, stage: int, shard: int, chain: BatchChain, tick: int) -> None:
        self._of = of = plan.stages[stage]
        number = cell_number(stage, shard, plan.plan.stages.shards)
        slots: dict[str, Any] = {}
        self._on_columns = large_ticks_code(of.program, arranged=True).uses_frames
        arranged = stored_forms(of.program, slots)
        forms = {
            of.slots[slot.name]: arranged.get(slot.name) or Form(slot.thaw, slot.divides)
            for slot in of.program.slots
        }
        self._state = ShardState(plan.folder, number, chain, forms)
        slots.update((local, self._state.slots[name]) for local, name in of.slots.items())
        self._machine = Machine(of.program, slots, ARRANGED, owns_unkeyed=shard == 0)
        self._machine.context.tick = tick - 1
        self._tick = tick

    @property
    def takes_columns(self) -> bool:
        """Return whether some operator runs on columns."""
        return self._on_columns

    def run(self, inputs: Mapping[str, CellInput], send: Send) -> dict[str, Leaving]:
        """Run the stage on some rows; return the weighted rows for its sinks."""
        return pass_on(self._of, _tick(self._of, self._machine, inputs), send)

    def finish(self, attempt: str) -> CellOutcome:
        """Write the changed state. Raises `NotPlainData` for a value that columns cannot hold."""
        state, machine = self._state, self._machine
        clocks = tuple((name, *_clock(state.slots[slot].get(()))) for name, slot in self._of.clocks)
        pending, waiting = machine.pending, machine.waiting
        loading = state.seconds_loading
        chain = state.finish(self._tick, attempt)
        return CellOutcome(chain, pending, waiting, tuple(state.written), clocks, loading)

    def close(self) -> None:
        self._state.close()


def _tick(of: CompiledStage, machine: Machine, inputs: Mapping[str, CellInput]) -> dict[str, Leaving]:
    if machine.program.bounds is not None:
        machine.budget.allow_for(sum(map(len, inputs.values())))
    if all(len(given) < machine.least for given in inputs.values()):
        inputs = {name: as_rows(given) for name, given in inputs.items()}
    made: dict[str, CellInput] = {**machine.tick(cast("Mapping[str, Rows]", inputs))}
    return {
        name: leaving(rows, in_columns=name in of.in_columns and len(rows) >= _FEW_ROWS)
        for name, rows in made.items()
    }


def _clock(kept: tuple[Any, Any, int] | None) -> tuple[Any, int]:
    return (None, 0) if kept is None else (kept[1], kept[2])


def pass_on(of: CompiledStage, made: Mapping[str, Leaving], send: Send) -> dict[str, Leaving]:
    """Send the rows of a stage's exchanges; return the weighted rows of the flow's sinks."""
    for number, exchange, divide in of.leaving:
        rows = made.get(exchange.name, ())
        if len(rows):
            send(number, exchange, divide, rows)
    return {name: _weighted(of, name, made[name]) for name in of.stage.sinks if len(made.get(name, ()))}


def _weighted(of: CompiledStage, sink: str, rows: Leaving) -> Leaving:
    append = of.program.sink_append[sink]
    if not isinstance(rows, list):
        return with_weight(rows, of.stage.graph.nodes[of.stage.graph.sinks[sink]].schema, known=not append)
    return [(*row, 1) for row in rows] if append else rows


def by_source(
    plan: Compiled, arrived: Iterable[tuple[int, int, Rows | pa.Table]], *, columns: bool
) -> dict[str, CellInput]:
    """Return the rows per source of a stage, in order, from exchange numbers, places and rows.

    columns: whether rows that came in columns stay there, if they are not few.
    """
    pieces: dict[int, list[Rows | pa.Table]] = {}
    for number, _, rows in sorted(arrived, key=itemgetter(0, 1)):
        pieces.setdefault(number, []).append(rows)
    found: dict[str, CellInput] = {}
    for number, own in pieces.items():
        exchange = plan.plan.stages.exchanges[number]
        given = _in_columns(exchange, own) if columns and exchange.name not in found else None
        if given is None:
            before = as_rows(found.get(exchange.name, []))
            given = [*before, *(row for piece in own for row in rows_of(piece, exchange))]
        found[exchange.name] = given
    return found


def _in_columns(exchange: Exchange, pieces: list[Rows | pa.Table]) -> Columns | None:
    """Return an exchange's input as columns; None if it arrived as rows, or is small."""
    if any(isinstance(piece, list) for piece in pieces) or sum(map(len, pieces)) < _FEW_ROWS:
        return None
    import pyarrow as pa

    return columns_of_frame(exchange.schema, exchange.append, pa.concat_tables(pieces), valid=True)


_FEW_ROWS = 64
"""Number of rows below which rows are cheaper."""


def by_time(
    plan: Compiled, arrived: Iterable[tuple[int, int, Rows | pa.Table]], *, columns: bool
) -> dict[int, dict[str, CellInput]]:
    """Return the rows per source of a stage for each place (here the number of a time), in order."""
    places: dict[int, list[tuple[int, int, Rows | pa.Table]]] = {}
    for piece in arrived:
        places.setdefault(piece[1], []).append(piece)
    return {place: by_source(plan, places[place], columns=columns) for place in sorted(places)}
