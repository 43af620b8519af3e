"""Tick cases: a graph, its input per tick, and the expected output per tick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.engine.engine import Engine
from tests.conformance.case_format import Fields, Kind, shown
from tests.conformance.case_values import ORDERS, comparable, differences
from tests.conformance.flow_builder import build
from tests.conformance.graph_description import GraphDescription, read_graph, to_rows
from tests.conformance.graph_faults import fault_of

RowsByName = Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class TickCase:
    """Tick case. ticks: input per source. expected: output per tick; omitted outputs are empty.

    ends_at_tick: number of ticks after which no further tick starts; None if not specified.
    """

    graph: GraphDescription
    outputs: tuple[str, ...]
    ticks: tuple[RowsByName, ...]
    expected: tuple[RowsByName, ...]
    order: str
    ends_at_tick: int | None


def read_case(fields: Fields) -> TickCase:
    graph = read_graph(fields)
    inputs, outputs = fields.texts("inputs"), fields.texts("outputs")
    for name in (*inputs, *outputs):
        if name not in graph.nodes:
            raise fields.build_error(f"{name!r} is no node of the graph", "name a node")
    for name in inputs:
        if graph.nodes[name].operator != "source":
            raise fields.build_error(f"the input {name!r} is no source", 'give it "op": "source"')
    order = fields.text("order")
    if order not in ORDERS:
        raise fields.build_error(f"order is {order!r}", f"one of {', '.join(ORDERS)}")
    ends_at_tick = fields.number("ends_at_tick") if "ends_at_tick" in fields else None
    ticks = tuple(_rows(tick, inputs) for tick in fields.objects("ticks"))
    expected = tuple(_rows(tick, outputs) for tick in fields.objects("expected"))
    return TickCase(graph, outputs, ticks, expected, order, ends_at_tick)


def _rows(tick: Fields, names: Sequence[str]) -> RowsByName:
    tick.only(*names)
    return {name: to_rows(tick, f"{tick.path}.{name}", tick.items(name)) for name in tick}


def run_case(case: TickCase) -> str:
    fault = fault_of(case.graph)
    if fault is not None:
        return f"the graph is refused: {fault}"
    found = _run(case)
    if case.ends_at_tick is not None and len(found) != case.ends_at_tick:
        end = f"the end after {len(found)}" if len(found) < case.ends_at_tick else "that another one starts"
        return f"expected the end after {case.ends_at_tick} ticks, found {end}"
    for number in range(max(len(found), len(case.expected))):
        for name in case.outputs:
            wanted = _at(case.expected, number, name)
            got = _at(found, number, name)
            if number >= len(found) and wanted:
                return f"tick {number + 1} does not run, and {name!r} expects {_text(wanted)} in it"
            if differences(case.order, wanted, got):
                return f"tick {number + 1}, {name!r}: expected {_text(wanted)}, found {_text(got)}"
    return ""


def _run(case: TickCase) -> list[RowsByName]:
    """Run the ticks, and return their output. If the case specifies its end, deferred rows start further
    ticks.
    """
    engine = Engine(build(case.graph, case.outputs))
    found = [_tick(engine, rows) for rows in case.ticks]
    if case.ends_at_tick is not None:
        if not found:
            found.append(_tick(engine, {}))  # At least one tick runs.
        while engine.pending and len(found) <= case.ends_at_tick:
            found.append(_tick(engine, {}))
    return found


def _tick(engine: Engine, rows: RowsByName) -> RowsByName:
    output = engine.tick(**rows)
    return {name: tuple(change.row for change in changes) for name, changes in output.items()}


def _at(ticks: Sequence[RowsByName], number: int, name: str) -> tuple[Any, ...]:
    return ticks[number].get(name, ()) if number < len(ticks) else ()


def _text(rows: tuple[Any, ...]) -> str:
    return shown([comparable(row) for row in rows], 200)


TICKS = Kind(read_case, run_case)
