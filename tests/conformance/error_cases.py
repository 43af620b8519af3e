"""Error cases: graphs that must be refused when built, and why."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.analysis import analyse
from headrace.errors import CycleThroughBlockingInput
from tests.conformance.case_format import Fields, Kind
from tests.conformance.flow_builder import build
from tests.conformance.graph_description import GraphDescription, read_graph
from tests.conformance.graph_faults import CYCLE, Fault, fault_of, is_rotation


@dataclass(frozen=True, slots=True)
class ErrorCase:
    """Graph with its expected error.

    kind: kind of error. at: nodes at fault. cycle: nodes of the cycle, if given.
    """

    graph: GraphDescription
    kind: str
    at: frozenset[str]
    cycle: tuple[str, ...]


def read_case(fields: Fields) -> ErrorCase:
    return ErrorCase(
        read_graph(fields), fields.text("error"), frozenset(fields.texts("at")), fields.texts("cycle", [])
    )


def run_case(case: ErrorCase) -> str:
    wanted = Fault(case.kind, tuple(sorted(case.at)))
    fault = fault_of(case.graph)
    if fault is None:
        return f"expected {wanted}, found nothing wrong"
    if fault.kind != case.kind or set(fault.at) != case.at:
        return f"expected {wanted}, found {fault}"
    if case.cycle and not any(is_rotation(case.cycle, cycle) for cycle in fault.cycles):
        found = "; ".join(" -> ".join(cycle) for cycle in fault.cycles) or "none"
        return f"expected the cycle {' -> '.join(case.cycle)}, found {found}"
    return _built(case.graph, case.at) if case.kind == CYCLE else ""


def _built(graph: GraphDescription, at: frozenset[str]) -> str:
    """Check that no flow can be built from a graph without an execution order. Returns the problem.

    The other kinds of errors concern the notation, and cannot occur in a flow.
    """
    try:
        analyse(build(graph, at).graph())
    except CycleThroughBlockingInput:
        return ""
    return f"expected {CYCLE}, and the flow is built without an error"


ERRORS = Kind(read_case, run_case)
