"""Records of functions: what follows from one."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.expr.function_records import FixedFunction, function
from headrace.expr.functions import CATALOGUE
from headrace.expr.types import INT64


def test_a_python_function_names_itself_in_generated_code() -> None:
    made = function("twice", "Twice the number.", (INT64,), INT64, lambda number: 2 * number)
    assert isinstance(made, FixedFunction)
    assert made.arity == (1, 1)
    assert list(made.runtime) == ["x_twice"]
    assert made.runtime["x_twice"](3) == 6
    assert made.spark is not None, "the SQL function of that name"
    assert made.columns is None, "it runs on rows"


def test_the_last_parameters_have_the_defaults_of_spark() -> None:
    assert str(hr.functions.split("a,b", ",")) == str(hr.functions.split("a,b", ",", -1))
    assert str(hr.functions.str_to_map("a:1")) == str(hr.functions.str_to_map("a:1", ",", ":"))
    assert str(hr.functions.str_to_map("a=1", ";")) == str(hr.functions.str_to_map("a=1", ";", ":"))


def test_a_call_with_too_few_or_too_many_arguments_is_refused() -> None:
    with pytest.raises(TypeError, match="split takes 2 to 3 arguments, got 1"):
        hr.functions.split("a,b")
    with pytest.raises(TypeError, match="levenshtein takes 2 arguments, got 3"):
        hr.functions.levenshtein("a", "b", "c")


def test_a_record_says_which_calls_a_plan_may_hold() -> None:
    assert CATALOGUE["when"].accepts(5, ())
    assert not CATALOGUE["when"].accepts(4, ()), "conditions and values come by twos"
    assert CATALOGUE["round"].accepts(1, (2,))
    assert not CATALOGUE["round"].accepts(1, ("2",))
    assert not CATALOGUE["split"].accepts(2, ()), "defaults are for those who write, not for plans"
