"""Signatures of case operators: ports, arguments, lifetimes and blocking inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tests.conformance.graph_description import NodeDescription

LIFETIMES = ("tick", "static")


@dataclass(frozen=True, slots=True)
class UnnamedPorts:
    """Unnamed ports, at least `least` and at most `most` of them (None: unlimited)."""

    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class NamedPorts:
    """Ports with these names, each connected exactly once."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NumberedPorts:
    """Ports 0, 1, 2, ... without gaps, at least `least` of them."""

    least: int


@dataclass(frozen=True, slots=True)
class NamedByArgument:
    """Ports with the names listed by the argument `argument`."""

    argument: str = "ports"


Ends: TypeAlias = UnnamedPorts | NamedPorts | NumberedPorts | NamedByArgument

NONE, ONE, UP_TO_ONE, ANY = UnnamedPorts(0, 0), UnnamedPorts(1, 1), UnnamedPorts(0, 1), UnnamedPorts(0, None)
PAIR = NamedPorts(("0", "1"))


@dataclass(frozen=True, slots=True)
class Signature:
    """Signature of an operator.

    arguments, optional: names of required and optional arguments.
    lifetimes: maximum number of lifetimes. allowed: permitted lifetimes.
    blocking: inputs that must be complete before the operator emits anything.
    delayed: whether output appears in a later tick than its input.
    """

    inputs: Ends = ONE
    outputs: Ends = ONE
    arguments: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    lifetimes: int = 0
    allowed: tuple[str, ...] = LIFETIMES
    blocking: tuple[str, ...] = ()
    delayed: bool = False


def _blocking(
    *arguments: str, lifetimes: int = 0, outputs: Ends = ONE, optional: tuple[str, ...] = ()
) -> Signature:
    """Create a signature with one blocking input."""
    return Signature(ONE, outputs, arguments, optional, lifetimes, blocking=("",))


def _pair(*blocking: str, arguments: tuple[str, ...] = (), lifetimes: int = 2) -> Signature:
    """Create a signature with the inputs 0 and 1."""
    return Signature(PAIR, ONE, arguments, lifetimes=lifetimes, blocking=blocking)


def _negative() -> Signature:
    return Signature(NamedPorts(("pos", "neg")), lifetimes=2, blocking=("neg",))


def _by_row(*arguments: str) -> Signature:
    return Signature(arguments=arguments)


_PERSIST_MUT = Signature(lifetimes=1, allowed=("static",), blocking=("",))

SIGNATURES: Mapping[str, Signature] = {
    "source": Signature(NONE),
    "source_iter": Signature(NONE, arguments=("items",)),
    "initialize": Signature(NONE),
    "null": Signature(UP_TO_ONE, UP_TO_ONE),
    "sink": Signature(ONE, NONE),
    "for_each": Signature(ONE, NONE, optional=("fn",)),
    "map": _by_row("fn"),
    "filter": _by_row("fn"),
    "filter_map": _by_row("fn"),
    "flat_map": _by_row("fn"),
    "flatten": _by_row(),
    "identity": _by_row(),
    "inspect": Signature(ONE, UP_TO_ONE, optional=("fn",)),
    "tee": Signature(ONE, ANY),
    "union": Signature(ANY, ONE),
    "partition": Signature(ONE, NamedByArgument(), ("ports", "fn")),
    "demux_enum": Signature(ONE, NamedByArgument(), ("ports",)),
    "unzip": Signature(ONE, PAIR),
    "chain": _pair("0", lifetimes=0),
    "chain_first_n": Signature(NumberedPorts(2), arguments=("n",), blocking=("0",)),
    "join": _pair(),
    "join_multiset": _pair(),
    "join_set": _pair(),
    "cross_join": _pair(),
    "cross_join_multiset": _pair(),
    "cross_join_set": _pair(),
    "semi_join": _pair(),
    "cross_singleton": Signature(NamedPorts(("input", "single")), blocking=("single",)),
    "anti_join": _negative(),
    "difference": _negative(),
    "join_fused": _pair("0", "1", arguments=("0", "1")),
    "join_fused_left": _pair("0", arguments=("0",)),
    "join_fused_lhs": _pair("0", arguments=("0",)),
    "join_fused_right": _pair("1", arguments=("1",)),
    "join_fused_rhs": _pair("1", arguments=("1",)),
    "lattice_join": _pair(arguments=("0", "1")),
    "zip": _pair(),
    "zip_longest": Signature(PAIR, lifetimes=1, allowed=("tick",), blocking=("0", "1")),
    "fold": _blocking("init", "fn", lifetimes=1, outputs=UP_TO_ONE),
    "fold_no_replay": _blocking("init", "fn", lifetimes=1, outputs=UP_TO_ONE),
    "reduce": _blocking("fn", lifetimes=1, outputs=UP_TO_ONE),
    "reduce_no_replay": _blocking("fn", lifetimes=1, outputs=UP_TO_ONE),
    "fold_keyed": _blocking("init", "fn", lifetimes=1),
    "reduce_keyed": _blocking("fn", lifetimes=1),
    "scan": Signature(arguments=("init", "fn"), lifetimes=1),
    # Lattices only grow, so their blocking inputs may still lie on a cycle.
    "lattice_fold": Signature(arguments=("init", "fn"), lifetimes=1),
    "lattice_reduce": Signature(arguments=("fn",), lifetimes=1),
    "lattice_fold_batch": Signature(NamedPorts(("input", "signal")), arguments=("init", "fn")),
    "sort": _blocking(),
    "sort_by_key": _blocking("fn"),
    "unique": Signature(lifetimes=1),
    "enumerate": Signature(lifetimes=1),
    "persist": Signature(lifetimes=1, allowed=("static",)),
    "persist_mut": _PERSIST_MUT,
    "persist_mut_keyed": _PERSIST_MUT,
    "state": Signature(ONE, UP_TO_ONE, ("init", "fn"), lifetimes=1),
    "multiset_delta": Signature(),
    "defer_tick": Signature(delayed=True),
    "defer_tick_lazy": Signature(delayed=True),
    "defer_signal": Signature(NamedPorts(("input", "signal")), blocking=("input", "signal")),
    "next_stratum": _blocking(lifetimes=1),
}
"""Signatures by the name of the operator."""


def names_of(ends: Ends, node: NodeDescription, used: int) -> tuple[str, ...] | None:
    """List the names of an operator's ports, of which `used` are connected; None without names."""
    match ends:
        case NamedPorts(names):
            return names
        case NumberedPorts(least):
            return tuple(map(str, range(max(least, used))))
        case NamedByArgument(argument):
            return tuple(node.arguments.get(argument, ()))
        case UnnamedPorts():
            return None
