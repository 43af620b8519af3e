"""State of one shard: slots over a working copy, and the files of their changes."""

from __future__ import annotations

from itertools import chain as concatenated
from operator import itemgetter
from typing import TYPE_CHECKING

from penstock.state.chain import Chain, Version, merge
from penstock.state.codec import key_encoder, value_encoder
from penstock.state.lazy_slots import Form, Slot
from penstock.state.local_store import AlteredCopy, WorkingCopy
from penstock.state.sorted_files import Entry, read_entries, write_entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import TracebackType


class ShardState:
    """Slots at a chain's version; `finish` writes the changes and returns the next chain.

    checkpoint: the folder that file names are relative to.
    work:       folder of the working copies, local to the host.
    shard:      its number, or another name.
    slots:      per slot name how its values are kept.

    Raises `CheckpointDamaged` on opening where a file of the chain is not whole.
    """

    def __init__(
        self, checkpoint: Path, work: Path, shard: int | str, chain: Chain, slots: Mapping[str, Form]
    ) -> None:
        self._checkpoint = checkpoint
        self._shard = f"{shard:03d}" if isinstance(shard, int) else shard
        self._chain = chain
        self._copy = WorkingCopy(work / f"{self._shard}.lmdb", checkpoint, chain)
        self.written: list[Path] = []
        encode_key, encode = key_encoder(), value_encoder()
        self.slots: dict[str, Slot] = {
            name: Slot(name, self._copy.load, form, encode_key, encode) for name, form in slots.items()
        }

    def finish(self, tick: int, attempt: str, version: int | None = None) -> Chain:
        """Write the changes as of `tick` and return the chain to commit.

        version: the number of what is made, above all before; `tick`, where a tick makes one version only.

        The same chain if nothing changed. What counts is still the old one, until `advance`.
        Files are new in `written`; a commit that is to survive a power cut needs `make_durable` first.
        """
        of_slots = (sorted(slot.changes(), key=itemgetter(1)) for _, slot in sorted(self.slots.items()))
        changes = list(concatenated.from_iterable(of_slots))
        self.written = []
        if not changes:
            return self._chain
        name = f"state/{self._shard}/{tick:012d}-{attempt}"
        news = merged = write_entries(self._checkpoint, f"{name}.news", changes)
        swallowed = self._chain.swallowed(news.size)
        if swallowed:
            try:
                merged = write_entries(self._checkpoint, name, self._merged(changes, swallowed))
            except AlteredCopy:
                self._copy.rebuild()
                merged = write_entries(self._checkpoint, name, self._merged(changes, swallowed))
        self.written = [self._checkpoint / file.name for file in {news, merged}]
        if not self._chain.links:
            self.written.append(self.written[0].parent)
        made = Version(tick if version is None else version, attempt)
        self._copy.put(changes, made)
        return self._chain.after(made, news, merged, swallowed)

    def advance(self, chain: Chain) -> None:
        """Continue at `chain`, which has been committed; the slot objects stay the same."""
        if chain != self._chain:
            self._copy.advance(chain)
            self._chain = chain
        self.discard()

    def discard(self) -> None:
        """Discard loaded and changed values."""
        for slot in self.slots.values():
            slot.discard()

    def close(self) -> None:
        # A slot and its values refer to each other: they would otherwise wait for the cycle collector.
        self.discard()
        self._copy.close()

    def __enter__(self) -> ShardState:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _merged(self, changes: list[Entry], swallowed: int) -> Iterator[Entry]:
        links = self._chain.links
        if swallowed == len(links):
            # Everything below: the working copy is the merge of it already.
            return merge([self._copy.entries(), changes], whole=True)
        below = [read_entries(self._checkpoint, link.file) for link in links[len(links) - swallowed :]]
        return merge([*below, changes], whole=False)
