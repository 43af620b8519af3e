"""Notation of compute cases: frontiers, commands and responses as JSON.

A frontier is an antichain: `[5]`, or `[]` for the end. A command is an array of its name and its fields. A
dataflow is `{"exports": [...], "as_of": [...], "imports": [...], "plan": text}`, optionally with
`"subscribe": true` or `"copy_to": true`, `"until": [...]`, `"name": text`; other fields are rejected. Ids
that begin with `s` are collections, others exports. Settings are ours, with integers, or have other names and
any values: these stand for the settings of ours that the case does not use, in order of appearance.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

from headrace.compute.frontier import END, Frontier
from headrace.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    CollectionImport,
    Command,
    CopyToExport,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Dataflow,
    Export,
    IndexExport,
    IndexImport,
    IndexTarget,
    InitializationComplete,
    InstanceConfig,
    Parameters,
    Peek,
    PlanBytes,
    Schedule,
    SubscribeExport,
    UpdateConfiguration,
)
from tests.conformance.case_format import Fields, shown


class InWords(Exception):
    """Raised for a case in words, or with a concept that this protocol expresses otherwise."""


def frontier_of(value: object) -> Frontier:
    """Parse a frontier: `[5]`, `[]`. Raises ValueError for anything else."""
    match value:
        case [int(time)]:
            return Frontier(time)
        case []:
            return Frontier(None)
        case _:
            raise ValueError(f"{shown(value)} is no frontier")


def found_frontier(pattern: str, text: str) -> Frontier | None:
    """Find the frontier that follows the regular expression `pattern` in a text; None without a match."""
    found = re.search(pattern + r"\s*(\[\d*\])", text)
    return None if found is None else frontier_of(json.loads(found.groups()[-1]))


def shown_frontier(frontier: Frontier | None) -> list[int] | None:
    if frontier is None:
        return None
    return [] if frontier.time is None else [frontier.time]


@dataclass(slots=True)
class Notation:
    """Reader for the commands of one case.

    settings: maps setting names of the case to ours.
    """

    case: Fields
    settings: dict[str, str] = field(init=False)
    _values: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        named = list(dict.fromkeys(_settings_named([self.case.value(name) for name in self.case])))
        free = iter([name for name in _SETTINGS if name not in named])
        self.settings = {name: name if name in _SETTINGS else next(free, "") for name in named}

    def commands(self, values: list[Any]) -> list[Command]:
        """Read commands.

        Raises `BadCase` for invalid ones, `InWords` for those that this protocol expresses otherwise.
        """
        return [self.command(value) for value in values]

    def command(self, value: object) -> Command:
        if not isinstance(value, list) or not value or not isinstance(value[0], str):
            raise self.case.build_error(f"{shown(value)} is no command")
        name, *said = cast("list[Any]", value)
        if name not in _COMMANDS:
            raise self.case.build_error(f"{name!r} is no command", f"one of {', '.join(_COMMANDS)}")
        try:
            return _COMMANDS[name](self, *said)
        except KeyError as error:
            raise self.case.build_error(f"{name}: {error} is missing in {shown(said)}") from None
        except ValueError as error:
            raise self.case.build_error(f"{name}: {error}") from None
        except TypeError:
            raise self.case.build_error(f"{name} does not say {shown(said)}") from None

    def configuration(self, settings: dict[str, Any] | None = None) -> UpdateConfiguration:
        given = self.fields(settings or {}, "UpdateConfiguration")
        return UpdateConfiguration(Parameters(**{self._setting(n): self._value(given, n) for n in given}))

    def _setting(self, name: str) -> str:
        ours = self.settings[name]
        if not ours:
            raise self.case.build_error(
                f"the case has {len(self.settings)} settings, and there are {len(_SETTINGS)}",
                f"at most {len(_SETTINGS)} in one case",
            )
        return ours

    def _value(self, given: Fields, name: str) -> int | None:
        if given.value(name) is None:
            return None
        if name in _SETTINGS:
            return given.number(name)
        # As text, which distinguishes 1, true and missing values.
        value = json.dumps(given.value(name), sort_keys=True)
        if value not in self._values:
            self._values.append(value)
        return self._values.index(value)

    def commands_differ(self, name: str, expected: Sequence[Command], found: Sequence[Command]) -> str:
        """Describe the difference between expected and found commands; empty if equal."""
        if list(expected) == list(found):
            return ""
        told = ["; ".join(map(self._shown, commands)) or "nothing" for commands in (expected, found)]
        return f"{name}: expected {told[0]}; found {told[1]}"

    def _shown(self, command: Command) -> str:
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
            case UpdateConfiguration(parameters):
                set_ = {name: getattr(parameters, ours) for name, ours in self.settings.items()}
                told = (f"{n}={self._given(n, v)}" for n, v in set_.items() if v is not None)
                return f"UpdateConfiguration({', '.join(told)})"
            case _:
                return type(command).__name__

    def _given(self, name: str, value: int) -> str:
        """Return a setting's value in the notation of the case."""
        return str(value) if name in _SETTINGS else self._values[value]

    def fields(self, value: object, name: str, *only: str) -> Fields:
        """Read a command's fields, which must have these names if any are given."""
        found = Fields(value, self.case.case, name)
        if only:
            found.only(*only)
        return found

    def dataflow(self, described: object) -> Dataflow:
        """Read the description of a dataflow. Raises `BadCase`, ValueError."""
        given = self.fields(
            described,
            "CreateDataflow",
            *("exports", "as_of", "imports", "plan", "subscribe", "copy_to", "until", "name"),
        )
        if given.flag("subscribe", False) and given.flag("copy_to", False):
            raise given.build_error(
                "CreateDataflow is a subscription and a copy", "one of subscribe and copy_to"
            )
        exports: list[Export] = []
        for id in given.texts("exports"):
            if given.flag("copy_to", False):
                exports.append(CopyToExport(id, f"out {id}", "rows.jsonl"))
            else:
                make = SubscribeExport if given.flag("subscribe", False) else IndexExport
                exports.append(make(id, f"out {id}"))
        found = dataflow(
            exports, list(given.texts("imports", [])), given.text("plan", ""), given.items("as_of")
        )
        until = frontier_of(given.items("until")) if "until" in given else END
        return replace(found, until=until, name=given.text("name", ""))


def _settings_named(value: object) -> Iterator[str]:
    """List the setting names of all `UpdateConfiguration` commands of a case, in order."""
    match value:
        case ["UpdateConfiguration", dict() as settings]:
            yield from cast("dict[str, Any]", settings)
        case list():
            for each in cast("list[Any]", value):
                yield from _settings_named(each)
        case dict():
            for each in cast("dict[str, Any]", value).values():
                yield from _settings_named(each)
        case _:
            return


_SETTINGS = tuple(f.name for f in fields(Parameters))


def dataflow(exports: list[Export], imports: list[str], plan: str = "", as_of: object = (0,)) -> Dataflow:
    """Create a dataflow with these exports. imports: ids of collections (beginning with s) and indexes."""
    at = frontier_of(list(cast("tuple[int, ...]", as_of)))
    return Dataflow(
        PlanBytes(plan.encode()),
        tuple(CollectionImport(f"in {id}", id) for id in imports if id.startswith("s")),
        tuple(IndexImport(f"in {id}", id) for id in imports if not id.startswith("s")),
        tuple(exports),
        at,
    )


def uuid_of(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def instance(notation: Notation, config: object = None) -> CreateInstance:
    """Read `{"logging": {"interval": ms}, "expiration_offset": ms or null}`."""
    given = notation.fields(config or {}, "CreateInstance")
    given.only("logging", "expiration_offset")
    logging = notation.fields(given.value("logging", {}), "CreateInstance.logging", "interval")
    offset = None if given.value("expiration_offset", None) is None else given.number("expiration_offset")
    return CreateInstance(InstanceConfig("memory:", offset, logging.number("interval", 0)))


def _create_dataflow(notation: Notation, described: object) -> Command:
    if isinstance(described, str):
        return CreateDataflow(dataflow([IndexExport(described, "out")], []))
    return CreateDataflow(notation.dataflow(described))


def _allow_writes(_notation: Notation, id: str | None = None) -> Command:
    if id is None:
        raise InWords("writes are allowed to one export at a time")
    return AllowWrites(id)


def _peek(notation: Notation, name: str, asked: object) -> Command:
    given = notation.fields(asked, "Peek", "target", "ts")
    return Peek(uuid_of(name), IndexTarget(given.text("target", "u0")), given.number("ts", 0))


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
