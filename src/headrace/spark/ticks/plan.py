"""Plan of a run as sent to tasks: stages, sources of rows, destinations of changes.

The driver pickles the plan once; each worker process compiles it once and caches it.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import threading
import types
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from headrace.engine.columnar.columnar_flow import large_ticks_code
from headrace.engine.partial_aggregation import PartialAggregate, PartialWindow
from headrace.engine.program import Program, compile_program
from headrace.expr.tree import Column
from headrace.expr.types import Schema
from headrace.expr.typing_rules import CodeBounds, bounded_code
from headrace.expr.value_keys import has_representatives
from headrace.graph.node import Edge, FlowGraph, Node
from headrace.io.arrow import arrow_schema
from headrace.io.files.file_source import Files
from headrace.io.source import WEIGHT
from headrace.operators.endpoints import SinkOperator
from headrace.operators.event_time.late_rows import OnTime
from headrace.operators.event_time.watermark import EndOfInput
from headrace.operators.rows import Select
from headrace.spark.placing.row_placement import Divide, DivideTable, row_divider, table_divider
from headrace.spark.placing.stages import Exchange, Stage, StagePlan
from headrace.spark.ticks.columnar_stage import ColumnarStage

_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_NEVER = ("headrace", "pyspark", "py4j")
_ONE_AT_A_TIME = threading.RLock()
"""Lock for the module registry, which concurrent runs share: one must not remove what another still needs."""


def users_modules() -> list[types.ModuleType]:
    """Return the modules of this process that are neither Headrace's nor installed."""
    return [m for m in list(sys.modules.values()) if is_users(m)]


def is_users(module: object) -> bool:
    if not isinstance(module, types.ModuleType) or module.__name__ == "__main__":
        return False
    file = getattr(module, "__file__", None)
    if not file or sys.modules.get(module.__name__) is not module:
        return False
    if module.__name__.split(".")[0] in _NEVER or str(file).startswith(_INSTALLED):
        return False
    return not _holds_packages(root_of(module))


def root_of(module: types.ModuleType) -> Path:
    """Return the folder or archive that a module was imported from: the root of its dotted name."""
    file = Path(cast("str", module.__file__))
    depth = module.__name__.count(".") + (file.stem == "__init__")
    # Some modules make up their names; then it is as far up as there is something.
    return file.parents[min(depth, len(file.parents) - 1)]


@functools.cache
def _holds_packages(folder: Path) -> bool:
    """Return whether a folder contains packages, although this interpreter did not install them."""
    return any(folder.glob("*.dist-info"))


@contextmanager
def by_value(cloudpickle: Any) -> Iterator[None]:
    """Pickle definitions from the user's modules by value inside this block."""
    register: Callable[[types.ModuleType], None] = cloudpickle.register_pickle_by_value
    unregister: Callable[[types.ModuleType], None] = cloudpickle.unregister_pickle_by_value
    with _ONE_AT_A_TIME:
        known: set[str] = set(cloudpickle.list_registry_pickle_by_value())
        modules = [m for m in users_modules() if m.__name__ not in known]
        for module in modules:
            register(module)
        try:
            yield
        finally:
            for module in modules:
                unregister(module)


@dataclass(frozen=True, slots=True)
class Input:
    """A source of the flow, as tasks read it.

    append:  its rows have no weight.
    reading: what the rows of the tagged union hold of it: a source of files, or None where
             they hold the rows themselves.
    live:    the columns that the flow reads; None for all.
    """

    name: str
    schema: Schema
    append: bool
    reading: Any
    live: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class SinkOutput:
    """A sink of the flow, as tasks write it.

    target:  data of `headrace.io`; None where the driver wants the rows.
    sources: the table sources that its rows come of.
    """

    name: str
    schema: Schema
    target: Any
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TickPlan:
    """Plan shipped to tasks.

    folder: the checkpoint's. names: state names by node (default: its number). bounds: of the code, if any.
    """

    stages: StagePlan
    inputs: tuple[Input, ...]
    outputs: dict[str, SinkOutput]
    folder: str
    durable: bool
    names: Mapping[int, str] = field(default_factory=dict[int, str])
    bounds: CodeBounds | None = None


@dataclass(frozen=True, slots=True)
class Forwarding:
    """Destinations of a source's rows that no operator of stage 0 reads, so that they can stay columns.

    columns: the source's column behind each of theirs, with the weight if there is one. names: of theirs.
    sinks: stage sinks.
    """

    columns: tuple[str, ...]
    names: tuple[str, ...]
    sinks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CompiledStage:
    """A stage compiled for workers.

    slots:    per slot of the program its name for the whole flow.
    leaving:  exchanges with their numbers and dividers.
    in_columns: per sink whose rows may leave in columns, weights included, the divider of its exchange; None
        for sinks of the flow.
    convertible: exchanges whose rows columns hold as they are.
    clocks:   per operator that watches for late rows its name and its slot.
    forwarded: per source whose rows only go on, where they go.
    columnar: the stage over rows that arrive in columns.
    runs_each_tick: it has something to say in every tick, whatever comes. begins: in the first one.
    """

    stage: Stage
    program: Program
    slots: dict[str, str]
    leaving: tuple[tuple[int, Exchange, Divide], ...]
    in_columns: Mapping[str, DivideTable | None]
    convertible: frozenset[int]
    clocks: tuple[tuple[str, str], ...]
    forwarded: Mapping[str, Forwarding]
    columnar: ColumnarStage

    @property
    def runs_each_tick(self) -> bool:
        return any(part.runs_each_tick for part in self.program.parts)

    @property
    def begins(self) -> bool:
        return any(part.begins for part in self.program.parts)


@dataclass(frozen=True, slots=True)
class Compiled:
    plan: TickPlan
    stages: tuple[CompiledStage, ...]

    @property
    def rows_of_one_task(self) -> int:
        """Return the maximum number of rows of a tick in one task, if tasks share a machine."""
        return rows_of_one_task(self.plan.stages, [of.program for of in self.stages])

    @property
    def begins(self) -> bool:
        """Return whether any part must run in the first tick even without input."""
        return any(of.begins for of in self.stages)

    def due(self, *, first: bool) -> frozenset[int]:
        """Cells to run in a tick even without input. Operators that act by themselves are on shard 0."""
        shards = self.plan.stages.shards
        acting = (of for of in self.stages if of.runs_each_tick or (first and of.begins))
        return frozenset(of.stage.number * shards for of in acting)

    @property
    def folder(self) -> Path:
        return Path(self.plan.folder)


ROWS_OF_ONE_TASK, COLUMNS_OF_ONE_TASK = 20_000, 250_000
"""Rows above which a tick has work for several cores that pays for the shuffles between stages, and the same
where they reach state in columns, which costs a tenth."""


def rows_of_one_task(stages: StagePlan, programs: Sequence[Program]) -> int:
    """Return the maximum number of rows of a tick in one task, if tasks share a machine.

    programs: of the stages.
    """
    nodes = stages.stages[0].graph.nodes
    shapes = large_ticks_code(programs[0], arranged=True).shapes
    feeds = [(feed, shape.rest) for shape in shapes for feed in shape.feeds]
    feeds = [each for each in feeds if not isinstance(nodes[each[0].source].operator, EndOfInput)]
    reduced = {n for feed, rest in feeds for n in rest if feed.source in nodes[n].inputs}
    stays = all(
        table_divider(e.route, e.schema, stages.shards) is not None
        and large_ticks_code(programs[e.to_stage], arranged=True).uses_frames
        for e in stages.exchanges
        if e.from_stage == 0 and not _sends_few(stages.stages[0], e, reduced)
    )
    if not stays or any(feed.reduction is None for feed, _ in feeds):
        return ROWS_OF_ONE_TASK
    return COLUMNS_OF_ONE_TASK


def _sends_few(stage: Stage, exchange: Exchange, reduced: Container[int]) -> bool:
    """Return whether an exchange sends few rows: end notifications, or columnar partial aggregates."""
    sender = stage.graph.nodes[stage.graph.nodes[stage.graph.sinks[exchange.name]].inputs[0]]
    return isinstance(sender.operator, EndOfInput) or sender.id in reduced


def compile_stage(stage: Stage, plan: TickPlan) -> CompiledStage:
    program = compile_program(stage.graph)
    slots = {slot.name: flow_slot(stage, slot.name, plan.names) for slot in program.slots}
    leaving = tuple(
        (number, e, row_divider(e.route, e.schema, plan.stages.shards, weighted=not e.append))
        for number, e in enumerate(plan.stages.exchanges)
        if e.from_stage == stage.number
    )
    clocks = tuple(
        (node.name, slots[f"{node.id}.clock"])
        for node in stage.graph.nodes
        if isinstance(node.operator, OnTime) and f"{node.id}.clock" in slots
    )
    in_columns = dict(_in_columns(stage, plan))
    forwarded = {} if stage.number else dict(_forwarded(stage, plan, in_columns))
    columnar = ColumnarStage(program, {} if stage.number else dict(_unread(plan)), in_columns.keys())
    convertible = frozenset(number for number, e, _ in leaving if _is_convertible(e, stage))
    return CompiledStage(stage, program, slots, leaving, in_columns, convertible, clocks, forwarded, columnar)


def _is_convertible(exchange: Exchange, stage: Stage) -> bool:
    sink = stage.graph.nodes[stage.graph.sinks[exchange.name]]
    sender = stage.graph.nodes[sink.inputs[0]].operator
    # Partial sums of integers are said to be decimals.
    if isinstance(sender, PartialAggregate | PartialWindow) or WEIGHT in exchange.schema.names:
        return False
    try:
        arrow_schema(exchange.schema)
    except TypeError:
        return False
    return True


def _unread(plan: TickPlan) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the sources that may arrive in columns, each with the columns that the flow does not read."""
    for source in plan.inputs:
        if source.reading is None or isinstance(source.reading, Files):
            names = frozenset(source.schema.names)
            yield source.name, names - (names if source.live is None else source.live)


def _in_columns(stage: Stage, plan: TickPlan) -> Iterator[tuple[str, DivideTable | None]]:
    """Yield the sinks of a stage whose rows can leave in columns, with the divider if it is an exchange."""
    exchanges = {e.name: e for e in plan.stages.exchanges}
    for name, node in stage.graph.sinks.items():
        exchange = exchanges.get(name)
        if WEIGHT in stage.graph.nodes[node].schema.names:
            continue  # the name of the column with the weights of others
        if exchange is None:
            yield name, None
        else:
            divide = table_divider(exchange.route, exchange.schema, plan.stages.shards)
            if divide is not None:
                yield name, divide


def _forwarded(stage: Stage, plan: TickPlan, in_columns: Container[str]) -> Iterator[tuple[str, Forwarding]]:
    """Yield the sources of stage 0 that are read only by sinks and exchanges."""
    readers = stage.graph.consumers()
    for source in plan.inputs:
        node, columns = _renamed(stage.graph, readers, stage.graph.nodes[stage.graph.sources[source.name]])
        targets = [stage.graph.nodes[edge.target].operator for edge in readers[node.id]]
        names = [target.name for target in targets if isinstance(target, SinkOperator)]
        if len(names) < len(targets) or not all(name in in_columns for name in names):
            continue
        if source.append:
            yield source.name, Forwarding(columns, tuple(node.schema.names), tuple(names))
        elif not any(has_representatives(f.type) for f in node.schema.fields):
            # Of values that are equal, such as 0.0 and -0.0, a table holds one.
            yield source.name, Forwarding((*columns, WEIGHT), (*node.schema.names, WEIGHT), tuple(names))


def _renamed(graph: FlowGraph, readers: Sequence[Sequence[Edge]], node: Node) -> tuple[Node, tuple[str, ...]]:
    """Skip projections after a node that only rename; return the last one and its source columns."""
    columns = node.schema.names
    while len(readers[node.id]) == 1:
        following = graph.nodes[readers[node.id][0].target]
        if not isinstance(following.operator, Select):
            break
        kept = [expr.name for _, expr in following.operator.columns if isinstance(expr, Column)]
        if len(kept) < len(following.operator.columns):
            break
        behind = dict(zip(node.schema.names, columns, strict=True))
        node, columns = following, tuple(behind[name] for name in kept)
    return node, columns


def flow_slot(stage: Stage, slot: str, names: Mapping[int, str]) -> str:
    """Return the name of a stage's slot in the checkpoint, stable across changes of the cut and the flow."""
    node, _, what = slot.partition(".")
    origin = stage.origins[int(node)]
    return f"{origin if origin is None else names.get(origin, str(origin))}.{what}"


def compiled(plan: TickPlan) -> Compiled:
    with nullcontext() if plan.bounds is None else bounded_code(plan.bounds):
        return Compiled(plan, tuple(compile_stage(stage, plan) for stage in plan.stages.stages))


# --- to the workers ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShippedPlan:
    """A plan as bytes, unpickled and compiled once per worker process.

    here: the compiled plan, where it stays in this process.
    """

    digest: str
    content: bytes
    here: Compiled | None = None

    @classmethod
    def of(cls, plan: TickPlan) -> ShippedPlan:
        content = pickled(plan)
        return cls(sha256(content).hexdigest(), content)

    def unpack(self) -> Compiled:
        if self.here is not None:
            return self.here
        found = _unpacked.get(self.digest)
        if found is None:
            from pyspark import cloudpickle

            # A task has one core.
            os.environ.setdefault("POLARS_MAX_THREADS", "1")
            found = compiled(cloudpickle.loads(self.content))
            _unpacked.clear()
            _unpacked[self.digest] = found
        return found


_unpacked: dict[str, Compiled] = {}


def pickled(value: object) -> bytes:
    """Pickle for a worker; the user's own modules, which it cannot import, are included by value."""
    from pyspark import cloudpickle

    with by_value(cloudpickle):
        return cast("bytes", cloudpickle.dumps(value))
