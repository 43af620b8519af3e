"""Shared parts: equal subplans of a project's tables, computed once and kept once.

A part is a hidden table of the pipeline. The tables that have it in their queries read its rows and changes
instead, so it is maintained, published and cleaned as any other table.

Equal are subplans that Spark takes for the same, whatever their columns and relations are called. The largest
subplan that is there twice becomes a part, then the largest one that is still there twice, in tables or in
larger parts, and so on. Worth a part is what holds state; it ends below what Spark optimises together with
what is above: a window or a limit, and joins whose condition is in a filter above.

A part that is there already stays as it is while a table has it, with all its columns: so a view that is
added or removed leaves the state of others alone, unless it needs more columns of a part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.file_system import subfolder_for
from headrace.pipelines.catalog import TableEntry
from headrace.pipelines.definitions import RESERVED, SHARED, Dataset, DatasetKind, QueryDefinition, TableName
from headrace.pipelines.graph import AnalysedQuery, Graph, StoredTable, stored_schema
from headrace.pipelines.input_identity import digest
from headrace.pipelines.leaves import leaves_of, operator_text, relation_of_columns
from headrace.queries.plan_details import frame_of_plan, items, java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


# --- plans ----------------------------------------------------------------------------------------

_ROOTS = frozenset({"Join", "Aggregate", "Distinct", "Deduplicate", "Except", "Intersect"})
"""Operators with state that may be the root of a part; or a filter above one."""

_ALIASES = frozenset({"SubqueryAlias", "View"})

_TRANSPARENT = _ALIASES | {"Project", "ResolvedHint", "Filter"}
"""Operators between the filter that is the root of a part, and the operator with state."""

_OPEN = frozenset({"CTERelationRef", "CTERelationDef", "WithCTE", "UnionLoop", "UnionLoopRef"})
"""Operators that refer to others elsewhere in the plan."""

_BY_REFERENCE = _ALIASES | {
    *("Filter", "Aggregate", "Join", "Window", "Sort", "GlobalLimit", "LocalLimit", "Deduplicate"),
    *("ResolvedHint", "Repartition", "RepartitionByExpression"),
}
"""Operators that read no columns of their inputs but those that their expressions name."""


@dataclass(eq=False, slots=True)
class _Node:
    """Operator of a plan, in the tree of a table or of a part.

    is_product: whether it joins without a condition. is_total: whether it aggregates to one row.
    part: what is read in its place. covered: whether it is in such a part already.
    """

    plan: Any
    kind: str
    children: tuple[_Node, ...]
    is_product: bool = False
    is_total: bool = False
    part: _Part | None = None
    covered: bool = False

    @classmethod
    def of(cls, plan: Any) -> _Node:
        kind = plan.nodeName()
        is_product = kind == "Join" and bool(plan.condition().isEmpty())
        is_total = kind == "Aggregate" and not plan.groupingExpressions().size()
        return cls(plan, kind, tuple(map(cls.of, items(plan.children()))), is_product, is_total)

    def walk(self) -> Iterator[_Node]:
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def size(self) -> int:
        """Number of operators, without those that only name."""
        return sum(node.kind not in _ALIASES for node in self.walk())

    @property
    def top_state(self) -> _Node:
        """The operator with state of which a root is, or that it filters; itself for other operators."""
        node = self
        while node.kind in _TRANSPARENT and node.children:
            (node,) = node.children
        return node

    @property
    def can_be_part(self) -> bool:
        """Return whether it holds state, is whole in itself, and loses nothing by being computed alone."""
        if self.kind not in _ROOTS | {"Filter"}:
            return False
        below = self.top_state
        # The filter of a window's rank bounds what the window keeps.
        with_state = below.kind in _ROOTS or (below.kind == "Window" and self.kind == "Filter")
        return (
            with_state
            and not below.is_total
            and not any(node.kind in _OPEN for node in self.walk())
            and not _has_product(self, filtered=False)
        )


def _has_product(node: _Node, *, filtered: bool) -> bool:
    """Return whether a plan joins without a condition, and without a filter above that may be it."""
    inside = filtered or node.kind == "Filter"
    return (node.is_product and not filtered) or any(
        _has_product(each, filtered=inside) for each in node.children
    )


@dataclass(eq=False, slots=True)
class _Tree:
    """Plan of a table or of a part.

    of:      the table whose query it is of. readers: the tables that it is computed for.
    outputs: positions of the columns of its root that are read; None for all.
    """

    root: _Node
    of: StoredTable
    readers: frozenset[TableName]
    outputs: AbstractSet[int] | None = None


@dataclass(eq=False, slots=True)
class _Part:
    """Part in the making. columns: names of the root's columns that are kept, by their positions."""

    name: TableName
    tree: _Tree
    columns: dict[int, str] = field(default_factory=dict[int, str])


def _number(attribute: Any) -> int:
    return attribute.exprId().id()


def _numbers(attributes: Any) -> set[int]:
    return {_number(each) for each in items(attributes)}


def _read_numbers(tree: _Tree) -> set[int]:
    """Return the numbers of the columns that a plan reads above the parts that it has."""
    output = items(tree.root.plan.output())
    found = {_number(each) for at, each in enumerate(output) if tree.outputs is None or at in tree.outputs}
    waiting = [tree.root]
    while waiting:
        node = waiting.pop()
        if node.part is not None:
            continue
        waiting += node.children
        if node.kind == "Project":
            for each in items(node.plan.projectList()):
                if _number(each) in found:
                    found |= _numbers(each.references().toSeq())
        elif node.kind in _BY_REFERENCE:
            found |= _numbers(node.plan.references().toSeq())
        else:
            for child in node.children:
                found |= _numbers(child.plan.output())
    return found


# --- choice ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class SharedParts:
    """Parts of a graph's tables.

    readers: tables that may read parts. entries: tables of the last run. folder: for the parts' empty tables.
    refused: names of parts that cannot be maintained.
    """

    graph: Graph
    readers: Sequence[StoredTable]
    entries: Mapping[TableName, TableEntry]
    spark: SparkSession
    folder: Path
    refused: AbstractSet[TableName] = frozenset()
    parts: list[_Part] = field(default_factory=list[_Part])
    trees: dict[TableName, _Tree] = field(default_factory=dict[TableName, _Tree])
    owners: dict[_Node, _Tree] = field(default_factory=dict[_Node, _Tree])

    def graph_with_parts(self) -> Graph:
        """Return the graph with parts, each before the tables that read it."""
        for table in self.readers:
            root = _Node.of(self._inlined(table.queries[0].plan))
            tree = self.trees[table.name] = _Tree(root, table, frozenset([table.name]))
            self.owners |= dict.fromkeys(root.walk(), tree)
        classes = self._classes()
        by_node = {node: nodes for nodes in classes for node in nodes}
        for nodes in classes:
            live = _live(nodes)
            top = live[0].top_state if live else None
            # Of what some read filtered and others whole, the whole is the part.
            if top is not None and len(_live(by_node.get(top, []))) <= len(live):
                self._choose(live)
        return self._rewritten()

    def _inlined(self, plan: Any) -> Any:
        """Return a plan with common table expressions in their places, unless one is recursive."""
        kinds = {node.kind for node in _Node.of(plan).walk()}
        if "WithCTE" not in kinds or "UnionLoop" in kinds:
            return plan
        rule: Any = java_class(self.spark, "org.apache.spark.sql.catalyst.optimizer.InlineCTE")
        return rule(True, False, False).apply(plan)

    def _classes(self) -> list[list[_Node]]:
        """Return equal subplans, the largest first."""
        found: dict[tuple[str, int, int], list[list[_Node]]] = {}
        for node, tree in self.owners.items():
            if not node.can_be_part:
                continue
            settings = repr(sorted(tree.of.queries[0].query.settings.items()))
            same = found.setdefault((settings, node.size, node.plan.semanticHash()), [])
            equal = next((nodes for nodes in same if nodes[0].plan.sameResult(node.plan)), None)
            if equal is None:
                same.append([node])
            else:
                equal.append(node)
        listed = [nodes for same in found.values() for nodes in same]
        return sorted(listed, key=lambda nodes: -nodes[0].size)

    def _choose(self, nodes: list[_Node]) -> None:
        """Make a part of equal subplans, if it is worth it."""
        is_kept = any(name.database == SHARED for name in self.entries)
        if len(nodes) < 2 and not is_kept:
            return
        named = {self._name(node): node for node in reversed(nodes)}
        known = sorted(name for name in named if name in self.entries)
        name = next(iter(known), min(named))
        if (len(nodes) < 2 and not known) or name in self.refused:
            return
        first = named[name]
        if any(part.name == name for part in self.parts):
            return
        readers = frozenset(name for node in nodes for name in self.owners[node].readers)
        part = _Part(name, _Tree(replace(first), self.owners[first].of, readers))
        for node in nodes:
            node.part = part
            for below in node.walk():
                below.covered = below is node or node is not first
        wanted = {at for node in nodes for at in self._positions_read(node)}
        part.columns = self._columns(first, wanted)
        part.tree.outputs = part.columns.keys()
        for below in first.walk():
            if below is not first:
                self.owners[below] = part.tree
        self.parts.append(part)

    def _positions_read(self, node: _Node) -> list[int]:
        read = _read_numbers(self.owners[node])
        return [at for at, each in enumerate(items(node.plan.output())) if _number(each) in read]

    def _columns(self, node: _Node, wanted: AbstractSet[int]) -> dict[int, str]:
        """Return the columns of a part: those that are read, and those that it has already."""
        names = list[str]()
        for each in items(node.plan.output()):
            name, number = each.name(), 1
            while name.lower() in map(str.lower, names):
                number += 1
                name = f"{each.name()}_{number}"
            names.append(name)
        entry = self.entries.get(node.part.name) if node.part is not None else None
        fields = json.loads(entry.schema)["fields"] if entry is not None else []
        kept = {each["name"] for each in fields}
        # Of rows without columns, none would be told from others.
        chosen = wanted or {0}
        return {at: name for at, name in enumerate(names) if at in chosen or name in kept}

    def _name(self, node: _Node) -> TableName:
        """Return a name that is the same from run to run: of what is computed, whatever reads it."""
        lines = [
            operator_text(each.plan, self.graph.names, self.spark)
            for each in node.walk()
            if each.kind not in _ALIASES
        ]
        state = node.top_state.kind.lower()
        return TableName(SHARED, f"{state}_{digest(chr(10).join(lines))}")

    # --- the graph with parts ---------------------------------------------------------------------

    def _rewritten(self) -> Graph:
        if not self.parts:
            return self.graph
        names = {**self.graph.names, **{part.name: part.name for part in self.parts}}
        made = dict[TableName, StoredTable]()
        for part in reversed(self.parts):  # Smaller ones, which others may read, were chosen last.
            made[part.name] = self._table_of(part, names)
        tables = dict[TableName, StoredTable]()
        for table in self.graph.tables:
            tree = self.trees.get(table.name)
            if tree is not None and any(node.part for node in tree.root.walk()):
                frame = frame_of_plan(self._plan(tree), self.spark)
                query = self._analysed(table.queries[0].query, frame, names)
                table = replace(table, queries=(query,))
                for each in _with_parts_below(table.reads, made):
                    tables.setdefault(each.name, each)
            tables[table.name] = table
        return replace(self.graph, tables=tuple(tables.values()), names=names)

    def _table_of(self, part: _Part, names: Mapping[TableName, TableName]) -> StoredTable:
        """Return a part as a table, with an empty table in the session's catalogue."""
        from pyspark.sql import functions as f

        of = part.tree.of.queries[0].query
        rows = frame_of_plan(self._plan(part.tree), self.spark)
        rows = rows.toDF(*(f"{RESERVED}{at}" for at in range(len(rows.columns))))
        chosen = [f.col(f"{RESERVED}{at}").alias(name) for at, name in part.columns.items()]
        frame = rows.select(*chosen)
        query = QueryDefinition(
            part.name.table, part.name, lambda: frame, of.location, of.text, settings=of.settings
        )
        owners = tuple(sorted({name.owner for name in part.tree.readers}))
        dataset = Dataset(part.name, DatasetKind.SHARED, of.location, shared_by=owners)
        schema = _stored(frame.schema)
        self._create_empty(part.name, schema)
        return StoredTable(dataset, (self._analysed(query, frame, names),), schema)

    def _analysed(
        self, query: QueryDefinition, frame: DataFrame, names: Mapping[TableName, TableName]
    ) -> AnalysedQuery:
        made = AnalysedQuery(query, frame, ())
        return replace(made, leaves=tuple(leaves_of(made.plan, names, self.spark)))

    def _plan(self, tree: _Tree) -> Any:
        """Return the plan of a tree that reads parts where they are."""
        read = _read_numbers(tree)
        return self._copied(tree.root, read, keep=tree.outputs is None)

    def _copied(self, node: _Node, read: AbstractSet[int], *, keep: bool = False) -> Any:
        if node.part is not None:
            output = items(node.plan.output())
            named = [(name, output[at]) for at, name in node.part.columns.items()]
            return relation_of_columns(named, self.spark.table(node.part.name.quoted), self.spark)
        if not any(below.part for below in node.walk()):
            return node.plan
        children = [self._copied(child, read) for child in node.children]
        seq = java_class(self.spark, "org.apache.spark.api.python.PythonUtils").toSeq
        if node.kind == "Project" and not keep:
            wanted = [each for each in items(node.plan.projectList()) if _number(each) in read]
            project = java_class(self.spark, "org.apache.spark.sql.catalyst.plans.logical").Project
            return project(seq(wanted), children[0])
        return node.plan.withNewChildren(seq(children))

    def _create_empty(self, name: TableName, schema: StructType) -> None:
        self.spark.sql(f"CREATE DATABASE IF NOT EXISTS `{name.database}`")
        self.spark.sql(f"DROP TABLE IF EXISTS {name.quoted}")
        folder = subfolder_for(subfolder_for(self.folder, name.database), name.table)
        folder.mkdir(parents=True, exist_ok=True)
        self.spark.catalog.createTable(name.quoted, str(folder), "parquet", schema)

    def close(self) -> None:
        """Remove the parts from the session's catalogue."""
        for part in self.parts:
            self.spark.sql(f"DROP TABLE IF EXISTS {part.name.quoted}")


def _live(nodes: Iterable[_Node]) -> list[_Node]:
    return [node for node in nodes if not node.covered]


def _with_parts_below(
    names: AbstractSet[TableName], parts: Mapping[TableName, StoredTable]
) -> Iterator[StoredTable]:
    """Yield parts by their names, each after those that it reads."""
    for name in sorted(names & parts.keys()):
        yield from _with_parts_below(parts[name].reads, parts)
        yield parts[name]


def _stored(schema: StructType) -> StructType:
    from pyspark.sql.types import StructField, StructType

    return stored_schema(StructType([StructField(each.name, each.dataType) for each in schema.fields]))
