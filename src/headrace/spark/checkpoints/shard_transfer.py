"""Migration of state from one number of shards to another.

All cells are read at once, in the order of slots and keys, and each entry moves to its new shard. Entries
without a key of their own are gathered and reassembled. An entry that is not on the shard of its key does not
belong to this flow; in that case nothing is moved.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.analysis import analyse
from headrace.errors import NotOnSpark
from headrace.graph.operator_declarations import (
    CalendarSlots,
    EverywhereSlot,
    KeyedSlot,
    PendingSlot,
    SessionSlots,
    SliceSlots,
    SlotLayout,
)
from headrace.operators.event_time.due_calendar import schedule_entry
from headrace.operators.event_time.session_windows import NUMBER
from headrace.operators.event_time.slices import WindowBounds, schedule_slice
from headrace.spark.checkpoints.state_ownership import Home, StateOwnership
from headrace.state.codec import decode, key_encoder, value_encoder

if TYPE_CHECKING:
    from headrace.graph.node import Node
    from headrace.spark.ticks.plan import CompiledStage

DEFERRED = "deferred"
"""Name of the slot that holds rows deferred to the next tick."""
Values: TypeAlias = dict[Any, Any]
Placed: TypeAlias = tuple[str, bytes, bytes, int]
"""Encoded slot, key and value of an entry, and the number of its new cell."""


@dataclass(frozen=True, slots=True)
class StatefulNode:
    """An operator with state, in a stage laid out for a given number of shards."""

    node: Node
    stage: CompiledStage
    ownership: StateOwnership

    def cell(self, shard: int, shards: int) -> int:
        return self.stage.stage.number * shards + shard


@dataclass(frozen=True, slots=True)
class StateMove:
    """Migration of one operator's state to its new location. layouts: slot layouts by kind."""

    before: StatefulNode
    after: StatefulNode
    was: int
    shards: int
    name: str
    layouts: Mapping[str, SlotLayout] = field(default_factory=dict[str, SlotLayout])

    @property
    def starts_ticks(self) -> bool:
        """Return whether deferred rows of the operator start a tick."""
        delayed = self.after.stage.program.delayed
        return any(d.node == self.after.node.id and not d.lazy for d in delayed)

    def slot(self, what: str) -> str:
        return f"{self.name}.{what}"

    def home(self, slot: KeyedSlot) -> Callable[[Any, int], int]:
        """Return the function from a key and its old shard to its new shard. Raises `NotOnSpark`."""
        old, new = (
            self.before.ownership.home(self.before.node, slot),
            self.after.ownership.home(self.after.node, slot),
        )
        return self._checked(old, new)

    def home_of_row(self) -> Callable[[Any, int], int]:
        old, new = (
            self.before.ownership.home_of_row(self.before.node),
            self.after.ownership.home_of_row(self.after.node),
        )
        return self._checked(old, new)

    def _checked(self, old: Home | None, new: Home | None) -> Callable[[Any, int], int]:
        if old is None or new is None:
            raise self.refused("where a key of it belongs does not follow from the key.")

        def home(key: Any, shard: int) -> int:
            if old(key) != shard:
                raise self.refused(f"{key!r:.80} is on shard {shard}, and belongs on {old(key)}.")
            return new(key)

        return home

    def refused(self, why: str) -> NotOnSpark:
        node = self.before.node
        return NotOnSpark(
            f"the state of {node.name!r} cannot be moved to other shards",
            where=[node.location],
            why=why,
            fix="go on with the shards it has, or run the flow anew with an empty checkpoint",
            operator=node.name,
        )

    def to_cell(self, shard: int) -> int:
        return self.after.cell(shard, self.shards)


# --- entries with a key of their own ----------------------------------------------------------


def shard_function(move: StateMove, what: str) -> Callable[[Any, int], int] | None:
    """Return the function from a key to its new shard; None if the slot's entries must be gathered."""
    if move.before.ownership.on_one(move.before.node) and move.after.ownership.on_one(move.after.node):
        return lambda key, shard: 0
    layout = move.layouts.get(what)
    if layout is None:
        raise move.refused(f"on which shard its {what!r} belongs does not follow from the keys there.")
    return move.home(layout) if isinstance(layout, KeyedSlot) else None


# --- entries that are gathered ----------------------------------------------------------------

Gathered: TypeAlias = Mapping[str, Mapping[int, Values]]
"""Values by key, per slot and old shard."""
Scattered: TypeAlias = dict[str, dict[int, Values]]
"""Values by key, per slot and new shard."""


def redistribute_slots(move: StateMove, found: Gathered) -> Iterator[Placed]:
    """Redistribute the gathered slots of one operator as entries of its new cells."""
    encode_key, encode = key_encoder(), value_encoder()
    for layout in dict.fromkeys(move.layouts[what] for what in found):
        for what, shards in scatter(layout, move, found).items():
            for shard, values in shards.items():
                for key, value in values.items():
                    yield move.slot(what), encode_key(key), encode(value), move.to_cell(shard)


@singledispatch
def scatter(layout: SlotLayout, move: StateMove, found: Gathered) -> Scattered:
    raise NotImplementedError(type(layout))


@scatter.register
def _(layout: PendingSlot, move: StateMove, found: Gathered) -> Scattered:
    home = move.home_of_row()
    rows: defaultdict[int, Values] = defaultdict(lambda: {(): []})
    for shard, values in found[DEFERRED].items():
        for row in values[()]:
            rows[home(row, shard)][()].append(row)
    return {DEFERRED: dict(rows)}


@scatter.register
def _(layout: EverywhereSlot, move: StateMove, found: Gathered) -> Scattered:
    slots = [what for what, of in move.layouts.items() if of == layout and what in found]
    return {what: dict.fromkeys(range(move.shards), next(iter(found[what].values()))) for what in slots}


@scatter.register
def _(layout: CalendarSlots, move: StateMove, found: Gathered) -> Scattered:
    slots = [f"{layout.prefix}{what}" for what in ("calendar", "counts", "due")]
    home = move.home(layout.keys)
    made: defaultdict[int, tuple[Values, Values, Values]] = defaultdict(lambda: ({}, {}, {}))
    for shard, values in sorted(found.get(slots[2], {}).items()):
        for (end, _), things in sorted(values.items()):
            for thing in things:
                # A bucket stands for all that is in it, wherever its keys belong.
                cells = range(move.shards) if isinstance(thing, int) else (home(thing, shard),)
                for cell in cells:
                    schedule_entry(*made[cell], end, thing)
    return {slot: {shard: kept[at] for shard, kept in made.items()} for at, slot in enumerate(slots)}


@scatter.register
def _(layout: SliceSlots, move: StateMove, found: Gathered) -> Scattered:
    slots = ("calendar", "counts", "due")
    home = move.home(layout.keys)
    # All shards have the same watermark: a window that is open on one is open on all.
    opened = {window for values in found.get("calendar", {}).values() for window in values.get((), ())}
    ends, starts = sorted(end for end, _ in opened), sorted(start for _, start in opened)
    made: defaultdict[int, tuple[Values, Values, Values]] = defaultdict(lambda: ({}, {}, {}))

    def windows_of(time: Any) -> list[WindowBounds]:
        # Windows that end later begin later.
        span = slice(bisect_right(ends, time), bisect_right(starts, time))
        return list(zip(starts[span], ends[span], strict=True))

    for shard, values in sorted(found.get("due", {}).items()):
        for (at, _), entries in sorted(values.items()):
            for entry in entries:
                schedule_slice(*made[home(entry, shard)], at, entry, windows_of, at)
    # Groups keep their numbers; new ones come after them.
    following = max((values["next"] for values in found.get("calendar", {}).values()), default=0)
    for calendar, _, _ in made.values():
        calendar["next"] = following
    return {slot: {shard: kept[n] for shard, kept in made.items()} for n, slot in enumerate(slots)}


@scatter.register
def _(layout: SessionSlots, move: StateMove, found: Gathered) -> Scattered:
    home = move.home(layout.keys)
    sessions: defaultdict[int, Values] = defaultdict(dict)
    numbers: defaultdict[int, int] = defaultdict(lambda: 1)
    renumbered: dict[tuple[int, Any, int], int] = {}
    ordered = sorted(
        (session[NUMBER], shard, at, key)
        for shard, values in found.get("sessions", {}).items()
        for at, (key, mine) in enumerate(values.items())
        for session in mine
    )
    for number, shard, _, key in ordered:
        to = home(key, shard)
        renumbered[shard, key, number] = numbers[to]
        numbers[to] += 1
    for shard, values in found.get("sessions", {}).items():
        for key, mine in values.items():
            sessions[home(key, shard)][key] = [
                [*session[:NUMBER], renumbered[shard, key, session[NUMBER]], *session[NUMBER + 1 :]]
                for session in mine
            ]
    due: defaultdict[int, Values] = defaultdict(dict)
    for shard, values in found.get("due", {}).items():
        for bucket, noted in values.items():
            for end, number, key in noted:
                # What became part of another session is not looked for again.
                if (shard, key, number) in renumbered:
                    entry = (end, renumbered[shard, key, number], key)
                    due[home(key, shard)].setdefault(bucket, []).append(entry)
    # A sorted list is a heap.
    book = {shard: {bucket: sorted(noted) for bucket, noted in kept.items()} for shard, kept in due.items()}
    calendar = {
        shard: ({(): sorted(book[shard])} if shard in book else {}) | {"next": next_number}
        for shard, next_number in numbers.items()
    }
    return {"sessions": dict(sessions), "due": book, "calendar": calendar}


def gather_entries(entries: Sequence[tuple[str, int, bytes, bytes]]) -> dict[str, dict[int, Values]]:
    """Group entries by slot kind and shard, decoding keys and values."""
    found: dict[str, dict[int, Values]] = {}
    for what, shard, key, value in entries:
        found.setdefault(what, {}).setdefault(shard, {})[decode(key)] = decode(value)
    return found


def moves(
    before: Mapping[int, StatefulNode],
    after: Mapping[int, StatefulNode],
    was: int,
    shards: int,
    names: Mapping[int, str],
) -> dict[str, StateMove]:
    """Return the move of each operator's state, by name. `before` and `after` are keyed by node number."""
    found: dict[str, StateMove] = {}
    for origin, side in before.items():
        node, graph = side.node, side.stage.stage.graph
        appends = [analyse(graph).facts[source].append for source in node.inputs]
        layouts = node.operator.state(appends)
        found[names[origin]] = StateMove(side, after[origin], was, shards, names[origin], layouts)
    return found
