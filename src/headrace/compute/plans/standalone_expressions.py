"""Standalone encoding of expressions and schemas, for peek predicates and collection descriptions."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from headrace.compute.errors import BadPlan
from headrace.compute.plans.generated import plan_pb2 as pb
from headrace.compute.plans.limits import LIMITS, PlanLimits, check_size
from headrace.compute.plans.operator_decoder import ValueDecoder, parse_message
from headrace.compute.plans.operator_encoder import ValueEncoder
from headrace.errors import HeadraceError
from headrace.expr.bounds import check_patterns
from headrace.expr.check import check
from headrace.expr.code_emission import bounded_code
from headrace.expr.compile_python import compile_rows
from headrace.expr.tree import Expr
from headrace.expr.types import BOOL, Schema


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
