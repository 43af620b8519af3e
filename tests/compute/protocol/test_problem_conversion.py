"""Errors travel as problems and are the same class, with the same facts, where they are raised again."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from headrace.compute import errors as compute_errors
from headrace.compute.errors import (
    BadPlan,
    ComputeError,
    ResultTooLarge,
    SinceViolation,
    StaleEpoch,
    StoreUnavailable,
    error_of,
    origin_of,
    problem_of,
    problem_of_any,
)
from headrace.compute.frontier import Frontier
from headrace.compute.protocol import serialization
from headrace.compute.protocol.generated import compute_pb2 as pb
from headrace.compute.protocol.responses import Problem
from headrace.errors import HeadraceError, Origin, SourceLocation, Step, UserFunctionFailed


def _classes(base: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    for below in base.__subclasses__():
        if below.__module__ in ("headrace.errors", compute_errors.__name__):
            yield below
        yield from _classes(below)


def travelled(error: BaseException) -> HeadraceError:
    return error_of(serialization.problem_from_bytes(serialization.problem_to_bytes(problem_of_any(error))))


@pytest.mark.parametrize("kind", list(_classes(HeadraceError)), ids=lambda kind: kind.__name__)
def test_an_error_is_the_same_on_the_other_side(kind: type[HeadraceError]) -> None:
    where = [Step(SourceLocation("<q4.py>", 12, "here"), "this one")]
    facts = {"id": "u1", "time": 7, "size": 3, "parts": ("a", 1, None, Decimal("1.0"))}
    error = kind("what", where=where, why="why", fix="fix", **facts)
    again = travelled(error)
    assert type(again) is kind
    assert (again.what, again.where, again.why, again.fix) == ("what", tuple(where), "why", "fix")
    assert again.facts == facts
    assert str(again) == str(error)


def test_facts_that_are_no_plain_values_travel_as_text() -> None:
    again = travelled(SinceViolation("gone", id="u1", time=3, since=Frontier(5), rows=[1, 2]))
    assert again.facts == {"id": "u1", "time": 3, "since": "[5]", "rows": "[1, 2]"}


def test_a_time_or_an_id_that_is_none_of_the_protocol_stays_a_fact() -> None:
    again = travelled(SinceViolation("gone", id=7, time=2**63))
    assert again.facts == {"id": 7, "time": 2**63}
    assert travelled(SinceViolation("gone", time=-1)).facts == {"time": -1}


def test_an_error_that_this_version_does_not_know_keeps_its_code_and_whether_to_try_again() -> None:
    error = error_of(Problem("P999", "new", retryable=True))
    assert type(error) is ComputeError
    assert (error.code, error.retryable) == ("P999", True)
    assert str(error).startswith("P999")


def test_a_mistake_of_ours_travels_too() -> None:
    error = travelled(ZeroDivisionError("by zero"))
    assert type(error) is ComputeError
    assert error.what == "ZeroDivisionError: by zero"


def test_causes_that_lead_back_to_themselves_come_to_an_end() -> None:
    own, first, second = ValueError("own"), ValueError("first"), BadPlan("second")
    own.__cause__, first.__cause__, second.__cause__ = own, second, first
    assert origin_of(own) is origin_of(first) is Origin.PROCESS
    assert origin_of(second) is Origin.DATA


def test_facts_of_strangers_are_attributes_and_nothing_else() -> None:
    hostile = (("__class__", 1), ("what", 2), ("_text", 3), ("with_traceback", 4), ("a b", 5), ("code", "x"))
    error = error_of(Problem(StaleEpoch.code, "late", facts=(*hostile, ("epoch", (1, 2)))))
    assert error.facts == {"epoch": (1, 2)}
    assert type(error) is StaleEpoch
    assert error.code == StaleEpoch.code


def test_files_that_a_stranger_names_are_neither_told_in_full_nor_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret\n")
    error = HeadraceError("what", where=[SourceLocation(str(secret), 1)])
    assert "the secret" in str(error)
    sent = pb.Problem.FromString(serialization.problem_to_bytes(problem_of(error)))
    assert sent.where[0].file == "<secret.txt>"
    sent.where[0].file = str(secret)  # a stranger may say so all the same
    again = error_of(serialization.problem_from_bytes(sent.SerializeToString()))
    assert again.where == (Step(SourceLocation("<secret.txt>", 1)),)
    assert "the secret" not in str(again)


def test_text_that_is_no_unicode_is_shown_escaped() -> None:
    again = travelled(UserFunctionFailed("row '\ud800'", why="\udfff"))
    assert (again.what, again.why) == ("row '\\ud800'", "\\udfff")


def test_a_problem_tells_whether_it_may_be_tried_again() -> None:
    assert problem_of(compute_errors.UpperMismatch("late")).retryable
    assert not problem_of(StaleEpoch("late")).retryable


@pytest.mark.parametrize("kind", list(_classes(HeadraceError)), ids=lambda kind: kind.__name__)
def test_where_an_error_lies_travels_with_it(kind: type[HeadraceError]) -> None:
    problem = problem_of(kind("what"))
    assert problem.origin is kind.origin
    assert serialization.problem_from_bytes(serialization.problem_to_bytes(problem)).origin is kind.origin


def test_what_every_replica_would_say_is_told_from_how_one_replica_is() -> None:
    of_data = (BadPlan("bad"), UserFunctionFailed("it raised"), ResultTooLarge("too large"))
    assert {problem_of_any(error).origin for error in of_data} == {Origin.DATA}
    out_of_memory = UserFunctionFailed("it raised")
    out_of_memory.__cause__ = MemoryError()
    of_process = (StoreUnavailable("full"), OSError("full"), MemoryError(), KeyError(7), out_of_memory)
    assert {problem_of_any(error).origin for error in of_process} == {Origin.PROCESS}


def test_of_an_origin_that_this_version_does_not_know_others_are_asked() -> None:
    message = pb.Problem(code="P999", message="new")
    message.origin = 7  # type: ignore
    assert serialization.problem_from_bytes(message.SerializeToString()).origin is Origin.PROCESS
