"""Resharding of a checkpoint's state while its flow is not running."""

from __future__ import annotations

import heapq
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.analysis.column_liveness import live_graph
from penstock.engine.resume import ResumeBinding, read_state_names
from penstock.errors import BadInput, FlowChanged
from penstock.path_or_url import local_path
from penstock.spark.checkpoints.resume import (
    ON_SPARK,
    Loops,
    check_division,
    choose_loop_placement,
    kept_slots,
    layout,
    stateful_stages,
)
from penstock.spark.checkpoints.shard_transfer import (
    DEFERRED,
    Placed,
    StatefulNode,
    StateMove,
    gather_entries,
    moves,
    redistribute_slots,
    shard_function,
)
from penstock.spark.checkpoints.state_ownership import StateOwnership
from penstock.spark.placing.combining import insert_partial_operators
from penstock.spark.placing.stages import cut_stages
from penstock.spark.ticks.plan import CompiledStage, Plan
from penstock.state.chain import Chain, Link, Version, entries_of
from penstock.state.checkpoint import Checkpoint
from penstock.state.codec import decode
from penstock.state.lazy_slots import is_piece
from penstock.state.manifest import Manifest, as_it_is
from penstock.state.sorted_files import EntryWriter, make_durable

if TYPE_CHECKING:
    from penstock.flow.flow import Flow
    from penstock.graph.node import FlowGraph
    from penstock.state.commit import Commit


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
        written = _Written(opened.folder, f"divided-{uuid.uuid4().hex[:8]}", last.tick)
        written.put(_placed(opened.folder, last, binding), binding.moves)
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
        return stateful_stages(Plan(stages, (), {}, "", False))


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
    """Yield all entries with their new cells, in the order of slots and keys.

    State of operators that no longer exist is left behind.
    """
    together: list[Placed] = []
    for name, entries in _gathered(folder, last, binding).items():
        together += redistribute_slots(binding.moves[name], gather_entries(entries))
    together.sort()
    yield from heapq.merge(_straight(folder, last, binding), together)


def _straight(folder: Path, last: Commit, binding: _Binding) -> Iterator[Placed]:
    whole, whole_slot, cell = b"", "", -1
    for slot, key, value, number in _entries(folder, last):
        home = binding.home(slot)
        if home is None:
            continue
        # What is stored in pieces moves as a whole.
        if slot != whole_slot or not is_piece(key, whole):
            move = binding.moves[slot.rpartition(".")[0]]
            cell = move.to_cell(home(decode(key), number % binding.was))
            whole, whole_slot = key, slot
        yield slot, key, value, cell


def _gathered(
    folder: Path, last: Commit, binding: _Binding
) -> Mapping[str, list[tuple[str, int, bytes, bytes]]]:
    """Return the entries that cannot be moved one by one, by operator: slot kind, shard, key, value."""
    found: defaultdict[str, list[tuple[str, int, bytes, bytes]]] = defaultdict(list)
    for slot, key, value, number in _entries(folder, last):
        name, _, what = slot.rpartition(".")
        if name in binding.moves and binding.home(slot) is None:
            found[name].append((what, number % binding.was, key, value))
    return found


def _entries(folder: Path, last: Commit) -> Iterator[Placed]:
    """Return all entries with the numbers of their current cells."""
    return heapq.merge(*(_cell(folder, number, chain) for number, chain in last.chains.items()))


def _cell(folder: Path, number: int, chain: Chain) -> Iterator[Placed]:
    return ((*entry, number) for entry in entries_of(folder, chain))


class _Written:
    """Files of the new cells, one each.

    pending: cells with rows that start a next tick; waiting: with rows that come with it.
    """

    def __init__(self, folder: Path, attempt: str, tick: int) -> None:
        self._folder = folder
        self._version = Version(tick, attempt)
        self._last: dict[int, tuple[str, bytes]] = {}
        self.chains: dict[int, Chain] = {}
        self.pending: set[int] = set()
        self.waiting: set[int] = set()
        self.keys = 0

    def put(self, entries: Iterator[Placed], moves: Mapping[str, StateMove]) -> None:
        """Write entries, given in the order of slots and keys. Raises `NotOnSpark` for a duplicate."""
        writers: dict[int, EntryWriter] = {}
        with ExitStack() as closing:
            for slot, key, value, cell in entries:
                name, _, what = slot.rpartition(".")
                if self._last.get(cell) == (slot, key):
                    raise moves[name].refused(f"two shards hold {decode(key)!r:.80}.")
                self._last[cell] = (slot, key)
                if cell not in writers:
                    file = f"state/{cell:03d}/{self._version}"
                    writers[cell] = closing.enter_context(EntryWriter(self._folder, file))
                writers[cell].add((slot, key, value))
                self.keys += 1
                if what == DEFERRED and decode(value):
                    self.waiting.add(cell)
                    if moves[name].starts_ticks:
                        self.pending.add(cell)
        links = {cell: Link(writer.ref, self._version.tick) for cell, writer in writers.items()}
        self.chains = {cell: Chain((link,), (self._version,)) for cell, link in links.items()}

    def make_durable(self) -> None:
        """Flush all files to disk."""
        files = [self._folder / file.name for chain in self.chains.values() for file in chain.files()]
        make_durable([*files, *{file.parent for file in files}])
