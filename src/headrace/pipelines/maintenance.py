"""Maintenance of a project outside its runs: dry runs, and removal of obsolete tables and values.

A dry run says how each table is maintained, as text and as findings for `headrace check`. Tables that a
project no longer defines, and values that no table holds any more, are listed and removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.analysis.flow_report import Finding, Severity
from headrace.errors import UnreadableSource
from headrace.io.files.compaction import erase as erase_changelog
from headrace.pipelines.catalog import (
    DELIVERY,
    PipelineCatalog,
    Position,
    TableEntry,
    TableState,
    expectation_totals,
)
from headrace.pipelines.definitions import (
    CHANGELOG,
    DELTA,
    DROPPED,
    DatasetKind,
    Policy,
    TableName,
    parse_table_name,
)
from headrace.pipelines.delta_source import delta_table
from headrace.pipelines.errors import BadDefinition, NotIncremental, QueryRefused, UnknownDataset
from headrace.pipelines.event_log import EventLog
from headrace.pipelines.expectations import OnViolation, with_action
from headrace.pipelines.graph import Graph, StoredTable
from headrace.pipelines.input_identity import InputContents
from headrace.pipelines.inputs import describe_known_changes, read_version
from headrace.pipelines.leaves import ConstantLeaf, DeltaLeaf, FilesLeaf, Leaf, TableLeaf, delta_path_of
from headrace.pipelines.pipeline_run import orphans_of
from headrace.pipelines.planned_project import default_policy, planned
from headrace.pipelines.plans import policy_of
from headrace.pipelines.table_plan import Method, TablePlan
from headrace.state.commit import CommitLog
from headrace.tables.version_folders import tick_folders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.errors import HeadraceError
    from headrace.pipelines.spec import PipelineSpec


def drop(spec: PipelineSpec, spark: SparkSession, names: Sequence[str], *, orphans: bool) -> list[TableName]:
    """Remove tables with their rows, state and deliveries, and return their names.

    orphans: all that the project does not define.

    Raises `UnknownDataset` and, for a table that the project defines, `BadDefinition`; nothing is removed
    then. Raises the errors of `planned`, and `PipelineInUse`.
    """
    with (
        PipelineCatalog.open(spec.storage, spec.version_retention) as catalog,
        planned(spec, spark) as (graph, _),
    ):
        found = orphans_of(catalog, graph)
        wanted = {_found(text, found, graph) for text in names} | set(found if orphans else ())
        if wanted:
            catalog.drop(wanted)
        return sorted(wanted)


def erase(spec: PipelineSpec) -> list[str]:
    """Erase all values from a storage that no current row has; return what could not be erased.

    Changes, and earlier contents of input files, stay where a table has not read what came after. Raises
    `PipelineInUse`, `CatalogDamaged` and `CheckpointDamaged`.
    """
    with PipelineCatalog.open(spec.storage, spec.version_retention) as catalog:
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
        EventLog(spec.storage).erase_errors()
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
    """Return whether a table was computed from input contents that have since changed."""
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


_METHOD_TEXTS = {
    Method.INCREMENTAL: "incremental: by the changes of its inputs",
    Method.STATELESS: "incremental: row by row, without state",
    Method.APPEND: "append: the rows that its streams have not read",
    Method.AFFECTED: "recomputed by Spark for the keys of changed rows; what follows gets the difference",
    Method.RECOMPUTE: "recomputed by Spark; what follows gets the difference",
}

_DELIVERIES = {DELTA: "the Delta table", CHANGELOG: "the changelog"}

_SNAPSHOT = "read once in each run; what reads it gets the difference to the run before"

_SHARED = "kept once for these tables; each run removes it once none has it"


def explain_pipeline(graph: Graph, plans: Mapping[TableName, TablePlan], storage: Path) -> str:
    """Explain the tables of a pipeline, in the order in which they are brought up to date."""
    known = PipelineCatalog.last_entries(storage)
    blocks = ["\n".join(_lines(table, graph, plans[table.name], known, storage)) for table in graph.tables]
    return "\n\n".join(blocks) + "\n"


def _lines(
    table: StoredTable, graph: Graph, plan: TablePlan, known: Mapping[TableName, TableEntry], storage: Path
) -> Iterator[str]:
    entry = known.get(table.name)
    kept = table.dataset.kind is DatasetKind.SNAPSHOT
    kind = "" if table.dataset.kind.is_hidden else f"   {table.dataset.kind.value}"
    yield f"{table.dataset.title}{kind}   {table.dataset.location}"
    if table.failure is None:
        yield f"  {_SNAPSHOT if kept else _METHOD_TEXTS[plan.method]}"
    if table.dataset.shared_by:
        yield f"  {_SHARED}"
    if plan.keys is not None:
        yield f"  key: {', '.join(plan.keys.columns)}"
        if plan.keys.fixed:
            yield f"  from all rows if these change: {', '.join(plan.keys.fixed)}"
    if plan.why:
        yield f"  why: {plan.why}"
    for step in plan.where:
        yield f"  at: {step.line().strip()}"
    if plan.only_spark:
        yield f"  by Spark: {plan.only_spark}"
    if not plan.stable:
        yield "  at each run: its query answers otherwise each time"
    for leaf in {leaf.key: leaf for query in table.queries for leaf in query.leaves}.values():
        yield f"  reads {_input(leaf, table, graph)}{_position(leaf, entry)}"
    yield from _expectation_lines(table, known)
    if table.dataset.delivery:
        folder = PipelineCatalog.delivery_folder(storage, table.dataset.delivery, table.name)
        yield f"  delivered to {_DELIVERIES[table.dataset.delivery]} {folder}"
    if entry is None:
        yield "  not there yet"
        return
    yield f"  {entry.rows:,} rows, version {entry.version}{_state(table, entry, storage)}"
    if table.failure is None and entry.fingerprint != plan.fingerprint:
        yield "  " + (
            "changed since the last run: the new query gets the rows that come from now on"
            if plan.method is Method.APPEND
            else "changed since the last run: it is made anew"
        )


_ACTIONS = {
    OnViolation.WARN: "a row that fails is kept and counted",
    OnViolation.DROP: "a row that fails is dropped",
    OnViolation.FAIL: "a row that fails fails the update",
}


def _expectation_lines(table: StoredTable, known: Mapping[TableName, TableEntry]) -> Iterator[str]:
    names = [each.name for each in table.dataset.expectations]
    totals = expectation_totals(table.name, names, known) if table.name in known else {}
    for each in table.dataset.expectations:
        counts = totals.get(each.name)
        failed = f"; {counts.failed:,} of {sum(counts):,} rows fail" if counts is not None else ""
        yield f"  expects {each.name!r}: {each.text}; {_ACTIONS[each.on_violation]}{failed}"
    if with_action(table.dataset.expectations, OnViolation.DROP):
        yield f"  dropped rows are in {table.name.beside(DROPPED)}"


def _input(leaf: Leaf, reader: StoredTable, graph: Graph) -> str:
    how = " as a stream" if leaf.streaming else ""
    match leaf:
        case TableLeaf():
            dataset = graph.table(leaf.name).dataset
            others = [str(name) for name in dataset.shared_by if name != reader.name.owner]
            if dataset.shared_by:
                return f"a part shared with {', '.join(others)}" if others else "a part of its own"
            return f"{dataset.title}{how}"
        case FilesLeaf():
            return f"{', '.join(leaf.roots)}{how}"
        case DeltaLeaf():
            version = "" if leaf.version is None else f", version {leaf.version}"
            return f"the Delta table {leaf.path}{version}{how}"
        case ConstantLeaf():
            return "constants"
        case _:
            return leaf.key


def _position(leaf: Leaf, entry: TableEntry | None) -> str:
    """Describe how far a Delta table was read, and the files that record its later changes."""
    if not isinstance(leaf, DeltaLeaf) or leaf.version is not None or entry is None:
        return ""
    read = [each[leaf.key] for each in entry.positions.values() if leaf.key in each]
    return f", {describe_known_changes(leaf, str(read[0]))}" if read else ""


def _state(table: StoredTable, entry: TableEntry, storage: Path) -> str:
    if not entry.generation:
        return ""
    state = TableState(PipelineCatalog.states(storage, table.name).folder(entry.generation))
    last = CommitLog(state.checkpoint).last()
    return f", {last.state_bytes:,} bytes of state" if last is not None else ", its state is missing"


# --- findings -------------------------------------------------------------------------------------


def findings_of_project(spec: PipelineSpec, spark: SparkSession) -> tuple[int, list[Finding]]:
    """Return the number of tables that can be planned, and the findings. Raises `BadSpec`."""
    errors: list[HeadraceError] = []
    with planned(spec, spark, report=errors.append) as (_, plans):
        warnings = [warning for plan in plans.values() for warning in _warnings(plan, default_policy(spec))]
    found = [Finding(_severity(error), error) for error in _without_consequences(errors)]
    tables = [plan for plan in plans.values() if not plan.table.dataset.shared_by]
    return len(tables), found + [Finding(Severity.WARNING, warning) for warning in warnings]


def _severity(error: HeadraceError) -> Severity:
    """Return the severity of an error: a warning if only the data is missing where a query is checked."""
    missing = isinstance(error, QueryRefused) and (error.unreachable or "PATH_NOT_FOUND" in error.why)
    return Severity.WARNING if missing else Severity.ERROR


def _without_consequences(errors: list[HeadraceError]) -> list[HeadraceError]:
    """Omit errors of missing tables while definitions are wrong, since these may define the tables."""
    if not any(isinstance(error, BadDefinition) for error in errors):
        return errors
    return [
        error
        for error in errors
        if not (isinstance(error, QueryRefused) and "TABLE_OR_VIEW_NOT_FOUND" in error.why)
    ]


def _warnings(plan: TablePlan, default: Policy) -> Iterator[HeadraceError]:
    """Warn of a table whose source cannot be reached, and of one that is recomputed against its policy."""
    dataset = plan.table.dataset
    if plan.table.failure is not None:
        yield plan.table.failure
    elif dataset.beside is not None:
        return  # It is maintained as its table is.
    elif plan.method is Method.RECOMPUTE and plan.why and policy_of(dataset, default) is not Policy.FULL:
        yield NotIncremental(
            f"{dataset.name} is recomputed in every run: {plan.why}",
            where=plan.where or [query.query.location for query in plan.table.queries],
            why="Spark runs its query on all rows.",
            fix="change the query, or accept that by the refresh policy 'full'",
            dataset=str(dataset.name),
        )
