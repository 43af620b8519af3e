"""State of a checkpointed in-process run, under the slot names of its program."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from headrace.engine.columnar.columnar_flow import stored_forms
from headrace.engine.endpoints import positions_slot
from headrace.engine.flow_compatibility import ResumeBinding, in_one_process, kept_by_node, read_state_names
from headrace.engine.program import compile_program
from headrace.state.checkpoint import DirectoryState
from headrace.state.commit import POSITIONS
from headrace.state.lazy_slots import Form
from headrace.state.rewind import skipped_files

if TYPE_CHECKING:
    from headrace.graph.node import FlowGraph
    from headrace.state.manifest import Manifest


@dataclass(frozen=True, slots=True)
class CheckpointedState:
    """Slots stored in a checkpoint. slots: by slot name, including one position slot per source."""

    directory: DirectoryState
    slots: Mapping[str, MutableMapping[Any, Any]]

    @property
    def tick(self) -> int:
        """Number of the last committed tick; 0 before the first."""
        return self.directory.tick

    @property
    def bytes(self) -> int:
        """Size on disk of the last commit's state files, in bytes."""
        return self.directory.bytes

    @property
    def folder(self) -> Path:
        return self.directory.folder

    @property
    def skipped(self) -> frozenset[str]:
        """Absolute paths of the skipped files."""
        return skipped_files(self.folder)

    def commit(self) -> int:
        """Commit the next tick and return its number. Raises `CheckpointInUse`."""
        return self.directory.commit()

    def __enter__(self) -> CheckpointedState:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.directory.close()


def open_checkpoint(graph: FlowGraph, folder: Path, sinks: Mapping[str, Any]) -> CheckpointedState:
    """Open the checkpoint in `folder`, from which the flow resumes.

    Raises `CheckpointInUse`, `FlowChanged`, `CheckpointDamaged`, `UnreadableSource`.
    """
    program = compile_program(graph)
    opened: dict[str, MutableMapping[Any, Any]] = {}
    arranged = stored_forms(program, opened)
    keeps = kept_by_node(program.slots, arranged) | {n: [[POSITIONS, ""]] for n in graph.sources.values()}
    local = {slot.name: Form(slot.thaw, slot.divides) for slot in program.slots} | arranged

    def by_name(manifest: Manifest) -> dict[str, str]:
        """Map the program's slot names to those of the checkpoint."""
        names = read_state_names(manifest.description)
        found = {positions_slot(name): f"{names[node]}.{POSITIONS}" for name, node in graph.sources.items()}
        for slot in local:
            node, _, what = slot.partition(".")
            found[slot] = f"{names[int(node)]}.{what}"
        return found

    directory = DirectoryState.open(
        folder,
        ResumeBinding(graph, keeps, in_one_process, sinks),
        lambda manifest: {name: local.get(slot, Form()) for slot, name in by_name(manifest).items()},
    )
    try:
        opened |= {slot: directory.slots[name] for slot, name in by_name(directory.manifest).items()}
    except BaseException:
        directory.close()
        raise
    return CheckpointedState(directory, opened)
