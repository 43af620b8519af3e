"""Compute cases about command sequences: histories, and reconciliation of a replica."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from headrace.compute.history import CommandHistory, reduce_commands
from headrace.compute.protocol.commands import Command, CreateDataflow, CreateInstance, IndexExport
from headrace.compute.reconciliation import ReconciliationPlan, can_adopt_configuration, reconcile
from tests.conformance.case_format import Fields
from tests.conformance.compute_notation import (
    InWords,
    Notation,
    dataflow,
    frontier_of,
    instance,
)

Run = Callable[[], str]


def read_history(case: Fields) -> Run:
    """Read a case on reducing `given.commands`; `then.commands` is the result, or an assertion fails."""
    given, then = case.object("given"), case.object("then")
    if "storage_upper" in given:
        return _uppers(case)
    if "commands" not in given:
        raise InWords
    notation = Notation(case)
    commands = notation.commands(given.items("commands"))
    act = {"reduce": reduce_commands, "discard_peeks": _without_peeks}.get(_verb(case))
    if act is None:
        raise case.build_error(f"when is {case.text('when')!r}", "reduce() or discard_peeks()")
    if "assertion" in then:
        return lambda: check_assertion(lambda: act(commands))
    expected = notation.commands(then.items("commands"))
    return lambda: notation.commands_differ("commands", expected, act(commands))


def read_reconciliation(case: Fields) -> Run:
    """Read a case on reconciliation: a replica with `installed_history` receives `new_commands`.

    Alternatively, a case on whether two configurations of an instance are compatible.
    """
    if isinstance(case.value("given"), list):
        return _configurations(case)
    given, then = case.object("given"), case.object("then")
    if "installed" in given and isinstance(given.value("installed"), dict):
        running, asked = (instance(Notation(case), given.value(name)) for name in ("installed", "new"))
        halts = then.text("replica").startswith("halts")
        return lambda: describe_difference("halts", halts, reconcile([running], [asked]).halt is not None)
    if "new_commands" not in given:
        raise InWords
    notation = Notation(case)
    installed = given.value("installed_history")
    before = None if installed is None else notation.commands(installed)
    asked_for = notation.commands(given.items("new_commands"))
    return lambda: _reconciled(notation, then, reconcile(before, asked_for))


def _reconciled(notation: Notation, then: Fields, found: ReconciliationPlan) -> str:
    kept = sorted(id for flow in found.keep for id in flow.export_ids)
    applied = [c for c in found.then if not isinstance(c, CreateInstance)]
    rejected = {id: list(reasons) for ids, reasons in found.reasons.items() for id in ids}
    told = {"issued_first": found.first, "then_applied": applied, "applied": found.then}
    problems = [
        describe_difference("retained", then.value("retained", kept), kept),
        describe_difference("rejected_because", then.value("rejected_because", rejected), rejected),
        *(notation.commands_differ(n, notation.commands(then.items(n)), told[n]) for n in told if n in then),
    ]
    return "; ".join(problem for problem in problems if problem)


def _configurations(case: Fields) -> Run:
    notation = Notation(case)
    pairs = [
        (instance(notation, g.value("installed")), instance(notation, g.value("new")))
        for g in case.objects("given")
    ]
    expected = case.object("then").items("result")
    return lambda: describe_difference(
        "result", expected, [can_adopt_configuration(a.config, b.config) for a, b in pairs]
    )


def _uppers(case: Fields) -> Run:
    given, then = case.object("given"), case.object("then")
    imports = given.object("CreateDataflow.source_imports")
    commands = [CreateDataflow(dataflow([IndexExport("u1", "out")], list(imports)))]
    uppers = {id: frontier_of(upper) for id, upper in given.value("storage_upper").items()}
    expected = {_import_named(name): frontier_of(then.value(name)) for name in then}

    def run() -> str:
        (created,) = (
            c.dataflow for c in CommandHistory(commands).replay(uppers) if isinstance(c, CreateDataflow)
        )
        return describe_difference("uppers", expected, {i.id: i.upper for i in created.collections})

    return run


def _import_named(name: str) -> str:
    """Return the collection in `replayed source_imports.s1.upper`."""
    return name.removeprefix("replayed source_imports.").removesuffix(".upper")


def _verb(case: Fields) -> str:
    found = re.fullmatch(r"(?:history\.)?(\w+)\(\)", case.text("when"))
    return found[1] if found else ""


def _without_peeks(commands: list[Command]) -> list[Command]:
    history = CommandHistory()
    history.commands = list(commands)
    history.discard_peeks()
    return history.commands


def check_assertion(act: Callable[[], object]) -> str:
    """Check that a call fails with an assertion. Returns the problem, empty if it does."""
    try:
        act()
    except AssertionError:
        return ""
    return "no assertion failed"


def describe_difference(name: str, expected: Any, found: Any) -> str:
    """Describe the difference between expected and found; empty if equal."""
    return "" if expected == found else f"{name}: expected {expected}, found {found}"
