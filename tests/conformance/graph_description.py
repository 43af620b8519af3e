"""Unchecked description of a case's graph: nodes with operators, edges with ports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.case_format import Fields, shown
from tests.conformance.case_functions import NotAFunction, function_of
from tests.conformance.case_values import from_json


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """Node of a graph: its operator's name, its arguments by name, and the lifetime of each input.

    lifetimes: as written: empty (the default of the format), one for all inputs, or one per input in port
        order.
    """

    id: str
    operator: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    lifetimes: tuple[str, ...] = ()

    def lifetime(self, port: int = 0) -> str:
        """Return the lifetime of an input, by its number."""
        if not self.lifetimes:
            return "tick"
        return self.lifetimes[port if len(self.lifetimes) > 1 else 0]


@dataclass(frozen=True, slots=True)
class EdgeDescription:
    """Edge from an output of a node to an input of another; an unnamed port is ""."""

    source: str
    out: str
    target: str
    into: str


@dataclass(frozen=True, slots=True)
class GraphDescription:
    """Graph of a case, as written. nodes: by id. edges: in order."""

    nodes: Mapping[str, NodeDescription]
    edges: tuple[EdgeDescription, ...]

    def edges_into(self, node: str) -> tuple[EdgeDescription, ...]:
        """List the edges that enter a node."""
        return tuple(e for e in self.edges if e.target == node)

    def edges_out_of(self, node: str) -> tuple[EdgeDescription, ...]:
        """List the edges that leave a node."""
        return tuple(e for e in self.edges if e.source == node)


def read_graph(case: Fields) -> GraphDescription:
    """Read the fields `nodes` and `edges` of a case. Raises `BadCase` for anything but a graph."""
    nodes = case.object("nodes")
    return GraphDescription(
        {name: _node(name, nodes.object(name)) for name in nodes},
        tuple(_edge(case, at, edge) for at, edge in enumerate(case.items("edges"))),
    )


def _node(name: str, fields: Fields) -> NodeDescription:
    if "." in name or not name:
        raise fields.build_error(
            f"the node {name!r} has a dot in its name or none", "name it with letters and digits"
        )
    fields.only("op", "args", "lifetime")
    arguments: dict[str, Any] = {}
    if "args" in fields:
        arguments = {n: _argument(fields.object("args"), n) for n in fields.object("args")}
    return NodeDescription(name, fields.text("op"), arguments, _lifetimes(fields))


def _lifetimes(fields: Fields) -> tuple[str, ...]:
    given = fields.value("lifetime", [])
    if not isinstance(given, str | list):
        raise fields.build_error(
            f"{fields.path}.lifetime is {shown(given)}, not a lifetime or an array of them"
        )
    return (given,) if isinstance(given, str) else fields.texts("lifetime", [])


def _argument(fields: Fields, name: str) -> Any:
    """Read an argument by its name; unknown ones are kept as written."""
    return _ARGUMENTS.get(name, Fields.value)(fields, name)


def _side(fields: Fields, name: str) -> Mapping[str, Callable[..., Any]]:
    """Read the functions of one input."""
    side = fields.object(name)
    side.only("init", "fn")
    if "fn" not in side:
        raise side.build_error(f"{side.path}.fn is missing")
    return {n: _function(side, n) for n in side}


def _items(fields: Fields, name: str) -> tuple[Any, ...]:
    return to_rows(fields, name, fields.items(name))


def _function(fields: Fields, name: str) -> Callable[..., Any]:
    try:
        return function_of(fields.text(name))
    except NotAFunction as error:
        raise fields.build_error(
            f"{fields.path}.{name}: {error}", "write a lambda that computes on its arguments"
        ) from None


_ARGUMENTS: Mapping[str, Callable[[Fields, str], Any]] = {
    "fn": _function,
    "init": _function,
    "ports": Fields.texts,
    "n": Fields.number,
    "items": _items,
    "0": _side,
    "1": _side,
}


def to_rows(fields: Fields, name: str, items: list[Any]) -> tuple[Any, ...]:
    """Convert JSON values to rows. Raises `BadCase` for invalid ones."""
    try:
        return tuple(from_json(item) for item in items)
    except ValueError as error:
        raise fields.build_error(f"{name}: {error}") from None


def _edge(case: Fields, at: int, edge: Any) -> EdgeDescription:
    if not (isinstance(edge, list) and len(edge) == 2 and all(isinstance(end, str) for end in edge)):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        raise case.build_error(
            f'edges[{at}] is {shown(edge)}, not ["from", "to"]', "ends are `id` or `id.port`"
        )
    (source, _, out), (target, _, into) = (end.partition(".") for end in edge)
    return EdgeDescription(source, out, target, into)
