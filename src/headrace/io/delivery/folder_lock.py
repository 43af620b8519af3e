"""Lock on a folder: shared by its writers, or exclusive for whoever replaces it as a whole.

The lock is on the folder itself, so it needs no file. The system releases it when the process ends. It is
advisory, and without effect where the system has no such locks; a folder is not replaced there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.io.delivery.atomic_files import exchange_folders


class FolderLock:
    """A held lock on the folder `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    @classmethod
    def take(cls, path: Path, *, exclusive: bool = False) -> FolderLock | None:
        """Lock an existing folder. Returns None if another process holds the lock."""
        lock = cls(path)
        return lock if lock._acquire(exclusive=exclusive, wait=False) else None

    def _acquire(self, *, exclusive: bool, wait: bool) -> bool:
        try:
            import fcntl
        except ImportError:  # on Windows
            return not exclusive
        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        while True:
            handle = os.open(self.path, os.O_RDONLY)
            try:
                fcntl.flock(handle, kind if wait else kind | fcntl.LOCK_NB)
            except OSError as error:
                os.close(handle)
                # Anything else than "held by another": a file system without such locks.
                return not exclusive and not isinstance(error, BlockingIOError)
            self.release()
            self._handle = handle
            if os.path.samestat(os.fstat(handle), os.stat(self.path)):
                return True
            # The folder was replaced since it was opened: lock the new one.

    @contextmanager
    def upgraded(self) -> Iterator[bool]:
        """Make a shared lock exclusive, if no one else holds it, and share it again afterwards."""
        import fcntl

        assert self._handle is not None, "check_replaceable() comes first"
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # The attempt gave up the share, and another process may have begun to replace the folder.
            self._acquire(exclusive=False, wait=True)
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(self._handle, fcntl.LOCK_SH)

    def check_replaceable(self, beside: Path) -> None:
        """Raise `OSError` if `replace` cannot work with a folder like `beside`, which is empty."""
        if self._handle is None:
            raise OSError("folders cannot be locked there")
        if os.path.ismount(self.path):
            raise OSError("it is where a file system is mounted")
        one, other = beside / "one", beside / "other"
        one.mkdir()
        other.mkdir()
        exchange_folders(one, other)

    def replace(self, new: Path) -> None:
        """Exchange the exclusively locked folder atomically with `new`, and hold the lock on the new one."""
        import fcntl

        handle = os.open(new, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            exchange_folders(new, self.path)
        except BaseException:
            os.close(handle)
            raise
        self.release()
        self._handle = handle

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
