"""Calls that fit pass unchanged; the messages of those that don't are in tests/newcomer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from headrace import col
from headrace.errors import SourceLocation, WrongType
from headrace.expr.expression_errors import WrongCall, check_function, explains_calls


class Counter:
    def __call__(self, tick: int, changes: Any) -> None: ...

    def count(self, tick: int, changes: Any) -> None: ...


def with_default(tick: int, changes: Any, *, verbose: bool = False) -> None: ...


def with_needed_keyword(tick: int, changes: Any, *, out: str) -> None: ...


FITTING = [
    Counter(),
    Counter().count,
    with_default,
    partial(with_needed_keyword, out="x"),
    print,
    max,
    dict.get,
]


@pytest.mark.parametrize("function", FITTING, ids=range(len(FITTING)))
def test_a_function_that_can_be_called_is_accepted(function: Callable[..., object]) -> None:
    check_function("sink 'totals'", function, ("tick", "changes"), SourceLocation("flow.py", 1))


@pytest.mark.parametrize(
    "function",
    [with_needed_keyword, Counter, len, 3, None],
    ids=lambda each: getattr(each, "__name__", repr(each)),
)
def test_a_function_that_cannot_be_called_is_refused(function: object) -> None:
    with pytest.raises(WrongType, match=r"takes \(tick, changes\), got "):
        check_function("sink 'totals'", function, ("tick", "changes"), SourceLocation("flow.py", 1))


def test_an_error_from_within_a_function_stays_as_it_is() -> None:
    @explains_calls()
    def add(one: int, two: Any) -> int:
        return one + two

    assert add(1, two=2) == 3
    with pytest.raises(TypeError, match="unsupported operand") as error:
        add(1, "2")
    assert not isinstance(error.value, WrongCall)


def test_operators_of_numbers_of_numpy_make_expressions() -> None:
    made = [np.int64(3) + col.x, np.float64(3) * col.x, np.int64(3) < col.x]
    assert [str(each) for each in made] == ["3 + x", "3.0 * x", "x > 3"]
