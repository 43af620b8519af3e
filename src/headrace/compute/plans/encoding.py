"""Encoding of a flow to a plan."""

from __future__ import annotations

from google.protobuf.message import DecodeError, EncodeError

from headrace.analysis import analyse
from headrace.compute.errors import BadPlan
from headrace.compute.plans.callables import pickle_callables, refuse_callables
from headrace.compute.plans.decoding import decode, encode_body, encode_node
from headrace.compute.plans.limits import LIMITS, PlanLimits, check_size
from headrace.compute.plans.operator_encoder import ValueEncoder
from headrace.compute.plans.source_locations import encode_locations
from headrace.compute.protocol.dataflow import Plan
from headrace.flow.flow import Flow
from headrace.graph.node import Node


def encode(flow: Flow, *, allow_callables: bool = False, limits: PlanLimits = LIMITS) -> Plan:
    """Encode a flow as a plan, byte-identical for equal flows in every process.

    Source locations, the flow's name and operators' names are not part of the body. Python functions are
    included only with `allow_callables`; plans with functions are equal only if the functions' bytes are.

    Raises `CallableRefused`; `MessageTooLarge` and `BadPlan` for a plan beyond the limits, which
    no process would accept; and the errors of `analyse` for a flow that cannot run.
    """
    analyse(flow.graph())
    try:
        octets = _octets(flow, allow_callables=allow_callables)
    except (DecodeError, EncodeError, RecursionError):
        raise BadPlan(
            f"flow {flow.name!r} holds a value or a type that is nested too deeply to travel",
            why="Messages are nested at most 100 deep.",
            fix="use columns of nested types, or flatten the type",
            part="",
        ) from None
    check_size(f"the plan of flow {flow.name!r}", len(octets), limits.size)
    plan = Plan(octets, encode_locations(flow.name, flow.current_nodes()[0]))
    # What nobody could read is refused here, where something can be done about it.
    decode(plan, allow_callables=allow_callables, limits=limits)
    return plan


def _octets(flow: Flow, *, allow_callables: bool) -> bytes:
    graph, writer = flow.graph(), ValueEncoder()
    # The graph's own operators may be others, in loops; they are found again.
    nodes, _ = flow.current_nodes()
    body = encode_body(nodes, writer, given_ticks=graph.given_ticks)
    if writer.functions and not allow_callables:
        raise refuse_callables(graph, _holders(nodes))
    if writer.functions:
        writer = ValueEncoder(row_classes=True)
        body = encode_body(nodes, writer, given_ticks=graph.given_ticks)
        body.functions = pickle_callables(writer.functions)
    return body.SerializeToString(deterministic=True)


def _holders(nodes: tuple[Node, ...]) -> list[tuple[Node, str]]:
    """List the operators that hold Python objects, each with a description of its objects."""
    found: list[tuple[Node, str]] = []
    for node in nodes:
        writer = ValueEncoder()
        encode_node(node, writer)
        if writer.functions:
            names = (getattr(f, "__name__", f"a {type(f).__name__}") for f in writer.functions)
            found.append((node, ", ".join(names)))
    return found
