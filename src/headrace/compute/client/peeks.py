"""Conversion of peeks to messages, and of their answers to users' rows."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from headrace.compute.client.rows import CachedDescription, Row
from headrace.compute.protocol import row_batch
from headrace.compute.protocol.client_messages import ClientAnswer, PeekMessage, PeekRequest, RowsPart
from headrace.compute.protocol.commands import Finishing
from headrace.errors import BadInput
from headrace.expr.row_classes import to_user
from headrace.expr.tree import Expr
from headrace.expr.types import Schema


@dataclass(frozen=True, slots=True)
class PeekArguments:
    """Arguments of `peek`. staleness: milliseconds."""

    keys: Sequence[Any] | None
    where: Expr | None
    order_by: Any
    limit: int | None
    offset: int
    columns: Sequence[str | Expr] | None
    at: int | None
    staleness: int | None
    replica: str | None


def peek_message(
    known: CachedDescription, asked: PeekArguments
) -> tuple[PeekMessage, Schema, Callable[[Row], Any]]:
    """Return the message, the schema of its answers, and their conversion to users' rows.

    Raises the errors for invalid columns and values.
    """
    from headrace.compute.plans import encode_expr

    _check(asked)
    positions, schema, convert = None, known.schema, known.to_user
    if asked.columns is not None:
        positions, schema = known.projection(asked.columns)
        convert = to_user(schema)
    request = PeekRequest(
        view=known.name,
        keys=None if asked.keys is None else tuple(known.to_internal_keys(asked.keys)),
        at=asked.at,
        predicate=None if asked.where is None else encode_expr(asked.where, known.schema),
        finishing=Finishing(tuple(known.ordering(asked.order_by)), asked.limit, asked.offset, positions),
        replica=asked.replica,
        staleness=asked.staleness,
    )
    return PeekMessage(known.id, request), schema, convert


def _check(asked: PeekArguments) -> None:
    for name in ("limit", "offset", "at"):
        check_number(name, getattr(asked, name))
    if asked.where is not None and not isinstance(cast("object", asked.where), Expr):
        raise BadInput(
            f"where={asked.where!r}: that is no expression",
            fix="where=col.price > 3, with columns of the view",
        )
    if asked.at is not None and asked.staleness is not None:
        raise BadInput("at= and staleness= are given", fix="say one of them: at= is exactly one time")


def check_number(name: str, value: object, *, least: int = 0) -> None:
    """Raise `BadInput` for an invalid time, row count or limit; None is allowed."""
    if value is not None and (type(value) is not int or not least <= value < 2**63):
        raise BadInput(f"{name}={value!r}: that is not a whole number from {least} to 2**63 - 1")


def decode_peek_answers(
    answers: Iterable[ClientAnswer], schema: Schema, to_user: Callable[[Row], Any]
) -> list[Any]:
    """Decode the answers to a peek to users' rows, repeated by their multiplicity. Raises `BadMessage`.

    schema: schema of the rows.
    """
    found: list[Any] = []
    with collecting_no_garbage():
        for answer in answers:
            data = answer.rows if isinstance(answer, RowsPart) else b""
            for row, count in row_batch.decode(data, schema, "Rows.rows"):
                if count == 1:
                    found.append(to_user(row))
                else:
                    found += [to_user(row)] * count
    return found


@contextmanager
def collecting_no_garbage() -> Generator[None]:
    """Pause Python's collector: among many new rows it finds nothing, and takes longer than making them."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
