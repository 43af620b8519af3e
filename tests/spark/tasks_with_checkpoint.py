"""A run on Spark without Spark: ticks of `InProcessTasks` over a checkpoint folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from headrace import Flow
from headrace.analysis.column_lineage import live_graph
from headrace.spark.placing.pushdown import insert_partial_operators
from headrace.spark.placing.stages import cut_stages
from headrace.spark.resumption import Loops, SparkResumeBinding
from headrace.spark.ticks.plan import ShippedPlan, TickPlan, compiled
from headrace.state.checkpoint import Checkpoint
from tests.spark.tasks_in_process import InProcessTasks


class CheckpointedTasks:
    """Opens a checkpoint for a flow as `headrace.spark.run` does, and runs ticks one by one."""

    def __init__(
        self, flow: Flow, folder: Path, *, shards: int | None = None, way: str = "one task",
        keep_ticks: int = 3, default: int = 2, loops: Loops | None = None,
    ) -> None:  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        graph = live_graph(flow.graph())

        def plan_for(count: int, loops: Loops) -> TickPlan:
            return TickPlan(
                cut_stages(insert_partial_operators(graph), count, rounds=loops == "rounds"),
                (),
                {},
                str(folder),
                False,
            )

        going_on = SparkResumeBinding(graph, plan_for, {}, shards, default, loops)
        self.checkpoint = Checkpoint.open(folder, going_on, keep_ticks=keep_ticks, durable=False)
        rounds = self.checkpoint.manifest.layout["loops"] == "rounds"
        self.tasks = tasks = InProcessTasks(flow, self.checkpoint.manifest.shards, folder, way, rounds=rounds)
        plan = TickPlan(
            tasks.stages, tasks.plan.plan.inputs, tasks.plan.plan.outputs, str(folder), False,
            names=going_on.plan.names,
        )  # fmt: skip
        tasks.shipped, tasks.plan = ShippedPlan.of(plan), compiled(plan)
        last = self.checkpoint.last
        if last is not None:
            tasks.ticks = last.tick
            tasks.chains = dict(last.chains)
            tasks.pending = frozenset(last.counters["pending"])
            tasks.waiting = frozenset(last.counters["waiting"])
            tasks.ended = set(last.counters["ended"])

    def tick(
        self, inputs: Mapping[str, Sequence[Any]], ended: Iterable[str] = ()
    ) -> dict[str, list[tuple[Any, ...]]]:
        """Changes per sink, weights last; the tick is committed."""
        rows = self.tasks.tick(inputs, ended)
        counters = {
            "pending": sorted(self.tasks.pending), "waiting": sorted(self.tasks.waiting),
            "ended": sorted(self.tasks.ended),
        }  # fmt: skip
        self.checkpoint.commit(self.tasks.chains, counters=counters)
        return rows

    def __enter__(self) -> CheckpointedTasks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.checkpoint.close()
