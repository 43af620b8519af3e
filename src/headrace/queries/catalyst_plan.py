"""Logical plans of Catalyst, read from their JSON.

Catalyst writes a tree as a list in prefix order: each element has a class, the number of its children, and
its fields, in which a child is meant by its position. Trees of another kind within a field (expressions of an
operator, the plan of a subquery) are lists of the same form.

A `PlanNode` is a node of the JSON with that of the JVM, which knows what the JSON omits, such as the position
of a refused node in the text of the query. Both are in prefix order: operators with their expressions, and
the plan of a subquery within its expression. The JVM is asked for a node, and those around it, only when
somebody looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any, TypeAlias, TypeVar, cast

from headrace.errors import SourceLocation, Step, UnsupportedQuery
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
        """Return the child that a field refers to."""
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
        """Yield the node and all its descendants."""
        yield self
        for child in self.children:
            yield from child.walk()


def conjuncts(condition: CatalystNode) -> Iterator[CatalystNode]:
    """Yield the conjuncts of a condition."""
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
    """Refusal by a lowering. nodes: the nodes being lowered, innermost first."""

    def __init__(self, error: UnsupportedQuery, node: CatalystNode) -> None:
        super().__init__(str(error))
        self.error = error
        self.nodes = [node]


@contextmanager
def refusals_of(node: CatalystNode) -> Generator[None]:
    """Add a node to the refusals raised while it is being lowered."""
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
    """Return a decorator that registers a lowering in a table under the kinds of its nodes."""

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
        """Return the canonical form of a tree, as nested tuples."""
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
    """Convert a Spark type from its JSON form. Raises `UnsupportedQuery` if it has no counterpart."""
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
    """Convert the schema of a DataFrame from its JSON form. Raises `UnsupportedQuery` like `parse_type`."""
    fields = (SchemaField(f["name"], parse_type(f["type"]), f["nullable"]) for f in given["fields"])
    return computed_schema(tuple(fields))


def has_counterpart(given: Any) -> bool:
    """Return whether a Spark type, in its JSON form, has a counterpart among the column types of flows."""
    try:
        parse_type(given)
    except UnsupportedQuery:
        return False
    return True


def readable_schema(given: Mapping[str, Any]) -> Schema:
    """Convert the schema of an input, without columns of types that have no counterpart.

    A query that reads such a column is refused at that point.
    """
    fields = [each for each in given["fields"] if has_counterpart(each["type"])]
    return parse_schema({"fields": fields or given["fields"]})


Fields: TypeAlias = dict[str, Any]


class UnpairedNode(Exception):
    """The nodes of a JVM plan are in a different order than in its JSON."""


@dataclass(slots=True)
class PlanNode:
    """Node of a plan. fields: its fields in the JSON. above: the enclosing node."""

    fields: Fields
    above: PlanNode | None
    _fetch: Callable[[], Any]
    _tree: Any = None

    @property
    def kind(self) -> str:
        return simple_name(self.fields["class"])

    @property
    def tree(self) -> Any:
        """Corresponding node in the JVM. Raises `UnpairedNode`."""
        if self._tree is None:
            tree = self._fetch()
            if tree.getClass().getName() != self.fields["class"]:
                raise UnpairedNode(f"{tree.nodeName()} is where the JSON has {self.kind}")
            self._tree = tree
        return self._tree

    def outwards(self) -> Iterator[PlanNode]:
        """Yield the node and the nodes enclosing it, innermost first."""
        node: PlanNode | None = self
        while node is not None:
            yield node
            node = node.above


def plan_nodes(listed: list[Fields], plan: Any) -> Iterator[PlanNode]:
    """Yield all nodes in the JSON of a JVM plan.

    Fields that are added to a node before the next one is asked for are read as those of the JSON.
    """
    return _operators(iter(listed), None, lambda: plan)


def _operators(
    nodes: Iterator[Fields], above: PlanNode | None, fetch: Callable[[], Any]
) -> Iterator[PlanNode]:
    operator = PlanNode(next(nodes), above, fetch)
    yield operator
    trees = [tree for value in operator.fields.values() for tree in _expression_trees(value)]
    for at, tree in enumerate(trees):
        yield from _expressions(iter(tree), operator, lambda at=at: _expression(operator, at, len(trees)))
    for at in range(operator.fields["num-children"]):
        yield from _operators(nodes, operator, lambda at=at: _child(operator, at))


def _expressions(nodes: Iterator[Fields], above: PlanNode, fetch: Callable[[], Any]) -> Iterator[PlanNode]:
    expression = PlanNode(next(nodes), above, fetch)
    yield expression
    subquery = expression.fields.get("plan")
    if is_tree(subquery):
        yield from _operators(
            iter(cast("list[Fields]", subquery)), expression, lambda: expression.tree.plan()
        )
    for at in range(expression.fields["num-children"]):
        yield from _expressions(nodes, expression, lambda at=at: _child(expression, at))


def _child(node: PlanNode, at: int) -> Any:
    children = node.tree.children()
    if children.size() != node.fields["num-children"]:
        raise UnpairedNode(f"{node.kind} has {children.size()} children")
    return children.apply(at)


def _expression(operator: PlanNode, at: int, count: int) -> Any:
    found = operator.tree.expressions()
    if found.size() != count:
        raise UnpairedNode(f"{operator.kind} has {found.size()} expressions, and {count} in the JSON")
    return found.apply(at)


def _expression_trees(value: Any) -> Iterator[list[Fields]]:
    """Yield the expressions in a field of an operator, in order."""
    if is_tree(value):
        if ".expressions." in value[0]["class"]:
            yield value
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _expression_trees(item)


_TEXT = "<query>"
"""Name of a text that is in no file."""

_FIX = "use what the SQL reference lists, or let Spark compute it into a table"
"""Way out where nothing better is known."""

_LONGEST = 120
"""Characters shown of a piece of text."""


@dataclass(frozen=True, slots=True)
class QuotedLocation(SourceLocation):
    """Location in a text that may not be in a file. quoted: the text of the line."""

    quoted: str = ""

    @property
    def text(self) -> str:
        return self.quoted.strip()


@dataclass(frozen=True, slots=True)
class QueryText:
    """Text of a query. file: the file that contains it, if any. first_line: its first line there."""

    text: str
    file: str | None = None
    first_line: int = 1

    def bounds(self, node: PlanNode) -> tuple[int, int] | None:
        """Return the range of the text that a node comes from; None if unknown or in the text of a view."""
        try:
            origin = node.tree.origin()
        except UnpairedNode:
            return None
        known = (origin.sqlText(), origin.startIndex(), origin.stopIndex())
        if any(each.isEmpty() for each in known) or origin.sqlText().get() != self.text:
            return None
        return origin.startIndex().get(), origin.stopIndex().get() + 1

    def step(self, first: int, end: int) -> Step:
        """Return an error step that shows the text from `first` to `end`."""
        before = self.text.count("\n", 0, first)
        line = self.text.split("\n")[before]
        location = QuotedLocation(self.file or _TEXT, before + self.first_line, quoted=line)
        piece = shorten(self.text[first:end], _LONGEST, placeholder=" ...")
        return Step(location, "" if piece == location.text else piece)


def located(
    error: UnsupportedQuery, query: QueryText | None, location: SourceLocation, nodes: Iterable[PlanNode]
) -> UnsupportedQuery:
    """Return an error with the location of the query and the smallest known piece of its text.

    location: of the query. nodes: of which the error speaks, the innermost first.
    """
    where = _steps_to(query, location, nodes)
    return UnsupportedQuery(error.what, where=where, why=error.why, fix=error.fix or _FIX, **error.facts)


def _steps_to(query: QueryText | None, location: SourceLocation, nodes: Iterable[PlanNode]) -> list[Step]:
    if query is not None:
        found = next(filter(None, (query.bounds(n) for node in nodes for n in node.outwards())), None)
        if found is not None:
            return [*([] if query.file else [Step(location)]), query.step(*found)]
    return [Step(location)]


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """Optimised plan of a query.

    root: the plan, read from its JSON. listed: the nodes in the JSON. plan: of the JVM. text: if it had one.
    """

    root: CatalystNode
    listed: list[dict[str, Any]]
    plan: Any
    text: QueryText | None = None

    def placed(self, refused: RefusedNode, location: SourceLocation) -> UnsupportedQuery:
        """Return the error of a refusal, located at the refused node."""
        known = {id(node.fields): node for node in plan_nodes(self.listed, self.plan)}
        nodes = [known[id(node.fields)] for node in refused.nodes if id(node.fields) in known]
        return located(refused.error, self.text, location, nodes)
