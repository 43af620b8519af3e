"""Kept snapshots: hidden tables of a pipeline, of the rows of inputs that cannot be asked for their changes.

A run reads such an input once, when it recomputes the snapshot. What reads it gets the difference to the
snapshot before, and all tables of the run see the same rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, TypeGuard

from headrace.pipelines.definitions import RESERVED, SNAPSHOTS, TableName
from headrace.pipelines.leaves import Leaf, UnversionedLeaf
from headrace.pipelines.unversioned import digest

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


def is_kept(leaf: Leaf) -> TypeGuard[UnversionedLeaf]:
    """Return whether snapshots of an input are kept: its rows can be stored, and compared."""
    from pyspark.sql.types import StructType

    if not isinstance(leaf, UnversionedLeaf) or leaf.identity is None:
        return False
    schema = StructType.fromJson(json.loads(leaf.node.schema().json()))
    names = [name.lower() for name in schema.names]
    named_well = len({*names}) == len(names) and not any(name.startswith(RESERVED) for name in names)
    return named_well and not kinds_in(schema) & {"void", "udt"} and can_be_grouped(schema)


def name_of_snapshot(leaf: UnversionedLeaf, taken: Container[TableName]) -> TableName:
    """Return the name of an input's snapshot: the same from run to run, and not one of those `taken`."""
    assert leaf.identity is not None
    called = re.sub(r"\W+", "_", leaf.identity.title.lower(), flags=re.ASCII).strip("_")[:_LONGEST]
    name, number = f"{called}_{digest(leaf.identity.description)}", 1
    found = TableName(SNAPSHOTS, name)
    while found in taken:
        number += 1
        found = TableName(SNAPSHOTS, f"{name}_{number}")
    return found


_LONGEST = 40
"""Characters of a name that come from its input."""


def columns_of_snapshot(schema: StructType) -> StructType:
    """Return the columns of a snapshot as files have them, without what a database says of its own."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(each.name, each.dataType) for each in schema.fields])


def can_be_grouped(schema: StructType) -> bool:
    """Return whether equal rows are known as such by Spark: not variants, nor texts with a collation."""
    return not kinds_in(schema) & {"variant", "collated", "interval", "geography", "geometry"}


def kinds_in(schema: StructType) -> set[str]:
    """Return the kinds of the types of columns, and of what is in them."""
    return {kind for field in schema.fields for kind in kinds_of(field.dataType)}


def kinds_of(of: DataType) -> Iterator[str]:
    """Yield the kinds of a type, and of what is in it."""
    from pyspark.sql import types as t

    match of:
        case t.StringType():
            yield "string" if of.isUTF8BinaryCollation() else "collated"
        case t.DayTimeIntervalType() | t.YearMonthIntervalType() | t.CalendarIntervalType():
            yield "interval"
        case t.UserDefinedType():
            yield "udt"
        case _:
            yield of.typeName()
    match of:
        case t.StructType():
            yield from kinds_in(of)
        case t.ArrayType():
            yield from kinds_of(of.elementType)
        case t.MapType():
            yield from kinds_of(of.keyType)
            yield from kinds_of(of.valueType)
        case _:
            pass
