"""Errors for calls that do not fit a function: of the API by its users, of their functions by the API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from headrace.errors import HeadraceError, SourceLocation, WrongType
from headrace.near_names import did_you_mean

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
    """Say why arguments do not fit; "" if they do."""
    try:
        taken.bind(*of, **named)
    except TypeError as error:
        return str(error)
    return ""


def check_function(what: str, function: object, arguments: Sequence[str], location: SourceLocation) -> None:
    """Raise `WrongType` unless a user's function can be called with these arguments.

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
    """Describe what cannot be called with these arguments; "" if it can."""
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
