"""State of one shard: slots over its arrangements, and the files of their changes.

`ScratchState` has the same slots without commits, over scratch files, for a run without a checkpoint that
exceeds its memory.
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from headrace.arrangement.spine import Spine
from headrace.state.arranged_store import (
    AT_ONCE,
    ENTRY_FORM,
    ENTRY_LAYOUT,
    ArrangedForm,
    ArrangedStore,
    EntryStore,
    MergeStep,
)
from headrace.state.batch_files import MappedFiles, forget_folder
from headrace.state.chain import ENTRIES, BatchChain, parts_of
from headrace.state.codec import key_encoder, value_encoder
from headrace.state.lazy_slots import Form, StateSlot

if TYPE_CHECKING:
    from types import TracebackType

    from headrace.arrangement.batch import Layout, SortedBatch


class ShardState:
    """Slots as of a chain; `finish` writes the changes and returns the next chain.

    checkpoint: the folder that file names are relative to.
    shard:      its number, or another name.
    slots:      per slot name how its values are kept.

    Raises `CheckpointDamaged` where a file of the chain is not whole: at once if it is missing or cut off,
    else when it is read.
    """

    def __init__(
        self,
        checkpoint: Path,
        shard: int | str,
        chain: BatchChain,
        slots: Mapping[str, Form | ArrangedForm],
    ) -> None:
        self._folder = checkpoint
        self._files = f"state/{shard:03d}" if isinstance(shard, int) else f"state/{shard}"
        self.written: list[Path] = []
        forms = {name: form for name, form in sorted(slots.items()) if isinstance(form, ArrangedForm)}
        self._stores = {
            name: ArrangedStore(checkpoint, f"{self._files}/{name}", form, chain.arranged.get(name, ()))
            for name, form in {ENTRIES: ENTRY_FORM, **forms}.items()
        }
        self.slots: dict[str, Any] = {name: store.slot for name, store in self._stores.items()}
        self._entries = cast("EntryStore", self.slots.pop(ENTRIES))
        encode_key, encode = key_encoder(), value_encoder()
        for name, form in slots.items():
            if isinstance(form, Form):
                self.slots[name] = self._entries.slots[name] = StateSlot(
                    name, self._entries, form, encode_key, encode
                )
        self._go_on(chain)

    def _go_on(self, chain: BatchChain) -> None:
        self._chain = chain
        self._entries.number(chain.slots)

    @property
    def seconds_loading(self) -> float:
        """Return the seconds spent loading values of slots without arrangements of their own."""
        return sum(slot.seconds_loading for slot in self._entries.slots.values())

    def unwritten_rows(self) -> int:
        """Return the number of rows that arrived in columns and are not in files yet."""
        return sum(store.gathered() for store in self._stores.values())

    def finish(self, tick: int, attempt: str) -> BatchChain:
        """Write the changes as of `tick` and return the chain to commit.

        The same chain if nothing changed. The old one stays current until `advance`.
        Files are new in `written`; a commit that is to survive a power cut needs `make_durable` first.
        """
        self.written = []
        before = self._chain
        arranged = dict(before.arranged)
        for number, (name, store) in enumerate(self._stores.items()):
            suffix = f".a{number}" if number else ""
            runs, written = store.write(f"{self._files}/{tick:012d}-{attempt}{suffix}")
            if written or runs != arranged.get(name, ()):
                arranged[name] = runs
                self.written += written
        if self.written and not any(before.files()):
            self.written.append(self._folder / self._files)
        return before if arranged == before.arranged else BatchChain(arranged, tuple(self._entries.numbers))

    def advance(self, chain: BatchChain) -> None:
        """Continue from `chain`, which has been committed; the slot objects stay the same."""
        if chain == self._chain:
            self.discard()
            return
        for name, store in self._stores.items():
            store.advance(chain.arranged.get(name, ()))
        self._go_on(chain)

    def discard(self) -> None:
        """Discard loaded and changed values."""
        for store in self._stores.values():
            store.discard()

    def close(self) -> None:
        # A slot and its values refer to each other, and a cell's code to its slots: neither values nor files
        # are to wait for the cycle collector.
        for store in self._stores.values():
            store.close()

    def __enter__(self) -> ShardState:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ShardWriter:
    """Writer of a new state of a shard. name: prefix of its files, relative to `folder`."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._steps: dict[str, MergeStep] = {}
        self._entries = EntryStore(Spine(ENTRY_LAYOUT, merges=False))
        self._waiting: dict[str, dict[bytes, bytes]] = {}
        self._bytes = 0

    def add(self, slot: str, key: bytes, value: bytes) -> bool:
        """Add an entry; return whether its key already existed."""
        of_slot = self._waiting.setdefault(slot, {})
        known = key in of_slot or self._entries.load(slot, key) is not None
        of_slot[key] = value
        self._bytes += len(key) + len(value)
        if self._bytes > AT_ONCE:  # of each new shard
            self._write()
        return known

    def add_rows(self, name: str, layout: Layout, rows: SortedBatch) -> None:
        """Add sorted rows of an arrangement."""
        if name not in self._steps:
            files = MappedFiles(self._folder, layout)
            self._steps[name] = MergeStep(files, f"{self._name}.a{len(self._steps)}", [])
        if len(rows):
            self._steps[name].add(rows)

    def _write(self) -> None:
        changes = [(slot, [*of_slot], [*of_slot.values()]) for slot, of_slot in self._waiting.items()]
        self.add_rows(ENTRIES, ENTRY_LAYOUT, self._entries.batch(changes))
        step = self._steps[ENTRIES]
        self._entries.spine.batches = tuple(map(step.files.open, parts_of(step.runs)))
        self._waiting, self._bytes = {}, 0

    def finish(self) -> BatchChain:
        """Write the rest and return the chain. Call `make_durable` before a commit names its files."""
        self._write()
        for step in self._steps.values():
            step.kept()
        arranged = {name: tuple(step.runs) for name, step in self._steps.items() if step.runs}
        return BatchChain(arranged, tuple(self._entries.numbers))


class ScratchFolder:
    """Files of any number of slots, in the system's temporary folder.

    They belong to one process, are never synced, and disappear with the process.
    """

    def __init__(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="headrace-", ignore_cleanup_errors=True)
        self.path = Path(folder.name)
        self.close = weakref.finalize(self, _remove, folder, self.path)
        self._slots = 0

    def add_slot(self, form: Form | ArrangedForm) -> ScratchSlot:
        """Create an empty slot."""
        self._slots += 1
        return ScratchSlot(ShardState(self.path, str(self._slots), BatchChain(), {"slot": form}), self)


def _remove(folder: tempfile.TemporaryDirectory[str], path: Path) -> None:
    # The disk has the space of a file again once nobody maps it.
    forget_folder(path)
    folder.cleanup()


class ScratchSlot:
    """Slot with recently used entries in memory and all others in scratch files.

    mapping: the slot, for reading and writing.
    most:    number of entries and rows above which `settle` writes those in memory to files.
    """

    def __init__(self, state: ShardState, folder: ScratchFolder, most: int = 0) -> None:
        self._state = state
        self._folder = folder
        self._chain = BatchChain()
        self._times = 0
        self.mapping = state.slots["slot"]
        self.most = most

    @property
    def in_memory(self) -> Mapping[Any, Any]:
        """Return the entries in memory."""
        return self.mapping.in_memory

    @property
    def is_empty(self) -> bool:
        """Return whether there are no entries in files."""
        return not any(self._chain.files())

    def settle(self) -> None:
        """At the end of a tick, write the entries in memory to files if there are too many."""
        if len(self.in_memory) + self._state.unwritten_rows() > self.most:
            self.write()

    def write(self) -> None:
        """Write all entries in memory to files."""
        self._times += 1
        before = self._chain
        self._chain = self._state.finish(self._times, "s")
        self._state.advance(self._chain)
        kept = {file.name for file in self._chain.files()}
        for file in before.files():
            if file.name not in kept:
                (self._folder.path / file.name).unlink(missing_ok=True)
