"""Full disks, as errors of a run."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from headrace.errors import DiskFull

_FULL = {errno.ENOSPC: "no space is left on it", errno.EDQUOT: "the quota of its owner is used up"}


@contextmanager
def telling_full_disk(checkpoint: str | os.PathLike[str] | None) -> Generator[None]:
    """Raise `DiskFull` in place of an `OSError` of a full disk.

    checkpoint: folder of the run, named if the error does not name a file and this disk is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        where: Any = error.filename or (
            checkpoint if checkpoint is not None and _is_full(checkpoint) else None
        )
        path = None if where is None else os.fspath(where)
        raise DiskFull(
            "a disk is full" if path is None else f"the disk of {path} is full",
            why=f"While the run wrote to it, {_FULL[error.errno]}. What was committed stays.",
            fix="free space, or give it more; then run it again",
            path=path,
        ) from error


def _is_full(folder: str | os.PathLike[str]) -> bool:
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < 1 << 20
