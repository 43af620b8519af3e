"""Positions of refused nodes in the text of a query.

The JSON of a plan does not tell them, the JVM does: each node of an optimised plan knows the piece of text
that it came from.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from headrace.errors import SourceLocation, Step, UnsupportedQuery
from headrace.queries.catalyst_plan import CatalystNode, RefusedNode
from headrace.queries.plan_nodes import PlanNode, UnpairedNode, plan_nodes

_TEXT = "<query>"
"""Name of a text that is in no file."""

_FIX = "use what the SQL reference lists, or let Spark compute it into a table"
"""Way out where nothing better is known."""

_LONGEST = 120
"""Characters shown of a piece of text."""


@dataclass(frozen=True, slots=True)
class QuotedLocation(SourceLocation):
    """Line of a text that may be in no file. quoted: the line."""

    quoted: str = ""

    @property
    def text(self) -> str:
        return self.quoted.strip()


@dataclass(frozen=True, slots=True)
class QueryText:
    """Text of a query. file: where it stands, if anywhere; first_line: its place there."""

    text: str
    file: str | None = None
    first_line: int = 1

    def bounds(self, node: PlanNode) -> tuple[int, int] | None:
        """Return where in the text a node comes from, if that is known, and not in the text of a view."""
        try:
            origin = node.tree.origin()
        except UnpairedNode:
            return None
        known = (origin.sqlText(), origin.startIndex(), origin.stopIndex())
        if any(each.isEmpty() for each in known) or origin.sqlText().get() != self.text:
            return None
        return origin.startIndex().get(), origin.stopIndex().get() + 1

    def step(self, first: int, end: int) -> Step:
        """Return the step of an error that shows the piece of text from `first` to `end`."""
        before = self.text.count("\n", 0, first)
        line = self.text.split("\n")[before]
        location = QuotedLocation(self.file or _TEXT, before + self.first_line, quoted=line)
        piece = shorten(self.text[first:end], _LONGEST, placeholder=" ...")
        return Step(location, "" if piece == location.text else piece)


def located(
    error: UnsupportedQuery, query: QueryText | None, location: SourceLocation, nodes: Iterable[PlanNode]
) -> UnsupportedQuery:
    """Return an error with the place of the query, and the smallest known piece of its text.

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
