"""Manifests: the flow and layout under which a checkpoint's ticks are run.

Each commit names the manifest of its tick. So a change of the flow, or of the number of shards, takes effect
with the first commit made under it, and a rewind to an earlier tick also restores the earlier manifest.
"""

from __future__ import annotations

import difflib
import json
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

from xxhash import xxh3_128_hexdigest

from headrace.errors import FlowChanged, SourceLocation
from headrace.state.chain import Chain
from headrace.state.checkpoint_files import FileRef, check_file, damaged, sync
from headrace.state.commit import read_checked, write_checked
from headrace.state.described_rows import DescribedRows


@dataclass(frozen=True, slots=True)
class Manifest:
    """Flow and layout of a checkpoint. shards: number of state shards.

    fingerprint: of the flow. description: of it, with the names of its state.
    layout:      where state lies. sinks: what output is written. All three as JSON.
    id:          of the checkpoint, for ever; given when the first one is written.
    """

    fingerprint: str
    description: Any
    shards: int = 1
    layout: Any = None
    sinks: Any = None
    id: str = ""

    def of(self, checkpoint: str) -> Manifest:
        """Return the manifest with the given checkpoint id, or a new id if it is empty."""
        return replace(self, id=checkpoint or uuid.uuid4().hex)

    def write(self, folder: Path, *, durable: bool = True) -> FileRef:
        """Write to a file below `folder`, named after its content hash."""
        body = {
            "id": self.id, "shards": self.shards, "fingerprint": self.fingerprint,
            "description": self.description, "layout": self.layout, "sinks": self.sinks,
        }  # fmt: skip
        place = folder / "manifest"
        place.mkdir(exist_ok=True)
        aside = place / f"{os.getpid()}.part"
        write_checked(aside, body, durable=durable)
        content = aside.read_bytes()
        digest = xxh3_128_hexdigest(content)
        path = place / f"{digest}.json"
        aside.rename(path)
        if durable:
            sync(place)
            sync(folder)
        return FileRef(path.relative_to(folder).as_posix(), len(content), digest)

    def arranged(self, chain: Chain) -> Iterator[tuple[str, DescribedRows]]:
        """Yield the slots of a chain that are arrangements, with what their columns are."""
        forms = {
            f"{node['state']}.{what}": text
            for node in self.description
            for what, _, *form in node["keeps"]
            for text in form
        }
        for slot in chain.arranged:
            # An operator may be gone, and its state with it.
            if slot in forms:
                yield slot, DescribedRows.from_text(forms[slot])

    @classmethod
    def read(cls, folder: Path, ref: FileRef) -> Manifest:
        """Read the manifest named by a commit. Raises `CheckpointDamaged`."""
        path = folder / ref.name
        check_file(path, ref)
        body = read_checked(path)
        try:
            return cls(
                body["fingerprint"], body["description"], int(body["shards"]), body["layout"], body["sinks"],
                body["id"],
            )  # fmt: skip
        except (KeyError, ValueError, TypeError) as error:
            raise damaged(path, f"it is not a manifest: {error!r}") from error


Bind: TypeAlias = Callable[[Path, Manifest | None, int], Manifest]
"""Function that chooses the manifest of a run, given the folder and the last commit's manifest and tick (None
and 0 before the first). Raises `FlowChanged` if the run cannot resume.
"""


def exactly(manifest: Manifest) -> Bind:
    """Create a `Bind` that requires the last commit's manifest to equal `manifest`."""

    def bind(folder: Path, last: Manifest | None, tick: int) -> Manifest:
        if last is None:
            return manifest
        if last.fingerprint != manifest.fingerprint:
            difference = _line_diff(last.description, manifest.description)
            raise flow_changed(folder, f"What changed:\n{difference}", difference)
        check_shards(folder, last, manifest.shards)
        return last

    return bind


def as_it_is(folder: Path, last: Manifest | None, tick: int) -> Manifest:
    """A `Bind` that keeps the last manifest, for tools that run no flow.

    Raises `FlowChanged` where nothing is.
    """
    if last is None:
        raise FlowChanged(
            f"the checkpoint {folder} has no ticks",
            why="No flow was run with it, or its first tick was never committed.",
            fix="give the folder of a checkpoint that a flow was run with",
            checkpoint=str(folder),
        )
    return last


def flow_changed(
    folder: Path, why: str, difference: str, where: Sequence[SourceLocation] = ()
) -> FlowChanged:
    """Create the error for a flow that does not match the checkpoint. where: operators missing state."""
    return FlowChanged(
        f"the checkpoint {folder} belongs to another flow, or to another version of this one",
        where=where,
        why=why,
        fix="run the flow that wrote it, or give the changed flow an empty checkpoint folder;\n"
        "with the sinks as they are: `headrace run --adopt`",
        checkpoint=str(folder),
        diff=difference,
    )


def check_shards(folder: Path, last: Manifest, shards: int) -> None:
    """Raise `FlowChanged` if the checkpoint has a different number of shards."""
    if shards != last.shards:
        raise FlowChanged(
            f"the checkpoint {folder} has {last.shards} shards, not {shards}",
            why="in how many parts the state is divided is fixed while a flow runs.",
            fix=f"run with shards={last.shards}, or leave it out; to divide the state anew:\n"
            f"headrace reshard {folder} {shards} FLOW",
            checkpoint=str(folder),
            diff=f"shards: {last.shards} -> {shards}",
        )


def _line_diff(old: Any, new: Any) -> str:
    lines = difflib.unified_diff(_lines(old), _lines(new), "checkpoint", "now", lineterm="", n=1)
    return "\n".join(lines)


def _lines(description: Any) -> list[str]:
    items = cast("list[Any]", description) if isinstance(description, list) else [description]
    return [item if isinstance(item, str) else json.dumps(item, sort_keys=True) for item in items]
