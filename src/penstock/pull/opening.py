"""Opening a module: what fails then fails its stream, like anything that the module does later."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.errors import NotAModule
from penstock.pull.protocol import BatchRead, Read

if TYPE_CHECKING:
    from penstock.pull.module import Module


def opened(module: Module, open: Callable[..., Read | BatchRead], *of: Any) -> Read | BatchRead:
    """The `read` of a new module; of one that cannot be opened, one that fails as the opening did."""
    try:
        found = open(*of)
        if callable(found):  # pyright: ignore[reportUnnecessaryComparison]
            return found
        module.drop(found)
        raise NotAModule(
            f"{module.name!r} was opened and has no read: its function returned {type(found).__name__}",
            where=[module.location],
            why="A source or a transformer is what answers read(abort, answer).",
            fix="return the function read(abort, answer)",
        )
    except Exception as error:
        failure = error

        def read(*_request: object) -> None:
            raise failure

        return read
