"""Resharding of a checkpoint's state while its flow is not running."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.analysis.column_lineage import live_graph
from headrace.engine.resume import ResumeBinding, read_state_names
from headrace.errors import BadInput, FlowChanged
from headrace.file_system import local_path
from headrace.spark.checkpoints.resume import (
    ON_SPARK,
    Loops,
    check_division,
    choose_loop_placement,
    kept_slots,
    layout,
    stateful_stages,
)
from headrace.spark.checkpoints.shard_transfer import (
    DEFERRED,
    Placed,
    StatefulNode,
    StateMove,
    gather_entries,
    moves,
    redistribute_slots,
    shard_function,
)
from headrace.spark.checkpoints.state_ownership import StateOwnership
from headrace.spark.placing.combining import insert_partial_operators
from headrace.spark.placing.stages import cut_stages
from headrace.spark.ticks.plan import CompiledStage, Plan
from headrace.state.arranged_store import stored_entries
from headrace.state.chain import BatchChain, make_durable
from headrace.state.checkpoint import Checkpoint
from headrace.state.codec import decode
from headrace.state.lazy_slots import whole_values
from headrace.state.manifest import Manifest, as_it_is
from headrace.state.shard import ShardWriter

if TYPE_CHECKING:
    from headrace.flow.flow import Flow
    from headrace.graph.node import FlowGraph
    from headrace.state.commit import Commit


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
    """New cells.

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
        """Write the rows that a cell's arrangements hold."""
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
