"""Ordering of a part's operators so that few blocks are entered twice."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.engine.signals.block_grouping import Arrangement, Block, ScheduledPart
    from headrace.graph.node import Node

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


def order_entries(part: ScheduledPart, nodes: Mapping[int, Node], arrangement: Arrangement) -> BlockEntry:
    """Order the operators of `part` topologically, as entries of blocks nested in the root's."""
    return _Order(part, nodes, arrangement).enter(part.root)


class _Order:
    def __init__(self, part: ScheduledPart, nodes: Mapping[int, Node], arrangement: Arrangement) -> None:
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
