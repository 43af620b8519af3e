"""Resharding of a checkpoint's state while its flow is not running.

All cells are read at once, in the order of slots and keys, and each entry moves to its new shard. Entries
without a key of their own are gathered and reassembled. An entry that is not on the shard of its key does not
belong to this flow; in that case nothing is moved.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, singledispatch
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.analysis import analyse
from headrace.analysis.column_lineage import live_graph
from headrace.engine.flow_compatibility import ResumeBinding, read_state_names
from headrace.errors import BadInput, FlowChanged, NotOnSpark
from headrace.file_system import local_path
from headrace.graph.operator_declarations import (
    CalendarSlots,
    EverywhereSlot,
    KeyedSlot,
    PendingSlot,
    SessionSlots,
    SliceSlots,
    SlotLayout,
)
from headrace.operators.event_time.due_calendar import WindowBounds, schedule_entry, schedule_slice
from headrace.operators.event_time.session_windows import NUMBER
from headrace.spark.placing.pushdown import insert_partial_operators
from headrace.spark.placing.stages import cut_stages
from headrace.spark.resumption import (
    ON_SPARK,
    Home,
    Loops,
    StateOwnership,
    check_division,
    choose_loop_placement,
    kept_slots,
    layout,
    stateful_stages,
)
from headrace.spark.ticks.plan import CompiledStage, TickPlan
from headrace.state.arranged_store import stored_entries
from headrace.state.chain import BatchChain, make_durable
from headrace.state.checkpoint import Checkpoint
from headrace.state.codec import decode, key_encoder, value_encoder
from headrace.state.lazy_slots import whole_values
from headrace.state.manifest import Manifest, as_it_is
from headrace.state.shard import ShardWriter

if TYPE_CHECKING:
    from headrace.flow.flow import Flow
    from headrace.graph.node import FlowGraph, Node
    from headrace.state.commit import Commit


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
    for placed in dict.fromkeys(move.layouts[what] for what in found):
        for what, shards in scatter(placed, move, found).items():
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


@dataclass(frozen=True, slots=True)
class ReshardResult:
    """Result of a resharding. keys: number of state entries rewritten."""

    tick: int
    shards_before: int
    shards: int
    keys: int


def reshard(checkpoint: str | PathLike[str], shards: int, flow: Flow) -> ReshardResult:
    """Redistribute the state of a Spark checkpoint over `shards` shards, from which `flow` resumes.

    The last tick then has its state there, in one step: whatever breaks this off leaves either division
    whole. Ticks before it keep theirs, and can be gone back to. Buckets of tables stay as they are.

    Raises `CheckpointInUse` while the flow runs; `FlowChanged` for another flow;
    `NotOnSpark` for state whose keys do not tell where it belongs; `CheckpointDamaged`; `BadInput`.
    """
    if shards < 1:
        raise BadInput(f"{shards} shards", why="state is in one part at least.", fix="1 or more")
    folder = Path(local_path(checkpoint, "checkpoint"))
    if not (folder / "commit").is_dir():
        as_it_is(folder, None, 0)
    binding = _Binding(live_graph(flow.graph()), shards)
    with Checkpoint.open(folder, binding) as opened:
        last = opened.last
        assert last is not None, "the binding has refused to begin"
        written = _Written(opened.folder, f"{last.tick}-divided-{uuid.uuid4().hex[:8]}")
        written.put(_placed(opened.folder, last, binding), binding.moves)
        before = Manifest.read(opened.folder, last.manifest)
        for number, chain in sorted(last.chains.items()):
            written.move_arranged(chain, number % binding.was, before, binding)
        written.finish()
        written.make_durable()
        counters = {"pending": sorted(written.pending), "waiting": sorted(written.waiting)}
        opened.move(written.chains, {**last.counters, **counters})
        return ReshardResult(last.tick, binding.was, shards, written.keys)


class _Binding:
    """A `Bind` that checks the flow against the last commit and lays it out for a new number of shards."""

    def __init__(self, graph: FlowGraph, shards: int) -> None:
        self._graph = graph
        self._shards = shards
        self.was = 0
        self.moves: dict[str, StateMove] = {}
        self._homes: dict[str, Callable[[Any, int], int] | None] = {}

    def home(self, slot: str) -> Callable[[Any, int], int] | None:
        """Return the function from a key and shard to the new shard; None if entries are not moved singly."""
        if slot not in self._homes:
            name, _, what = slot.rpartition(".")
            move = self.moves.get(name)
            self._homes[slot] = None if move is None else shard_function(move, what)
        return self._homes[slot]

    def __call__(self, folder: Path, last: Manifest | None, tick: int) -> Manifest:
        last = as_it_is(folder, last, tick)
        if last.layout["on"] != ON_SPARK:
            raise FlowChanged(
                f"the checkpoint {folder} is of a run on {last.layout['on']}",
                why="there all state is in one part.",
                fix="begin a run on Spark with an empty checkpoint",
                checkpoint=str(folder),
                diff="engine",
            )
        check_division(folder, last)
        self.was = last.shards
        loops = choose_loop_placement(folder, last, None)
        before, after = self._stages(last.shards, loops), self._stages(self._shards, loops)
        place = partial(layout, before, tuple(self._graph.sources), loops)
        # Checks that it is the flow of the checkpoint, and finds the names of its state.
        bound = ResumeBinding(self._graph, kept_slots(before), place, {}, last.shards)(folder, last, tick)
        names = read_state_names(bound.description)
        self.moves = moves(
            _sides(before, last.shards), _sides(after, self._shards), last.shards, self._shards, names
        )
        places = layout(after, tuple(self._graph.sources), loops, names)["places"]
        there = {**last.layout, "places": places}
        return replace(bound, shards=self._shards, layout=there, sinks=last.sinks)

    def _stages(self, shards: int, loops: Loops) -> tuple[CompiledStage, ...]:
        stages = cut_stages(insert_partial_operators(self._graph), shards, rounds=loops == "rounds")
        return stateful_stages(TickPlan(stages, (), {}, "", False))


def _sides(stages: tuple[CompiledStage, ...], shards: int) -> dict[int, StatefulNode]:
    """Return the operators with state, by node number in the flow."""
    found: dict[int, StatefulNode] = {}
    for of in stages:
        ownership = StateOwnership(of.stage, shards)
        for local in {int(slot.name.partition(".")[0]) for slot in of.program.slots}:
            origin = of.stage.origins[local]
            assert origin is not None, "rows at the border of a stage are kept by nobody"
            found[origin] = StatefulNode(of.stage.graph.nodes[local], of, ownership)
    return found


# --- from old cells to new ones ---------------------------------------------------------------


def _placed(folder: Path, last: Commit, binding: _Binding) -> Iterator[Placed]:
    """Yield all entries with their new cells. State of operators that no longer exist is left behind."""
    for number, chain in sorted(last.chains.items()):
        entries = stored_entries(folder, chain, lambda slot: binding.home(slot) is not None)
        # What is stored in pieces moves as a whole.
        for slot, key, stored in whole_values(entries):
            move, home = binding.moves[slot.rpartition(".")[0]], binding.home(slot)
            assert home is not None, "others are not wanted"
            cell = move.to_cell(home(decode(key), number % binding.was))
            yield slot, key, stored.data, cell
            for piece, data in stored.pieces.items():
                yield slot, piece, data, cell
    for name, entries in _gathered(folder, last, binding).items():
        yield from redistribute_slots(binding.moves[name], gather_entries(entries))


def _gathered(
    folder: Path, last: Commit, binding: _Binding
) -> Mapping[str, list[tuple[str, int, bytes, bytes]]]:
    """Return the entries that cannot be moved one by one, by operator: slot kind, shard, key, value."""

    def gathered(slot: str) -> bool:
        return slot.rpartition(".")[0] in binding.moves and binding.home(slot) is None

    found: defaultdict[str, list[tuple[str, int, bytes, bytes]]] = defaultdict(list)
    for number, chain in sorted(last.chains.items()):
        for slot, key, value in stored_entries(folder, chain, gathered):
            name, _, what = slot.rpartition(".")
            found[name].append((what, number % binding.was, key, value))
    return found


class _Written:
    """Writer of new cells.

    pending: cells with rows that start a next tick; waiting: with rows that come with it.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self.chains: dict[int, BatchChain] = {}
        self._writers: dict[int, ShardWriter] = {}
        self.pending: set[int] = set()
        self.waiting: set[int] = set()
        self.keys = 0

    def put(self, entries: Iterator[Placed], moves: Mapping[str, StateMove]) -> None:
        """Write entries, in any order. Raises `NotOnSpark` for a duplicate."""
        for slot, key, value, cell in entries:
            name, _, what = slot.rpartition(".")
            if self._writer(cell).add(slot, key, value):
                raise moves[name].refused(f"two shards hold {decode(key)!r:.80}.")
            self.keys += 1
            if what == DEFERRED and decode(value):
                self.waiting.add(cell)
                if moves[name].starts_ticks:
                    self.pending.add(cell)

    def move_arranged(self, chain: BatchChain, shard: int, manifest: Manifest, binding: _Binding) -> None:
        """Write the rows of a cell's arrangements."""
        for slot, form in manifest.arranged(chain):
            move = binding.moves.get(slot.rpartition(".")[0])
            if move is None:
                continue
            home = binding.home(slot)
            if home is None:
                raise move.refused("its entries are not moved one by one.")
            for piece in form.pieces(self._folder, chain.arranged[slot]):
                cells = [move.to_cell(home(key, shard)) for key in piece.keys]
                self.keys += len(piece)
                for cell, rows in piece.divided(cells):
                    self._writer(cell).add_rows(slot, form.layout, rows)

    def _writer(self, cell: int) -> ShardWriter:
        if cell not in self._writers:
            self._writers[cell] = ShardWriter(self._folder, f"state/{cell:03d}/{self._name}")
        return self._writers[cell]

    def finish(self) -> None:
        """Finish the files."""
        self.chains = {cell: writer.finish() for cell, writer in self._writers.items()}

    def make_durable(self) -> None:
        """Flush all files to disk."""
        files = [self._folder / file.name for chain in self.chains.values() for file in chain.files()]
        make_durable([*files, *{file.parent for file in files}])
