"""Functions of cases: one Python lambda as text, whose nodes, names and methods are all listed here.

What is compiled is a checked tree of pure functions on plain values, so a file of cases can reach nothing
of the process that runs it. It can still take all of its time and memory.
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

_VALUES = (bool, bytes, complex, dict, float, frozenset, int, list, set, slice, str, tuple)
METHODS = frozenset(name for of in _VALUES for name in dir(of) if not name.startswith("_")) - {
    # They read any attribute of their arguments, by a text.
    "format",
    "format_map",
}
"""The attributes that a function may read: those of plain values. A frame of a generator is none."""

_NODES = (
    ast.Expression, ast.Lambda, ast.arguments, ast.arg, ast.keyword, ast.Starred, ast.expr_context,
    ast.Constant, ast.Name, ast.NamedExpr, ast.Attribute, ast.Subscript, ast.Slice, ast.Call,
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
    ast.Tuple, ast.List, ast.Set, ast.Dict, ast.JoinedStr, ast.FormattedValue,
    ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension,
)  # fmt: skip


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
    _check(tree, text)
    names = {name: getattr(builtins, name) for name in ALLOWED}
    return eval(compile(tree, "<case>", "eval"), {"__builtins__": names})  # type: ignore[no-any-return]


def _check(tree: ast.AST, text: str) -> None:
    bound = {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    bound |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise NotAFunction(f"{text!r} has a {type(node).__name__}, which no function of a case may have")
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            raise NotAFunction(f"{text!r} reads the private attribute {node.attr!r}")
        if isinstance(node, ast.Attribute) and node.attr not in METHODS:
            raise NotAFunction(f"{text!r} reads {node.attr!r}, which is no method of a plain value")
        if isinstance(node, ast.Name) and (node.id.startswith("__") or node.id not in {*bound, *ALLOWED}):
            raise NotAFunction(f"{text!r} uses {node.id!r}, which is no parameter and no allowed builtin")
