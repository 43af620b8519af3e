"""Inspection of a checkpoint's contents without its flow, and without stopping a run in progress.

The inspection reads the files named by the last commit and takes no lease. If a run in progress removes files
before they are read, its newer commit is read instead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from headrace.errors import BadInput, CheckpointDamaged
from headrace.file_system import local_path
from headrace.state.arranged_store import stored_entries
from headrace.state.chain import check_file
from headrace.state.codec import decode, key_encoder
from headrace.state.commit import POSITIONS, Commit, CommitLog
from headrace.state.lazy_slots import whole_values
from headrace.state.manifest import Manifest, as_it_is
from headrace.state.rewind import skipped_files

T = TypeVar("T")
_ATTEMPTS = 10
CLOCK = "clock"
"""Slot shown by its meaning, the watermark of an operator."""


@dataclass(frozen=True, slots=True)
class StateSize:
    """Size of a part of the state. bytes: total size of encoded keys and values."""

    keys: int = 0
    bytes: int = 0

    def __add__(self, other: StateSize) -> StateSize:
        return StateSize(self.keys + other.keys, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class SlotStats:
    """Content statistics of an operator's slot.

    operator: what it is and what it does; None for one that the flow no longer has.
    called:   the user's name for it, if there is one. place: the user's line.
    name:     of its state. what: the slot. shards: those that hold some of it.
    """

    operator: str | None
    called: str | None
    place: str | None
    name: str
    what: str
    shards: dict[int, StateSize]

    @property
    def whole(self) -> StateSize:
        return sum(self.shards.values(), StateSize())


@dataclass(frozen=True, slots=True)
class CheckpointStats:
    """Content statistics of a checkpoint as of its last tick.

    on:         "one process" or "Spark". shards: in how many parts the state is.
    oldest:     the first tick that one can go back to. tick: the last.
    positions:  per source, or for all, how far they were read.
    watermarks: per operator.
    skipped:    files that its runs leave out.
    files, bytes: that the last commit names.
    damage:     what cannot be read, a sentence per file.
    """

    folder: Path
    id: str
    on: str
    shards: int
    oldest: int
    tick: int
    positions: dict[str, Any]
    watermarks: dict[str, Any]
    files: int
    bytes: int
    slots: tuple[SlotStats, ...]
    damage: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundValue:
    """A key's stored value in one slot."""

    operator: str | None
    what: str
    shard: int
    key: Any
    value: Any


def inspect(folder: str | Path) -> CheckpointStats:
    """Summarise the last commit of a checkpoint; damaged files are reported in the result.

    Raises `CheckpointDamaged` if the commit or the manifest cannot be read, `FlowChanged` if there is
    neither.
    """
    return _steadily(folder, _held)


def rows_of_key(folder: str | Path, operator: str, key: Any) -> list[FoundValue]:
    """Return the values stored for a key in all slots of an operator.

    operator: its name, or the name of its state. key: as JSON has it: a list for several columns,
    text for what JSON cannot say (dates, decimals), as `plain` shows it.

    Raises `CheckpointDamaged`; `BadInput` for an operator that has no state.
    """
    return _steadily(folder, lambda path, last: _rows(path, last, operator, key))


def _steadily(given: str | Path, read: Callable[[Path, Commit], T]) -> T:
    folder = Path(local_path(given, "checkpoint"))
    log = CommitLog(folder)
    for _ in range(_ATTEMPTS):
        before, last = log.ticks(), None
        try:
            last = log.last()
            if last is None:
                as_it_is(folder, None, 0)
                raise AssertionError("it has said that there is nothing")
            return read(folder, last)
        except CheckpointDamaged:
            now = log.ticks()
            if now == before or (last is not None and last.tick in now):
                raise
    raise BadInput(
        f"the checkpoint {folder} changes faster than it can be read",
        fix="try again, or run it with a larger keep_ticks",
    )


# --- reading ------------------------------------------------------------------------------------


def _held(folder: Path, last: Commit) -> CheckpointStats:
    manifest = Manifest.read(folder, last.manifest)
    shards: defaultdict[tuple[str, str], defaultdict[int, StateSize]] = defaultdict(
        lambda: defaultdict(StateSize)
    )
    positions: dict[str, Any] = {}
    watermarks: dict[str, Any] = dict(last.counters.get("watermarks", {}))
    labels = {node["state"]: node for node in manifest.description if node["state"]}
    damage = _damage(folder, last)
    for number, chain in sorted(last.chains.items()) if not damage else ():
        shard = number % manifest.shards
        for slot, key, stored in whole_values(stored_entries(folder, chain)):
            name, _, what = slot.rpartition(".")
            shards[name, what][shard] += StateSize(1, stored.size)
            if name in labels and what in (POSITIONS, CLOCK):
                _note(labels[name]["name"] or name, what, key, stored.data, positions, watermarks)
        for slot, form in manifest.arranged(chain):
            name, _, what = slot.rpartition(".")
            for piece in form.pieces(folder, chain.arranged[slot]):
                shards[name, what][shard] += StateSize(len(piece), piece.bytes)
    for slot, key, value in stored_entries(folder, last.sources) if not damage else ():
        _note(slot.removesuffix(f".{POSITIONS}"), POSITIONS, key, value, positions, watermarks)
    if isinstance(last.positions, dict) and last.positions.get("batch") is not None:
        positions["batch"] = last.positions["batch"]
    held = [
        _slot_held(labels.get(name), name, what, dict(found))
        for (name, what), found in shards.items()
        if what != POSITIONS
    ]
    order = {name: at for at, name in enumerate(labels)}
    held.sort(key=lambda slot: (order.get(slot.name, len(order)), slot.name, slot.what))
    files = {f.name: f.size for f in last.files()}
    return CheckpointStats(
        folder, manifest.id, manifest.layout["on"], manifest.shards, last.oldest, last.tick,
        dict(sorted(positions.items())), dict(sorted(watermarks.items())),
        len(files), sum(files.values()), tuple(held), tuple(damage),
        tuple(sorted(skipped_files(folder))),
    )  # fmt: skip


def _slot_held(node: Any, name: str, what: str, shards: dict[int, StateSize]) -> SlotStats:
    if node is None:
        return SlotStats(None, None, None, name, what, shards)
    return SlotStats(operator_label(node), node["name"], node["place"], name, what, shards)


def operator_label(node: dict[str, Any]) -> str:
    """Return the user-facing label of an operator in a description."""
    if node["name"]:
        return f"{node['kind']} {node['name']!r}"
    return f"{node['kind']} ({node['text']})" if node["text"] else str(node["kind"])


def _note(
    name: str, what: str, key: bytes, value: bytes, positions: dict[str, Any], watermarks: dict[str, Any]
) -> None:
    if what == POSITIONS:
        positions.setdefault(name, {})[str(plain(decode(key)))] = _read_so_far(decode(value))
    else:
        watermarks[name] = plain(decode(value)[1])


def _read_so_far(position: Any) -> Any:
    # Of a file it also says which file that was.
    return plain(position[0] if isinstance(position, tuple) else position)


def _damage(folder: Path, last: Commit) -> list[str]:
    found: list[str] = []
    for ref in {file.name: file for file in last.files()}.values():
        try:
            check_file(folder / ref.name, ref)
        except CheckpointDamaged as damage:
            found.append(damage.why)
    if found and last.tick not in CommitLog(folder).ticks():
        raise CheckpointDamaged("the commit that was read is no longer there", file=None)
    return found


def _rows(folder: Path, last: Commit, operator: str, key: Any) -> list[FoundValue]:
    manifest = Manifest.read(folder, last.manifest)
    nodes = [
        node
        for node in manifest.description
        if node["state"] and operator in (node["name"], node["state"], operator_label(node))
    ]
    if not nodes:
        known = [repr(node["name"] or node["state"]) for node in manifest.description if node["state"]]
        raise BadInput(
            f"no operator {operator!r} has state in the checkpoint {folder}",
            fix=f"one of {', '.join(known)}" if known else "its flow keeps no state at all",
            operator=operator,
        )
    labels = {node["state"]: operator_label(node) for node in nodes}
    found: list[FoundValue] = []
    for number, chain in sorted(last.chains.items()):
        entries = stored_entries(folder, chain, lambda slot: slot.rpartition(".")[0] in labels)
        for slot, encoded, stored in whole_values(entries):
            name, _, what = slot.rpartition(".")
            if _is_key(encoded, key):
                shard = number % manifest.shards
                found.append(FoundValue(labels[name], what, shard, decode(encoded), stored.value()))
        for slot, form in manifest.arranged(chain):
            name, _, what = slot.rpartition(".")
            values: dict[Any, Any] = {}
            for piece in form.pieces(folder, chain.arranged[slot]) if name in labels else ():
                for at, known in enumerate(piece.keys):
                    if known == key or plain(known) == key:
                        # Rows of a key may be in several pieces.
                        value = piece.value(at)
                        values[known] = {**values[known], **value} if known in values else value
            shard = number % manifest.shards
            found += [FoundValue(labels[name], what, shard, known, value) for known, value in values.items()]
    return found


def _is_key(encoded: bytes, key: Any) -> bool:
    return encoded == key_encoder()(key) or plain(decode(encoded)) == key


def plain(value: Any) -> Any:
    """Convert a stored value to JSON: dicts become lists of pairs, unsupported types become text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list | frozenset):
        return [plain(part) for part in value]
    if isinstance(value, dict):
        return [[plain(k), plain(v)] for k, v in value.items()]
    return str(value)


__all__ = ["CheckpointStats", "FoundValue", "SlotStats", "StateSize", "inspect", "plain", "rows_of_key"]
