"""Cases of errors: graphs that must be refused when they are built, and why."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.analysis import analyse
from penstock.errors import CycleThroughBlockingInput
from penstock.testing.conformance.build import build
from penstock.testing.conformance.checks import CYCLE, Fault, fault_of, is_rotation
from penstock.testing.conformance.description import GraphDescription, read_graph
from penstock.testing.conformance.fields import Fields
from penstock.testing.conformance.kind import Kind


@dataclass(frozen=True, slots=True)
class ErrorCase:
    """kind: of the error. at: the nodes at fault. cycle: of a cycle its nodes; empty where none is told."""

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
    """What is wrong if a flow can be made of a graph that has no order to run in.

    The other kinds of errors are of the notation; no flow can be written that has them.
    """
    try:
        analyse(build(graph, at).graph())
    except CycleThroughBlockingInput:
        return ""
    return f"expected {CYCLE}, and the flow is built without an error"


ERRORS = Kind(read_case, run_case)
