"""One stream per port: a partition numbers the ports, and a filter per port takes its rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

from penstock.errors import WrongType
from penstock.expr.build import col, lit
from penstock.expr.check import check
from penstock.expr.tree import Column, Expr
from penstock.expr.types import INT64, BoolType, Field, Schema
from penstock.flow.columns import shown
from penstock.flow.operators.filter import Filter
from penstock.flow.operators.partition import Partition
from penstock.flow.operators.select import Select

if TYPE_CHECKING:
    from penstock.errors import SourceLocation
    from penstock.flow.stream import Stream
    from penstock.flow.stream_base import StreamBase


def split(
    what: str,
    stream: StreamBase[Any, Any, Any, Any],
    by: Expr | Callable[..., object],
    ports: Iterable[Hashable],
    name: str | None,
    location: SourceLocation,
) -> dict[Hashable, Stream[Any, Any, Any, Any]]:
    """The stream of each of the tags `ports`, for an operator `what`. Raises `WrongType`."""
    tags = _different(what, ports, location)
    values = _values(what, stream.schema, by, tags, location)
    schema = stream.schema
    port = "port"
    while schema.position(port) is not None:
        port = f"_{port}"
    numbered = Schema((*schema.fields, Field(port, INT64, False)))
    rows = stream.flow.add(Partition(by, values), numbered, (stream,), name, location)
    columns = tuple((n, Column(n)) for n in schema.names)
    streams: dict[Hashable, Stream[Any, Any, Any, Any]] = {}
    for at, tag in enumerate(tags):
        own = rows.flow.add(Filter(col[port] == lit(at)), numbered, (rows,), None, location)
        streams[tag] = own.flow.add(Select(columns), schema, (own,), None, location)
    return streams


def _different(what: str, ports: object, location: SourceLocation) -> tuple[Hashable, ...]:
    """The tags, if there are any and no two are equal."""
    given: object = ports
    if isinstance(ports, Iterable) and not isinstance(ports, str):
        listed = given = list(cast("Iterable[object]", ports))
        if listed and all(isinstance(tag, Hashable) for tag in listed) and len(set(listed)) == len(listed):
            return cast("tuple[Hashable, ...]", tuple(listed))
    raise WrongType(
        f"{what} needs different ports, got {shown(given)}",
        where=[location],
        why="Each row goes to exactly one of them.",
        fix=f'{what}(ps.col.kind, ["open", "closed"])',
    )


def _values(
    what: str, schema: Schema, by: object, tags: Sequence[Hashable], location: SourceLocation
) -> tuple[Hashable, ...]:
    """What `by` gives for each tag."""
    if not isinstance(by, Expr) and not callable(by):
        raise WrongType(
            f"{what} needs an expression or a function, got {shown(by)}", where=[location], fix="ps.col.kind"
        )
    if not isinstance(by, Expr):
        return tuple(tags)
    values = tuple(tag.value if isinstance(tag, Enum) else tag for tag in tags)
    found = check(by, schema).type
    if isinstance(found, BoolType) and values == (0, 1):
        return (False, True)
    for value in values:
        if not _may_be(by, value, schema):
            raise WrongType(
                f"{what} is by {by}, which is {found}, and {value!r} is no such value",
                where=[location],
                fix="ports are values that the expression may have",
            )
    return values


def _may_be(by: Expr, value: object, schema: Schema) -> bool:
    try:
        check(by == lit(value), schema)
    except WrongType:
        return False
    return True
