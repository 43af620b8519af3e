"""Positions in the text of a query: where what a refusal speaks of was written.

The JSON of a plan does not tell them, the JVM does: each node of an optimised plan knows the piece of text
that it came from.
"""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from typing import Any

from penstock.errors import SourceLocation, Step, UnsupportedQuery
from penstock.queries.catalyst_plan import CatalystNode, RefusedNode
from penstock.queries.plan_pairs import paired_nodes

_TEXT = "<query>"
"""Name of a text that is in no file."""


@dataclass(frozen=True, slots=True)
class QueryText:
    """Text of a query. file: the file that it is all of, if any."""

    text: str
    file: str | None = None

    def step(self, first: int, end: int) -> Step:
        """Return the step of an error that shows the piece of text from `first` to `end`."""
        lines = self.text.splitlines(keepends=True)
        if self.file is None:
            # Python shows lines of what is in no file from this cache, as those of an interactive session.
            linecache.cache[_TEXT] = len(self.text), None, lines, _TEXT
        line = self.text.count("\n", 0, first) + 1
        piece = " ".join(self.text[first:end].split())
        shown = lines[line - 1].strip()
        return Step(SourceLocation(self.file or _TEXT, line), "" if piece == shown else piece)


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
        """Return the error of a refusal, with the place of the smallest piece of text around it."""
        steps = [Step(location)]
        if self.text is not None:
            found = next(filter(None, map(self._origin, refused.nodes)), None)
            if found is not None:
                steps = [] if self.text.file else steps
                steps.append(self.text.step(*found))
        error = refused.error
        return UnsupportedQuery(error.what, where=steps, why=error.why, fix=error.fix, **error.facts)

    def _origin(self, node: CatalystNode) -> tuple[int, int] | None:
        """Return the bounds of the text of a node, or of the smallest around it."""
        pairs = filter(None, paired_nodes(self.listed, self.plan))
        paths = (path for fields, path in pairs if fields is node.fields)
        found = (text_bounds(tree) for path in paths for tree in reversed(path))
        return next(filter(None, found), None)


def text_bounds(tree: Any) -> tuple[int, int] | None:
    """Return the bounds of the text that a node of the JVM came from, if it knows."""
    origin = tree.origin()
    if origin.startIndex().isEmpty() or origin.stopIndex().isEmpty():
        return None
    return origin.startIndex().get(), origin.stopIndex().get() + 1
