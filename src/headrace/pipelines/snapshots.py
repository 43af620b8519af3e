"""Kept snapshots: hidden tables with the rows of inputs that cannot be asked for their changes.

A run reads such an input once, when it recomputes the snapshot. What reads it gets the difference to the
snapshot before, and all tables of the run see the same rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container
from typing import TYPE_CHECKING, TypeGuard

from headrace.pipelines.definitions import RESERVED, SNAPSHOTS, TableName
from headrace.pipelines.leaves import Leaf, UnversionedLeaf
from headrace.pipelines.relation_identity import digest
from headrace.pipelines.weighted_rows import can_be_grouped, kinds_in

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


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
