"""A part of a flow at work in a task: one tick with all rows, and the ticks that follow from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.engine.machine import Machine
    from penstock.engine.program import Program
    from penstock.graph.node import FlowGraph

Rows = list[tuple[Any, ...]]


def program_of(graph: FlowGraph) -> Program:
    """The program of a part of a flow."""
    from penstock.engine.program import compile_program

    return compile_program(graph)


def machine_for(program: Program) -> Machine:
    """A machine without state."""
    from penstock.engine.machine import Machine

    return Machine(program, {slot.name: {} for slot in program.slots})


def until_quiet(machine: Machine, inputs: Mapping[str, Rows]) -> dict[str, Rows]:
    """What the sinks hold after a tick with `inputs`, those for deferred rows, and the end of input."""
    from penstock.engine.event_time import ends_of

    append = machine.program.sink_append
    held: dict[str, Rows] = {name: [] for name, is_append in append.items() if is_append}
    totals = {name: Counter[tuple[Any, ...]]() for name, is_append in append.items() if not is_append}
    ends: dict[str, Rows] = {name: [(True,)] for name in ends_of(machine.program.graph)}
    given = inputs
    while True:
        for name, rows in machine.tick(given).items():
            if append[name]:
                held[name] += rows
            else:
                for *row, weight in rows:
                    totals[name][tuple(row)] += weight
        given = {}
        if not machine.pending:
            if not ends:
                return held | {name: list(total.elements()) for name, total in totals.items()}
            given, ends = ends, {}
