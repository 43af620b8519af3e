"""Compatibility of a checkpoint's state with a changed flow.

An operator's state keeps its name for the lifetime of the checkpoint, even if the operator moves within the
flow. An operator takes over the state of the operator with the same identity in the old flow. A new operator
with state has missed the earlier input of its sources, and is rejected unless these sources are new, too. A
flow that uses none of the existing state does not count as a version of the checkpoint's flow.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.analysis.fingerprints import (
    Description,
    is_callable,
    label_from_description,
    node_identities,
    render_flow_diff,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Kept = list[list[str]]
"""State of an operator: name and format of each slot; of an arrangement also its columns."""


@dataclass(frozen=True, slots=True)
class ResumedDescription:
    """Descriptions of a resumed flow with the names of its state.

    description: description of the new flow.
    then: new nodes, each with the old node that it continues.
    missing: reasons why the existing state is insufficient, a line each; empty if it suffices.
    lacking: nodes of the new flow that lack their state.
    """

    description: list[Description]
    then: dict[int, int]
    missing: tuple[str, ...] = ()
    lacking: tuple[int, ...] = ()


def add_kept_state(description: Sequence[Description], keeps: Mapping[int, Kept]) -> list[Description]:
    """Add the kept state of each node to a description. Names are assigned later."""
    return [{**node, "keeps": keeps.get(at, [])} for at, node in enumerate(description)]


def name_new_state(description: Sequence[Description]) -> list[Description]:
    """Name the state of a new flow, described by `add_kept_state`."""
    return carry_over_state_names([], description, 0).description


def carry_over_state_names(
    old: Sequence[Description], new: Sequence[Description], tick: int
) -> ResumedDescription:
    """Carry the names of state over to a new flow. State that begins after `tick` gets new names.

    old: of the flow that was run until `tick`, with names. new: made by `add_kept_state`.
    """
    known, ids = node_identities(old), node_identities(new)
    then = _matched(old, new, known, ids)
    names = _Names({node["state"] for node in old if node["state"]}, tick)
    sources_then = {node["name"]: node for node in old if not node["inputs"]}
    described: list[Description] = []
    missing: list[str] = []
    lacking: list[int] = []
    for at, node in enumerate(new):
        before = old[then[at]] if at in then else None
        if before is None and not node["inputs"]:
            # The position of a source is stored by its name, even if its rows have changed.
            before = sources_then.get(node["name"])
        name = None
        if node["keeps"]:
            if before is not None and before["keeps"] == node["keeps"]:
                name = before["state"]
            else:
                name = names.fresh(ids[at])
                missed = [s for s in _sources(new, at) if s in sources_then]
                if missed:
                    missing.append(_missed(node, before, missed, tick))
                    lacking.append(at)
        described.append({**node, "state": name})
    taken_over = {node["state"] for node in described}
    lost = [node for node in old if node["state"] and node["inputs"]]
    if lost and not missing and not any(node["state"] in taken_over for node in lost):
        missing = [f"state    {label_from_description(node)}: it would be used by nobody" for node in lost]
    return ResumedDescription(described, then, tuple(missing), tuple(lacking))


def differing_python_versions(
    old: Sequence[Description], new: Sequence[Description]
) -> tuple[str, str] | None:
    """Return the Python versions that compiled the functions of the old and the new flow, if they differ."""
    then, now = _python(old), _python(new)
    return (then, now) if then and now and then != now else None


def _python(description: Sequence[Description]) -> str | None:
    parts = (part for node in description for part in node["parameters"].values())
    return next((part["python"] for part in parts if is_callable(part)), None)


def describe_changes(old: Sequence[Description], new: Sequence[Description], missing: Sequence[str]) -> str:
    """Render all changes by operator, and the state that is missing because of them."""
    return "\n".join([*filter(None, [render_flow_diff(old, new)]), *missing])


def _matched(
    old: Sequence[Description], new: Sequence[Description], known: Sequence[str], ids: Sequence[str]
) -> dict[int, int]:
    """Match each new node to an old one of the same identity, preferably of the same name."""
    waiting: defaultdict[str, list[int]] = defaultdict(list)
    for at, identity in enumerate(known):
        waiting[identity].append(at)
    then: dict[int, int] = {}
    for same_name in (True, False):
        for at, identity in enumerate(ids):
            if at in then:
                continue
            for candidate in waiting[identity]:
                if not same_name or old[candidate]["name"] == new[at]["name"]:
                    then[at] = candidate
                    waiting[identity].remove(candidate)
                    break
    return then


class _Names:
    """Generator of state names that were never used, so that leftover state is not taken for new state."""

    def __init__(self, taken: set[str], tick: int) -> None:
        self._taken = taken
        self._since = f"-{tick}" if tick else ""

    def fresh(self, identity: str) -> str:
        name, number = f"{identity[:8]}{self._since}", 1
        while name in self._taken:
            number += 1
            name = f"{identity[:8]}{self._since}-no{number}"
        self._taken.add(name)
        return name


def _sources(description: Sequence[Description], at: int) -> Iterator[str]:
    """Yield the names of the sources that a node reads, directly or indirectly."""
    seen = {at}
    waiting = [at]
    while waiting:
        node = description[waiting.pop()]
        if not node["inputs"] and node["name"] is not None:
            yield node["name"]
        fresh = [i for i in node["inputs"] if i not in seen]
        seen.update(fresh)
        waiting.extend(fresh)


def _missed(node: Description, before: Description | None, sources: Sequence[str], tick: int) -> str:
    read = " and ".join(sorted(map(repr, sources)))
    what = f"state    {label_from_description(node)}: its {' and '.join(slot for slot, *_ in node['keeps'])}"
    if before is not None and before["keeps"]:
        return f"{what} would be kept in another form than before"
    return f"{what} would lack what tick{f's 1 to {tick}' if tick > 1 else ' 1'} read of {read}"
