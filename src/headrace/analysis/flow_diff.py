"""Difference between two versions of a flow, in the user's words."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.analysis.canonical_data import is_callable, without_display_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Description: TypeAlias = "dict[str, Any]"
"""Description of a node, as made by `headrace.analysis.fingerprints.describe_nodes`."""


def render_flow_diff(old: Sequence[Description], new: Sequence[Description]) -> str:
    """Render one line per operator added, removed or changed; empty for equal fingerprints."""
    if [fingerprinted_part(node) for node in old] == [fingerprinted_part(node) for node in new]:
        return ""
    pairs = _pairs(old, new)
    now = dict(pairs)
    lines = [f"removed  {label_from_description(old[i])}" for i in range(len(old)) if i not in now]
    then = {b: a for a, b in pairs}
    for at, node in enumerate(new):
        if at not in then:
            lines.append(f"added    {label_from_description(node)}")
        else:
            lines += [
                f"changed  {label_from_description(node)}: {c}" for c in _changes(old, new, then[at], at, now)
            ]
    if not lines and [i for i, _ in pairs] != [j for _, j in pairs]:
        lines = ["the same operators are written in another order"]
    return "\n".join(lines)


def fingerprinted_part(node: Description) -> list[Any]:
    """Return the part of a description that enters the fingerprint."""
    return without_display_parts([node[key] for key in ("kind", "parameters", "schema", "inputs")])


def _pairs(old: Sequence[Description], new: Sequence[Description]) -> list[tuple[int, int]]:
    """Match operators one to one: by name, else by parameters, else by kind."""
    pairs: list[tuple[int, int]] = []
    for key in (_named, _whole, _kind):
        left = _keyed(old, key, {a for a, _ in pairs})
        right = _keyed(new, key, {b for _, b in pairs})
        matcher = SequenceMatcher(a=[k for k, _ in left], b=[k for k, _ in right], autojunk=False)
        for block in matcher.get_matching_blocks():
            pairs += [(left[block.a + at][1], right[block.b + at][1]) for at in range(block.size)]
    return pairs


def _keyed(nodes: Sequence[Description], key: Any, taken: set[int]) -> list[tuple[tuple[str, ...], int]]:
    keyed = [(key(node), at) for at, node in enumerate(nodes) if at not in taken]
    return [(k, at) for k, at in keyed if k is not None]


def _named(node: Description) -> tuple[str, ...] | None:
    return (node["kind"], node["name"]) if node["name"] else None


def _whole(node: Description) -> tuple[str, ...]:
    return (node["kind"], repr(without_display_parts(node["parameters"])))


def _kind(node: Description) -> tuple[str, ...]:
    return (node["kind"],)


def _changes(
    old: Sequence[Description], new: Sequence[Description], before: int, after: int, now: dict[int, int]
) -> Iterator[str]:
    was, is_ = old[before], new[after]
    other_columns = was["schema"] != is_["schema"]
    if other_columns:
        yield from _changed_columns(was["schema"], is_["schema"])
    if without_display_parts(was["parameters"]) != without_display_parts(is_["parameters"]):
        if was["text"] != is_["text"]:
            yield f"was {was['text'] or 'without parameters'}, is {is_['text'] or 'without'}"
        elif not other_columns:
            yield from _changed_parameters(was["parameters"], is_["parameters"])
    if [now.get(i) for i in was["inputs"]] != is_["inputs"]:
        yield f"read {_labels(old, was['inputs'])}, reads {_labels(new, is_['inputs'])}"


def _changed_parameters(was: Description, is_: Description) -> Iterator[str]:
    for name, value in is_.items():
        if without_display_parts(was.get(name)) == without_display_parts(value):
            continue
        if is_callable(value) and is_callable(was.get(name)):
            before, after = was[name]["python"], value["python"]
            reason = "was edited" if before == after else f"is compiled by Python {after}, was by {before}"
            yield f"{value['name']} {reason}"
        else:
            yield f"{name} is another"


def _changed_columns(was: Description, is_: Description) -> Iterator[str]:
    before = {c[0]: _type(c) for c in was["columns"]}
    after = {c[0]: _type(c) for c in is_["columns"]}
    lines = [f"column {n} is gone" for n in before if n not in after]
    lines += [f"column {n} is new" for n in after if n not in before]
    both = [n for n in after if n in before]
    lines += [f"column {n} is {after[n]}, was {before[n]}" for n in both if before[n] != after[n]]
    yield from lines or ["its columns are in another order"]


def _type(column: list[Any]) -> str:
    return f"{column[1]}{'?' if column[2] else ''}"


def _labels(nodes: Sequence[Description], at: Sequence[int]) -> str:
    return " and ".join(label_from_description(nodes[i]) for i in at)


def label_from_description(node: Description) -> str:
    """Return the label of a node by kind, name and source location, as far as known."""
    text = f"{node['kind']} {node['name']!r}" if node["name"] else f"{node['kind']} ({node['text']})"
    label = text if node["name"] or node["text"] else node["kind"]
    return f"{label} at {node['place']}" if node.get("place") else label
