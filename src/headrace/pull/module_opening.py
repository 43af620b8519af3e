"""Module opening, where an error fails the module's stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.pull.errors import NotAModule
from headrace.pull.protocol import BatchRead, Read

if TYPE_CHECKING:
    from headrace.pull.module_context import Module


def open_module(module: Module, open: Callable[..., Read | BatchRead], *of: Any) -> Read | BatchRead:
    """Open a module and return its `read` function, or one that fails with the error raised while opening."""
    try:
        found = open(*of)
        if callable(found):  # pyright: ignore[reportUnnecessaryComparison]
            return found
        module.drop(found)
        raise NotAModule(
            f"{module.name!r} was opened and has no read: its function returned {type(found).__name__}",
            where=[module.location],
            why="Sources and transformers answer calls of read(abort, answer).",
            fix="return the function read(abort, answer)",
        )
    except Exception as error:
        failure = error

        def read(*_request: object) -> None:
            raise failure

        return read
