"""Functions of cases: one Python lambda as text, with few names and nothing of Python's insides.

That keeps a case to what it is meant to be, a small pure function. It is no
sandbox: whoever runs a file of cases trusts it.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import Any

ALLOWED = (
    "abs", "all", "any", "bin", "bool", "bytes", "chr", "complex", "dict", "divmod", "enumerate", "filter",
    "float", "format", "frozenset", "hash", "hex", "int", "isinstance", "iter", "len", "list", "map", "max",
    "min", "next", "oct", "ord", "pow", "range", "repr", "reversed", "round", "set", "slice", "sorted", "str",
    "sum", "tuple", "zip",
)  # fmt: skip
"""The builtins that a function may call."""


class NotAFunction(ValueError):
    """The text is no lambda, or uses what a case must not use. Says why."""


def function_of(text: str) -> Callable[..., Any]:
    """The function that a lambda's text means. Raises `NotAFunction`."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError) as error:
        raise NotAFunction(f"{text!r} is no Python expression: {getattr(error, 'msg', error)}") from None
    if not isinstance(tree.body, ast.Lambda):
        raise NotAFunction(f"{text!r} is no lambda")
    _check_names(tree, text)
    names = {name: getattr(builtins, name) for name in ALLOWED}
    return eval(compile(tree, "<case>", "eval"), {"__builtins__": names})  # type: ignore[no-any-return]


def _check_names(tree: ast.AST, text: str) -> None:
    bound = {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    bound |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            raise NotAFunction(f"{text!r} reads the private attribute {node.attr!r}")
        if isinstance(node, ast.Name) and (node.id.startswith("__") or node.id not in {*bound, *ALLOWED}):
            raise NotAFunction(f"{text!r} uses {node.id!r}, which is no parameter and no allowed builtin")
        if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom):
            raise NotAFunction(f"{text!r} waits or yields")
