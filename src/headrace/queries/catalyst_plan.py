"""Logical plans of Catalyst, read from their JSON.

Catalyst writes a tree as a list in prefix order: each element has a class, the number of its children, and
its fields, in which a child is meant by its position. Trees of another kind within a field (expressions of an
operator, the plan of a subquery) are lists of the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from headrace.errors import UnsupportedQuery
from headrace.expr.row_classes import computed_schema
from headrace.expr.types import (
    BOOL,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    INTERVALS,
    STR,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    ListType,
    MapType,
    Schema,
    StructType,
)
from headrace.expr.types import Field as SchemaField

T = TypeVar("T")

KIND = "kind"
"""Field of a node that is of another kind than its class says (see `headrace.queries.plan_details`)."""

TABLE = "input table"
"""Field of a relation with the name of the table that it is (see `headrace.queries.planning`)."""

ROWS = "constant rows"
"""Field of a `LocalRelation` with its internal rows."""

FUNCTION = "pickled function"
"""Field of a Python UDF."""

PIVOT = "pivot values"
"""Field of a `PivotFirst`: the values with a column, in order."""

CONSTANT = "internal value"
"""Field of a `Literal` of a nested type, or of bytes."""

RANGE = "numbers"
"""Field of a `Range`: its first number, one after the last, and the step."""

PATTERNS = "patterns"
"""Field of `LikeAny` and its like: constant patterns, of which some may be null."""

OPTIONS = "options by name"
"""Field of a `JsonToStructs` or `StructsToCsv`."""

INPUT = "type of the input"
"""Field of a function whose meaning depends on the type of its first argument, before a cast to text."""

UNREAD = "unread columns"
"""Field of a `Generate`: positions of the columns that it drops."""

ESCAPE = "escape character"
"""Field of a `Like`."""

DELAY = "delay in ms"
"""Field of an `EventTimeWatermark`."""

SESSION = "session window"
"""Field of the attribute that is the key of session windows."""


@dataclass(frozen=True, slots=True)
class CatalystNode:
    """Operator or expression of a plan. kind: simple name of its class."""

    kind: str
    fields: Mapping[str, Any]
    children: tuple[CatalystNode, ...]

    def child(self, name: str) -> CatalystNode:
        """Return the child that a field means."""
        return self.children[self.fields[name]]

    def trees(self, name: str) -> tuple[CatalystNode, ...]:
        """Return the trees listed in a field."""
        return tuple(map(parse_tree, self.fields[name]))

    def tree(self, name: str) -> CatalystNode | None:
        """Return the tree in a field, if there is one."""
        return parse_tree(self.fields[name]) if self.fields.get(name) else None

    def setting(self, name: str) -> str:
        """Return the simple name of the Scala object in a field."""
        return simple_name(self.fields[name]["object"])

    @property
    def expr_id(self) -> int:
        return self.fields["exprId"]["id"]

    def walk(self) -> Iterator[CatalystNode]:
        """Yield the node and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


def conjuncts(condition: CatalystNode) -> Iterator[CatalystNode]:
    """Yield the conditions that are all to hold."""
    if condition.kind == "And":
        for child in condition.children:
            yield from conjuncts(child)
    else:
        yield condition


def attributes_of(expr: CatalystNode) -> set[int]:
    """Return the ids of the attributes in an expression."""
    return {node.expr_id for node in expr.walk() if node.kind == "AttributeReference"}


def reads_table(plan: CatalystNode, name: str) -> bool:
    """Return whether a plan, or a subquery in it, reads a table."""
    return any(_holds(node.fields, name) for node in plan.walk())


def _holds(value: Any, name: str) -> bool:
    if isinstance(value, Mapping):
        named = cast("Mapping[str, Any]", value)
        return named.get(TABLE) == name or any(_holds(each, name) for each in named.values())
    return isinstance(value, list) and any(_holds(each, name) for each in cast("list[Any]", value))


class RefusedNode(Exception):
    """Refusal by a lowering. nodes: those that were being lowered, from the innermost on."""

    def __init__(self, error: UnsupportedQuery, node: CatalystNode) -> None:
        super().__init__(str(error))
        self.error = error
        self.nodes = [node]


@contextmanager
def refusals_of(node: CatalystNode) -> Generator[None]:
    """Note in refusals that a node is being lowered."""
    try:
        yield
    except UnsupportedQuery as error:
        raise RefusedNode(error, node) from None
    except RefusedNode as refused:
        refused.nodes.append(node)
        raise


def simple_name(scala_class: str) -> str:
    return scala_class.rstrip("$").rpartition(".")[2].rpartition("$")[2]


def parse_tree(listed: list[dict[str, Any]]) -> CatalystNode:
    """Parse a list in prefix order."""
    nodes = iter(listed)

    def node() -> CatalystNode:
        fields = next(nodes)
        children = tuple(node() for _ in range(fields["num-children"]))
        return CatalystNode(fields.get(KIND) or simple_name(fields["class"]), fields, children)

    return node()


def is_tree(value: Any) -> bool:
    """Return whether a field holds a tree."""
    if not isinstance(value, list) or not value:
        return False
    first = cast("list[Any]", value)[0]
    return isinstance(first, dict) and "num-children" in first


def registrar(table: dict[str, T]) -> Callable[..., Callable[[T], T]]:
    """Return the decorator that registers a lowering in a table under the kinds of its nodes."""

    def lowers(*kinds: str) -> Callable[[T], T]:
        def register(lowering: T) -> T:
            table.update(dict.fromkeys(kinds, lowering))
            return lowering

        return register

    return lowers


# -- equality ----------------------------------------------------------------------------------

_NOT_COMPARED = frozenset(
    {"class", "num-children", "exprId", "resultId", "name", "qualifier", "nullable"}
) | {
    *("metadata", "explicitMetadata", "nonInheritableMetadataKeys", "hint", "isStreaming", "nodeId"),
    *("sameOrderExpressions", "outputOrdering", "outputPartitioning"),
}


@dataclass(slots=True)
class Canonical:
    """Canonical forms of trees, equal for trees that differ only in names and ids of attributes.

    ids: numbers of attributes, by id, in the order of first use; attributes of an outer scope keep their id.
    variables: numbers of the variables of functions within expressions, by id.
    """

    ids: dict[int, int] = field(default_factory=dict[int, int])
    renumbers: bool = True
    variables: dict[int, int] = field(default_factory=dict[int, int])

    def of(self, node: CatalystNode) -> Any:
        """Return the form of a tree: nested tuples."""
        if TABLE in node.fields:
            return node.fields[TABLE], tuple(self._id(a.expr_id) for a in node.trees("output"))
        for variable in node.children[1:] if node.kind == "LambdaFunction" else ():
            self.variables[variable.expr_id] = len(self.variables)
        children = tuple(map(self.of, node.children))
        own = tuple(
            (name, self._value(value)) for name, value in node.fields.items() if name not in _NOT_COMPARED
        )
        exprs = self._id(node.expr_id) if "exprId" in node.fields else None
        return node.kind, exprs, own, children

    def _id(self, expr_id: int) -> int:
        if expr_id in self.variables:
            return ~self.variables[expr_id]
        return self.ids.setdefault(expr_id, len(self.ids)) if self.renumbers else expr_id

    def _value(self, value: Any) -> Any:
        if isinstance(value, list):
            items = cast("list[Any]", value)
            if is_tree(items):
                return self.of(parse_tree(items))
            return tuple(map(self._value, items))
        if isinstance(value, dict):
            named = cast("dict[str, Any]", value)
            return tuple((k, self._value(v)) for k, v in named.items() if k != "jvmId")
        return value


def same_expression(one: CatalystNode, other: CatalystNode) -> bool:
    """Return whether two expressions of one scope are equal."""
    return Canonical(renumbers=False).of(one) == Canonical(renumbers=False).of(other)


# -- types -----------------------------------------------------------------------------------

_TYPES: dict[str, DataType] = {
    "boolean": BOOL,
    "byte": INT8,
    "short": INT16,
    "integer": INT32,
    "long": INT64,
    "float": FLOAT32,
    "double": FLOAT64,
    "string": STR,
    "void": STR,
    "binary": BYTES,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    **{str(each): each for each in INTERVALS},
}


def parse_type(given: Any) -> DataType:
    """Convert a type of Spark, in its JSON form. Raises `UnsupportedQuery` if it has no counterpart."""
    if isinstance(given, str):
        if given in _TYPES:
            return _TYPES[given]
        if given.startswith("decimal("):
            precision, scale = given[8:-1].split(",")
            return DecimalType(int(precision), int(scale))
    elif isinstance(given, dict):
        named = cast("dict[str, Any]", given)
        if named.get("type") == "array":
            return ListType(parse_type(named["elementType"]), named["containsNull"])
        if named.get("type") == "map":
            key, value = parse_type(named["keyType"]), parse_type(named["valueType"])
            return MapType(key, value, named["valueContainsNull"])
        if named.get("type") == "struct":
            fields = (SchemaField(f["name"], parse_type(f["type"]), f["nullable"]) for f in named["fields"])
            return StructType(tuple(fields))
    raise UnsupportedQuery(
        f"values of Spark's type {given if isinstance(given, str) else given.get('type')}",
        fix="cast them in the query, to bigint, double, decimal or string",
    )


def parse_schema(given: Mapping[str, Any]) -> Schema:
    """Convert the schema of a DataFrame, in its JSON form. Raises `UnsupportedQuery` like `parse_type`."""
    fields = (SchemaField(f["name"], parse_type(f["type"]), f["nullable"]) for f in given["fields"])
    return computed_schema(tuple(fields))


def has_counterpart(given: Any) -> bool:
    """Return whether a type of Spark, in its JSON form, is one of columns of a flow."""
    try:
        parse_type(given)
    except UnsupportedQuery:
        return False
    return True


def readable_schema(given: Mapping[str, Any]) -> Schema:
    """Convert the schema of an input, without columns of types that have no counterpart.

    A query that reads one of these is refused where it does so.
    """
    fields = [each for each in given["fields"] if has_counterpart(each["type"])]
    return parse_schema({"fields": fields or given["fields"]})
