"""Creation and checks of owner-only files and folders, for secrets and for state.

The mode is given when something is made, so nothing is open to others for a moment, whatever the umask is.
What is there already keeps its mode: whoever made it has decided.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_OTHERS = 0o007
_GROUP = 0o070
_READ_BY_GROUP = 0o040


def make_private_folder(path: Path) -> None:
    """Create a folder with mode 0700 if missing. Parents get the default mode. Raises OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def make_private_file(path: str | os.PathLike[str]) -> None:
    """Create an empty file with mode 0600 if missing. Raises OSError.

    Whatever opens it then, SQLite and Arrow too, keeps its mode; SQLite gives it to its logs as well.
    """
    # One that is there is not even opened: closing it would give up SQLite's locks on it.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def is_private(found: os.stat_result) -> bool:
    """Return whether only its owner can access a file. A file owned by root may be readable by its group."""
    if os.name != "posix":
        return True
    group = _GROUP & ~_READ_BY_GROUP if found.st_uid == 0 else _GROUP
    return not found.st_mode & (_OTHERS | group)
