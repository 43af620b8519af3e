"""Copies of Catalyst's plans with other relations or expressions in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.queries.plan_details import items, java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _stays(node: Any) -> Any:
    return None


@dataclass(frozen=True, slots=True)
class PlanCopier:
    """Copies trees of the JVM where something in them is replaced; the rest is shared.

    relations, expressions: return what replaces a leaf of the plan, or an expression; None where it stays.
    """

    session: SparkSession
    relations: Callable[[Any], Any] = _stays
    expressions: Callable[[Any], Any] = _stays

    def plan(self, node: Any) -> Any:
        if not node.children().size():
            replaced = self.relations(node)
            if replaced is not None:
                return replaced
        children = items(node.children())
        copied = list(map(self.plan, children))
        if any(new is not old for new, old in zip(copied, children, strict=True)):
            node = node.withNewChildren(self._seq(copied))
        if self._shares_expressions(node):
            return node
        old = items(node.expressions())
        if all(new is one for new, one in zip(map(self.expression, old), old, strict=True)):
            return node
        given: list[Any] = []
        parameters = node.productIterator()
        while parameters.hasNext():
            given.append(self._parameter(parameters.next()))
        gateway: Any = self.session.sparkContext._gateway
        array = gateway.new_array(java_class(self.session, "java.lang.Object"), len(given))
        for at, parameter in enumerate(given):
            array[at] = parameter
        return node.makeCopy(array)

    def _shares_expressions(self, node: Any) -> bool:
        """Return whether nothing in the expressions of a node is replaced: without a look at each of them."""
        if self.expressions is not _stays:
            return False
        patterns = java_class(self.session, "org.apache.spark.sql.catalyst.trees.TreePattern")
        return not node.containsPattern(patterns.PLAN_EXPRESSION())

    def expression(self, node: Any) -> Any:
        replaced = self.expressions(node)
        if replaced is not None:
            return replaced
        if self._is(node, "org.apache.spark.sql.catalyst.expressions.SubqueryExpression"):
            inner = self.plan(node.plan())
            node = node if inner is node.plan() else node.withNewPlan(inner)
        children = items(node.children())
        copied = list(map(self.expression, children))
        if all(new is old for new, old in zip(copied, children, strict=True)):
            return node
        return node.withNewChildren(self._seq(copied))

    def _parameter(self, value: Any) -> Any:
        """Copy a parameter of a plan's node: an expression, or a collection of some."""
        if self._is(value, "org.apache.spark.sql.catalyst.expressions.Expression"):
            return self.expression(value)
        if self._is(value, "scala.collection.immutable.Seq"):
            return self._seq([self._parameter(each) for each in items(value)])
        if self._is(value, "scala.Some"):
            return java_class(self.session, "scala.Some")(self._parameter(value.get()))
        return value

    def _is(self, value: Any, name: str) -> bool:
        if not hasattr(value, "getClass"):
            return False
        return java_class(self.session, "java.lang.Class").forName(name).isInstance(value)

    def _seq(self, listed: list[Any]) -> Any:
        return java_class(self.session, "org.apache.spark.api.python.PythonUtils").toSeq(listed)
