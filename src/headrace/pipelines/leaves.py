"""Leaves of queries: the tables of the pipeline, files, Delta tables and constants that they read.

The leaves of an analysed plan say it. A leaf can be replaced by other rows of the same columns: by one
version of a table, or by some of the files of a folder, which Spark reads with the options of the query.
The plan is walked in the JVM, where leaves are replaced; `headrace.queries` reads plans as JSON, because
all of such a plan becomes Python.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from headrace.errors import BadUri
from headrace.expr.spark_columns import quoted
from headrace.file_system import local_path
from headrace.pipelines.definitions import TableName
from headrace.pipelines.delta_source import DeltaRelation, index_of_files, table_of_relation, table_of_stream
from headrace.pipelines.file_listing import pattern_of_names, why_elsewhere
from headrace.pipelines.input_identity import (
    Identity,
    identity_of,
    place_of,
    without_secret_options,
    without_secrets,
)
from headrace.queries.plan_details import (
    TIME_ZONE,
    UTC_NAMES,
    frame_of_plan,
    items,
    java_class,
    java_session,
    pairs,
    with_subqueries,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Leaf:
    """A relation that a query reads.

    node: of the plan; None in a kept analysis. streaming: read as a stream.
    exact: the same wherever the same is read in the same way.
    key:   names the input in positions, from run to run; differs between the inputs of a query.
    columns: Spark's schema of it, as JSON.
    """

    node: Any
    streaming: bool
    exact: str
    key: str
    columns: str = field(default="", compare=False, kw_only=True)

    def __post_init__(self) -> None:
        if not self.columns:
            object.__setattr__(self, "columns", self.node.schema().json())

    def without_plan(self) -> Self:
        """Return the leaf as an analysis keeps it, without what lives in the JVM."""
        return replace(self, node=None)


@dataclass(frozen=True, slots=True)
class TableLeaf(Leaf):
    """A table of the pipeline."""

    name: TableName


@dataclass(frozen=True, slots=True)
class FilesLeaf(Leaf):
    """Files of this machine.

    relation: of the JVM, over all that there are; None in a kept analysis.
    roots:    folders, and files, such as a pattern has found.
    reading:  format, options and columns.
    options:  of the query, without secrets.
    incomparable: why a content cannot be compared with a copy at another path; empty if it can.
    elsewhere: why only Spark knows which files there are; empty if others do, see `file_listing`.
    given:    whether the query is known to give the columns, instead of having Spark infer them.
    partitions: columns that the names of folders tell.
    utc:      whether times without a zone are in UTC.
    pattern, chosen: of names of files, as the path and `pathGlobFilter` of the query have them; or empty.
    """

    relation: Any
    roots: tuple[str, ...]
    reading: str
    options: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)
    incomparable: str = field(default="", kw_only=True)
    elsewhere: str = field(default="", kw_only=True)
    given: bool = field(default=False, kw_only=True)
    partitions: tuple[str, ...] = field(default=(), kw_only=True)
    utc: bool = field(default=False, kw_only=True)
    pattern: str = field(default="", kw_only=True)
    chosen: str = field(default="", kw_only=True)

    @property
    def form(self) -> str:
        """Format of the files, in lower case."""
        return self.reading.partition(" ")[0].lower()

    @property
    def knows_its_rows(self) -> bool:
        """Whether the files record their row counts."""
        return self.form == "parquet"

    @property
    def has_named_columns(self) -> bool:
        """Whether a file's columns are found by name, regardless of its other columns."""
        return self.form in ("json", "parquet", "xml")

    @property
    def tells_columns_by_first_file(self) -> bool:
        """Whether Spark takes columns that a query does not give from the first of the files."""
        return self.form == "parquet" and self.named_options.get("mergeschema", "").lower() != "true"

    @property
    def is_recursive(self) -> bool:
        """Whether all folders below are read, none of which is one of partitions."""
        return self.named_options.get("recursivefilelookup", "").lower() == "true"

    @property
    def named_options(self) -> dict[str, str]:
        """Options of the query, by names in lower case."""
        return {key.lower(): value for key, value in self.options}

    def without_plan(self) -> Self:
        return replace(self, node=None, relation=None)


@dataclass(frozen=True, slots=True)
class DeltaLeaf(Leaf):
    """A Delta table. version: as named by the query; None: the newest, pinned per run."""

    path: str
    version: int | None


@dataclass(frozen=True, slots=True)
class ConstantLeaf(Leaf):
    """Rows written in the query text."""


@dataclass(frozen=True, slots=True)
class UnversionedLeaf(Leaf):
    """Relation that cannot report its changes, such as a table of another database.

    identity: None where it is not a relation that can be read, and kept, on its own.
    """

    identity: Identity | None


def leaves_of(plan: Any, datasets: Mapping[TableName, TableName], session: SparkSession) -> list[Leaf]:
    """Return the relations in an analysed plan, each once. datasets: names of tables by folded names."""
    found: dict[str, Leaf] = {}
    for node in _leaf_nodes(plan):
        leaf = leaf_of(node, datasets, session)
        if leaf is not None and leaf.exact not in found:
            number = sum(other.key.partition(" (")[0] == leaf.key for other in found.values())
            found[leaf.exact] = replace(leaf, key=f"{leaf.key} ({number + 1})") if number else leaf
    return list(found.values())


def text_of(
    plan: Any, datasets: Mapping[TableName, TableName], session: SparkSession
) -> list[tuple[int, str, str]]:
    """Render a plan as lines of depth, name and text. A relation is shown by what it reads, not where.

    Columns of files that the query does not read are left out where they have names: in other formats, such
    as CSV, they say where the others are.
    """
    read = _numbers_read(plan)
    return [line for each in with_subqueries(plan) for line in _lines(each, datasets, session, read, depth=0)]


def _lines(
    node: Any,
    datasets: Mapping[TableName, TableName],
    session: SparkSession,
    read: Set[str] | None,
    depth: int,
) -> Iterator[tuple[int, str, str]]:
    leaf = None if node.children().size() else leaf_of(node, datasets, session)
    kind: str = node.nodeName()
    if kind == "LocalRelation":
        yield depth, kind, f"{_digest_of_rows(node)} {node.output().toString()}"
    elif kind == "Project":
        yield depth, kind, f"{[text for text in _texts(node.projectList()) if _is_read(text, read)]}"
    elif leaf is None:
        yield depth, kind, node.simpleString(_MAX_FIELDS)
    elif isinstance(leaf, FilesLeaf):
        form = leaf.reading.removesuffix(leaf.relation.schema().json())
        columns = _columns_read(node, read if leaf.has_named_columns else None)
        yield depth, f"input {leaf.key}", f"{leaf.key} {form} {columns}"
    else:
        yield depth, f"input {leaf.key}", f"{leaf.key} {node.output().toString()}"
    for child in items(node.children()):
        yield from _lines(child, datasets, session, read, depth + 1)


def operator_text(node: Any, datasets: Mapping[TableName, TableName], session: SparkSession) -> str:
    """Render an operator of a plan by what it computes, without columns that it only hands on."""
    leaf = None if node.children().size() else leaf_of(node, datasets, session)
    if isinstance(leaf, FilesLeaf):
        return f"{leaf.key} {leaf.reading.removesuffix(leaf.relation.schema().json())}"
    if leaf is not None:
        return leaf.key
    if node.nodeName() == "Project":
        made = [each for each in items(node.projectList()) if each.nodeName() != "AttributeReference"]
        return _ID.sub("#", f"Project {[each.toString() for each in made]}")
    return _ID.sub("#", str(node.simpleString(_MAX_FIELDS)))


_BY_REFERENCE = frozenset(
    {"Filter", "Aggregate", "Join", "Window", "Sort", "SubqueryAlias", "View", "GlobalLimit"}
    | {"LocalLimit", "Deduplicate", "ResolvedHint", "Repartition", "RepartitionByExpression"}
    | {"EventTimeWatermark"}
)
"""Operators that read no columns of their inputs but those that their expressions name."""

_ID = re.compile(r"#(\d+)")


def _numbers_read(plan: Any) -> Set[str] | None:
    """Return the numbers of the attributes that a query reads; None for all."""
    if plan.subqueriesAll().size():
        return None
    found = set(_ID.findall(plan.output().toString()))
    # A parent comes before its children: what it reads of them is known then.
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        children = items(node.children())
        waiting += children
        if node.nodeName() == "Project":
            made = [text for text in _texts(node.projectList()) if _is_read(text, found)]
            found.update(*map(_ID.findall, made))
        elif node.nodeName() in _BY_REFERENCE:
            found.update(_ID.findall(node.references().toSeq().toString()))
        else:
            found.update(*(_ID.findall(child.output().toString()) for child in children))
    return found


def _texts(expressions: Any) -> list[str]:
    return [str(each.toString()) for each in items(expressions)]


def _is_read(text: str, read: Set[str] | None) -> bool:
    """Return whether the output of a named expression, identified by its last number, is read."""
    return read is None or not (numbers := _ID.findall(text)) or numbers[-1] in read


def _columns_read(node: Any, read: Set[str] | None) -> list[str]:
    """Return the columns of a relation that a query reads, with their types."""
    columns = _texts(node.output())
    types = [field["type"] for field in json.loads(node.schema().json())["fields"]]
    return [
        f"{column} {json.dumps(type)}"
        for column, type in zip(columns, types, strict=True)
        if _is_read(column, read)
    ]


def column_origins(
    plan: Any, datasets: Mapping[TableName, TableName], session: SparkSession
) -> dict[str, dict[str, str]]:
    """Return the columns of a plan that are a relation's, unchanged: by its `exact`, with their names there.

    Only what Spark names so counts: the same attribute, or another name of it.
    """
    origins: dict[int, dict[str, str]] = {}
    defined: dict[int, list[Any]] = {}
    for node in _bottom_up(plan):
        kind: str = node.nodeName()
        if kind in ("Project", "Aggregate"):
            listed = node.projectList() if kind == "Project" else node.aggregateExpressions()
            named = [each for each in items(listed) if each.nodeName() == "Alias"]
            pairs_of = [
                (each, each.child()) for each in named if each.child().nodeName() == "AttributeReference"
            ]
        elif kind == "Union":
            outputs = [items(child.output()) for child in items(node.children())]
            pairs_of = [pair for each in outputs for pair in zip(items(node.output()), each, strict=True)]
        elif kind == "CTERelationDef":
            defined[node.id()] = items(node.child().output())
            continue
        elif kind == "CTERelationRef":
            pairs_of = [*zip(items(node.output()), defined.get(node.cteId(), ()), strict=False)]
        else:
            if not node.children().size() and (leaf := leaf_of(node, datasets, session)) is not None:
                for each in items(node.output()):
                    origins.setdefault(each.exprId().id(), {})[leaf.exact] = each.name()
            continue
        for to, of in pairs_of:
            origins.setdefault(to.exprId().id(), {}).update(origins.get(of.exprId().id(), {}))
    found: dict[str, dict[str, str]] = {}
    for each in items(plan.output()):
        for exact, name in origins.get(each.exprId().id(), {}).items():
            found.setdefault(exact, {})[each.name()] = name
    return found


def _bottom_up(plan: Any) -> Iterator[Any]:
    for child in items(plan.children()):
        yield from _bottom_up(child)
    yield plan


_MAX_FIELDS = 100_000
"""Columns that the text of an operator may show: all."""


def _leaf_nodes(plan: Any) -> Iterator[Any]:
    for each in with_subqueries(plan):
        yield from items(each.collectLeaves())


def leaf_of(node: Any, datasets: Mapping[TableName, TableName], session: SparkSession) -> Leaf | None:
    """Return the leaf of a relation in an analysed plan; None for one that never changes."""
    kind, streaming = node.nodeName(), node.isStreaming()
    match kind:
        case "OneRowRelation" | "CTERelationRef" | "UnionLoopRef":
            return None
        case "LocalRelation":
            if node.data().size() <= _FEW:
                return None
            rows = _digest_of_rows(node)
            return ConstantLeaf(node, False, rows, rows)
        case "Range":
            bounds = f"range {node.start()} {node.end()} {node.step()}"
            return ConstantLeaf(node, False, bounds, bounds)
        case "LogicalRelation":
            name = _table(node.catalogTable(), datasets)
            if name is not None:
                return _table_leaf(node, name)
            table = table_of_relation(node.relation()) if _is_of_files(node.relation(), session) else None
            return _delta(node, table) if table else _files(node, node.relation(), streaming, session)
        case "StreamingRelation":
            source = node.dataSource()
            name = _table(source.catalogTable(), datasets)
            if name is not None:
                return _table_leaf(node, name)
            if not _is(source.providingInstance(), f"{_DATASOURCES}.FileFormat", session):
                return _unversioned(node, streaming, f"a stream of {source.className()}")
            return _files(node, source.resolveRelation(False, False, False), streaming, session)
        case "StreamingRelationV2":
            table = table_of_stream(node)
            return (
                _delta(node, table)
                if table
                else _unversioned(node, streaming, f"a stream of {node.sourceName()}")
            )
        case _:
            return _unversioned(node, streaming, node.simpleString(25))


_FEW = 1_000
"""Constant rows up to which they are part of a query."""


_DATASOURCES = "org.apache.spark.sql.execution.datasources"


def _digest_of_rows(node: Any) -> str:
    text: str = node.data().toString()
    return "rows " + hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _unversioned(node: Any, streaming: bool, what: str, identity: Identity | None = None) -> UnversionedLeaf:
    """Return an unversioned leaf. identity: given for files; otherwise derived from the node."""
    found = identity or identity_of(node)
    if found is not None and not streaming:
        return UnversionedLeaf(node, streaming, found.exact, found.title, found)
    named = re.sub(r"#\d+L?|@[0-9a-f]+\b", "", without_secrets(what))
    return UnversionedLeaf(node, streaming, what, named, None)


def _table(catalogued: Any, datasets: Mapping[TableName, TableName]) -> TableName | None:
    if catalogued.isEmpty():
        return None
    name = catalogued.get().identifier()
    database = name.database().get() if name.database().isDefined() else "default"
    return datasets.get(TableName(database, name.table()).folded)


def _table_leaf(node: Any, name: TableName) -> TableLeaf:
    streaming = node.isStreaming()
    key = name.keys[streaming]
    return TableLeaf(node, streaming, key, key, name)


def _delta(node: Any, table: DeltaRelation) -> DeltaLeaf:
    named = table.path if table.version is None else f"{table.path}, version {table.version}"
    key = f"{'stream of ' if node.isStreaming() else ''}Delta table {named}"
    return DeltaLeaf(node, node.isStreaming(), key, key, table.path, table.version)


_DELTA_KEY = re.compile(r"(?:stream of )?Delta table (.*?)(, version \d+)?(?: \(\d+\))?")


def delta_path_of(key: str) -> str | None:
    """Return the path of a Delta table if a key denotes its newest version; None for other keys."""
    found = _DELTA_KEY.fullmatch(key)
    return None if found is None or found[2] else found[1]


def _is_of_files(relation: Any, session: SparkSession) -> bool:
    """Return whether a relation reads files that are listed by Spark itself.

    What else lists files, such as Delta's own reader in its jar, knows of rows in them that do not count.
    """
    return _is(relation, f"{_DATASOURCES}.HadoopFsRelation", session) and bool(
        relation.location().getClass().getName().startswith("org.apache.spark.sql.execution.")
    )


def _files(node: Any, relation: Any, streaming: bool, session: SparkSession) -> Leaf:
    if not _is_of_files(relation, session):
        return _unversioned(node, streaming, node.simpleString(25))
    uris = [path.toUri().toString() for path in items(relation.location().rootPaths())]
    options = sorted(without_secret_options(list(pairs(relation.options()))))
    form, schema = relation.fileFormat().toString(), relation.schema().json()
    reading = f"{form} {options} {schema}"
    described = f"{sorted(map(place_of, uris))} {form} {schema}"
    exact = f"{sorted(uris)} {sorted(pairs(relation.options()))} {form} {schema}"
    try:
        roots = tuple(sorted(local_path(uri, "files") for uri in uris))
    except BadUri:
        what = f"files of {place_of(uris[0])}"
        return _unversioned(node, streaming, what, Identity(what, described, exact))
    if relation.partitionSchema().size() and not (len(roots) == 1 and all(map(os.path.isdir, roots))):
        what = f"partitioned files of {', '.join(roots)}"
        return _unversioned(node, streaming, what, Identity(what, described, exact))
    kind = "stream of files" if streaming else "files"
    # A pattern is told as what it finds, which differs from run to run.
    places = sorted(
        {root if os.path.isdir(root) else os.path.join(os.path.dirname(root), "*") for root in roots}
    )
    exact, key = f"{kind} {roots} {reading}", f"{kind} {', '.join(places)}"
    named = {name.lower(): value for name, value in pairs(relation.options())}
    return FilesLeaf(
        node,
        streaming,
        exact,
        key,
        relation,
        roots,
        reading,
        options=tuple(options),
        incomparable=_why_incomparable(node, relation),
        elsewhere=why_elsewhere(named, roots),
        partitions=tuple(relation.partitionSchema().fieldNames()),
        utc=session.conf.get(TIME_ZONE) in UTC_NAMES,
        pattern=pattern_of_names(named.get("path", "")),
        chosen=named.get("pathglobfilter", ""),
        given=streaming and bool(node.dataSource().userSpecifiedSchema().isDefined()),
    )


def _why_incomparable(node: Any, relation: Any) -> str:
    """Return why a content cannot be compared with a copy at another path; empty if it can."""
    if "_metadata#" in node.output().toString():
        return "the query reads _metadata"
    if relation.fileFormat().toString().lower() == "binaryfile":
        return "the rows of the format binaryFile tell the time of the file"
    if relation.partitionSchema().size() and relation.options().contains("basePath"):
        return "it is read with the option basePath"
    return ""


def _is(value: Any, name: str, session: SparkSession) -> bool:
    return java_class(session, "java.lang.Class").forName(name).isInstance(value)


def spark_columns(leaf: Leaf) -> StructType:
    """Return the columns of an input as Spark knows them."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(leaf.columns))


# -- other rows for a leaf -------------------------------------------------------------------------


def relation_of_files(
    leaf: FilesLeaf, paths: Iterable[str], session: SparkSession, base: str | None = None
) -> Any:
    """Return a leaf over some of the files, with the columns, options and attributes of `leaf`.

    base: folder of partitions; that of `leaf`, if None.
    """
    package = java_class(session, "org.apache.hadoop.fs")
    datasources = java_class(session, "org.apache.spark.sql.execution.datasources")
    relation, java = leaf.relation, java_session(session)
    listed = [package.Path(f"file:{path}") for path in paths]
    index = index_of_files(
        listed, _with_base_path(relation, base or leaf.roots[0]), relation.schema(), session
    )
    made = relation.copy(
        index,
        relation.partitionSchema(),
        relation.dataSchema(),
        relation.bucketSpec(),
        relation.fileFormat(),
        relation.options(),
        java,
    )
    none = java_class(session, "scala.Option").empty()
    return datasources.LogicalRelation(made, leaf.node.output(), none, False, none)


def _with_base_path(relation: Any, base: str) -> Any:
    """Return options that give some of a relation's files its partition columns."""
    options = relation.options()
    if options.contains("basePath") or not relation.partitionSchema().size():
        return options
    return options.updated("basePath", base)


def relation_like(node: Any, frame: DataFrame, session: SparkSession) -> Any:
    """Return the plan of a frame, with the columns and attributes of a leaf's node."""
    attributes = items(node.output())
    return relation_of_columns([(each.name(), each) for each in attributes], frame, session)


def relation_of_columns(named: Sequence[tuple[str, Any]], frame: DataFrame, session: SparkSession) -> Any:
    """Return the plan of columns of a frame, each as the attribute that is given with its name."""
    columns = [quoted(name) for name, _ in named]
    plan: Any = frame.select(*columns)._jdf.queryExecution().analyzed()  # pyright: ignore
    expressions = java_class(session, "org.apache.spark.sql.catalyst.expressions")
    none = java_class(session, "scala.Option").empty()
    seq = java_class(session, "org.apache.spark.api.python.PythonUtils").toSeq
    nil = seq([])
    aliases = [
        expressions.Alias(given, wanted.name(), wanted.exprId(), nil, none, nil)
        for given, (_, wanted) in zip(items(plan.output()), named, strict=True)
    ]
    return java_class(session, "org.apache.spark.sql.catalyst.plans.logical").Project(seq(aliases), plan)


def _in_a_batch(node: Any, session: SparkSession) -> Any:
    """Return a reference to a common table expression, converted from streaming to batch."""
    gateway: Any = session.sparkContext._gateway
    names = [node.productElementName(at) for at in range(node.productArity())]
    given = gateway.new_array(java_class(session, "java.lang.Object"), len(names))
    for at, name in enumerate(names):
        given[at] = False if name in ("isStreaming", "_isStreaming") else node.productElement(at)
    return node.makeCopy(given)


def with_leaves(
    plan: Any,
    replaced: Mapping[str, Callable[[], DataFrame]],
    datasets: Mapping[TableName, TableName],
    session: SparkSession,
    *,
    streams: bool = False,
) -> DataFrame:
    """Return a query with its leaves replaced by other rows.

    replaced: what gives the rows for each leaf, by `exact`. streams: whether those that it reads stay
    streams; else the query becomes one of a batch.
    """

    from headrace.queries.planning import PlanCopier

    def other(node: Any) -> Any:
        if node.nodeName() == "CTERelationRef" and node.isStreaming() and not streams:
            return _in_a_batch(node, session)
        leaf = leaf_of(node, datasets, session)
        if leaf is None or leaf.exact not in replaced:
            return None
        return relation_like(node, replaced[leaf.exact](), session)

    return frame_of_plan(PlanCopier(session, relations=other).plan(plan), session)
