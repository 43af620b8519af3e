"""Opening a module: what fails then fails its stream, like anything that the module does later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.pull.protocol import BatchRead, Read


def opened(open: Callable[..., Read | BatchRead], *of: Any) -> Read | BatchRead:
    """The `read` of a new module; of one that cannot be opened, one that fails as the opening did."""
    try:
        return open(*of)
    except Exception as error:
        failure = error

        def read(*_request: object) -> None:
            raise failure

        return read
