"""Trace of a simulation: all events as lines, identical in every process for one seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from hashlib import sha256
from typing import Any, cast

from headrace.compute.frontier import Frontier
from headrace.compute.plans.generated import plan_pb2
from headrace.compute.protocol.commands import Plan
from headrace.errors import HeadraceError


class SimulationTrace(list[str]):
    """Lines of a trace."""

    def note(self, *said: object) -> None:
        """Add a line of space-separated values: texts unchanged, everything else as formatted by `shown`."""
        self.append(" ".join(each if isinstance(each, str) else shown(each) for each in said))


def shown(value: object) -> str:
    """Format a value as text, without addresses, with sorted sets and without default fields.

    >>> shown((Frontier(3), frozenset({"b", "a"}), b"\\x01"))
    "([3], {'a', 'b'}, 01)"
    """
    match value:
        case Frontier():
            return str(value)
        case Plan():
            return f"plan {_identity(value)}"
        case bytes():
            return value.hex()
        case Enum():
            return value.name
        case HeadraceError():
            return f"{type(value).__name__}: {value.what}"
        case frozenset() | set():
            return f"{{{', '.join(sorted(map(shown, cast('Iterable[Any]', value))))}}}"
        case tuple() | list():
            return f"({', '.join(map(shown, cast('Iterable[Any]', value)))})"
        case Mapping():
            items = cast("Mapping[Any, Any]", value).items()
            return f"{{{', '.join(f'{shown(k)}: {shown(v)}' for k, v in items)}}}"
        case _ if is_dataclass(value) and not isinstance(value, type):
            given = [f for f in fields(value) if getattr(value, f.name) != _default(f)]
            said = ", ".join(f"{f.name}={shown(getattr(value, f.name))}" for f in given)
            return f"{type(value).__name__}({said})"
        case _:
            return repr(value)


def _default(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _identity(plan: Plan) -> str:
    """Return the identity of a plan without its functions, whose pickles differ between processes."""
    body = plan_pb2.Body.FromString(plan.body)
    body.ClearField("functions")
    return sha256(body.SerializeToString(deterministic=True)).hexdigest()[:8]
