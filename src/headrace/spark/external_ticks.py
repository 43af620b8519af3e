"""Externally driven flow on Spark: a program supplies each tick's rows and the times they cover.

A tick may cover several times, in order: one job processes all of them, and each output change carries its
time. So a flow that lags behind catches up in few jobs, without losing its content at any of these times.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.analysis.column_lineage import live_graph
from headrace.engine.engine import Engine
from headrace.expr.types import Rows
from headrace.expr.typing_rules import CodeBounds
from headrace.io.sink import SinkTarget
from headrace.spark.placing.pushdown import insert_partial_operators
from headrace.spark.placing.stages import cut_stages
from headrace.spark.resumption import Loops, SparkResumeBinding
from headrace.spark.session import is_local, tasks_at_a_time
from headrace.spark.sources.arrivals import FoundInput
from headrace.spark.sources.tick_input import Located, TickInput
from headrace.spark.ticks.failures import explained_deaths
from headrace.spark.ticks.intake import SpooledTimes
from headrace.spark.ticks.output import task_target
from headrace.spark.ticks.plan import Compiled, Input, SinkOutput, TickPlan, compiled
from headrace.spark.ticks.ticker import Ticker, open_outlets
from headrace.state.checkpoint import Checkpoint
from headrace.state.codec import value_encoder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.flow.flow import Flow


TimedRows: TypeAlias = tuple[str, int, Rows]
"""Rows of a source at a time: the name, which of the tick's times, internal rows (a table's: weight last)."""

Session: TypeAlias = "Callable[[], SparkSession]"

_ROWS_OF_A_FILE = 20_000


class DrivenFlow:
    """A flow with its checkpoint and sinks, between two ticks. Used by one thread at a time.

    spark: asked for a session when one is needed: for a tick, and to make a checkpoint.
    sinks: targets whose changes tasks write; the rows that they get have weight and time as last fields.
    append: by source whether its rows are only added, and so have no weight.
    bounds: of the generated code; None: it has none.
    It must not read order, defer rows or wait for the ends of sources: see `headrace.compute.plans.servable`.
    Raises the errors of `headrace.spark.run` for the checkpoint.
    """

    def __init__(
        self,
        flow: Flow,
        spark: Session,
        folder: Path,
        sinks: Mapping[str, SinkTarget],
        *,
        durable: bool = True,
        bounds: CodeBounds | None = None,
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._graph = live_graph(flow.graph())
        self._sinks = sinks
        self._durable = durable
        self._bounds = bounds
        self._encode = value_encoder()
        self.append = Engine(flow).program.source_append
        self._closing = ExitStack()
        try:
            self._ticker = self._open()
        except BaseException:
            self._closing.close()
            raise

    @property
    def last_tick(self) -> int:
        """Number of the last committed tick; 0 before the first."""
        return self._ticker.checkpoint.tick

    @property
    def positions(self) -> Any:
        """Positions given with the last tick; None before the first."""
        last = self._ticker.checkpoint.last
        return None if last is None else last.positions

    @property
    def outputs(self) -> dict[str, list[str]]:
        """Files written by tasks in the last tick, per sink."""
        last = self._ticker.checkpoint.last
        return {} if last is None else dict(last.outputs or {})

    @property
    def state_bytes(self) -> int:
        last = self._ticker.checkpoint.last
        return 0 if last is None else last.state_bytes

    def run(self, given: Iterable[TimedRows], times: Sequence[int], positions: Any) -> int:
        """Run and commit one tick; return the number of input rows.

        Raises the errors of the tick, which then has no effect.

        times: ascending. positions: plain data, which `positions` gives back, also after a restart.
        """
        spool = self._folder / "given"
        shutil.rmtree(spool, ignore_errors=True)
        spool.mkdir()
        spark = self._spark()
        with explained_deaths(spark, lambda: self.last_tick):
            self._ticker.local = is_local(spark)
            self._ticker.tasks = tasks_at_a_time(spark)
            located: list[Located] = []
            count = 0
            for number, (tag, rows, content) in enumerate(self._files(given)):
                path = spool / str(number)
                path.write_bytes(content)
                located.append((tag, FoundInput(str(path), len(content), partial(int, rows)), number))
                count += rows
            self._ticker.run(spark, TickInput(located), positions, times=tuple(times))
        shutil.rmtree(spool, ignore_errors=True)
        return count

    def close(self) -> None:
        self._closing.close()

    def _open(self) -> Ticker:
        # Only a new checkpoint needs the number of parts of its state.
        begun = any((self._folder / "commit").glob("*.json"))
        default = 1 if begun else tasks_at_a_time(self._spark())
        binding = SparkResumeBinding(self._graph, self._plan, self._sinks, None, default)
        checkpoint = Checkpoint.open(self._folder, binding, keep_ticks=1, durable=self._durable)
        self._closing.callback(checkpoint.close)
        self._tags = {name: tag for tag, name in enumerate(checkpoint.manifest.layout["sources"])}
        plan = binding.plan
        inputs = tuple(sorted(plan.inputs, key=lambda source: self._tags[source.name]))
        ready: Compiled = compiled(replace(plan, inputs=inputs))
        outlets = open_outlets(
            self._graph, self._sinks, self._folder, checkpoint.tick, self._durable, self._closing, self.append
        )
        return Ticker(ready, checkpoint, outlets, {}, "auto", False, None)

    def _plan(self, shards: int, loops: Loops) -> TickPlan:
        graph = self._graph
        inputs = tuple(
            Input(name, graph.nodes[node].schema, self.append[name], SpooledTimes())
            for name, node in graph.sources.items()
        )
        outputs = {
            name: SinkOutput(
                name, graph.nodes[graph.sinks[name]].schema, task_target(target, name, self._folder)
            )
            for name, target in self._sinks.items()
        }
        stages = cut_stages(insert_partial_operators(graph), shards, {}, rounds=False)
        return TickPlan(stages, inputs, outputs, str(self._folder), self._durable, bounds=self._bounds)

    def _files(self, given: Iterable[TimedRows]) -> Iterator[tuple[int, int, bytes]]:
        """Encode input as files, each from one source and of bounded size: tag, rows, bytes."""
        waiting: dict[str, list[tuple[int, Rows]]] = {}
        counts: dict[str, int] = {}
        for name, number, rows in given:
            waiting.setdefault(name, []).append((number, rows))
            counts[name] = counts.get(name, 0) + len(rows)
            if counts[name] >= _ROWS_OF_A_FILE:
                yield self._tags[name], counts.pop(name), self._encode(waiting.pop(name))
        for name, pieces in waiting.items():
            yield self._tags[name], counts[name], self._encode(pieces)
