"""Flow prepared for runs: compiled, cut into stages, and compared with the manifest of its checkpoint.

All of this follows from the flow and from how it is run, so a process that runs a flow again and again does
it once. A prepared flow holds no state, no open file and no session, and only what its last run needed: a run
in another form prepares that form anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace.analysis.column_lineage import live_graph
from headrace.engine.engine import Engine
from headrace.graph.node import graph_of
from headrace.spark.placing.earliest_stages import check_loops_run_in_rounds
from headrace.spark.placing.pushdown import insert_partial_operators
from headrace.spark.placing.stages import StagePlan, cut_stages
from headrace.spark.ticks.plan import Compiled, TickPlan, compiled

if TYPE_CHECKING:
    from headrace.flow.flow import Flow
    from headrace.graph.node import FlowGraph
    from headrace.spark.placing.row_placement import ByBucket
    from headrace.spark.resumption import Loops, SparkResumeBinding
    from headrace.state.manifest import Manifest

V = TypeVar("V")


@dataclass(slots=True)
class _Last(Generic[V]):
    """Value that was made last, with the key that it was made for."""

    key: Any = None
    value: V | None = None

    def get(self, key: Any, make: Callable[[], V]) -> V:
        if self.value is None or self.key != key:
            self.key, self.value = key, make()
        return self.value


class PreparedFlow:
    """A flow with all that its runs have in common. It is for one run at a time."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._stages = _Last[StagePlan]()
        self._compiled = _Last[Compiled]()
        self._names = _Last[Mapping[int, str]]()

    @classmethod
    def of(cls, flow: Flow | PreparedFlow) -> PreparedFlow:
        return flow if isinstance(flow, PreparedFlow) else cls(flow)

    @cached_property
    def engine(self) -> Engine:
        """Engine that converts rows, and knows which columns are read; it runs no ticks."""
        return Engine(self.flow)

    @cached_property
    def graph(self) -> FlowGraph:
        """The flow without dead columns."""
        return live_graph(graph_of(self.flow, "run"))

    @cached_property
    def divided(self) -> FlowGraph:
        """`graph` with the partial operators before its exchanges."""
        return insert_partial_operators(self.graph)

    def stages(self, shards: int, tables: Mapping[str, ByBucket], loops: Loops) -> StagePlan:
        """Return the stages for a number of shards. Raises like `cut_stages`."""

        def cut() -> StagePlan:
            if loops == "rounds":
                check_loops_run_in_rounds(self.divided)
            return cut_stages(self.divided, shards, tables, rounds=loops == "rounds")

        return self._stages.get((shards, dict(tables), loops), cut)

    def compiled(self, plan: TickPlan) -> Compiled:
        """Compile a plan. Where the run keeps its state and writes its output is not in the code."""
        # The value holds these stages, so no others have their number.
        key = (id(plan.stages), plan.inputs, plan.names, plan.bounds)
        without_targets = replace(plan, outputs={})
        return replace(self._compiled.get(key, lambda: compiled(without_targets)), plan=plan)

    def bind(
        self,
        binding: SparkResumeBinding,
        options: Iterable[Any],
        folder: Path,
        last: Manifest | None,
        tick: int,
    ) -> Manifest:
        """Call a binding. What was found to go on with a manifest need not be compared with it again.

        options: of the run, by which the binding was made. Raises like the binding.
        """
        key = (last, *options)
        if last is not None and self._names.value is not None and self._names.key == key:
            plan = binding.plan_for(last.shards, last.layout.get("loops", "one shard"))
            binding.plan = replace(plan, names=self._names.value)
            return last
        bound = binding(folder, last, tick)
        if last is not None and bound.of(last.id) == last:
            self._names.key, self._names.value = key, binding.plan.names
        return bound
