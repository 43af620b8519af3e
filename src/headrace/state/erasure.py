"""Erasure: a checkpoint is written anew, so that none of its files holds values that its state has not.

A tick adds a file, and what it took back stays in the files before until they are merged. Erasure writes the
entries of all shards to new files and gives up what a rewind would go back to. The values go, too, that an
operator has put aside in case a late record brings them back (`Erasable`).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from headrace.path_or_url import local_path
from headrace.state.chain import Chain
from headrace.state.checkpoint import Checkpoint
from headrace.state.checkpoint_files import make_durable
from headrace.state.codec import without_erasable
from headrace.state.entry_store import stored_entries
from headrace.state.lazy_slots import MARK
from headrace.state.manifest import Manifest, as_it_is
from headrace.state.shard import ShardWriter


@dataclass(frozen=True, slots=True)
class Erased:
    """Result of an erasure. tick: the last one, now the only one. before, after: bytes of state files."""

    tick: int
    before: int
    after: int


def erase(checkpoint: str | PathLike[str]) -> Erased:
    """Erase all values that the state as of the last tick does not hold. The flow must not be running.

    If interrupted, the checkpoint is as before, or erased but for files that the next erasure removes.

    Raises `CheckpointInUse`, `CheckpointDamaged`; `FlowChanged` where there is no checkpoint.
    """
    folder = Path(local_path(checkpoint, "checkpoint")).absolute()
    # A folder without a checkpoint is not to become one.
    if not (folder / "commit").is_dir():
        as_it_is(folder, None, 0)
    with Checkpoint.open(folder, as_it_is) as held:
        last = held.last
        assert last is not None
        name = f"{last.tick:012d}-{uuid.uuid4().hex[:8]}"
        chains = {
            shard: _anew(folder, f"state/{shard:03d}/{name}", chain, held.manifest)
            for shard, chain in last.chains.items()
        }
        made = held.rewrite(chains, _anew(folder, f"state/sources/{name}", last.sources, held.manifest))
    return Erased(made.tick, last.state_bytes, made.state_bytes)


def _anew(folder: Path, name: str, chain: Chain, manifest: Manifest) -> Chain:
    """Write the state of a shard to files named `name`; return the chain that has no others."""
    writer = ShardWriter(folder, name)
    for slot, key, value in stored_entries(folder, chain):
        # A header of chunks is no encoded value. It holds no `Erasable`: upsert and history never divide
        # theirs.
        writer.add(slot, key, value if value.startswith(MARK) else without_erasable(value))
    for slot, form in manifest.arranged(chain):
        for piece in form.pieces(folder, chain.arranged[slot]):
            writer.add_rows(slot, form.layout, piece.erased)
    made = writer.finish()
    make_durable([folder / file.name for file in made.files()])
    return made
