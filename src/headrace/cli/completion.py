"""Shell completion of flows, sources and sinks, read from the text of a file that is never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import typer

_SOURCES = frozenset({"source", "table", "signal"})
_SINKS = frozenset({"sink"})
"""Methods of `Flow` by which a flow names its sources, and its sinks."""


def complete_flow(incomplete: str) -> list[str]:
    """Complete `file.py` and `file.py:NA` to `file.py:NAME`. For anything else, the shell offers files."""
    file = incomplete.rpartition(":")[0] or incomplete
    return [name for flow in _flows(_tree(file)) if (name := f"{file}:{flow}").startswith(incomplete)]


def complete_source(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete to `NAME=` for the sources in the file of the command's flow."""
    return _complete_name(ctx, incomplete, _SOURCES)


def complete_sink(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete to `NAME=` for the sinks in the file of the command's flow."""
    return _complete_name(ctx, incomplete, _SINKS)


def _complete_name(ctx: typer.Context, incomplete: str, methods: frozenset[str]) -> list[str]:
    # The option without a value ends the parsing before arguments become parameters.
    flow = next(iter(ctx.args), "")
    tree = _tree(flow if flow.endswith(".py") else flow.rpartition(":")[0])
    names = dict.fromkeys(_first_arguments(tree, methods))
    return [f"{name}=" for name in names if name.startswith(incomplete)]


def _tree(file: str) -> ast.Module:
    """Parse a file; one that cannot be parsed is empty."""
    try:
        return ast.parse(Path(file).read_bytes()) if file.endswith(".py") else ast.Module([], [])
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def _flows(tree: ast.Module) -> Iterator[str]:
    """Yield the names of a module's flows, and of its functions without arguments that make one."""
    makers = {"Flow"}
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) if _needs_nothing(node.args) and _mentions_flow(node):
                makers.add(name)
                yield name
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=function)):
                if _last_name(function) in makers:
                    yield name
            case _:
                pass


def _needs_nothing(arguments: ast.arguments) -> bool:
    positional = len(arguments.posonlyargs) + len(arguments.args)
    return positional <= len(arguments.defaults) and None not in arguments.kw_defaults


def _mentions_flow(function: ast.FunctionDef) -> bool:
    """Return whether a function is annotated to return a flow, or calls `Flow` itself."""
    returns = function.returns is not None and _last_name(function.returns) == "Flow"
    return returns or any(
        isinstance(node, ast.Call) and _last_name(node.func) == "Flow" for node in ast.walk(function)
    )


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _first_arguments(tree: ast.Module, methods: frozenset[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=method), args=[ast.Constant(value=str(name)), *_]):
                if method in methods:
                    yield name
            case _:
                pass
