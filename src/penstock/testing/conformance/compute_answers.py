"""Compute cases about what is said of frontiers and rows: by one replica, by its workers, by several
replicas."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from penstock.compute.errors import ComputeError, ResultTooLarge, TotalResultTooLarge
from penstock.compute.frontier import Frontier
from penstock.compute.partition import Partitioned
from penstock.compute.protocol.responses import (
    Batch,
    Canceled,
    CopyToResponse,
    Dropped,
    DroppedAt,
    Frontiers,
    PeekResponse,
    Problem,
    Response,
    Row,
    RowCount,
    Rows,
    SubscribeResponse,
)
from penstock.compute.reported import NotReported, Reported, ReportedFrontiers
from penstock.compute.subscription import undelivered
from penstock.testing.conformance.compute_commands import Run, differs, must_assert
from penstock.testing.conformance.compute_notation import (
    InWords,
    found_frontier,
    frontier_of,
    shown_frontier,
    uuid_of,
)
from penstock.testing.conformance.fields import Fields, shown

_KINDS = ("write", "input", "output")


def read_frontier(case: Fields) -> Run:
    """Whether a frontier may be reported after another; what is told of an export that is dropped."""
    given, then = case.object("given"), case.object("then")
    asked = found_frontier("new frontier", case.text("when"))
    if asked is not None and isinstance(given.value("reported"), list):
        state, told = given.items("reported")
        guard = {"NotReported": NotReported, "Reported": Reported}[state](frontier_of(told))
        return lambda: differs("report", then.flag("report"), guard.allows(asked))
    reported = [name for name in given if re.fullmatch(r"\w+ reported", name)]
    if reported and case.text("when").startswith("AllowCompaction"):
        return _dropped(given, then, reported[0])
    raise InWords


def _dropped(given: Fields, then: Fields, name: str) -> Run:
    id = name.split()[0]
    told = {kind: Reported(frontier_of(given.object(name).value(kind))) for kind in _KINDS}
    expected = None if "responses" in then else _response(id, then.items("response")[2])
    return lambda: differs("response", expected, ReportedFrontiers(id, **told).dropped())


def read_partition(case: Fields) -> Run:
    """Workers say `given.input`, pairs of a worker and what it says; `then.emitted` is said for each. Or
    several such, where each worker speaks once and what is said at last counts."""
    then = case.object("then")
    if isinstance(case.value("given"), list):
        return _each_in_turn(case, then)
    given = case.object("given")
    if "input" not in given:
        raise InWords
    inputs = [(part, _response("x", said)) for part, said in given.items("input")]

    def run() -> str:
        merged = Partitioned(given.number("parts"), _letters, given.value("max_result_size", None))
        if "assertion" in then:
            return must_assert(lambda: [merged.absorb(part, said) for part, said in inputs])
        found = [merged.absorb(part, said) for part, said in inputs]
        left = then.value("tracking_state_left", merged.tracked)
        return _emitted(then.items("emitted"), found) or differs("tracking_state_left", left, merged.tracked)

    return run


def _each_in_turn(case: Fields, then: Fields) -> Run:
    def run() -> str:
        last: list[Response | None] = []
        for given in case.objects("given"):
            said = given.items("input")
            merged = Partitioned(len(said), _letters)
            last.append([merged.absorb(part, _response("x", s)) for part, s in enumerate(said)][-1])
        return _emitted(then.items("emitted"), last)

    return run


def read_delivery(case: Fields) -> Run:
    """Replicas send `given.input`: name, lower, upper, updates as [time, row, weight]; `then.emitted` is
    delivered for each, from `subscribe frontier` on."""
    given, then = case.object("given"), case.object("then")
    if "subscribe frontier" not in given or "input" not in given:
        raise InWords
    batches = [_batch(lower, upper, updates) for _, lower, upper, updates in given.items("input")]

    def run() -> str:
        tracked, found = frontier_of(given.value("subscribe frontier")), list[Any]()
        for batch in batches:
            new = undelivered(tracked, batch)
            tracked = tracked if new is None else new.upper
            found.append(None if new is None else _shown_batch(new))
        return differs("emitted", then.items("emitted"), found)

    return run


def _response(id: str, said: Any) -> Response:
    """What a worker says: an object with frontiers by kind, or an array of a name and what it says."""
    if isinstance(said, dict):
        frontiers = cast("dict[str, Any]", said)
        return Frontiers(id, **{kind: frontier_of(frontiers[kind]) for kind in frontiers})
    name, *more = cast("list[Any]", said)
    if name not in _SAID:
        raise InWords(f"{shown(said)} is no response")
    return _SAID[name](id, *more)


def _rows(id: str, rows: list[Any]) -> Response:
    return PeekResponse(uuid_of(id), Rows(tuple(((row,), count) for row, count in rows)))


def _batch(lower: object, upper: object, updates: list[Any]) -> Batch:
    changes = tuple(((row,), time, weight) for time, row, weight in updates)
    return Batch(frontier_of(lower), frontier_of(upper), changes)


_SAID: Mapping[str, Callable[..., Response]] = {
    "Rows": _rows,
    "Canceled": lambda id: PeekResponse(uuid_of(id), Canceled()),
    "Batch": lambda id, *said: SubscribeResponse(id, _batch(*said)),
    "DroppedAt": lambda id, at: SubscribeResponse(id, DroppedAt(frontier_of(at))),
    "RowCount": lambda id, rows: CopyToResponse(id, RowCount(rows)),
    "Error": lambda id, text: CopyToResponse(id, Problem(ComputeError.code, text)),
    "Dropped": lambda id: CopyToResponse(id, Dropped()),
}


def _emitted(expected: list[Any], found: list[Response | None]) -> str:
    """Compares what comes out, as the case writes it. A text of an error stands for its class and limit."""
    shown_found = [_shown(response) for response in found]
    return differs("emitted", [_error_code(e) for e in expected], shown_found)


def _error_code(expected: Any) -> Any:
    match expected:
        case ["Error", str(text)]:
            size = re.fullmatch(r"(total )?result exceeds max size of (\d+)", text)
            if size:
                return ["Error", (TotalResultTooLarge if size[1] else ResultTooLarge).code, int(size[2])]
    return expected


def _shown(response: Response | None) -> Any:
    match response:
        case Frontiers():
            told = {kind: cast("Frontier | None", getattr(response, kind)) for kind in _KINDS}
            return {kind: shown_frontier(at) for kind, at in told.items() if at is not None}
        case PeekResponse(_, Rows(rows)):
            return ["Rows", [[row[0], count] for row, count in rows]]
        case PeekResponse(_, Problem() as problem):
            return ["Error", problem.code, int(re.findall(r"\d+", problem.message)[-1])]
        case SubscribeResponse(_, DroppedAt(at)):
            return ["DroppedAt", shown_frontier(at)]
        case SubscribeResponse(_, Batch() as batch):
            return ["Batch", *_shown_batch(batch)]
        case CopyToResponse(_, RowCount(rows)):
            return ["RowCount", rows]
        case CopyToResponse(_, Problem() as problem):
            return ["Error", problem.message]
        case PeekResponse() | CopyToResponse():
            answer = response.answer if isinstance(response, PeekResponse) else response.result
            return [type(answer).__name__]
        case _:
            return response


def _shown_batch(batch: Batch) -> list[Any]:
    updates = batch.updates
    changes = updates.code if isinstance(updates, Problem) else [[t, row[0], w] for row, t, w in updates]
    return [shown_frontier(batch.lower), shown_frontier(batch.upper), changes]


def _letters(row: Row) -> int:
    return len(row[0])
