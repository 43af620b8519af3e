"""Compatibility of a flow with a checkpoint to resume from, and the layout of its state.

Both engines use this module. It compares what operators are and read
(`headrace.analysis.state_compatibility`), so stateless parts, names, and the order of definitions do not
matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.analysis.fingerprints import (
    add_live_columns,
    describe_nodes,
    fingerprint,
    node_identities,
    to_canonical_data,
)
from headrace.analysis.state_compatibility import (
    Kept,
    ResumedDescription,
    add_kept_state,
    carry_over_state_names,
    describe_changes,
    differing_python_versions,
    name_new_state,
)
from headrace.engine.endpoints import as_sink
from headrace.errors import FlowChanged
from headrace.io import Call, Memory, Print, SinkTarget
from headrace.state.manifest import Manifest, check_shards, flow_changed

if TYPE_CHECKING:
    from headrace.graph.node import FlowGraph
    from headrace.lowering.slot import Slot
    from headrace.state.arranged_store import ArrangedForm

Layout: TypeAlias = Callable[[Mapping[int, str]], dict[str, Any]]
"""Function that maps each node's state name to its location, as JSON with the keys `on` and `places`."""

IN_ONE_PROCESS = "one process"


@dataclass(frozen=True, slots=True)
class ResumeBinding:
    """Properties of a run that must agree with its checkpoint; a `headrace.state.manifest.Bind`.

    keeps:  slots of each node. layout: location of the state, which must not change for existing state.
    shards: number of shards; None keeps the checkpoint's.
    """

    graph: FlowGraph
    keeps: Mapping[int, Kept]
    layout: Layout
    sinks: Mapping[str, Any]
    shards: int | None = 1

    def __call__(self, folder: Path, last: Manifest | None, tick: int) -> Manifest:
        here = self._description()
        carried = None
        if last is None:
            described = name_new_state(here)
        else:
            # A manifest without them was written when all columns counted.
            counts_all = any("live" not in node for node in last.description)
            compared = [without_live_columns(node) for node in here] if counts_all else here
            carried = carry_over_state_names(last.description, compared, tick)
            # Another engine keeps state in another form: that is the reason to give, and not this.
            check_engine(folder, last, self.layout(read_state_names(carried.description)))
            if carried.missing:
                raise self._changed(folder, last, here, carried)
            if self.shards is not None:
                check_shards(folder, last, self.shards)
            states = (node["state"] for node in carried.description)
            described = [{**node, "state": state} for node, state in zip(here, states, strict=True)]
        manifest = Manifest(
            fingerprint(self.graph),
            described,
            self.shards or (1 if last is None else last.shards),
            self.layout(read_state_names(described)),
            accumulating_sinks(self.graph, described, self.sinks),
        )
        if last is not None and carried is not None:
            check_layout(folder, last, manifest)
            sinks = accumulating_sinks(self.graph, carried.description, self.sinks)
            check_sinks(folder, last, sinks, tick)
        return manifest

    def _description(self) -> list[dict[str, Any]]:
        described = add_kept_state(add_live_columns(describe_nodes(self.graph), self.graph), self.keeps)
        places = (str(node.location) for node in self.graph.nodes)
        return [{**node, "place": location} for node, location in zip(described, places, strict=True)]

    def _changed(
        self, folder: Path, last: Manifest, here: list[dict[str, Any]], carried: ResumedDescription
    ) -> FlowChanged:
        difference = describe_changes(last.description, here, carried.missing)
        places = [self.graph.nodes[at].location for at in carried.lacking]
        versions = differing_python_versions(last.description, here)
        if versions is None:
            return flow_changed(folder, f"What changed:\n{difference}", difference, places)
        then, now = versions
        return FlowChanged(
            f"the checkpoint {folder} was written with Python {then}, and this is Python {now}",
            where=places,
            why=f"Functions are compared as what Python made of them, and that differs:\n{difference}",
            fix=f"run it with Python {then}, or give it an empty checkpoint folder",
            checkpoint=str(folder),
            diff=difference,
        )


def without_live_columns(node: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key not in ("live", "narrows")}


def kept_by_node(slots: Iterable[Slot], arranged: Mapping[str, ArrangedForm]) -> dict[int, Kept]:
    """Collect each node's state from a program's slots. arranged: forms of arranged slots, by name."""
    kept: defaultdict[int, Kept] = defaultdict(list)
    for slot in slots:
        node, _, what = slot.name.partition(".")
        columns = [arranged[slot.name].describe()] if slot.name in arranged else []
        kept[int(node)].append([what, slot.thaw.__qualname__, *columns])
    return {node: sorted(found) for node, found in kept.items()}


def in_one_process(names: Mapping[int, str]) -> dict[str, Any]:
    """Return the layout of a single-process run, with all state in one shard."""
    return {"on": IN_ONE_PROCESS, "places": dict.fromkeys(names.values(), 0)}


def read_state_names(description: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """Read each node's state name from a manifest's description."""
    return {at: node["state"] for at, node in enumerate(description) if node["state"] is not None}


# --- where state lies ------------------------------------------------------------------------


def check_engine(folder: Path, last: Manifest, layout: Mapping[str, Any]) -> None:
    """Raise `FlowChanged` for a checkpoint of a different engine."""
    was_on, is_on = last.layout["on"], layout["on"]
    if was_on != is_on:
        raise FlowChanged(
            f"the checkpoint {folder} is of a run on {was_on}, and this one is on {is_on}",
            why="each divides its state in its own way.",
            fix="go on where it was begun, or start from an empty checkpoint",
            checkpoint=str(folder),
            diff="engine",
        )


def check_layout(folder: Path, last: Manifest, now: Manifest) -> None:
    """Raise `FlowChanged` if existing state would be looked up in a different location."""
    then: dict[str, Any] = last.layout["places"]
    places: dict[str, Any] = now.layout["places"]
    moved = [name for name, location in places.items() if then.get(name, location) != location]
    if moved:
        label = {node["state"]: node["name"] or node["kind"] for node in now.description}
        raise FlowChanged(
            f"the checkpoint {folder} keeps its state in other places than this run would",
            why="\n".join(
                f"state of {label.get(name, name)}: {then[name]} -> {places[name]}" for name in sorted(moved)
            ),
            fix="go on with the version of Headrace that wrote it, or start from an empty checkpoint",
            checkpoint=str(folder),
            diff="state layout",
        )


# --- sinks -----------------------------------------------------------------------------------


def accumulating_sinks(
    graph: FlowGraph, description: list[dict[str, Any]], sinks: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the sinks that accumulate their input: name, target, and inputs."""
    known = node_identities(description)
    found: list[dict[str, Any]] = []
    for name, sink in sinks.items():
        target = as_sink(sink)
        if isinstance(target, SinkTarget) and not isinstance(target, Call | Memory | Print):
            read = graph.nodes[graph.sinks[name]].inputs[0]
            found.append({"name": name, "target": to_canonical_data(target), "reads": known[read]})
    return found


def check_sinks(folder: Path, last: Manifest, sinks: Iterable[Mapping[str, Any]], tick: int) -> None:
    """Raise `FlowChanged` for a sink whose content would miss earlier changes."""
    for sink in sinks:
        # The place tells what is in it; a place that is new may be the old one under another name.
        same = [s for s in last.sinks if s["target"] == sink["target"]] or [
            s for s in last.sinks if s["name"] == sink["name"]
        ]
        same.sort(key=lambda s: s["name"] != sink["name"])
        if not same:
            what = f"has missed {tick} tick{'s' * (tick > 1)} of this checkpoint"
            why = "it would hold the changes from now on, and not what they change."
        elif same[0]["reads"] != sink["reads"]:
            what = "reads something other than before"
            why = "what it holds would never be taken back by the changes that come from now on."
        else:
            continue
        raise FlowChanged(
            f"sink {sink['name']!r} {what}",
            why=why,
            fix="run with an empty checkpoint, or leave the sink out; a function or a list,\n"
            "which keep nothing from run to run, may be given for it",
            sink=sink["name"],
            checkpoint=str(folder),
            diff="sinks",
        )
