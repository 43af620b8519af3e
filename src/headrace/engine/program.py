"""Compiled flow: generated source, its slots, and the values passed between its functions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headrace.analysis import analyse
from headrace.engine.event_time import end_slots
from headrace.engine.flow_parts import CompiledPart, PartSchedule, is_lazy, live_consumers, plan_parts
from headrace.engine.region_writer import RegionWriter
from headrace.engine.runtime_library import TickBudget
from headrace.engine.signals.durable import signal_slots
from headrace.engine.signals.row_values import signal_part_of
from headrace.errors import BadInput
from headrace.expr.compile_python import runtime_names
from headrace.expr.typing_rules import CodeBounds, code_bounds
from headrace.lowering.generated_source import RUNTIME, Constants, Purpose
from headrace.lowering.slot import Slot, thaw_list
from headrace.operators.feedback import BagFeedback, Feedback

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import CodeType

    from headrace.engine.signals.row_values import SignalPart, TickContext
    from headrace.graph.node import FlowGraph, Node
    from headrace.lowering.slot import SlotMapping


@dataclass(frozen=True, slots=True)
class DelayedRows:
    """Delay that stores the rows of node `source` for the next tick in a slot, under the key `()`.

    lazy:   whether the rows wait for a tick that starts for another reason.
    append: whether the rows have no weights.
    """

    node: int
    source: int
    slot: Slot
    lazy: bool
    append: bool


@dataclass(frozen=True)
class Program:
    """A compiled flow, without state: `bind` creates its functions over given slots.

    file:        name of the generated source in tracebacks.
    purposes:    per line of the source, what it is for.
    slots:       state to keep from tick to tick. transient: slots emptied at the end of each tick.
    source_append, sink_append: per name, whether its rows come without weights.
    bounds:      that the code keeps to, if any.
    large_ticks: code of large ticks, once it is needed (`large_ticks_code`).
    """

    graph: FlowGraph
    file: str
    source_code: str
    purposes: tuple[Purpose, ...]
    schedule: PartSchedule
    counting: bool
    parts: tuple[CompiledPart, ...]
    slots: tuple[Slot, ...]
    transient: tuple[Slot, ...]
    delayed: tuple[DelayedRows, ...]
    source_append: dict[str, bool]
    sink_append: dict[str, bool]
    constants: dict[str, object] = field(repr=False)
    bytecode: CodeType = field(repr=False)
    bounds: CodeBounds | None = None
    large_ticks: dict[bool, Any] = field(
        default_factory=dict["bool", Any], init=False, repr=False, compare=False
    )

    def purposes_of(self, file: str) -> tuple[Purpose, ...] | None:
        """Return the purpose of each line of the generated source; None for any other `file`."""
        return self.purposes if file == self.file else None

    def signal_parts(self, context: TickContext) -> dict[str, SignalPart]:
        """Running signal parts, by function name."""
        return {
            part.function: signal_part_of(
                self.graph, part, context, schedule=self.schedule, counting=self.counting
            )
            for part in self.parts
            if part.signals
        }

    def bind(self, state: Mapping[str, SlotMapping]) -> dict[str, Any]:
        """Bind the generated functions to slots (one mapping per slot name)."""
        names = runtime_names(bounded=self.bounds is not None)
        namespace: dict[str, Any] = {**names, **RUNTIME, **self.constants}
        for slot in (*self.slots, *self.transient):
            namespace.update(slot_names(slot.name, state[slot.name]))
        namespace["x_activations"] = [0] * len(self.graph.nodes)
        # Of loops whose large rounds run on frames, by their first node; see `write_rounds`.
        namespace["x_loops"] = {}
        namespace["x_made"] = TickBudget((self.bounds or CodeBounds()).tick_rows)
        exec(self.bytecode, namespace)
        return namespace


def compile_program(
    graph: FlowGraph, *, schedule: PartSchedule = PartSchedule.HYBRID, counting: bool = False
) -> Program:
    """Compile a flow, divided according to `schedule`.

    counting: let the functions count activations in `x_activations`, which `bind` creates.

    Raises the errors of `analyse`: cycles, unmet needs, missing guards."""
    analysis = analyse(graph)
    constants = Constants()
    consumers = live_consumers(graph)
    parts = plan_parts(graph, analysis, consumers, schedule)
    ends = endpoint_names(graph, parts) if schedule is PartSchedule.HYBRID else None
    lines: list[str] = []
    purposes: list[Purpose] = []
    slots: list[Slot] = []
    for part in parts:
        if part.signals:
            continue
        writer = RegionWriter(graph, analysis, part, consumers, constants, counting=counting)
        if ends is None:
            writer.write()
        else:
            writer.write_tick(*ends)
        for written in (writer.functions, writer.code):
            lines.extend(written.lines)
            purposes.extend(written.purposes)
        lines.append("")
        purposes.append(Purpose())
        slots.extend(writer.slots)
    delayed = tuple(
        DelayedRows(
            n.id,
            n.inputs[0],
            Slot(f"{n.id}.deferred", thaw_list),
            is_lazy(n),
            analysis.facts[n.inputs[0]].append,
        )
        for n in graph.nodes
        if n.is_delay and consumers[n.id]
    )
    source_code = "\n".join(lines) + "\n"
    file = f"<headrace {graph.name}>"
    return Program(
        graph=graph,
        file=file,
        source_code=source_code,
        purposes=tuple(purposes),
        schedule=schedule,
        counting=counting,
        parts=parts,
        slots=(
            *(s for s in slots if not s.transient),
            *(d.slot for d in delayed),
            *end_slots(graph),
            *signal_slots(graph),
        ),
        transient=tuple(s for s in slots if s.transient),
        delayed=delayed,
        source_append={name: analysis.facts[n].append for name, n in graph.sources.items()},
        sink_append={name: analysis.facts[n].append for name, n in graph.sinks.items()},
        constants=constants.values,
        bytecode=_compiled(source_code, file),
        bounds=code_bounds(),
    )


@lru_cache(maxsize=64)
def _compiled(source_code: str, file: str) -> CodeType:
    # The same flow is built again and again where it is served: for each subscription, in each replica.
    return compile(source_code, file, "exec")


def slot_names(slot: str, mapping: SlotMapping) -> dict[str, Any]:
    """Return the names of a slot's mapping and its `get` in generated code."""
    return {slot_variable(slot): mapping, f"get_{slot.replace('.', '_')}": mapping.get}


def slot_variable(slot: str) -> str:
    """Return the name of a slot's mapping in generated code."""
    return f"slot_{slot.replace('.', '_')}"


def endpoint_names(
    graph: FlowGraph, parts: tuple[CompiledPart, ...]
) -> tuple[dict[int, str], dict[int, str]] | None:
    """Return the names of sources and sinks by node, for a single-part flow; else None."""
    if len(parts) != 1 or parts[0].signals or any(n.is_delay for n in graph.nodes):
        return None
    (part,) = parts
    sources = {node: name for name, node in graph.sources.items()}
    sinks = {node: name for name, node in graph.sinks.items()}
    if sources.keys() >= set(part.inputs) and sinks.keys() == set(part.outputs):
        return sources, sinks
    return None


__all__ = ["DelayedRows", "Program", "compile_program"]


def limit_loop_rounds(graph: FlowGraph, max_iterations: int | None) -> FlowGraph:
    """Limit the rounds of a flow's feedbacks per tick; None leaves them unchanged.

    Raises `BadInput` for a bound below 1.
    """
    if max_iterations is None:
        return graph
    if max_iterations < 1:
        raise BadInput(f"max_iterations is {max_iterations}", fix="give 1 or more")
    return replace(graph, nodes=tuple(_bound(node, max_iterations) for node in graph.nodes))


def _bound(node: Node, max_iterations: int) -> Node:
    if not isinstance(node.operator, Feedback | BagFeedback):
        return node
    return replace(node, operator=replace(node.operator, max_iterations=max_iterations))
