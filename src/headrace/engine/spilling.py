"""In-memory state: large slots are sharded, and slots beyond a limit spill to a file.

A growing dict is copied as a whole: 0.7 million keys stop a tick for some 20 ms, 3 million for 100 ms.
Sixty-four small dicts are copied one at a time. A read then costs one more function call, so only slots with
hundreds of thousands of keys are sharded.
"""

from __future__ import annotations

import gc
import re
import sys
import weakref
from collections.abc import Iterator, Mapping, MutableMapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from headrace.errors import BadInput, SourceLocation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.lowering.slot import Slot, SlotMapping
    from headrace.state.arranged_store import ArrangedForm
    from headrace.state.shard import ScratchFolder, ScratchSlot


SHARDS = 64
_LAST = SHARDS - 1


class ShardedSlot(MutableMapping[Any, Any]):
    """Slot sharded by key hash over `SHARDS` dicts. Entries of `values` are moved gradually.

    Entries stay in `values` until they are written or `move_to_shards` takes them, so that no tick pays for
    more than a few.
    """

    __slots__ = ("_gets", "_old", "_shards")

    def __init__(self, values: dict[Any, Any]) -> None:
        self._old: dict[Any, Any] = values
        self._shards: tuple[dict[Any, Any], ...] = tuple({} for _ in range(SHARDS))
        self._gets = tuple(shard.get for shard in self._shards)

    def get(self, key: Any, default: Any = None) -> Any:
        value = self._gets[hash(key) & _LAST](key)
        if value is None:
            return self._old.get(key, default)
        return value

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._old:
            self._old.pop(key, None)
        self._shards[hash(key) & _LAST][key] = value

    def __delitem__(self, key: Any) -> None:
        shard = self._shards[hash(key) & _LAST]
        if key in shard:
            del shard[key]
        else:
            del self._old[key]

    def __len__(self) -> int:
        return len(self._old) + sum(map(len, self._shards))

    def __iter__(self) -> Iterator[Any]:
        yield from self._old
        for shard in self._shards:
            yield from shard

    def move_to_shards(self, count: int) -> None:
        """Move up to `count` entries into their shards."""
        old, shards = self._old, self._shards
        for _ in range(min(count, len(old))):
            key, value = old.popitem()
            shards[hash(key) & _LAST][key] = value
        if not old:
            # An emptied dict keeps the size it had.
            self._old = {}


SHARDED_FROM = 250_000
"""Number of entries from which a slot is sharded. At 350,000, a growing dict is copied for some 10 ms."""

_MOVED_PER_LOOK = 64
_ROWS_PER_LOOK = 10_000
_FROZEN_FROM = 50_000
_SAMPLE = 32
_MAX_ELEMENTS = 256
"""Elements of a list or tuple that are looked at for an estimate."""
_LEAST_HOT = 16
_ENTRY = 1_000
"""Bytes of an entry of which nothing is known yet, with room to spare."""
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMG]I?B)?\s*", re.IGNORECASE)


def parse_memory_limit(bound: int | str) -> int:
    """Parse a memory limit: a number of bytes, or text such as "512 MB" or "2 GiB". Raises `BadInput`."""
    found = _SIZE.fullmatch(str(bound))
    size = int(float(found[1]) * _UNITS[(found[2] or "").upper()]) if found else 0
    if size <= 0 or isinstance(bound, bool):
        raise BadInput(
            f"the memory bound is {bound!r}",
            where=[SourceLocation.of_caller()],
            fix='give bytes, or a size such as "512 MB" or "2 GiB"',
        )
    return size


class StateInMemory:
    """Slots of an engine without a store: dicts, until they grow.

    bound: bytes that the slots may take together, as estimated from samples; None for
           no bound. Above it the largest slots go to a scratch file, of which a part
           stays in memory. A slot of few keys (what a delay keeps, the state of an
           ungrouped operator) has little to divide and stays.
    rebind: tells the generated code of a slot's new mapping.
    stored: slots that are arrangements in scratch files from the beginning.
    """

    def __init__(
        self,
        slots: Iterable[Slot],
        bound: int | None,
        rebind: Callable[[str, SlotMapping], None],
        sharded_from: int = SHARDED_FROM,
        stored: Mapping[str, ArrangedForm] | None = None,
    ) -> None:
        self._slots = {slot.name: slot for slot in slots}
        self._bound = bound
        self._rebind = rebind
        self._sharded_from = sharded_from
        self._moving: list[ShardedSlot] = []
        self._sharded: dict[str, ShardedSlot] = {}
        self._scratch: ScratchFolder | None = None
        self._spilled: dict[str, ScratchSlot] = {
            name: self._scratch_folder().add_slot(form) for name, form in (stored or {}).items()
        }
        for slot in self._spilled.values():
            slot.most = max(_LEAST_HOT, (bound or 0) // (4 * len(self._spilled) * _ENTRY))
        self.mappings: dict[str, dict[Any, Any]] = {n: {} for n in self._slots if n not in self._spilled}
        self._entries_at_last_look = 0
        self._rows_since_look = 0
        self._frozen = 0

    @classmethod
    def of(
        cls,
        slots: Iterable[Slot],
        shared: Mapping[str, SlotMapping],
        bound: int | None,
        rebind: Callable[[str, SlotMapping], None],
        stored: Callable[[Mapping[str, SlotMapping]], Mapping[str, ArrangedForm]],
    ) -> StateInMemory:
        """Create the slots of a program, except slots shared with others.

        stored: returns the forms of those that are arrangements, over the mappings of all.
        """
        own = [slot for slot in slots if slot.name not in shared]
        if bound is None or shared:
            return cls(own, bound, rebind)
        mappings: dict[str, SlotMapping] = {}
        made = cls(own, bound, rebind, stored=stored(mappings))
        mappings.update(made.state)
        return made

    @property
    def spilled(self) -> tuple[str, ...]:
        """Names of the slots spilled to a file."""
        return tuple(name for name, slot in self._spilled.items() if not slot.is_empty)

    @property
    def state(self) -> dict[str, SlotMapping]:
        """Return the initial slots."""
        return {**self.mappings, **{name: slot.mapping for name, slot in self._spilled.items()}}

    @property
    def sharded(self) -> tuple[str, ...]:
        """Names of the sharded slots."""
        return tuple(self._sharded)

    def release(self, name: str) -> None:
        """Forget a slot whose values are stored elsewhere from now on."""
        self.mappings.pop(name, None)
        sharded = self._sharded.pop(name, None)
        if sharded is not None and sharded in self._moving:
            self._moving.remove(sharded)

    def settle(self, came: int = 0) -> None:
        """At the end of a tick, shard large slots and spill if over the memory limit.

        came: number of rows in the tick, which may have enlarged values without adding keys.
        """
        for slot in self._spilled.values():
            slot.settle()
        for slot in self._moving:
            slot.move_to_shards(_MOVED_PER_LOOK)
        entries = self._entries()
        self._rows_since_look += came
        if entries > self._entries_at_last_look * 1.02 + 64 or self._rows_since_look > _ROWS_PER_LOOK:
            self._look()
            self._entries_at_last_look = self._entries()
            self._rows_since_look = 0
        if entries > max(self._frozen + _FROZEN_FROM, self._frozen * 1.25):
            self._freeze(entries)

    def _freeze(self, entries: int) -> None:
        # State stays and holds no cycles: the collector need not go through it again and again. Garbage of
        # the host that is at hand is not to be frozen with it, and what is, not for longer than the state.
        if not self._frozen:
            weakref.finalize(self, gc.unfreeze)
        self._frozen = entries
        gc.collect(1)
        gc.freeze()

    def _entries(self) -> int:
        return sum(map(len, self.mappings.values())) + sum(map(len, self._sharded.values()))

    def _look(self) -> None:
        if self._bound is not None:
            self._share(self._bound)
            self._spill_what_is_too_much(self._bound)
        for name, mapping in list(self.mappings.items()):
            if len(mapping) >= self._sharded_from:
                del self.mappings[name]
                sharded = ShardedSlot(mapping)
                self._sharded[name] = sharded
                self._moving.append(sharded)
                self._rebind(name, sharded)

    def _spill_what_is_too_much(self, bound: int) -> None:
        sizes = {name: estimated_bytes(mapping) for name, mapping in self._growing().items()}
        total = sum(sizes.values())
        for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if total <= bound:
                break
            if sizes[name] > bound // 20 and len(self._growing()[name]) > 2 * _LEAST_HOT:
                total -= sizes[name]
                self._spill(name, bound)

    def _growing(self) -> dict[str, Any]:
        return {**self.mappings, **self._sharded}

    def _spill(self, name: str, bound: int) -> None:
        from headrace.state.lazy_slots import Form

        sharded = self._sharded.pop(name, None)
        values = self.mappings.pop(name) if sharded is None else dict(sharded.items())
        if sharded is not None and sharded in self._moving:
            self._moving.remove(sharded)
        of = self._slots[name]
        self._spilled[name] = spilled = self._scratch_folder().add_slot(Form(of.thaw, of.divides))
        for key, value in values.items():
            spilled.mapping[key] = value
        spilled.write()
        self._share(bound)
        self._rebind(name, spilled.mapping)

    def _scratch_folder(self) -> ScratchFolder:
        # Only a run with a limit needs the codec.
        from headrace.state.shard import ScratchFolder

        if self._scratch is None:
            self._scratch = ScratchFolder()
        return self._scratch

    def _share(self, bound: int) -> None:
        """Divide a quarter of the limit among the spilled slots, by the current size of their values."""
        each = bound // (4 * max(1, len(self._spilled)))
        for slot in self._spilled.values():
            count = len(slot.in_memory)
            if count:
                per_entry = max(1, estimated_bytes(slot.in_memory) // count)
                slot.most = max(_LEAST_HOT, each // per_entry)


@runtime_checkable
class SizedMapping(Protocol):
    """Mapping that estimates its own memory."""

    def estimated_bytes(self) -> int:
        """Estimate the memory of the mapping."""
        ...


def estimated_bytes(mapping: Any) -> int:
    """Estimate a mapping's memory from a sample of its entries; 0 for external storage."""
    if isinstance(mapping, SizedMapping):
        return mapping.estimated_bytes()
    if not isinstance(mapping, Mapping):
        return 0
    mapping = cast("Mapping[Any, Any]", mapping)
    count = len(mapping)
    if not count:
        return 0
    sample: list[tuple[Any, Any]] = list(islice(mapping.items(), _SAMPLE))
    if type(mapping) is dict:
        sample += islice(reversed(cast("dict[Any, Any]", mapping).items()), _SAMPLE)
    each = sum(_deep(key) + _deep(value) for key, value in sample) / len(sample)
    return int(count * (each + 100))


def _deep(value: Any) -> int:
    size = sys.getsizeof(value)
    if type(value) in (tuple, list):
        elements = cast("list[Any]", value)
        looked_at = elements[:_MAX_ELEMENTS]
        size += int(sum(map(_deep, looked_at)) / max(len(looked_at), 1) * len(elements))
    elif type(value) is dict:
        entries = cast("dict[Any, Any]", value)
        inside: list[tuple[Any, Any]] = list(islice(entries.items(), _SAMPLE))
        if inside:
            size += int(sum(_deep(k) + _deep(v) for k, v in inside) / len(inside) * len(entries))
    elif hasattr(value, "estimated_bytes"):
        size += value.estimated_bytes()
    return size
