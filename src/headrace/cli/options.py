"""Options shared by commands: engines, NAME=URI pairs, and the connection to a controller.

The shell completes flows, sources and sinks from the text of a file that is never run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.errors import BadUri

if TYPE_CHECKING:
    from headrace.compute.client.client import Client
    from headrace.compute.credentials import Security


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
    """Parse a file. Returns an empty module if it cannot be parsed."""
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


class EngineChoice(Enum):
    """Engine that runs a flow."""

    HERE = "here"
    SPARK = "spark"


FlowName = Annotated[
    str, typer.Argument(help="module:flow or path/to/file.py:flow", autocompletion=complete_flow)
]
SourceUris = Annotated[
    list[str] | None,
    typer.Option(
        "--source", metavar="NAME=URI", help="As for `headrace run`.", autocompletion=complete_source
    ),
]
SinkUris = Annotated[
    list[str] | None,
    typer.Option("--sink", metavar="NAME=URI", help="As for `headrace run`.", autocompletion=complete_sink),
]

_EXAMPLES = {"source": "csv:PATH", "sink": "changelog:PATH"}

DEFAULT_ADDRESS = "127.0.0.1:7411"

Controller = Annotated[
    str,
    typer.Option("--controller", "-c", envvar="HEADRACE_CONTROLLER", help="HOST:PORT of the controller."),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca", help="PEM file of the certificate authorities that sign the other side's certificate."
    ),
]
Certificate = Annotated[
    Path | None, typer.Option("--certificate", help="PEM file of this side's certificate.")
]
Key = Annotated[Path | None, typer.Option("--key-file", help="PEM file of the certificate's key.")]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", help="File with the token. Default: HEADRACE_TOKEN, if set."),
]
ServerName = Annotated[
    str | None,
    typer.Option("--server-name", help="Name in the other side's certificate, if it differs from the host."),
]
Patience = Annotated[
    str,
    typer.Option(
        "--patience",
        metavar="SPAN",
        help="How long to wait for a replica's answer: 30s, 5m, none (forever). A controller that can't be "
        "reached is an error after 3s.",
    ),
]
DEFAULT_PATIENCE = "30s"
Collections = Annotated[
    str | None,
    typer.Option(metavar="URI", help="Storage of the rows: sqlite:PATH, postgresql://..., delta:PATH."),
]


def connect(
    controller: str,
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    token_file: Path | None,
    server_name: str | None,
    *,
    patience: str = "3s",
) -> Client:
    """Connect a client with a short patience, so that commands fail fast if no controller responds."""
    from headrace.compute.client.client import Client

    security = load_security(ca, certificate, key, token_file, server_name)
    return Client(controller, security=security, patience=patience)


def parse_patience(given: str) -> str | None:
    """Parse the option --patience to a span, or to None for "none"."""
    return None if given == "none" else given


def load_security(
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    token_file: Path | None,
    server_name: str | None = None,
) -> Security:
    """Load credentials from files. Raises `BadOption`."""
    from headrace.compute.credentials import Security

    return Security.load(
        ca=ca, certificate=certificate, key=key, token_file=token_file, server_name=server_name
    )


def parse_named_uris(kind: str, texts: Sequence[str]) -> dict[str, str]:
    """Parse repeated NAME=URI options into a dict. Raises `BadUri`."""
    from headrace.io.postgres import without_password

    found: dict[str, str] = {}
    for text in texts:
        name, equals, uri = text.partition("=")
        if not equals or not name or not uri:
            shown = without_password(text)
            raise BadUri(
                f"--{kind} {shown}: expected NAME=URI",
                fix=f"--{kind} NAME={_EXAMPLES.get(kind, 'HOST:PORT')}",
                uri=shown,
            )
        if name in found:
            raise BadUri(f"--{kind} {name}=... is given twice", uri=without_password(text))
        found[name] = uri
    return found
