"""State of one shard: slots over its entries, and the files of their changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.state.arranged_store import ArrangedForm, ArrangedStore
from penstock.state.codec import key_encoder, value_encoder
from penstock.state.entries import entry_files
from penstock.state.entry_store import EntryStore
from penstock.state.lazy_slots import Form, Slot

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from penstock.state.chain import Chain


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
        chain: Chain,
        slots: Mapping[str, Form | ArrangedForm],
    ) -> None:
        self._files = f"state/{shard:03d}" if isinstance(shard, int) else f"state/{shard}"
        self._store = EntryStore(checkpoint, chain, entry_files(checkpoint, self._files))
        self.written: list[Path] = []
        encode_key, encode = key_encoder(), value_encoder()
        self._entries = {
            name: Slot(name, self._store, form, encode_key, encode)
            for name, form in slots.items()
            if isinstance(form, Form)
        }
        self._arranged = {
            name: ArrangedStore(checkpoint, f"{self._files}/{name}", form, chain.arranged.get(name, ()))
            for name, form in sorted(slots.items())
            if isinstance(form, ArrangedForm)
        }
        self.slots: dict[str, Any] = {
            **self._entries,
            **{name: store.slot for name, store in self._arranged.items()},
        }

    @property
    def seconds_loading(self) -> float:
        """Return how long values were loaded, of slots that are no arrangements."""
        return sum(slot.seconds_loading for slot in self._entries.values())

    def unwritten_rows(self) -> int:
        """Return how many rows came in columns that are in no file."""
        return sum(store.gathered() for store in self._arranged.values())

    def finish(self, tick: int, attempt: str) -> Chain:
        """Write the changes as of `tick` and return the chain to commit.

        The same chain if nothing changed. What counts is still the old one, until `advance`.
        Files are new in `written`; a commit that is to survive a power cut needs `make_durable` first.
        """
        changes = [(name, *slot.changes()) for name, slot in sorted(self._entries.items())]
        changes = [(name, keys, values) for name, keys, values in changes if keys]
        self.written = []
        chain = before = self._store.chain
        name = f"{self._files}/{tick:012d}-{attempt}"
        if changes:
            chain, self.written = self._store.write(name, changes)
        for number, (slot, store) in enumerate(self._arranged.items()):
            runs, written = store.write(f"{name}.a{number}")
            if written or runs != chain.arranged.get(slot, ()):
                chain = replace(chain, arranged={**chain.arranged, slot: runs})
                self.written += written
        if self.written and not any(before.files()):
            self.written.append(self._store.folder / self._files)
        return chain

    def advance(self, chain: Chain) -> None:
        """Continue at `chain`, which has been committed; the slot objects stay the same."""
        if chain != self._store.chain:
            self._store.advance(chain)
            for name, store in self._arranged.items():
                store.advance(chain.arranged.get(name, ()))
        self.discard()

    def discard(self) -> None:
        """Discard loaded and changed values."""
        for slot in (*self._entries.values(), *self._arranged.values()):
            slot.discard()

    def close(self) -> None:
        # A slot and its values refer to each other, and a cell's code to its slots: neither values nor files
        # are to wait for the cycle collector.
        self.discard()
        self._store.close()

    def __enter__(self) -> ShardState:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
