"""What an operator is, wherever it stands: what it does, and what it reads, and so on up to the sources.

Two operators with one identity have seen the same rows and done the same with
them, so state of the one is state of the other. Names, order of writing, and what
reads them do not count.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.analysis.canonical import essential
from penstock.graph.order import components, successors

if TYPE_CHECKING:
    from collections.abc import Sequence

Description: TypeAlias = "dict[str, Any]"
"""Of one node, as `penstock.analysis.fingerprint.describe` makes it."""


def identities(description: Sequence[Description]) -> list[str]:
    """The identity of each node, in order."""
    own = [_hash(_alone(node)) for node in description]
    found: list[str] = [""] * len(own)
    reads = [(source, at) for at, node in enumerate(description) for source in node["inputs"]]
    # In reverse topological order of what is read by what: readers come first.
    for group in reversed(components(successors(len(own), reads))):
        inside = set(group)
        now = {at: own[at] for at in group}
        # In a loop what is read depends on the reader: as many rounds as it has members tell them apart.
        for _ in group:
            now = {
                at: _hash([own[at], [now[i] if i in inside else found[i] for i in description[at]["inputs"]]])
                for at in group
            }
        for at, identity in now.items():
            found[at] = identity
    return found


def _alone(node: Description) -> list[Any]:
    return essential([node[key] for key in ("kind", "parameters", "schema")])


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
