"""What signals must show, from the rules alone: every node looked at in every tick, in order.

Slow and plain on purpose; engines are compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.conformance.signal_cases import ZIP, NodeDescription

SILENT: Any = object()
"""Instead of a value: the node has not fired."""


class SignalOracle:
    """Runs a graph of descriptions, given in an order in which each comes after what it reads.

    fired: per node how often its function was called; of nodes without one, how often they fired.
    """

    def __init__(self, nodes: Mapping[str, NodeDescription]) -> None:
        self._nodes = dict(nodes)
        self._values: dict[str, Any] = {}
        self._memory: dict[str, Any] = {}
        self.fired = dict.fromkeys(nodes, 0)

    def tick(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """The value of every node that fires in a tick with these values of sources."""
        fresh: dict[str, Any] = {}
        for name, node in self._nodes.items():
            value = event.get(name, SILENT) if node.operator == "source" else self._value(name, node, fresh)
            if value is not SILENT:
                fresh[name] = self._values[name] = value
                self.fired[name] += node.operator != "filter"
        return fresh

    def start(self, nodes: Mapping[str, NodeDescription]) -> dict[str, Any]:
        """Add nodes, which begin as if what they read had fired just now; the values of those that fire."""
        fresh = {i: self._values[i] for node in nodes.values() for i in node.of if i in self._values}
        started: dict[str, Any] = {}
        for name, node in nodes.items():
            self._nodes[name] = node
            self.fired[name] = 0
            value = self._value(name, node, fresh)
            if value is not SILENT:
                fresh[name] = started[name] = self._values[name] = value
        return started

    def current(self, name: str) -> Any:
        """The value of a node, `SILENT` if it has none."""
        return self._values.get(name, SILENT)

    def forget(self, name: str) -> None:
        """Take a node out, with all that it remembers."""
        del self._nodes[name], self.fired[name]
        self._values.pop(name, None)
        self._memory.pop(name, None)

    def _value(self, name: str, node: NodeDescription, fresh: Mapping[str, Any]) -> Any:
        if node.operator == "lift" and node.arguments.get("align") == ZIP:
            return self._zip(name, node, fresh)
        if node.operator == "lift":
            if all(i in self._values for i in node.of) and any(i in fresh for i in node.of):
                return node.arguments["fn"](*(self._values[i] for i in node.of))
            return SILENT
        if node.operator == "sample":
            value, trigger = node.of
            return self._values.get(value, SILENT) if trigger in fresh else SILENT
        if node.of[0] not in fresh:
            return SILENT
        return self._act(name, node, fresh[node.of[0]])

    def _zip(self, name: str, node: NodeDescription, fresh: Mapping[str, Any]) -> Any:
        buffers: list[list[Any]] = self._memory.setdefault(name, [[] for _ in node.of])
        for buffer, source in zip(buffers, node.of, strict=True):
            if source in fresh:
                buffer.append(fresh[source])
        if not all(buffers):
            return SILENT
        return node.arguments["fn"](*(buffer.pop(0) for buffer in buffers))

    def _act(self, name: str, node: NodeDescription, value: Any) -> Any:
        arguments = node.arguments
        seen: list[Any] = self._memory.setdefault(name, [])
        seen.append(value)
        if node.operator == "filter":
            self.fired[name] += 1
            return value if arguments["fn"](value) else SILENT
        if node.operator == "scan":
            before = self._values.get(name, arguments["init"])
            return arguments["fn"](before, value)
        if node.operator == "window":
            if arguments["full"] and len(seen) < arguments["size"]:
                return SILENT
            return arguments["fn"](seen[-arguments["size"] :])
        if node.operator == "delay":
            ago = len(seen) - 1 - arguments["n"]
            return seen[ago] if ago >= 0 else arguments.get("init", SILENT)
        assert node.operator == "changes"
        return SILENT if len(seen) > 1 and seen[-2] == value else value


def expected_of(
    nodes: Mapping[str, NodeDescription], outputs: Sequence[str], events: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """What each output shows per tick, under the keys of cases, and how often every node is activated."""
    oracle = SignalOracle(nodes)
    ticks: list[dict[str, Any]] = []
    for event in events:
        fresh = oracle.tick(event)
        ticks.append({
            f"{name}*" if nodes[name].arguments.get("align") == ZIP else name:
            [fresh[name]] if nodes[name].arguments.get("align") == ZIP else fresh[name]
            for name in outputs if name in fresh
        })  # fmt: skip
    return ticks, oracle.fired
