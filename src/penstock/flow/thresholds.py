"""Thresholds on values that only grow: from `at_least(...)` to its operator, or why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import NeedNotMet, Place, Step, WrongType
from penstock.expr.rows import derived_schema, from_user
from penstock.expr.tree import Column
from penstock.expr.types import Field, Schema
from penstock.flow.operators.at_least import AtLeast
from penstock.graph.growth import growth_of, origin

if TYPE_CHECKING:
    from penstock.flow.stream_base import StreamBase


def threshold(
    stream: StreamBase[Any, Any, Any, Any], value: object, column: str | None, place: Place
) -> tuple[AtLeast, Schema]:
    """The operator, and the schema of what it sends: the keys, then the threshold.

    Raises `NeedNotMet` where the column does not only grow by what is written; analysis finds
    whether rows are taken back.
    """
    nodes, schema = stream.flow.nodes, stream.schema
    growth = growth_of(nodes, stream.node_id)
    growing = tuple(growth.columns) if growth is not None else ()
    name = column if column is not None else growing[0] if len(growing) == 1 else None
    maker = origin(nodes, stream.node_id)
    if name is None:
        raise _refused(nodes[stream.node_id].name, maker.place, place, growing, None)
    if schema.position(name) is None:
        raise WrongType(
            f"at_least has no column {name!r}", where=[place], why=f"The rows have {schema}.", column=name
        )
    if growth is None or name not in growth.columns:
        raise _refused(nodes[stream.node_id].name, maker.place, place, growing, name)
    fields = {f.name: f for f in schema.fields}
    inside = from_user(Schema((Field(name, fields[name].type),), scalar=True), what="the threshold")
    ((checked,),) = inside([value])
    row = (*(fields[key] for key in growth.keys), Field(name, fields[name].type))
    keys = tuple(Column(key) for key in growth.keys)
    result = derived_schema(row)
    if not keys and schema.scalar:
        result = Schema(row, schema.row_class, scalar=True)
    return AtLeast(checked, name, keys, growth.columns[name]), result


def _refused(
    node: str, maker: Place, place: Place, growing: tuple[str, ...], column: str | None
) -> NeedNotMet:
    if column is None:
        what = (
            "at_least does not know which column is meant"
            if growing
            else "at_least needs a value that only grows"
        )
        note = f"grow: {', '.join(growing)}" if growing else "nothing here is known to only grow"
    else:
        what = f"at_least needs {column!r} to only grow, and it may fall"
        note = f"{column!r} is made here" if not growing else f"only these grow: {', '.join(growing)}"
    fix = (
        f"say it: at_least(..., column={growing[0]!r})"
        if column is None and growing
        else "read count(), max() or count_distinct() of rows that are only added, lattice_fold(...),\n"
        "or a fold that claims monotone=True; of a value that may fall, filter(...) the table"
    )
    return NeedNotMet(
        what,
        where=[Step(maker, note), Step(place, "what passed the threshold is never taken back")],
        why="Of a value that falls again, it would have been wrong to say that it had come so far.",
        fix=fix,
        node=node,
        fact="grows",
    )
