"""Grouping of signal operators into blocks that fire together, and of blocks into parts.

Whether an operator fires in a tick follows from which *primitives* fire: sources, and
operators that may stay silent. A lift of current values fires when one of its primitives
does and all of them have a value; the primitives of a lift of lifts are those of both.
So all operators of one set of primitives fire in the same ticks: a *block*, which is code
without decisions. A block stands inside another where it can only run if that one does; a
*part* is such a tree, and becomes one function. Parts are what is scheduled.

Parts never read from each other in a circle. (Of a part for a set of primitives, compare first
the newest of these, then how many they are: both can only become less on the way to what it
reads.) So they have an order, and their numbers are it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from headrace.operators.signals.lift import SignalOperator

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from headrace.graph.node import Node


Primitives = frozenset[int]
"""Ids of sources and of operators that may stay silent."""


@dataclass(slots=True, eq=False)
class ScheduledPart:
    """A group of blocks compiled to one function.

    at:       its place in the order of parts.
    generation: how often the arrangement was settled before it was made.
    triggers: blocks of other parts; it runs in a tick in which one of them does.
    """

    at: int
    triggers: tuple[Block, ...] = ()
    generation: int = 0
    blocks: list[Block] = field(default_factory=list["Block"])
    nodes: list[int] = field(default_factory=list[int])

    @property
    def root(self) -> Block:
        return self.blocks[0]


@dataclass(slots=True, eq=False)
class Block:
    """Operators that fire in the same ticks.

    node:       the operator whose firing it is; None if primitives of several meet.
    primitives: those of the operators in it.
    any_of:     it runs if one of these, of its own part, did; empty: whenever its parent does.
    all_have:   and if each of these primitives has a value.
    """

    part: ScheduledPart
    parent: Block | None
    primitives: Primitives
    node: int | None = None
    any_of: tuple[Block, ...] = ()
    all_have: tuple[int, ...] = ()
    number: int = 0

    def __post_init__(self) -> None:
        self.number = len(self.part.blocks)
        self.part.blocks.append(self)

    @property
    def name(self) -> str:
        """Name in generated code, unique in the engine."""
        return f"{self.part.at}_{self.number}"

    def chain(self) -> list[Block]:
        """Return the block and its enclosing blocks, innermost first."""
        found: list[Block] = [self]
        while found[-1].parent is not None:
            found.append(found[-1].parent)
        return found

    def is_within(self, other: Block) -> bool:
        """Return whether the block lies inside `other` and so runs only when it does."""
        return self.part is other.part and other in self.chain()


class BlockLayout:
    """Blocks and parts of signal operators, which grow as operators are added.

    runs_in:  per operator, the block in which it is activated.
    fires_in: per operator, the block of those that hear of it when it fires.
    sources:  operators whose values come from outside.
    apart:    each operator is a part of its own.
    together: sources that fire in every tick. Then there is one part, of all that they
              reach; sources that are not among them never fire, and keep the value they have.
    """

    def __init__(
        self, sources: Collection[int], *, apart: bool = False, together: frozenset[int] | None = None
    ) -> None:
        self.sources = set(sources)
        self.parts: list[ScheduledPart] = []
        self.runs_in: dict[int, Block] = {}
        self.fires_in: dict[int, Block] = {}
        self._apart = apart
        self._together = together
        self._shared: dict[object, Block] = {}
        self._block_of: dict[int, Block] = {}
        self._still: dict[int, Primitives] = {}
        self._settled: set[ScheduledPart] = set()
        self.generation = 0
        self._next = 0

    def add(self, node: Node) -> None:
        """Add an operator whose inputs have been added."""
        if node.id in self.sources:
            self._add_source(node)
            return
        if self._together is not None and all(n in self._still for n in self._triggers(node)):
            inherited = frozenset[int]().union(*(self._primitives(n) for n in node.inputs))
            self._still[node.id] = inherited if follows_from_inputs(node) else frozenset({node.id})
            return
        block = self._location(node)
        block.part.nodes.append(node.id)
        self.runs_in[node.id] = block
        if not follows_from_inputs(node):
            own = Block(block.part, block, frozenset({node.id}), node=node.id)
            self._block_of[node.id] = own
            self.fires_in[node.id] = own
        else:
            self.fires_in[node.id] = block
            self._block_of.setdefault(node.id, block)

    def _add_source(self, node: Node) -> None:
        if self._together is None:
            root = Block(self._new_part(), None, frozenset({node.id}), node=node.id)
        elif node.id in self._together:
            root = self._shared.get("together")
            if root is None:
                root = self._shared["together"] = Block(self._new_part(), None, frozenset({node.id}))
        else:
            self._still[node.id] = frozenset({node.id})
            return
        root.part.nodes.append(node.id)
        self.runs_in[node.id] = self.fires_in[node.id] = self._block_of[node.id] = root

    def _new_part(self, triggers: Iterable[Block] = ()) -> ScheduledPart:
        part = ScheduledPart(len(self.parts), tuple(triggers), self.generation)
        self.parts.append(part)
        return part

    def _triggers(self, node: Node) -> list[int]:
        operator = node.operator
        if isinstance(operator, SignalOperator):
            return [node.inputs[port] for port in operator.triggers()]
        return list(node.inputs)

    def _primitives(self, node: int) -> Primitives:
        """Return the primitives that decide whether a node fires. With `apart`, each operator is its own."""
        if self._apart:
            return frozenset({node})
        return self._still[node] if node in self._still else self.fires_in[node].primitives

    def _location(self, node: Node) -> Block:
        read = frozenset[int]().union(*(self._primitives(n) for n in node.inputs))
        if len(node.inputs) > 1 and follows_from_inputs(node) and not self._apart:
            blocks = [self._block_of[p] for p in sorted(read) if p not in self._still]
            parts = {b.part for b in blocks}
        else:
            blocks = [self.fires_in[n] for n in self._triggers(node) if n in self.fires_in]
            parts = {self.fires_in[n].part for n in node.inputs if n in self.fires_in}
        blocks = _outermost(blocks)
        operator = node.operator
        waits = isinstance(operator, SignalOperator) and operator.waits_for_all()
        all_have = tuple(sorted(read)) if waits else ()
        alone = node.id if self._apart else None
        key = (alone, frozenset(blocks), frozenset(parts), all_have)
        if key not in self._shared:
            if alone is not None or len(parts) > 1 or any(p in self._settled for p in parts):
                part = self._new_part(blocks)
                self._shared[key] = Block(part, None, read, all_have=all_have)
            else:
                self._shared[key] = self._inside(blocks, read, all_have)
        return self._shared[key]

    def _inside(self, blocks: list[Block], read: Primitives, all_have: tuple[int, ...]) -> Block:
        """Return the block for operators that run whenever any of `blocks` does, within their part."""
        if len(blocks) > 1:
            return Block(
                blocks[0].part, _innermost_around(blocks), read, any_of=tuple(blocks), all_have=all_have
            )
        (block,) = blocks
        unsure = tuple(p for p in all_have if p in self._still or not block.is_within(self._block_of[p]))
        return Block(block.part, block, read, all_have=unsure) if unsure else block

    def firing_of(self, node: int) -> set[Block]:
        """Return the blocks entered when a node fires: its own, and those of its primitives."""
        blocks = {self._block_of[p] for p in self._primitives(node)}
        return {self.fires_in[node], *blocks}

    def freeze_new_parts(self, nodes: Mapping[int, Node]) -> list[ScheduledPart]:
        """Number and freeze the parts made since the last call, and return them."""
        made = [p for p in self.parts if p not in self._settled]
        before: dict[ScheduledPart, dict[ScheduledPart, None]] = {}
        for part in made:
            reading = (n for n in part.nodes if n not in self.sources)
            read = [self.fires_in[i] for n in reading for i in nodes[n].inputs if i in self.fires_in]
            before[part] = dict.fromkeys(b.part for b in (*part.triggers, *read) if b.part is not part)
        for part in TopologicalSorter(before).static_order():
            if part not in self._settled:
                part.at = self._next
                self._next += 1
        self._settled.update(made)
        self._shared = {}
        self.generation += 1
        self.parts.sort(key=lambda part: part.at)
        return sorted(made, key=lambda part: part.at)

    def remove(self, node: int) -> ScheduledPart:
        """Remove an operator without readers and return its part, which is removed with its last operator."""
        part = self.runs_in.pop(node).part
        block = self.fires_in.pop(node)
        if self._block_of.get(node) is block:
            del self._block_of[node]
        part.nodes.remove(node)
        if not part.nodes:
            self.parts.remove(part)
            self._settled.discard(part)
        return part


def follows_from_inputs(node: Node) -> bool:
    """Return whether a node fires exactly when any input fires and all have a value."""
    operator = node.operator
    if not isinstance(operator, SignalOperator):
        return True
    if operator.may_be_silent():
        return False
    return len(node.inputs) == 1 or (
        operator.waits_for_all() and len(operator.triggers()) == len(node.inputs)
    )


def _outermost(blocks: list[Block]) -> list[Block]:
    """Return the blocks not inside any of the others, without duplicates."""
    distinct = list(dict.fromkeys(blocks))
    return [b for b in distinct if not any(b is not o and b.is_within(o) for o in distinct)]


def _innermost_around(blocks: list[Block]) -> Block:
    around = blocks[0].chain()
    for block in blocks[1:]:
        chain = block.chain()
        around = [b for b in around if b in chain]
    return around[0]


# Python allows no more than 100 levels of indentation.
_DEEPEST = 40


@dataclass(slots=True)
class BlockEntry:
    """An entry into a block: its operators and inner blocks, in order.

    again:   it was entered before.
    decider: the operator, written just before, whose firing it is; None: it is entered for another reason.
    """

    block: Block
    again: bool = False
    decider: int | None = None
    items: list[int | BlockEntry] = field(default_factory=list["int | BlockEntry"])


def order_entries(part: ScheduledPart, nodes: Mapping[int, Node], arrangement: BlockLayout) -> BlockEntry:
    """Order the operators of `part` topologically, as entries of blocks nested in the root's."""
    return _Order(part, nodes, arrangement).enter(part.root)


class _Order:
    def __init__(self, part: ScheduledPart, nodes: Mapping[int, Node], arrangement: BlockLayout) -> None:
        self._runs_in = arrangement.runs_in
        self._fires_in = arrangement.fires_in
        self._around = {block: _around(block) for block in part.blocks}
        self._inside: dict[Block, list[Block]] = defaultdict(list)
        for block, around in self._around.items():
            if around is not None:
                self._inside[around].append(block)
        self._entered: set[Block] = set()
        self._ready: dict[Block, list[tuple[bool, int]]] = defaultdict(list)
        self._below: dict[Block, int] = defaultdict(int)
        self._readers: dict[int, list[int]] = defaultdict(list)
        self._unread: dict[int, int] = {}
        members = set(part.nodes)
        for node in part.nodes:
            inside = {i for i in nodes[node].inputs if i in members and node not in arrangement.sources}
            self._unread[node] = len(inside)
            for source in inside:
                self._readers[source].append(node)
        for node, count in self._unread.items():
            if not count:
                self._make_ready(node)

    def _make_ready(self, node: int) -> None:
        block = self._runs_in[node]
        # Deciding operators last: what then runs in their blocks is ready, and they are entered once.
        heapq.heappush(self._ready[block], (self._fires_in[node] is not block, node))
        for around in self._chain(block):
            self._below[around] += 1

    def _chain(self, block: Block) -> Iterator[Block]:
        around: Block | None = block
        while around is not None:
            yield around
            around = self._around[around]

    def enter(self, block: Block, decider: int | None = None) -> BlockEntry:
        """Emit a block's ready operators, then its inner blocks, until none is left."""
        entry = BlockEntry(block, block in self._entered, decider)
        self._entered.add(block)
        while self._below[block]:
            if self._ready[block]:
                entry.items.append(self._write(block))
            else:
                entry.items.append(self.enter(next(b for b in self._inside[block] if self._below[b])))
        return entry

    def _write(self, block: Block) -> int | BlockEntry:
        decides, node = heapq.heappop(self._ready[block])
        for around in self._chain(block):
            self._below[around] -= 1
        for reader in self._readers[node]:
            self._unread[reader] -= 1
            if not self._unread[reader]:
                self._make_ready(reader)
        if not decides:
            return node
        own = self._fires_in[node]
        if self._around[own] is block:
            return self.enter(own, node)
        self._entered.add(own)
        return BlockEntry(own, False, node)


def _around(block: Block) -> Block | None:
    """Return the block whose lines enclose a block's lines: its parent, unless nested too deeply."""
    chain = block.chain()
    if len(chain) == 1:
        return None
    return chain[1] if len(chain) % _DEEPEST else chain[-1]
