"""Functions of cases, compiled from the text of a Python lambda.

Cases write functions as lambdas, so that their files can be read on their own and run by any implementation.
A lambda may compute on its arguments with operators, collections, comprehensions, and the functions and
methods listed here. Anything else is refused before it is compiled.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from functools import cache
from typing import Any

_NODES = (
    ast.Expression, ast.Lambda, ast.arguments, ast.arg, ast.Name, ast.Load, ast.Store, ast.Constant,
    ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop, ast.BoolOp, ast.boolop, ast.Compare, ast.cmpop,
    ast.IfExp, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Starred, ast.Subscript, ast.Slice, ast.Call,
    ast.keyword, ast.Attribute, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension,
)  # fmt: skip
_BUILTINS = (
    "abs", "all", "any", "bool", "dict", "divmod", "enumerate", "float", "format", "frozenset", "int", "len",
    "list", "max", "min", "range", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip",
)  # fmt: skip
_METHODS = (
    "add", "append", "count", "endswith", "get", "index", "items", "join", "keys", "lower", "replace",
    "split", "startswith", "strip", "union", "upper", "values",
)  # fmt: skip
_NAMES = {name: getattr(builtins, name) for name in _BUILTINS}


class NotAFunction(ValueError):
    """Raised for a text that is no lambda, or one that does more than compute on its arguments."""


@cache
def function_of(text: str) -> Callable[..., Any]:
    """Compile the text of a lambda. Raises `NotAFunction`."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotAFunction(f"{text!r} is no Python: {error}") from None
    if not isinstance(tree.body, ast.Lambda):
        raise NotAFunction(f"{text!r} is no lambda")
    _check(text, tree)
    return eval(compile(tree, "<case>", "eval"), {"__builtins__": _NAMES})


def _check(text: str, tree: ast.Expression) -> None:
    nodes = list(ast.walk(tree))
    known = {node.arg for node in nodes if isinstance(node, ast.arg)} | _NAMES.keys()
    known |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in nodes:
        if not isinstance(node, _NODES) or (isinstance(node, ast.comprehension) and node.is_async):
            raise NotAFunction(f"{text!r} has a part that cases may not use: {type(node).__name__}")
        if isinstance(node, ast.Name) and node.id not in known:
            raise NotAFunction(f"{text!r} names {node.id!r}, neither an argument nor a known function")
        if isinstance(node, ast.Attribute) and node.attr not in _METHODS:
            raise NotAFunction(f"{text!r} uses {node.attr!r}, which cases may not call")
