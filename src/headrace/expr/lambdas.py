"""Functions within expressions, applied to the elements of a list: `transform(col.xs, lambda x: x + 1)`.

A user's function is called once, with variables, while the expression is built. The tree holds what it
returned: a call of "lambda" with the names of the variables, which are calls of "variable".
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from headrace.errors import SourceLocation, WrongType
from headrace.expr.tree import Call, Expr, operand

_IN_USE: ContextVar[tuple[str, ...]] = ContextVar("names of the variables around", default=())


def variable(name: str) -> Call:
    """Return a variable of the function around it."""
    return Call("variable", (), (name,))


def lambda_of(body: object, names: tuple[str, ...]) -> Call:
    """Return a function of variables."""
    return Call("lambda", (operand(body),), (names,))


def is_lambda(expr: Expr) -> bool:
    """Return whether an expression is a function."""
    return isinstance(expr, Call) and expr.function == "lambda"


def lambda_from(function: Callable[..., object], most: int, what: str) -> Call:
    """Return the expression of a Python function of at most `most` arguments, which is called once.

    Raises `WrongType` if it takes others. what: the function that it is given to.
    """
    names = _parameters(function)
    if names is None or not 1 <= len(names) <= most:
        raise WrongType(
            f"{what} needs a function of {'an argument' if most == 1 else f'1 to {most} arguments'}",
            where=[SourceLocation.of_caller()],
            why="It is called with an expression for each of them, while the flow is built.",
            fix=f"{what}(col.xs, lambda x: x + 1)",
        )
    with _fresh(names) as fresh:
        return lambda_of(function(*map(variable, fresh)), fresh)


def _parameters(function: object) -> tuple[str, ...] | None:
    if not callable(function):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # builtins have none
        return None
    # One with a default is no variable: lambda x, k=k: x * k.
    needed = [p for p in parameters if p.default is inspect.Parameter.empty]
    return tuple(p.name for p in needed) if all(p.kind in positional for p in needed) else None


@contextmanager
def _fresh(names: tuple[str, ...]) -> Generator[tuple[str, ...]]:
    """Yield names like the given ones, which no function around uses."""
    around = _IN_USE.get()
    fresh = fresh_names(names, around)
    token = _IN_USE.set((*around, *fresh))
    try:
        yield fresh
    finally:
        _IN_USE.reset(token)


def fresh_names(names: tuple[str, ...], around: tuple[str, ...]) -> tuple[str, ...]:
    """Return names like the given ones that are none of those around."""
    made: list[str] = []
    for name in names:
        while name in around or name in made:
            name += "_"
        made.append(name)
    return tuple(made)
