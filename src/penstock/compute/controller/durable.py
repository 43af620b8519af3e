"""What a controller must not forget, in one SQLite file."""

from __future__ import annotations

import os


class ControllerState:
    """The catalog of names, and the epoch. Every change is durable when its method returns."""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> ControllerState:
        """The state in a file; made if it is not there. ":memory:" for none that lasts.

        Raises `StoreDamaged` for a file of something else, `StoreUnavailable` where it cannot be opened.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Give back the file."""
        raise NotImplementedError
