"""Resumption from a checkpoint on Spark: state names, and the shards that hold the state.

State names are those of `headrace.engine.flow_compatibility`. A location is a stage and the routes by which
rows reach the operator in it: while both stay the same, every key is looked up on the shard where it was
stored.

State is on the shard that received the rows it was made from. So its location follows from its key, by the
values that also route these rows, for any number of shards. State without keys of its own (calendars of
windows, rows deferred to the next tick) is taken apart and reassembled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from headrace.engine.columnar.columnar_flow import stored_forms
from headrace.engine.flow_compatibility import ResumeBinding, check_engine, read_state_names
from headrace.errors import BadInput, FlowChanged
from headrace.expr.check import check
from headrace.expr.tree import Column, Expr, columns_of
from headrace.expr.types import Field, Schema
from headrace.graph.node import described_name
from headrace.spark.placing.row_placement import (
    ANYHOW,
    DIVISION,
    ON_ONE,
    Broadcast,
    ByBucket,
    ByKey,
    Gather,
    RowDistribution,
    keys_of,
    row_divider,
    spread_after,
    spread_by,
)
from headrace.spark.ticks.plan import CompiledStage, TickPlan, compile_stage
from headrace.state.manifest import Manifest, check_shards

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.analysis.state_compatibility import Kept
    from headrace.graph.node import FlowGraph, Node
    from headrace.graph.operator_declarations import KeyedSlot
    from headrace.spark.placing.stages import Stage


Loops: TypeAlias = Literal["one shard", "rounds"]
"""Placement of a flow's loops: each on one shard, or partitioned by key and run in rounds on all shards."""

ON_SPARK = "Spark"


@dataclass(slots=True)
class SparkResumeBinding:
    """Properties of a Spark run that must agree with its checkpoint.

    Called as a `headrace.state.manifest.Bind`; sets `plan`.

    plan_for: the plan for a number of shards, without names.
    shards:   as the user wants it; None means what the checkpoint has, else `default`.
    loops:    where loops run, likewise; by default on one shard.
    named:    whether streaming sources have names, for a new checkpoint (see `named_sources_enabled`).
    """

    graph: FlowGraph
    plan_for: Callable[[int, Loops], TickPlan]
    sinks: Mapping[str, Any]
    shards: int | None
    default: int
    loops: Loops | None = None
    named: bool = False
    plan: TickPlan = field(init=False)

    def __call__(self, folder: Path, last: Manifest | None, tick: int) -> Manifest:
        if self.shards is not None and self.shards < 1:
            raise BadInput(f"{self.shards} shards", why="state is in one part at least.", fix="1 or more")
        if last is None:
            shards = self.shards or self.default
        else:
            check_engine(folder, last, {"on": ON_SPARK})
            check_division(folder, last)
            shards = last.shards
            if self.shards is not None:
                check_shards(folder, last, self.shards)
        loops = choose_loop_placement(folder, last, self.loops)
        plan = self.plan_for(shards, loops)
        stages = stateful_stages(plan)
        place = partial(layout, stages, tuple(self.graph.sources), loops)
        manifest = ResumeBinding(self.graph, kept_slots(stages), place, self.sinks, shards)(
            folder, last, tick
        )
        if last is not None:
            manifest = replace(manifest, layout=_noted_sources(folder, last, manifest))
        else:
            manifest.layout["named"] = self.named
        self.plan = replace(plan, names=read_state_names(manifest.description))
        return manifest


def stateful_stages(plan: TickPlan) -> tuple[CompiledStage, ...]:
    """Return the stages that keep state between ticks. Stage 0 drops its state after each tick."""
    compiled = (compile_stage(stage, plan) for stage in plan.stages.stages if stage.number)
    return tuple(of for of in compiled if of.program.slots)


def kept_slots(stages: Iterable[CompiledStage]) -> dict[int, Kept]:
    """Return the slots kept by each operator of the flow, with the operator class that implements it."""
    kept: defaultdict[int, Kept] = defaultdict(list)
    for of in stages:
        arranged = stored_forms(of.program, {})
        for slot in of.program.slots:
            local, _, what = slot.name.partition(".")
            origin = of.stage.origins[int(local)]
            assert origin is not None, "rows at the border of a stage are kept by nobody"
            works = described_name(type(of.stage.graph.nodes[int(local)].operator))
            columns = [arranged[slot.name].describe()] if slot.name in arranged else []
            kept[origin].append([what, f"{works} {slot.thaw.__qualname__}", *columns])
    return {node: sorted(found) for node, found in kept.items()}


def layout(
    stages: Iterable[CompiledStage], sources: tuple[str, ...], loops: Loops, names: Mapping[int, str]
) -> dict[str, Any]:
    """Return the location of state: each operator's stage and routes, by name, and the sources in order."""
    places: dict[str, Any] = {}
    for of in stages:
        for slot in of.program.slots:
            local = int(slot.name.partition(".")[0])
            origin = of.stage.origins[local]
            assert origin is not None, "rows at the border of a stage are kept by nobody"
            places[names[origin]] = [of.stage.number, _arrival_routes(of, local)]
    return {
        "on": ON_SPARK, "places": places, "sources": list(sources), "loops": loops, "division": DIVISION,
    }  # fmt: skip


def choose_loop_placement(folder: Path, last: Manifest | None, wanted: Loops | None) -> Loops:
    """Choose where a flow's loops run. Raises `FlowChanged` if the checkpoint has them elsewhere."""
    there: Loops | None = None if last is None else last.layout.get("loops", "one shard")
    if there is None or wanted in (None, there):
        return there or wanted or "one shard"
    raise FlowChanged(
        f"the checkpoint {folder} has loops={there!r}, not {wanted!r}",
        why="where a loop runs says where its state is, and that is fixed when a checkpoint is made.",
        fix=f"run with loops={there!r}, or leave it out; or start from an empty checkpoint",
        checkpoint=str(folder),
        diff=f"loops: {there} -> {wanted}",
    )


def check_division(folder: Path, last: Manifest) -> None:
    """Raise `FlowChanged` if the checkpoint divides keys among shards by another function."""
    there = last.layout.get("division", "checksums")
    if there == DIVISION:
        return
    raise FlowChanged(
        f"the checkpoint {folder} divides keys among shards by {there}, not by {DIVISION}",
        why="A row would look for its state on another shard than the one that has it.",
        fix="go on with the version that made it, or start from an empty checkpoint",
        checkpoint=str(folder),
        diff=f"division: {there} -> {DIVISION}",
    )


def _arrival_routes(of: CompiledStage, local: int) -> list[str]:
    routes = {e.name: e.route for e in of.stage.arriving if not isinstance(e.route, ByBucket)}
    entries = {node: routes[name] for name, node in of.stage.graph.sources.items() if name in routes}
    found: set[str] = set()
    seen, waiting = {local}, [local]
    while waiting:
        node = waiting.pop()
        if node in entries:
            found.add(str(entries[node]))
        fresh = [i for i in of.stage.graph.nodes[node].inputs if i not in seen]
        seen.update(fresh)
        waiting.extend(fresh)
    return sorted(found)


def _noted_sources(folder: Path, last: Manifest, now: Manifest) -> dict[str, Any]:
    """Return the new layout, with sources in the order in which Spark recorded their offsets.

    Raises `FlowChanged` for different sources if Spark does not know them by name.
    """
    then: list[str] = last.layout["sources"]
    here: list[str] = now.layout["sources"]
    named = bool(last.layout.get("named"))
    if named:
        still = [name for name in then if name in here]
        return {**now.layout, "named": True, "sources": [*still, *(n for n in here if n not in then)]}
    if {*then} != {*here}:
        gone, new = sorted({*then} - {*here}), sorted({*here} - {*then})
        difference = "\n".join(
            [*(f"removed  source {n!r}" for n in gone), *(f"added    source {n!r}" for n in new)]
        )
        raise FlowChanged(
            f"the checkpoint {folder} has noted the positions of other sources",
            why="Spark keeps one list of positions for all sources of a query, and knows those of this one by"
            f" their numbers, because a DataFrame of your own is among them:\n{difference}",
            fix="keep the sources of a flow as they are, or start from an empty checkpoint",
            checkpoint=str(folder),
            diff=difference,
        )
    return {**now.layout, "named": False, "sources": then}


Home: TypeAlias = Callable[[Any], int]
"""Function from a key, as stored in the slot, to its shard."""


class StateOwnership:
    """Mapping from state entries of a stage's operators to their owner shards."""

    def __init__(self, stage: Stage, shards: int) -> None:
        self._graph = stage.graph
        self._shards = shards
        self._spreads = _spreads(stage, shards)

    def on_one(self, node: Node) -> bool:
        """Return whether all state of a node is on the first shard."""
        return all(self._spreads[source].on_one for source in node.inputs)

    def home(self, node: Node, slot: KeyedSlot) -> Home | None:
        """Return the function from a key to its shard; None if the key does not determine it."""
        if self.on_one(node):
            return lambda key: 0
        keys = (keys_of(node, self._graph) or ())[slot.port]
        spread = self._spreads[node.inputs[slot.port]]
        if keys is None or spread.positions is None:
            return None
        schema = _schema_of_keys(keys, self._graph.nodes[node.inputs[slot.port]].schema)
        exprs = [_in_terms_of(same, keys, schema) for same in spread.positions]
        if any(expr is None for expr in exprs):
            return None
        divide = row_divider(
            ByKey(tuple(e for e in exprs if e is not None)), schema, self._shards, weighted=False
        )
        in_tuple = len(keys) == 1 and slot.bare

        def home(key: Any) -> int:
            values = key[0] if slot.of_pair else key
            return next(iter(divide([(values,) if in_tuple else values])))

        return home

    def home_of_row(self, node: Node) -> Home | None:
        """Return the function from an input row to its shard."""
        if self.on_one(node):
            return lambda row: 0
        route = self._spreads[node.inputs[0]].route()
        if route is None:
            return None
        schema = self._graph.nodes[node.inputs[0]].schema
        divide = row_divider(route, schema, self._shards, weighted=False)
        return lambda row: next(iter(divide([row[: len(schema.fields)]])))


def _schema_of_keys(keys: Sequence[Expr], schema: Schema) -> Schema:
    """Return the schema of the tuple of keys. A key that is a column keeps its name."""
    fields: list[Field] = []
    for number, key in enumerate(keys):
        typed = check(key, schema)
        name = key.name if isinstance(key, Column) else f"key {number}"
        taken = any(f.name == name for f in fields)
        fields.append(Field(f"key {number}" if taken else name, typed.type, typed.nullable))
    return Schema(tuple(fields))


def _in_terms_of(same: Sequence[Expr], keys: Sequence[Expr], schema: Schema) -> Expr | None:
    for number, key in enumerate(keys):
        if any(key.same(expr) for expr in same):
            return Column(schema.fields[number].name)
    plain = {key.name for key in keys if isinstance(key, Column)}
    return next((expr for expr in same if plain.issuperset(columns_of(expr))), None)


def _spreads(stage: Stage, shards: int) -> dict[int, RowDistribution]:
    """Return the distribution of each node's rows over the shards of a stage."""
    graph = stage.graph
    found: dict[int, RowDistribution] = {}
    for exchange in stage.arriving:
        found[graph.sources[exchange.name]] = _arrived(exchange.route, shards)
    for node in _in_order(graph):
        if node.id not in found:
            inputs = [found.get(source, ON_ONE) for source in node.inputs]
            everywhere = (port for port, keys in enumerate(keys_of(node, graph) or ()) if keys is None)
            for port in everywhere if shards > 1 else ():
                inputs[port] = ANYHOW
            found[node.id] = spread_after(node, graph, inputs) if inputs else ON_ONE
    return found


def _arrived(route: object, shards: int) -> RowDistribution:
    if shards == 1 or isinstance(route, Gather):
        return ON_ONE
    # What every shard has leaves the spread of what it is used with as it is.
    return (
        spread_by(*route.keys)
        if isinstance(route, ByKey)
        else ON_ONE
        if isinstance(route, Broadcast)
        else ANYHOW
    )


def _in_order(graph: FlowGraph) -> Iterator[Node]:
    """Yield the nodes in topological order; those of a loop, which are on one shard, in any order."""
    waiting = list(graph.nodes)
    done: set[int] = set()
    while waiting:
        ready = [n for n in waiting if done.issuperset(n.inputs)] or waiting[:1]
        yield from ready
        done.update(n.id for n in ready)
        waiting = [n for n in waiting if n.id not in done]
