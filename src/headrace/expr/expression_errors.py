"""Errors for misuse of expressions and of functions.

An expression is misused where Python wants its value, or an attribute that it does not have. A call may not
fit a function: one of the API, called by its users, or one of theirs, called by the API.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, cast

from headrace.errors import ExpressionTruthValue, HeadraceError, SourceLocation, WrongType, did_you_mean

if TYPE_CHECKING:
    from inspect import Signature

F = TypeVar("F", bound=Callable[..., Any])


class WrongCall(HeadraceError, TypeError):
    """A function is called with an argument that it does not have, or without one that it needs."""

    code = "P014"


def explains_calls(fix: str = "", elsewhere: Mapping[str, str] | None = None) -> Callable[[F], F]:
    """Decorate a function of the API: calls that do not fit its parameters raise `WrongCall`.

    fix:       the way out, unless an argument is nearly right; by default the arguments that are needed.
    elsewhere: ways out by the names that other libraries give to arguments.
    """

    def explaining(function: F) -> F:
        @wraps(function)
        def called(*of: Any, **named: Any) -> Any:
            try:
                return function(*of, **named)
            except TypeError as error:
                if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                    raise  # from within the function
                raise _wrong_call(function, of, named, fix, elsewhere or {}) from None

        return cast("F", called)

    return explaining


def _wrong_call(
    function: Callable[..., Any],
    of: tuple[Any, ...],
    named: Mapping[str, Any],
    fix: str,
    elsewhere: Mapping[str, str],
) -> WrongCall:
    # `inspect` is slow to import, and needed for mistakes only.
    from inspect import signature

    taken = signature(function)
    is_constructor = function.__name__ == "__init__"
    name = type(of[0]).__name__ if is_constructor else function.__name__
    known = [each for each in taken.parameters if each != "self"]
    fix = fix or f"write {name}({_needed(taken)})"
    unknown = next((each for each in named if each not in known), None)
    if unknown is None:
        problem = f": {_misfit(taken, of, named)}"
    else:
        problem = f" has no argument {unknown!r}"
        guess = did_you_mean(unknown, known, lambda near: f"{near}=...")
        fix = elsewhere.get(unknown) or guess or fix
    return WrongCall(
        f"{name}(){problem}",
        where=[SourceLocation.of_caller()],
        why=f"Its arguments are {', '.join(known)}." if known else "It takes no arguments.",
        fix=fix,
        function=name,
        argument=unknown,
    )


def _needed(taken: Signature) -> str:
    parameters = [each for name, each in taken.parameters.items() if name != "self"]
    needed = [each.name for each in parameters if each.default is each.empty]
    return ", ".join(needed + ["..."] * (len(needed) < len(parameters)))


def _misfit(taken: Signature, of: Sequence[Any], named: Mapping[str, Any]) -> str:
    """Explain why arguments do not fit; "" if they do."""
    try:
        taken.bind(*of, **named)
    except TypeError as error:
        return str(error)
    return ""


def check_function(what: str, function: object, arguments: Sequence[str], location: SourceLocation) -> None:
    """Raise `WrongType` unless a user's function accepts these arguments.

    what: names it in the error ("sink 'totals'").
    """
    if isinstance(function, FunctionType) and not function.__kwdefaults__:
        code = function.__code__
        if code.co_argcount == len(arguments) and not code.co_kwonlyargcount:
            return  # by far the most common; `inspect` is slow
    got = _unfit(function, arguments)
    if got:
        raise WrongType(
            f"{what} needs a function that takes ({', '.join(arguments)}), got {got}",
            where=[location],
            fix=f"lambda {', '.join(arguments)}: ..., or a def with these arguments",
        )


def _unfit(function: object, arguments: Sequence[str]) -> str:
    """Describe a value that cannot be called with these arguments; "" if it can."""
    if not callable(function):
        shown = repr(function)
        return shown if len(shown) <= 60 else type(function).__name__
    from inspect import signature

    try:
        taken = signature(function)
    except (TypeError, ValueError):  # some functions written in C do not say
        return ""
    name = getattr(function, "__name__", type(function).__name__)
    shown = f"{name}{taken.replace(return_annotation=taken.empty)}"
    return shown if _misfit(taken, arguments, {}) else ""


# --- errors for methods that an object does not have, with a guess at the one that is meant -------


class UnknownMethod(HeadraceError, AttributeError):
    """A flow, a stream, a group or an expression has no method of this name."""

    code = "P013"


class MethodGuesses:
    """Base of classes whose missing methods raise `UnknownMethod`. A subclass names its objects in `_what`.

    `Engine` is none: Python looks up attributes of a class with `__getattr__` more slowly, found ones too.

    _what: subject of the error. _elsewhere: ways out by names that other libraries use.
    _other_fix: the way out if nothing is near.
    """

    __slots__ = ()
    _what: ClassVar[str]
    _elsewhere: ClassVar[Mapping[str, str]]
    _other_fix: ClassVar[str]

    if not TYPE_CHECKING:  # type checkers find missing methods by themselves

        def __getattr__(self, name: str) -> NoReturn:
            raise self._missing_method(name)

    def _missing_method(self, name: str) -> AttributeError:
        if name.startswith("_"):  # asked by Python and by tools
            return AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        known = [each for each in dir(type(self)) if not each.startswith("_")]
        guess = did_you_mean(name, known, lambda near: f".{near}(...)")
        return self._unknown_method(name, self._elsewhere.get(name) or guess or self._other_fix)

    def _unknown_method(self, name: str, fix: str) -> UnknownMethod:
        return UnknownMethod(
            f"{self._what} has no method {name!r}",
            where=[SourceLocation.of_caller()],
            fix=fix,
            method=name,
        )


# --- errors for uses of Python that ask an expression for its value, which only rows have ---------


_ELSEWHERE = {
    "alias": "name it by keyword: select(total=hr.col.price * 2)",
    "isin": "did you mean .is_in(...)?",
    "astype": "did you mean .cast(...)?",
    "isna": "did you mean .is_null()?",
    "isnull": "did you mean .is_null()?",
    "startswith": "did you mean .starts_with(...)?",
    "endswith": "did you mean .ends_with(...)?",
    "strip": "did you mean .trim()?",
    "sum": "group_by(...).agg(total=hr.sum(hr.col.price))",
    "count": "group_by(...).agg(rows=hr.count())",
    "mean": "group_by(...).agg(mean=hr.mean(hr.col.price))",
    "apply": "functions of whole rows go to stream.map(function)",
    "fillna": "hr.coalesce(hr.col.price, 0)",
}


_OPERATORS = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "truediv",
    "remainder": "mod",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "equal": "eq",
    "not_equal": "ne",
    "bitwise_and": "and_",
    "bitwise_or": "or_",
}
"""Python's operators by NumPy's names."""


class ValueMisuse(MethodGuesses):
    """Base of expressions: refuses Python's built-in functions and statements."""

    __slots__ = ()
    _what = "an expression"
    _elsewhere = _ELSEWHERE
    _other_fix = "functions are in headrace.functions; functions of whole rows go to stream.map(function)"

    def __bool__(self) -> NoReturn:
        raise ExpressionTruthValue(
            "an expression has no truth value while the flow is being built",
            where=[SourceLocation.of_caller()],
            why="`and`, `or`, `not`, `if` and `in` ask for one; so does a chained comparison.",
            fix="use `&`, `|`, `~`, `hr.when(...)`, `.is_in(...)`, `.between(...)`",
        )

    def __iter__(self) -> Iterator[Any]:
        raise WrongType(
            f"an expression cannot be iterated: {self}",
            where=[SourceLocation.of_caller()],
            why="It has no values until the flow runs.",
            fix="aggregate the rows of a group by hr.sum(...), hr.max(...) and the like, not by Python's own",
        )

    def __contains__(self, value: object) -> bool:
        raise ExpressionTruthValue(
            "`in` asks for a truth value, which an expression does not have",
            where=[SourceLocation.of_caller()],
            fix="use .contains(...)",
        )

    def __len__(self) -> int:
        raise self._unknown_value("has no length", ".length()")

    def __int__(self) -> int:
        raise self._unknown_value("is not a number", ".cast(int)")

    def __float__(self) -> float:
        raise self._unknown_value("is not a number", ".cast(float)")

    def __round__(self, digits: int = 0) -> NoReturn:
        raise self._unknown_value("is not a number", f".round({digits})")

    if not TYPE_CHECKING:  # type checkers find it by themselves

        def __array_ufunc__(self, ufunc: Any, method: str, *of: Any, **_options: Any) -> Any:
            """Called by NumPy: its operators make expressions, its functions are refused."""
            compute = getattr(operator, _OPERATORS.get(ufunc.__name__, ""), None)
            if compute is not None and method == "__call__":
                return compute(*(each if isinstance(each, ValueMisuse) else each.tolist() for each in of))
            raise WrongType(
                f"numpy.{ufunc.__name__} cannot take an expression",
                where=[SourceLocation.of_caller()],
                why="It has no value until the flow runs.",
                fix="headrace.functions has functions of columns, such as hr.functions.log(hr.col.price)",
            )

    def _unknown_value(self, problem: str, method: str) -> WrongType:
        return WrongType(
            f"an expression {problem} while the flow is being built: {self}",
            where=[SourceLocation.of_caller()],
            why="It has no value until the flow runs.",
            fix=f"use the method {method}, which makes an expression again",
        )
