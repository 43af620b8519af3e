"""The notation of compute cases: frontiers, commands and responses as JSON.

A frontier is an antichain: `[5]`, or `[]` for the end. A command is an array of its name and what it says.
A dataflow is `{"exports": [...], "as_of": [...], "imports": [...], "plan": text}`, perhaps with `"subscribe":
true`. Ids that begin with `s` are collections, others exports. Settings have any names and values in a case:
they stand for ours, in the order in which they come up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, cast

from penstock.compute.frontier import Frontier
from penstock.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    IndexTarget,
    InitializationComplete,
    InstanceConfig,
    Parameters,
    Peek,
    Schedule,
    UpdateConfiguration,
)
from penstock.compute.protocol.dataflow import (
    CollectionImport,
    Dataflow,
    Export,
    IndexExport,
    IndexImport,
    Plan,
    SubscribeExport,
)
from penstock.testing.conformance.fields import Fields, shown


class InWords(Exception):
    """The case says what no program can read, or what this protocol has in another form."""


def frontier_of(value: object) -> Frontier:
    """`[5]`, `[]`. Raises ValueError for what is none."""
    match value:
        case [int(time)]:
            return Frontier(time)
        case []:
            return Frontier(None)
        case _:
            raise ValueError(f"{shown(value)} is no frontier")


def found_frontier(pattern: str, text: str) -> Frontier | None:
    """The frontier that follows `pattern`, a regular expression, in a text; None where it does not occur."""
    found = re.search(pattern + r"\s*(\[\d*\])", text)
    return None if found is None else frontier_of(json.loads(found.groups()[-1]))


def shown_frontier(frontier: Frontier | None) -> list[int] | None:
    if frontier is None:
        return None
    return [] if frontier.time is None else [frontier.time]


def shown_command(command: Command) -> str:
    """A command in few words."""
    match command:
        case CreateDataflow(flow):
            ids = ", ".join(export.id for export in flow.exports)
            return f"CreateDataflow({ids} from {flow.as_of}, plan {flow.plan.body.decode()})"
        case AllowCompaction(id, frontier):
            return f"AllowCompaction({id}, {frontier})"
        case Schedule(id) | AllowWrites(id):
            return f"{type(command).__name__}({id})"
        case Peek(uuid) | CancelPeek(uuid):
            name = uuid.rstrip(b"\0").decode()
            return f"{type(command).__name__}({name})"
        case _:
            return type(command).__name__


@dataclass(slots=True)
class Notation:
    """Reads the commands of one case. case: for errors."""

    case: Fields
    _settings: list[str] = field(default_factory=list[str])
    _values: list[Any] = field(default_factory=list[Any])

    def commands(self, values: list[Any]) -> list[Command]:
        """Raises `BadCase` for what is no command, `InWords` for what this protocol says otherwise."""
        return [self.command(value) for value in values]

    def command(self, value: object) -> Command:
        if not isinstance(value, list) or not value or not isinstance(value[0], str):
            raise self.case.bad(f"{shown(value)} is no command")
        name, *said = cast("list[Any]", value)
        if name not in _COMMANDS:
            raise self.case.bad(f"{name!r} is no command", f"one of {', '.join(_COMMANDS)}")
        try:
            return _COMMANDS[name](self, *said)
        except KeyError as error:
            raise self.case.bad(f"{name}: {error} is missing in {shown(said)}") from None
        except ValueError as error:
            raise self.case.bad(f"{name}: {error}") from None
        except TypeError:
            raise self.case.bad(f"{name} does not say {shown(said)}") from None

    def configuration(self, settings: dict[str, Any] | None = None) -> UpdateConfiguration:
        return UpdateConfiguration(
            Parameters(**{self._setting(n): self._value(v) for n, v in (settings or {}).items()})
        )

    def _setting(self, name: str) -> str:
        ours = [f.name for f in fields(Parameters)]
        if name in ours:
            return name
        if name not in self._settings:
            self._settings.append(name)
        return ours[self._settings.index(name)]

    def _value(self, value: object) -> int | None:
        if value is None or isinstance(value, int):
            return value
        if value not in self._values:
            self._values.append(value)
        return self._values.index(value)


def dataflow_of(described: dict[str, Any]) -> Dataflow:
    """A dataflow from its description. Raises KeyError, ValueError."""
    make = SubscribeExport if described.get("subscribe") else IndexExport
    exports: list[Export] = [make(id, f"out {id}") for id in described["exports"]]
    return dataflow(exports, described.get("imports", []), described.get("plan", ""), described["as_of"])


def dataflow(exports: list[Export], imports: list[str], plan: str = "", as_of: object = (0,)) -> Dataflow:
    """A dataflow with these exports. imports: ids of collections (with an s) and indexes."""
    at = frontier_of(list(cast("tuple[int, ...]", as_of)))
    return Dataflow(
        Plan(plan.encode()),
        tuple(CollectionImport(f"in {id}", id) for id in imports if id.startswith("s")),
        tuple(IndexImport(f"in {id}", id) for id in imports if not id.startswith("s")),
        tuple(exports),
        at,
    )


def uuid_of(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def instance(_notation: Notation | None = None, config: dict[str, Any] | None = None) -> CreateInstance:
    """`{"logging": {"interval": ms}, "expiration_offset": ms or null}`."""
    given = config or {}
    interval = given.get("logging", {}).get("interval", 0)
    return CreateInstance(InstanceConfig("memory:", given.get("expiration_offset"), interval))


def _create_dataflow(_notation: Notation, described: dict[str, Any] | str) -> Command:
    if isinstance(described, str):
        return CreateDataflow(dataflow([IndexExport(described, "out")], []))
    return CreateDataflow(dataflow_of(described))


def _allow_writes(_notation: Notation, id: str | None = None) -> Command:
    if id is None:
        raise InWords("writes are allowed to one export at a time")
    return AllowWrites(id)


def _peek(_notation: Notation, name: str, asked: dict[str, Any]) -> Command:
    return Peek(uuid_of(name), IndexTarget(asked.get("target", "u0")), asked.get("ts", 0))


_COMMANDS: dict[str, Callable[..., Command]] = {
    "CreateTimely": lambda _: CreateTimely(),
    "CreateInstance": instance,
    "UpdateConfiguration": Notation.configuration,
    "InitializationComplete": lambda _: InitializationComplete(),
    "CreateDataflow": _create_dataflow,
    "Schedule": lambda _, id: Schedule(id),
    "AllowWrites": _allow_writes,
    "AllowCompaction": lambda _, id, frontier: AllowCompaction(id, frontier_of(frontier)),
    "Peek": _peek,
    "CancelPeek": lambda _, name: CancelPeek(uuid_of(name)),
}
