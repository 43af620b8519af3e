"""Compute cases about times: as-of selection, hydration, scheduling, readiness and epochs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headrace.compute.collections.store import CollectionBounds
from headrace.compute.controller.restart import LagPolicy, ReadPolicy, ValidFrom, select_as_ofs
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.hydration import (
    Lagging,
    Readiness,
    ReplicaProgress,
    SequentialHydration,
    is_hydrated,
    may_be_scheduled,
    readiness,
)
from headrace.compute.protocol.commands import (
    CollectionExport,
    CollectionImport,
    Command,
    CreateDataflow,
    Dataflow,
    Epoch,
    Id,
    IndexExport,
    IndexImport,
    Parameters,
    PlanBytes,
    Schedule,
    UpdateConfiguration,
)
from headrace.compute.protocol.responses import Frontiers
from tests.conformance.case_format import Fields
from tests.conformance.compute_commands import Run, describe_difference
from tests.conformance.compute_notation import (
    InWords,
    Notation,
    dataflow,
    found_frontier,
    frontier_of,
    shown_frontier,
)


def read_as_of(case: Fields) -> Run:
    """Read a case on as-of selection.

    Collections are given with [since, upper], dataflows as [export, inputs], optionally with read policies by
    index.
    """
    given, then = case.object("given"), case.object("then")
    storage = given.value("storage(since,upper)")
    bounds = {id: CollectionBounds(Frontier(since), _upper(upper)) for id, (since, upper) in storage.items()}
    described = given.items("dataflows(export<-inputs)")
    flows = [_reading(id, inputs, bounds, {e for e, _ in described}) for id, inputs in described]
    policies = {id: _policy(case, text) for id, text in given.value("read_policies", {}).items()}

    def run() -> str:
        found = select_as_ofs(flows, bounds, policies, given.number("current_time"))
        return describe_difference(
            "as_of", then.value("as_of"), {i: shown_frontier(f) for i, f in found.as_of.items()}
        )

    return run


def _upper(value: int | str) -> Frontier:
    return END if value == "sealed" else Frontier(int(value))


def _reading(
    export: Id, inputs: list[Id], bounds: Mapping[Id, CollectionBounds], exports: set[Id]
) -> Dataflow:
    out = CollectionExport(export, "out", export) if export in bounds else IndexExport(export, "out")
    return Dataflow(
        PlanBytes(export.encode()),
        tuple(CollectionImport(id, id) for id in inputs if id not in exports),
        tuple(IndexImport(id, id) for id in inputs if id in exports),
        (out,),
        START,
    )


def _policy(case: Fields, text: str) -> ReadPolicy:
    found = re.match(r"(lag|valid_from) (\d+)", text)
    if found is None:
        raise case.build_error(f"{text!r} is no read policy", "lag N or valid_from N")
    return LagPolicy(int(found[2])) if found[1] == "lag" else ValidFrom(Frontier(int(found[2])))


def read_hydration(case: Fields) -> Run:
    """Read a case on hydration, or on a limiter of hydrating dataflows.

    A limiter is given `commands`, or some exports hydrating and others in the queue.
    """
    if isinstance(case.value("given"), list):
        return _hydrated(case)
    given, then = case.object("given"), case.object("then")
    if "commands" in given:
        commands = Notation(case).commands(given.items("commands"))
        expected = Notation(case).commands(then.items("forwarded"))
        return lambda: describe_difference("forwarded", expected, _through(given, commands)[1])
    hydrating, queue = given.texts("hydrating", []), given.texts("queue", [])
    if queue and not hydrating:
        hydrating = ("u0",)  # an unnamed export occupies the slot that the queue waits for
    before = [c for text in (*hydrating, *queue) for c in _created_and_scheduled(text)]
    return lambda: _limited(case, then, _through(given, before, max(len(hydrating), 1))[0])


def _through(
    given: Fields, commands: list[Command], limit: int = 1
) -> tuple[SequentialHydration, list[Command]]:
    named = given.value("concurrency", given.value("hydration_concurrency", limit))
    limiter = SequentialHydration(named)
    return limiter, [sent for command in commands for sent in limiter.commands_for(command)]


def _created_and_scheduled(text: str) -> list[Command]:
    """Parse `u1`, or `u1 as_of [5]`."""
    id = text.split()[0]
    as_of = found_frontier("as_of", text) or START
    return [CreateDataflow(dataflow([IndexExport(id, "out")], []).at(as_of)), Schedule(id)]


def _limited(case: Fields, then: Fields, limiter: SequentialHydration) -> str:
    when, before = case.text("when"), limiter.hydrating
    told = found_frontier(r"Frontiers\((\w+), output=", when)
    concurrency = re.fullmatch(r"UpdateConfiguration\(hydration_concurrency=(\d+)\)", when)
    if told is not None:
        id = when[len("Frontiers(") :].split(",")[0]
        found = limiter.commands_after(Frontiers(id, output=told))
    elif concurrency is not None:
        found = limiter.commands_for(
            UpdateConfiguration(Parameters(hydration_concurrency=int(concurrency[1])))
        )
    elif created := re.fullmatch(r"CreateDataflow (\w+); Schedule \1", when):
        commands = _created_and_scheduled(created[1])
        return describe_difference(
            "forwarded", commands, [c for asked in commands for c in limiter.commands_for(asked)]
        )
    else:
        raise case.build_error(f"when is {when!r}")
    if "slot freed" in then:
        return describe_difference("slot freed", then.flag("slot freed"), limiter.hydrating < before)
    expected = then.value("forwarded", then.value("forwarded to replica", []))
    return describe_difference("forwarded", expected, [_shown(command) for command in found])


def _shown(command: Command) -> list[str]:
    return ["Schedule", command.id] if isinstance(command, Schedule) else [type(command).__name__]


def _hydrated(case: Fields) -> Run:
    def hydrated(given: Fields) -> bool:
        if "as_of" in given:
            return is_hydrated(frontier_of(given.value("as_of")), frontier_of(given.value("output")))
        return not list(given) or any(given.flag(name) for name in given)

    expected = case.object("then").items("results")
    return lambda: describe_difference(
        "results", expected, [hydrated(given) for given in case.objects("given")]
    )


def read_start_case(case: Fields) -> Run:
    """Read `U as_of`, `input S upper`: whether U may start, before and after `S upper -> [..]`."""
    given, then = case.object("given"), case.object("then")
    as_ofs = [name for name in given if name.endswith(" as_of")]
    inputs = [name for name in given if re.fullmatch(r"input \w+ upper", name)]
    later = found_frontier("upper ->", case.text("when"))
    if not as_ofs or not inputs or later is None:
        raise InWords
    id, as_of = as_ofs[0].split()[0], frontier_of(given.value(as_ofs[0]))
    uppers = (frontier_of(given.value(inputs[0])), later)
    found = [may_be_scheduled(id, as_of, [upper], indexes_are=True) for upper in uppers]
    return lambda: describe_difference("Schedule sent", then.items("Schedule sent"), found)


def read_readiness(case: Fields) -> Run:
    """Read a case on comparing targets with a reference.

    `result` is Ready, Lagging(by) or Unhydrated, optionally with the condition for Ready.
    """
    given, then = case.object("given"), case.object("then")
    reference, targets, allowed = _reference(given), _targets(given), given.value("allowed_lag")
    result = then.text("result")
    now = result.split(";")[0].split(":")[0]
    ready = re.search(r"Ready once target\.output=(\d+|\[\])", result)

    def run() -> str:
        problem = describe_difference("result", now, _named(readiness(reference, targets, allowed)))
        if problem or ready is None:
            return problem
        output = END if ready[1] == "[]" else Frontier(int(ready[1]))
        later = {name: ReplicaProgress(target.as_of, output) for name, target in targets.items()}
        return describe_difference("result later", "Ready", _named(readiness(reference, later, allowed)))

    return run


def _reference(given: Fields) -> Frontier | None:
    if "ref output" in given:
        return _time(given.value("ref output"))
    reference = given.value("ref")
    return None if reference is None else _time(reference["output"])


def _targets(given: Fields) -> dict[str, ReplicaProgress]:
    if "target" in given:
        target = given.value("target")
        return {"target": ReplicaProgress(_time(target.get("as_of", 0)), _time(target["output"]))}
    named = given.value("targets")
    return {name: _progress(text) for name, text in named.items()} if named else {}


def _progress(text: str) -> ReplicaProgress:
    found = re.match(r"as_of (\d+) output (\d+)", text)
    if found is None:
        raise InWords
    return ReplicaProgress(Frontier(int(found[1])), Frontier(int(found[2])))


def _time(value: Any) -> Frontier:
    return frontier_of(value) if isinstance(value, list) else Frontier(value)


def _named(state: Readiness) -> str:
    return f"Lagging({state.by})" if isinstance(state, Lagging) else type(state).__name__


def read_epochs(case: Fields) -> Run:
    """Read pairs of epochs [controller, replica], and their expected order."""
    given = case.value("given")
    if not isinstance(given, list):
        raise InWords
    pairs = [(Epoch(*a), Epoch(*b)) for a, b in case.items("given")]
    expected = case.object("then").items("results")
    return lambda: describe_difference("results", expected, [_compared(a, b) for a, b in pairs])


def _compared(a: Epoch, b: Epoch) -> str:
    return "<" if a < b else ">" if a > b else "="
