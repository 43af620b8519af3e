"""Affected keys: the part of an answer that changes with some rows, for queries without an incremental form.

A column of an answer is a key if the rows with one value of it depend on those rows of the inputs only that
have the same value: PARTITION BY of a window, GROUP BY of an aggregate, both sides of an equi-join. The
column is traced from the answer down to each relation, where it is an expression over one row. When rows
change, the query runs on the rows with their keys, and the result replaces the table's rows with these keys.

A relation to which the column cannot be traced is fixed: the key holds as long as its rows stay as they are.

Operators take -0.0 for 0.0, and so do the changes of an input, which are grouped rows; functions tell them
apart. So a function of a float is no key; the float itself is one, since keys are compared as groups are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.pipelines.graph import AnalysedQuery, StoredTable
from headrace.pipelines.leaves import Leaf, UnversionedLeaf, leaf_of
from headrace.pipelines.table_plan import AffectedKeys
from headrace.pipelines.weighted_rows import can_be_grouped
from headrace.queries.plan_details import items, java_class
from headrace.queries.planning import PlanCopier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipelines.definitions import TableName

Traced: TypeAlias = "list[Any | None]"
"""A key over each relation of a plan, from left to right; None for a fixed one."""


@dataclass(frozen=True, slots=True)
class KeyedRelation:
    """An occurrence of a relation in a plan. keys: the key's expressions over it; empty if it is fixed."""

    node: Any
    leaf: Leaf | None
    keys: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class KeyedPlan:
    """A query with the key of its answer.

    plan:      without common table expressions, each of which stands where it is read.
    columns:   those of the answer that are the key.
    relations: of the plan, from left to right.
    """

    plan: Any
    columns: tuple[str, ...]
    relations: tuple[KeyedRelation, ...]

    @property
    def keyed(self) -> frozenset[str]:
        """Inputs, by `exact`, whose rows all have the key."""
        return frozenset(each.leaf.exact for each in self.relations if each.leaf is not None and each.keys)


def keyed_plan(
    table: StoredTable, query: AnalysedQuery, names: Mapping[TableName, TableName], spark: SparkSession
) -> KeyedPlan | None:
    """Return a query with the key of its answer; None without one.

    Of several keys, that to which most inputs can be traced is taken, with all columns that they share.
    """
    if not can_be_grouped(table.schema) or any(isinstance(leaf, UnversionedLeaf) for leaf in query.leaves):
        return None
    if query.plan.subqueriesAll().size():
        return None
    plan = java_class(spark, "org.apache.spark.sql.catalyst.optimizer.InlineCTE")(True, False, False).apply(
        query.plan
    )
    nodes = list(_relations(plan))
    leaves = [leaf_of(node, names, spark) for node in nodes]
    tracer = _Tracer(spark)
    traces = {each.name(): tracer.trace(plan, each) for each in _candidates(table, query, plan)}
    keyed = {name: _keyed(leaves, traced) for name, traced in traces.items()}
    best = max(
        keyed.values(),
        key=lambda found: (len(found), sum(found <= each for each in keyed.values())),
        default=None,
    )
    if not best:
        return None
    columns = tuple(name for name, found in keyed.items() if best <= found)
    return KeyedPlan(
        plan,
        columns,
        tuple(
            KeyedRelation(
                node,
                leaf,
                tuple(traces[name][at] for name in columns)
                if leaf is not None and leaf.exact in best
                else (),
            )
            for at, (node, leaf) in enumerate(zip(nodes, leaves, strict=True))
        ),
    )


def described(found: KeyedPlan, query: AnalysedQuery) -> AffectedKeys:
    """Return the key of a query as its plan names it."""
    fixed = [leaf.key for leaf in query.leaves if leaf.exact not in found.keyed]
    return AffectedKeys(found.columns, tuple(fixed))


def _relations(plan: Any) -> Iterator[Any]:
    children = items(plan.children())
    if not children:
        yield plan
    for child in children:
        yield from _relations(child)


def _candidates(table: StoredTable, query: AnalysedQuery, plan: Any) -> Iterator[Any]:
    """Yield the columns of an answer by whose stored values the rows of the table are found."""
    outputs, fields = items(plan.output()), query.frame.schema.fields
    for attribute, field in zip(outputs, fields, strict=True):
        stored = table.schema[field.name]
        # A folder has no name for an empty text, nor for -0.0.
        renamed = field.name in table.dataset.partitioned_by and attribute.dataType().sql() in (
            "STRING",
            "FLOAT",
            "DOUBLE",
        )
        if stored.dataType == field.dataType and not renamed and _is_comparable(attribute):
            yield attribute


_COMPARABLE = frozenset(
    {
        "BOOLEAN",
        "TINYINT",
        "SMALLINT",
        "INT",
        "BIGINT",
        "FLOAT",
        "DOUBLE",
        "STRING",
        "BINARY",
        "DATE",
        "TIMESTAMP",
    }
    | {"TIMESTAMP_NTZ"}
)


def _is_comparable(expression: Any) -> bool:
    kind: str = expression.dataType().sql()
    return kind in _COMPARABLE or kind.startswith("DECIMAL")


def _keyed(leaves: Sequence[Leaf | None], traced: Traced) -> frozenset[str]:
    """Return the inputs to all of whose relations a column is traced."""
    fixed = {leaf.exact for leaf, key in zip(leaves, traced, strict=True) if leaf is not None and key is None}
    return frozenset(leaf.exact for leaf in leaves if leaf is not None) - fixed


@dataclass(frozen=True, slots=True)
class _Tracer:
    """Trace of an expression from an operator to the relations below."""

    spark: SparkSession

    def trace(self, node: Any, key: Any) -> Traced:
        if not node.children().size():
            return [key if _ids(key) and _is_of(key, items(node.output())) else None]
        rule = _RULES.get(node.nodeName())
        found = rule(self, node, key) if rule is not None else None
        return self.fixed(node) if found is None else found

    def fixed(self, node: Any) -> Traced:
        return [None for _ in _relations(node)]

    def is_over(self, key: Any, node: Any) -> bool:
        return key.deterministic() and _ids(key) <= {each.exprId().id() for each in items(node.output())}

    def through(self, node: Any, key: Any) -> Traced | None:
        """Trace through an operator whose rows are rows of its input, perhaps with more columns."""
        (child,) = items(node.children())
        return self.trace(child, key) if self.is_over(key, child) else None

    def with_replaced(self, key: Any, columns: Mapping[int, Any]) -> Any:
        """Return an expression with other expressions for some of its columns."""

        def other(node: Any) -> Any:
            return columns.get(node.exprId().id()) if node.nodeName() == "AttributeReference" else None

        return PlanCopier(self.spark, expressions=other).expression(key)

    # -- operators --

    def project(self, node: Any, key: Any) -> Traced | None:
        return self.through(node, self.with_replaced(key, _computed(node.projectList())))

    def aggregate(self, node: Any, key: Any) -> Traced | None:
        computed = self.with_replaced(key, _computed(node.aggregateExpressions()))
        return self.through(node, computed) if _is_of(computed, items(node.groupingExpressions())) else None

    def window(self, node: Any, key: Any) -> Traced | None:
        return self.through(node, key) if _is_of(key, items(node.partitionSpec())) else None

    def distinct(self, node: Any, key: Any) -> Traced | None:
        return self.through(node, key) if _is_of(key, items(node.output())) else None

    def deduplicate(self, node: Any, key: Any) -> Traced | None:
        return self.through(node, key) if _is_of(key, items(node.keys())) else None

    def generate(self, node: Any, key: Any) -> Traced | None:
        # A table function of Python may keep what it has seen of other rows.
        if node.generator().getClass().getSimpleName().endswith("PythonUDTF"):
            return None
        return self.through(node, key)

    def expand(self, node: Any, key: Any) -> Traced | None:
        """Trace through the copies that grouping sets make of each row: a key is the same in all."""
        made = [
            self.with_replaced(
                key, dict(zip((each.exprId().id() for each in items(node.output())), items(row)))
            )
            for row in items(node.projections())
        ]
        first, *others = made
        return self.through(node, first) if all(map(first.semanticEquals, others)) else None

    def union(self, node: Any, key: Any) -> Traced | None:
        ids = [each.exprId().id() for each in items(node.output())]
        return self.each_input(node, key, ids)

    def set_operation(self, node: Any, key: Any) -> Traced | None:
        if not _is_of(key, items(node.output())):
            return None
        return self.each_input(node, key, [each.exprId().id() for each in items(node.output())])

    def each_input(self, node: Any, key: Any, ids: Sequence[int]) -> Traced:
        found: Traced = []
        for child in items(node.children()):
            columns = dict(zip(ids, items(child.output()), strict=True))
            found += self.trace(child, self.with_replaced(key, columns))
        return found

    def join(self, node: Any, key: Any) -> Traced | None:
        """Trace through a join by a key on one side, and on the other by what must equal it."""
        kind, left, right = node.joinType().toString(), node.left(), node.right()
        equal = list(_equalities(node.condition().get())) if node.condition().isDefined() else []
        equal += [(two, one) for one, two in equal]
        if kind == "FullOuter":
            return self.full_outer(left, right, key, equal)
        if kind in _OF_LEFT and self.is_over(key, left):
            return self.trace(left, key) + self.other_side(right, key, equal)
        if kind in _OF_RIGHT and self.is_over(key, right):
            return self.other_side(left, key, equal) + self.trace(right, key)
        return None

    def other_side(self, node: Any, key: Any, equal: Iterable[tuple[Any, Any]]) -> Traced:
        for one, two in equal:
            if one.semanticEquals(key) and self.is_over(two, node):
                return self.trace(node, two)
        return self.fixed(node)

    def full_outer(self, left: Any, right: Any, key: Any, equal: Iterable[tuple[Any, Any]]) -> Traced | None:
        """Trace the key of FULL JOIN USING, which is that of either side."""
        if key.getClass().getSimpleName() != "Coalesce" or key.children().size() != 2:
            return None
        first, second = items(key.children())
        for one, two in equal:
            if one.semanticEquals(first) and two.semanticEquals(second):
                if self.is_over(one, left) and self.is_over(two, right):
                    return self.trace(left, one) + self.trace(right, two)
                if self.is_over(two, left) and self.is_over(one, right):
                    return self.trace(left, two) + self.trace(right, one)
        return None


_OF_LEFT = frozenset({"Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti"})
_OF_RIGHT = frozenset({"Inner", "Cross", "RightOuter"})
"""Joins that put no nulls in place of rows of the left, and of the right side."""

_RULES: Mapping[str, Callable[[_Tracer, Any, Any], Traced | None]] = {
    **dict.fromkeys(
        ("Filter", "SubqueryAlias", "View", "ResolvedHint", "Sort", "Repartition", "RepartitionByExpression"),
        _Tracer.through,
    ),
    **dict.fromkeys(("RebalancePartitions", "EventTimeWatermark"), _Tracer.through),
    **dict.fromkeys(("Intersect", "Except", "Intersect All", "Except All"), _Tracer.set_operation),
    "Project": _Tracer.project,
    "Aggregate": _Tracer.aggregate,
    "Window": _Tracer.window,
    "Distinct": _Tracer.distinct,
    "Deduplicate": _Tracer.deduplicate,
    "Generate": _Tracer.generate,
    "Expand": _Tracer.expand,
    "Union": _Tracer.union,
    "Join": _Tracer.join,
}


def _ids(expression: Any) -> set[int]:
    return {each.exprId().id() for each in items(expression.references().toSeq())}


def _computed(columns: Any) -> dict[int, Any]:
    return {each.exprId().id(): each.child() for each in items(columns) if each.nodeName() == "Alias"}


def _is_of(key: Any, grouped: Sequence[Any], *, whole: bool = True) -> bool:
    """Return whether rows of one group have the same key. whole: whether `key` is not part of another."""
    if any(each.semanticEquals(key) for each in grouped):
        return whole or _is_exact(key)
    children = items(key.children())
    if not children:
        return key.nodeName() == "Literal"
    return key.deterministic() and all(_is_of(child, grouped, whole=False) for child in children)


def _is_exact(expression: Any) -> bool:
    """Return whether values of a type are equal only if they are the same."""
    kind: str = expression.dataType().sql()
    return not any(each in kind for each in ("FLOAT", "DOUBLE", "COLLATE", "MAP", "VARIANT"))


def _equalities(condition: Any) -> Iterator[tuple[Any, Any]]:
    kind = condition.nodeName()
    if kind == "And":
        yield from _equalities(condition.left())
        yield from _equalities(condition.right())
    elif kind in ("EqualTo", "EqualNullSafe"):
        yield condition.left(), condition.right()
