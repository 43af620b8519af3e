"""Encoding of a flow to a plan."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from google.protobuf.message import DecodeError, EncodeError

from headrace.analysis import analyse
from headrace.compute.errors import BadPlan
from headrace.compute.plans.decoding import (
    decode,
    encode_body,
    encode_locations,
    encode_node,
    pickle_callables,
    refuse_callables,
)
from headrace.compute.plans.generated import plan_pb2 as pb
from headrace.compute.plans.limits import LIMITS, PlanLimits, check_size
from headrace.compute.plans.operator_decoder import ValueDecoder, parse_message
from headrace.compute.plans.operator_encoder import ValueEncoder
from headrace.compute.protocol.dataflow import Plan
from headrace.errors import HeadraceError
from headrace.expr.bounds import check_patterns
from headrace.expr.check import check
from headrace.expr.compile_python import compile_rows
from headrace.expr.tree import Expr
from headrace.expr.types import BOOL, Schema
from headrace.expr.typing_rules import bounded_code
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


# --- expressions and schemas without a flow -----------------------------------------


def encode_expr(expr: Expr, schema: Schema, *, limits: PlanLimits = LIMITS) -> bytes:
    """Encode an expression over rows of `schema`; equal expressions give equal bytes.

    Raises the errors of `headrace.expr.check.check`, and `MessageTooLarge`.
    """
    check(expr, schema)
    data = ValueEncoder().expr(expr).SerializeToString(deterministic=True)
    check_size("the expression", len(data), limits.size)
    return data


def decode_expr(data: bytes, schema: Schema, *, limits: PlanLimits = LIMITS) -> Expr:
    """Decode an expression and check it against the schema. Raises `BadPlan` and `MessageTooLarge`."""
    message = pb.Expr()
    parse_message(message, data, "the expression", limits)
    with _refused("the expression"):
        expr = ValueDecoder(limits).expr(message)
        check(expr, schema)
        if ValueEncoder().expr(expr).SerializeToString(deterministic=True) != data:
            raise BadPlan("the expression is not in the form that expressions have", part="")
    return expr


def predicate_of(
    data: bytes, schema: Schema, *, limits: PlanLimits = LIMITS
) -> Callable[[tuple[Any, ...]], bool | None]:
    """Compile an encoded condition to a predicate on rows of `schema`, with None for null.

    The function raises `EvaluationError` for a row on which the condition fails to evaluate, and
    `LimitExceeded` for one that is too large for it.
    Raises `BadPlan` for anything but a condition over such rows, and `MessageTooLarge`.
    """
    expr = decode_expr(data, schema, limits=limits)
    with _refused("the condition"):
        if check(expr, schema).type != BOOL:
            raise BadPlan(f"the condition is not true or false: {expr}", part="")
        check_patterns(expr)
        with bounded_code():
            compute: Callable[[tuple[Any, ...]], tuple[bool | None]] = compile_rows((expr,), schema)
    return lambda row: compute(row)[0]


def schema_to_bytes(schema: Schema) -> bytes:
    """Encode a schema, without its row class. Raises `BadPlan`."""
    return ValueEncoder().schema(schema).SerializeToString(deterministic=True)


def schema_from_bytes(data: bytes, *, limits: PlanLimits = LIMITS) -> Schema:
    """Decode a schema encoded by `schema_to_bytes`. Raises `BadPlan` and `MessageTooLarge`."""
    message = pb.Schema()
    parse_message(message, data, "the schema", limits)
    with _refused("the schema"):
        schema = ValueDecoder(limits).schema(message)
        if schema_to_bytes(schema) != data:
            raise BadPlan("the schema is not in the form that schemas have", part="")
    return schema


@contextmanager
def _refused(what: str) -> Generator[None]:
    """Convert any error inside this block to `BadPlan`."""
    try:
        yield
    except BadPlan:
        raise
    except HeadraceError as error:
        raise BadPlan(
            f"{what} does not fit the rows: {error.what}", why=error.why, fix=error.fix, part=""
        ) from error
    except RecursionError:
        raise BadPlan(f"{what} is nested too deeply", part="") from None
