"""Tables that a project no longer defines, and values that no table holds any more: listed, and removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.pipelines.catalog import Catalog
from penstock.pipelines.definitions import TableName, name_of_text
from penstock.pipelines.errors import BadDefinition, UnknownDataset
from penstock.pipelines.graph import Graph
from penstock.pipelines.run import orphans_of, planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipelines.spec import PipelineSpec


def drop(spec: PipelineSpec, spark: SparkSession, names: Sequence[str], *, orphans: bool) -> list[TableName]:
    """Remove tables with their rows, their state and what was delivered of them, and return their names.

    orphans: all that the project does not define.

    Raises `UnknownDataset` and, for a table that the project defines, `BadDefinition`; nothing is removed
    then. Raises the errors of `planned`, and `PipelineInUse`.
    """
    with Catalog.open(spec.storage) as catalog, planned(spec, spark) as (graph, _):
        found = orphans_of(catalog, graph)
        wanted = {_found(text, found, graph) for text in names} | set(found if orphans else ())
        if wanted:
            catalog.drop(wanted)
        return sorted(wanted)


def _found(text: str, orphans: Sequence[TableName], graph: Graph) -> TableName:
    name = name_of_text(text, graph.definitions.database)
    if name in orphans:
        return name
    for table in graph.tables:
        if table.name.folded == name.folded:
            raise BadDefinition(
                f"{table.name} is defined in the project",
                where=[table.dataset.location],
                why="The next run would make it again.",
                fix=f"remove its definition first; to make it anew, --full-refresh {table.name}",
                dataset=str(table.name),
            )
    raise UnknownDataset(
        f"the storage has no table {text!r} that the project does not define",
        fix=f"give one of: {', '.join(map(str, orphans)) or 'there is none'}",
        dataset=text,
    )
