"""Tables that a project no longer defines, and values that no table holds any more: listed, and removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.errors import UnreadableSource
from headrace.io.files.compaction import erase as erase_changelog
from headrace.pipelines.catalog import PipelineCatalog, Position, TableEntry
from headrace.pipelines.definitions import CHANGELOG, DELTA, TableName, parse_table_name
from headrace.pipelines.delta_inputs import read_version
from headrace.pipelines.delta_source import delta_table
from headrace.pipelines.errors import BadDefinition, UnknownDataset
from headrace.pipelines.graph import Graph
from headrace.pipelines.input_contents import InputContents
from headrace.pipelines.leaves import delta_path_of
from headrace.pipelines.run import orphans_of, planned
from headrace.pipelines.table_state import TableState
from headrace.pipelines.update import DELIVERY
from headrace.tables.version_folders import tick_folders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipelines.spec import PipelineSpec


def drop(spec: PipelineSpec, spark: SparkSession, names: Sequence[str], *, orphans: bool) -> list[TableName]:
    """Remove tables with their rows, their state and what was delivered of them, and return their names.

    orphans: all that the project does not define.

    Raises `UnknownDataset` and, for a table that the project defines, `BadDefinition`; nothing is removed
    then. Raises the errors of `planned`, and `PipelineInUse`.
    """
    with PipelineCatalog.open(spec.storage) as catalog, planned(spec, spark) as (graph, _):
        found = orphans_of(catalog, graph)
        wanted = {_found(text, found, graph) for text in names} | set(found if orphans else ())
        if wanted:
            catalog.drop(wanted)
        return sorted(wanted)


def erase(spec: PipelineSpec) -> list[str]:
    """Remove from a storage all values that no current row has; return what stays nevertheless.

    Changes, and earlier contents of input files, stay where a table has not read what came after. Raises
    `PipelineInUse`, `CatalogDamaged` and `CheckpointDamaged`.
    """
    with PipelineCatalog.open(spec.storage) as catalog:
        inputs = InputContents.open(spec.storage)
        stays = [
            f"{name} has not read all changes of what it reads: run the pipeline, or drop the table"
            for name, entry in catalog.entries.items()
            if _is_behind(entry, catalog, inputs)
        ]
        if catalog.published != catalog.entries:
            stays.append("a run has not published all that it made: run the pipeline")
        catalog.drop_earlier_catalogues()
        if not stays:
            catalog.drop_changes()
        inputs.clean(catalog.files_read())
        for name, entry in catalog.entries.items():
            if entry.generation:
                TableState(catalog.states(spec.storage, name).folder(entry.generation)).erase(entry.tick)
            changelog, delta = (
                catalog.delivery_folder(spec.storage, kind, name) for kind in (CHANGELOG, DELTA)
            )
            if tick_folders(changelog).numbers():
                erase_changelog(changelog)
            if delta.is_dir():
                stays.append(f"{delta} is a Delta table: VACUUM it without retention")
        return stays


def _is_behind(entry: TableEntry, catalog: PipelineCatalog, inputs: InputContents) -> bool:
    """Return whether a table was made from what its inputs no longer hold."""
    versions = {key: each.version for name, each in catalog.entries.items() for key in name.keys}
    return any(
        _has_moved_on(key, position, versions, inputs)
        for flow, positions in entry.positions.items()
        if flow != DELIVERY
        for key, position in positions.items()
    )


def _has_moved_on(
    key: str, position: Position | None, versions: Mapping[str, int], inputs: InputContents
) -> bool:
    if isinstance(position, int):
        return position < versions.get(key, position)
    if isinstance(position, dict):
        # A stream reads no file twice, and has none kept.
        is_stream = key.startswith("stream of ")
        return not is_stream and not all(inputs.is_current(path, mark) for path, mark in position.items())
    path = delta_path_of(key)
    if path is None:
        return False
    try:
        return position != str(read_version(delta_table(path)))
    except UnreadableSource:
        return True  # What it holds now, nobody can say.


def _found(text: str, orphans: Sequence[TableName], graph: Graph) -> TableName:
    name = parse_table_name(text, graph.definitions.database)
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
