"""A cell: one stage on one shard, with state of its own.

Cells are numbered stage x shards + shard; that is how a commit knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from penstock.engine.machine import Machine
from penstock.spark.plan import Compiled, CompiledStage
from penstock.state.chain import Chain
from penstock.state.checkpoint import work_folder
from penstock.state.shard import ShardState

Rows: TypeAlias = list[tuple[Any, ...]]
Send: TypeAlias = Callable[[int, int, int, Rows], None]
"""Called with stage, shard, number of the exchange, rows."""


def cell_number(stage: int, shard: int, shards: int) -> int:
    return stage * shards + shard


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """What a cell did in a tick.

    chain:   the version that the tick would make. files: new ones of it.
    pending: deferred rows wait. sinks: rows with weights.
    """

    chain: Chain
    pending: bool
    sinks: Mapping[str, Rows]
    files: tuple[Path, ...] = ()


def run_stateless(of: CompiledStage, inputs: Mapping[str, Rows], send: Send) -> dict[str, Rows]:
    """Run stage 0 on some rows; what its sinks get, with weights."""
    return _pass_on(of, Machine(of.program, {}).tick(inputs), send)


def run_cell(
    plan: Compiled, stage: int, shard: int, inputs: Mapping[str, Rows], chain: Chain, tick: int, attempt: str,
    send: Send,
) -> CellOutcome:  # fmt: skip
    """Run a stage on a shard for one tick, from the state of `chain`."""
    of = plan.stages[stage]
    if not of.slots:
        return CellOutcome(chain, False, run_stateless(of, inputs, send))
    number = cell_number(stage, shard, plan.plan.stages.shards)
    thaws = {of.slots[slot.name]: slot.thaw for slot in of.program.slots}
    with ShardState(plan.folder, work_folder(plan.folder), number, chain, thaws) as state:
        machine = Machine(of.program, {local: state.slots[name] for local, name in of.slots.items()})
        sinks = _pass_on(of, machine.tick(inputs), send)
        return CellOutcome(state.finish(tick, attempt), machine.pending, sinks, tuple(state.written))


def _pass_on(of: CompiledStage, made: Mapping[str, Rows], send: Send) -> dict[str, Rows]:
    for number, exchange, divide in of.leaving:
        rows = made.get(exchange.name)
        if rows:
            for shard, part in divide(rows).items():
                send(exchange.to_stage, shard, number, part)
    return {name: _weighted(of, name, made[name]) for name in of.stage.sinks if made.get(name)}


def _weighted(of: CompiledStage, sink: str, rows: Rows) -> Rows:
    return [(*row, 1) for row in rows] if of.program.sink_append[sink] else rows


def by_source(plan: Compiled, arrived: Iterable[tuple[int, Rows]]) -> dict[str, Rows]:
    """Rows per source of a stage, from pairs of exchange number and rows."""
    found: dict[str, Rows] = {}
    for number, rows in arrived:
        found.setdefault(plan.plan.stages.exchanges[number].name, []).extend(rows)
    return found
