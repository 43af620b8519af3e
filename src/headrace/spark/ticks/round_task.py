"""Task side of a tick in several jobs: messages stored for later jobs, and rounds within one task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.engine.columnar.runner import as_rows
from headrace.expr.types import Rows
from headrace.spark.ticks.cell import OpenCell, by_source, cell_number, run_stateless
from headrace.spark.ticks.messages import Message, Result, messages_of
from headrace.spark.ticks.round_files import LARGE, Address, handed_over, write_down
from headrace.spark.ticks.task_outcome import chain_result
from headrace.state.chain import Chain

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.spark.placing.round_plan import LoopStages
    from headrace.spark.ticks.task import Attempt, CellOutput


ROUNDS = "rounds"


@dataclass(frozen=True, slots=True)
class Leg:
    """One of the jobs of a tick with rounds.

    number: how many there were before it in the tick.
    last:   its last stage; what is bound for later ones, or goes round, is written down.
    folder: where that is written.
    """

    number: int
    last: int
    folder: str


def posted(
    out: CellOutput, stage: int, leg: Leg | None, attempt: str, shared: str | None = None
) -> Iterator[Message | Result]:
    """Yield the messages sent by a stage: passed to a later stage of the job, or stored for other jobs.

    shared: folder for large tables that a later stage of the job reads, if all tasks see it.
    """
    beyond: list[tuple[Address, Rows | pa.Table]] = []
    large: list[tuple[Address, pa.Table]] = []
    for address, rows in out.pieces():
        if leg is not None and not stage < address[0] <= leg.last:
            beyond.append((address, rows))
        elif shared is not None and not isinstance(rows, list) and rows.nbytes >= LARGE:
            large.append((address, rows))
        else:
            yield from messages_of(*address, rows)
    if shared is not None and large:
        yield from handed_over(shared, f"{attempt}-{stage}", large)
    if leg is not None and beyond:
        yield from write_down(Path(leg.folder) / f"{attempt}.sent", _counted(beyond))


def _counted(
    pieces: list[tuple[Address, Rows | pa.Table]],
) -> Iterator[tuple[Message, int]]:
    """Yield the messages of all pieces; the first message of each carries the piece's row count."""
    for address, rows in pieces:
        count = len(rows)
        for message in messages_of(*address, rows):
            yield message, count
            count = 0


def run_rounds(
    attempt: Attempt, loop: LoopStages, out: CellOutput, most: int | None = None, before: int = 0
) -> Iterator[Result]:
    """Run a loop on all shards from the rows in `out`, until no rows circulate.

    most: gives up, leaving in `out` what goes round, when that is more rows in one round.
    before: number of earlier rounds in the tick. With `most`, the driver receives the counts of the rounds
          run.
    """
    growth: list[Mapping[int, int]] = []
    with ExitStack() as closing:
        cells = _Cells(attempt, closing)
        while True:
            for stage in range(loop.first, loop.last + 1):
                for shard in range(attempt.plan.plan.stages.shards):
                    given = by_source(attempt.plan, out.take(stage, shard), columns=False)
                    inputs = {name: as_rows(rows) for name, rows in given.items()}
                    if inputs:
                        cells.run(stage, shard, inputs, out)
            back = Counter[int]()
            for (to_stage, _, exchange, _), rows in out.pieces():
                if to_stage <= loop.last:
                    back[exchange] += len(rows)
            if not back or (most is not None and back.total() > most):
                break
            growth.append(back)
            loop.check(growth, before)
        yield from cells.finished()
    if most is not None:
        yield Result(ROUNDS, tuple(dict(back) for back in growth))


def rounds_of(results: Iterable[Result]) -> Iterator[Mapping[int, int]]:
    """Return the rows fed back over each exchange, for each round that tasks ran."""
    return (back for result in results if result.kind == ROUNDS for back in result.body)


class _Cells:
    """Open cells of a loop, each opened on first input and finished once."""

    def __init__(self, attempt: Attempt, closing: ExitStack) -> None:
        self._attempt = attempt
        self._closing = closing
        self._open: dict[int, OpenCell] = {}

    def run(self, stage: int, shard: int, inputs: dict[str, Rows], out: CellOutput) -> None:
        attempt = self._attempt
        of = attempt.plan.stages[stage]
        if not of.slots:
            attempt.keep(run_stateless(of, inputs, out.send))
            return
        number = cell_number(stage, shard, attempt.plan.plan.stages.shards)
        cell = self._open.get(number)
        if cell is None:
            chain = attempt.order.chains.get(number, Chain())
            cell = OpenCell(attempt.plan, stage, shard, chain, attempt.order.tick)
            self._closing.callback(cell.close)
            self._open[number] = cell
        attempt.keep(cell.run(inputs, out.send))

    def finished(self) -> Iterator[Result]:
        for number, cell in self._open.items():
            done = cell.finish(self._attempt.name)
            self._attempt.files.extend(done.files)
            yield chain_result(number, done.chain, done.pending, done.waiting)
