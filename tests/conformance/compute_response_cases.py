"""Compute cases about the frontiers and rows that replicas and their workers report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, cast

from headrace.compute.controller.subscriptions import undelivered
from headrace.compute.errors import ComputeError, ResultTooLarge, TotalResultTooLarge
from headrace.compute.frontier import Frontier
from headrace.compute.protocol.responses import (
    BatchResponse,
    Canceled,
    CopyToResponse,
    Dropped,
    DroppedAt,
    Frontiers,
    PeekResponse,
    Problem,
    Response,
    RowCount,
    RowsResponse,
    SubscribeResponse,
)
from headrace.compute.replica.replica import NotReported, Reported, ReportedFrontiers
from headrace.compute.replica.workers.responses import ResponseMerger
from headrace.expr.types import Row
from tests.conformance.case_format import Fields, shown
from tests.conformance.compute_commands import Run, check_assertion, describe_difference
from tests.conformance.compute_notation import InWords, found_frontier, frontier_of, shown_frontier, uuid_of

_KINDS = ("write", "input", "output")


def read_frontier(case: Fields) -> Run:
    """Read a case on whether a frontier may follow another, or on the report for a dropped export."""
    given, then = case.object("given"), case.object("then")
    asked = found_frontier("new frontier", case.text("when"))
    if asked is not None and isinstance(given.value("reported"), list):
        state, told = given.items("reported")
        guard = {"NotReported": NotReported, "Reported": Reported}[state](frontier_of(told))
        return lambda: describe_difference("report", then.flag("report"), guard.allows(asked))
    reported = [name for name in given if re.fullmatch(r"\w+ reported", name)]
    if reported and case.text("when").startswith("AllowCompaction"):
        return _dropped(case, given, then, reported[0])
    raise InWords


def _dropped(case: Fields, given: Fields, then: Fields, name: str) -> Run:
    id = name.split()[0]
    told = {kind: Reported(frontier_of(given.object(name).value(kind))) for kind in _KINDS}
    expected = None if "responses" in then else _response(case, id, then.items("response")[2])
    return lambda: describe_difference("response", expected, ReportedFrontiers(id, **told).report_end())


def read_response_merging(case: Fields) -> Run:
    """Read a case on merging the responses of workers.

    Workers send `given.input`, pairs of a worker and its response; `then.emitted` is the result of each. A
    case may hold several of these, in which each worker responds once and only the last result counts.
    """
    then = case.object("then")
    if isinstance(case.value("given"), list):
        return _each_in_turn(case, then)
    given = case.object("given")
    if "input" not in given:
        raise InWords
    said = given.items("input")
    inputs = list(zip((part for part, _ in said), _responses(case, [s for _, s in said]), strict=True))

    def run() -> str:
        merged = ResponseMerger(given.number("parts"), _letters, given.value("max_result_size", None))
        if "assertion" in then:
            return check_assertion(lambda: [merged.merge_response(part, said) for part, said in inputs])
        found = [merged.merge_response(part, said) for part, said in inputs]
        left = then.value("tracking_state_left", merged.tracked_count)
        return _emitted(then.items("emitted"), found) or describe_difference(
            "tracking_state_left", left, merged.tracked_count
        )

    return run


def _each_in_turn(case: Fields, then: Fields) -> Run:
    inputs = [_responses(case, given.items("input")) for given in case.objects("given")]

    def run() -> str:
        last: list[Response | None] = []
        for said in inputs:
            merged = ResponseMerger(len(said), _letters)
            last.append([merged.merge_response(part, each) for part, each in enumerate(said)][-1])
        return _emitted(then.items("emitted"), last)

    return run


def read_delivery(case: Fields) -> Run:
    """Read a case on delivering the batches of replicas.

    Replicas send `given.input`: name, lower, upper, updates as [time, row, weight]. `then.emitted` is
    delivered for each, from `subscribe frontier` on.
    """
    given, then = case.object("given"), case.object("then")
    if "subscribe frontier" not in given or "input" not in given:
        raise InWords
    batches = [_batch(case, lower, upper, updates) for _, lower, upper, updates in given.items("input")]

    def run() -> str:
        tracked, found = frontier_of(given.value("subscribe frontier")), list[Any]()
        for batch in batches:
            new = undelivered(tracked, batch)
            tracked = tracked if new is None else new.upper
            found.append(None if new is None else _shown_batch(new))
        return describe_difference("emitted", [_expected(e) for e in then.items("emitted")], found)

    return run


class _Asked(Enum):
    """Responses of workers to one request, each with its own notation."""

    PEEK = "a peek"
    SUBSCRIPTION = "a subscription"
    COPY = "a copy"


_OF: Mapping[str, _Asked] = {
    "Rows": _Asked.PEEK,
    "Canceled": _Asked.PEEK,
    "Batch": _Asked.SUBSCRIPTION,
    "DroppedAt": _Asked.SUBSCRIPTION,
    "RowCount": _Asked.COPY,
    "Dropped": _Asked.COPY,
}


def _responses(case: Fields, said: Sequence[Any]) -> list[Response]:
    """Read the responses of workers, all of one kind.

    An `Error` takes the kind of the other responses; it belongs to a peek if there are only errors.
    """
    words = [each[0] for each in said if isinstance(each, list) and each]
    asked = sorted({_OF[word] for word in words if word in _OF}, key=lambda each: each.value)
    if len(asked) > 1:
        raise case.build_error(
            f"workers answer {' and '.join(a.value for a in asked)}", "one of them in each case"
        )
    about = asked[0] if asked else _Asked.PEEK
    if about is _Asked.SUBSCRIPTION and "Error" in words:
        raise case.build_error("Error is no word of a subscription", '["Batch", lower, upper, {"Err": text}]')
    return [_response(case, "x", each, about) for each in said]


def _response(case: Fields, id: str, said: Any, about: _Asked = _Asked.PEEK) -> Response:
    """Read one response: an object with frontiers by kind, or an array of a name and its contents."""
    if isinstance(said, dict):
        frontiers = cast("dict[str, Any]", said)
        return Frontiers(id, **{kind: frontier_of(frontiers[kind]) for kind in frontiers})
    match cast("list[Any]", said):
        case ["Rows", rows]:
            return PeekResponse(uuid_of(id), RowsResponse(tuple(((row,), count) for row, count in rows)))
        case ["Canceled"]:
            return PeekResponse(uuid_of(id), Canceled())
        case ["Error", text] if about is _Asked.PEEK:
            return PeekResponse(uuid_of(id), _problem(case, text))
        case ["Error", text]:
            return CopyToResponse(id, _problem(case, text))
        case ["RowCount", rows]:
            return CopyToResponse(id, RowCount(rows))
        case ["Dropped"]:
            return CopyToResponse(id, Dropped())
        case ["Batch", lower, upper, updates]:
            return SubscribeResponse(id, _batch(case, lower, upper, updates))
        case ["DroppedAt", at]:
            return SubscribeResponse(id, DroppedAt(frontier_of(at)))
        case [word, *_] if word in _OF or word == "Error":
            raise case.build_error(f"{word} does not say {shown(said[1:])}")
        case _:
            raise InWords(f"{shown(said)} is no response")


def _batch(case: Fields, lower: object, upper: object, updates: object) -> BatchResponse:
    """Read a batch of updates, plain or as `{"Ok": updates}`; or `{"Err": text}`."""
    if isinstance(updates, dict):
        given = Fields(cast("object", updates), case.case, "the updates of a batch")
        given.only("Ok", "Err")
        if "Err" in given:
            return BatchResponse(frontier_of(lower), frontier_of(upper), _problem(case, given.value("Err")))
        updates = given.items("Ok")
    if not isinstance(updates, list):
        raise case.build_error(f"the updates of a batch are {shown(updates)}", 'an array, or {"Err": text}')
    changes = tuple(((row,), time, weight) for time, row, weight in cast("list[Any]", updates))
    return BatchResponse(frontier_of(lower), frontier_of(upper), changes)


def _problem(case: Fields, text: object) -> Problem:
    """Build an error from its text. Texts about an exceeded size map to our error class."""
    if not isinstance(text, str):
        raise case.build_error(f"the text of an error is {shown(text)}")
    size = _SIZE.fullmatch(text)
    return Problem(ComputeError.code if size is None else _size_code(size), text)


_SIZE = re.compile(r"(total )?result exceeds max size of (\d+)")


def _size_code(size: re.Match[str]) -> str:
    return (TotalResultTooLarge if size[1] else ResultTooLarge).code


def _emitted(expected: list[Any], found: list[Response | None]) -> str:
    """Compare the output with the case. For errors, only the class and the limit in the text must match."""
    return describe_difference(
        "emitted", [_expected(e) for e in expected], [_shown(response) for response in found]
    )


def _expected(value: Any) -> Any:
    """Return the expected output, with error texts in the form of `_shown_problem`."""
    match value:
        case ["Error", str(text)]:
            return ["Error", _expected_problem(text)]
        case {"Err": str(text)}:
            return {"Err": _expected_problem(text)}
        case list():
            return [_expected(each) for each in cast("list[Any]", value)]
        case _:
            return value


def _expected_problem(text: str) -> Any:
    size = _SIZE.fullmatch(text)
    return text if size is None else [_size_code(size), int(size[2])]


def _shown_problem(problem: Problem) -> Any:
    """Format an error as its text; for an exceeded size, as class and limit."""
    if problem.code in (ResultTooLarge.code, TotalResultTooLarge.code):
        return [problem.code, int(re.findall(r"\d+", problem.message)[-1])]
    return problem.message


def _shown(response: Response | None) -> Any:
    match response:
        case Frontiers():
            told = {kind: cast("Frontier | None", getattr(response, kind)) for kind in _KINDS}
            return {kind: shown_frontier(at) for kind, at in told.items() if at is not None}
        case PeekResponse(_, RowsResponse(rows)):
            return ["Rows", [[row[0], count] for row, count in rows]]
        case PeekResponse(_, Problem() as problem):
            return ["Error", _shown_problem(problem)]
        case SubscribeResponse(_, DroppedAt(at)):
            return ["DroppedAt", shown_frontier(at)]
        case SubscribeResponse(_, BatchResponse() as batch):
            return ["Batch", *_shown_batch(batch)]
        case CopyToResponse(_, RowCount(rows)):
            return ["RowCount", rows]
        case CopyToResponse(_, Problem() as problem):
            return ["Error", _shown_problem(problem)]
        case PeekResponse() | CopyToResponse():
            answer = response.answer if isinstance(response, PeekResponse) else response.result
            return [type(answer).__name__]
        case _:
            return response


def _shown_batch(batch: BatchResponse) -> list[Any]:
    changes: Any
    if isinstance(batch.updates, Problem):
        changes = {"Err": _shown_problem(batch.updates)}
    else:
        changes = [[time, row[0], weight] for row, time, weight in batch.updates]
    return [shown_frontier(batch.lower), shown_frontier(batch.upper), changes]


def _letters(row: Row) -> int:
    return len(row[0])
