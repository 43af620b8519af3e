"""Local files and folders: atomic replacement, folder locks, owner-only files, full disks, and paths or URLs.

A file or folder is replaced by writing aside, syncing to disk, and a rename or exchange.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, unquote

from headrace.errors import BadInput, BadUri, DiskFull, SourceLocation


def sync_file(path: Path) -> None:
    """Sync a file's contents to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Sync a folder's entries to disk, on systems that allow opening folders."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes, *, durable: bool) -> None:
    """Replace a file atomically: readers see either the old file or the complete new one."""
    aside = path.with_name(f".{path.name}.tmp")
    aside.write_bytes(content)
    move(aside, path, durable=durable)


def move(source: Path, target: Path, *, durable: bool) -> None:
    """Rename a finished file to `target`, replacing it."""
    if durable:
        sync_file(source)
    os.replace(source, target)
    if durable:
        sync_folder(target.parent)


def stage_beside(folder: Path) -> Path:
    """Return the hidden path beside `folder` for staging it. Removes an earlier attempt there."""
    staged = folder.with_name(f".{folder.name}.tmp")
    remove_folder(staged)
    folder.parent.mkdir(parents=True, exist_ok=True)
    return staged


def publish_folder(staged: Path, folder: Path, *, durable: bool = True) -> None:
    """Rename a finished folder to `folder`, replacing the remains of a failed attempt."""
    remove_folder(folder)
    if durable:
        sync_folder(staged)
    os.rename(staged, folder)
    if durable:
        sync_folder(folder.parent)


_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def exchange_folders(one: Path, other: Path) -> None:
    """Exchange two folders in one atomic step.

    Raises `OSError` if the system or the file system cannot. Only Linux offers it, and NFS, for example, does
    not.
    """
    # Not at the top, because only a compaction needs it.
    import ctypes

    library = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    rename = getattr(library, "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(one), None, str(other))
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one), None, str(other))


def identity_of(found: os.stat_result) -> tuple[int, ...]:
    """Return what distinguishes a file, as it is now, from all others and from what it was before.

    A change of its owner, its mode or its number of names counts, too.
    """
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def take_over(old: Path, new: Path) -> None:
    """Create a hard link to a file, or a durable copy of it on a file system without hard links."""
    try:
        os.link(old, new, follow_symlinks=False)
    except OSError:
        shutil.copy2(old, new, follow_symlinks=False)
        if not new.is_symlink():
            sync_file(new)


def take_over_folder(old: Path, new: Path, *, without: frozenset[str] = frozenset()) -> None:
    """Fill the existing folder `new` with hard links to the files in `old`, or copies of them.

    without: names of entries to leave out.
    """
    for entry in os.scandir(old):
        if entry.name in without:
            continue
        if entry.is_dir(follow_symlinks=False):
            (new / entry.name).mkdir()
            take_over_folder(Path(entry), new / entry.name)
        else:
            take_over(Path(entry), new / entry.name)
    was = old.stat()
    with suppress(PermissionError):
        os.chown(new, was.st_uid, was.st_gid)
    shutil.copystat(old, new)


def subfolder_for(within: Path, name: str) -> Path:
    """Return the subfolder of `within` for a user-given name, escaped so that "a/b" or ".." stay inside."""
    plain = quote(name, safe="")
    return within / (f"%2E{plain[1:]}" if plain.startswith(".") else plain)


def remove_folder(path: Path) -> None:
    """Remove a folder and its contents if it exists."""
    shutil.rmtree(path, ignore_errors=True)


def remove_empty(*folders: Path) -> None:
    """Remove the folders that exist and are empty, in order."""
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


# The lock is on the folder itself, so it needs no file. The system releases it when the process ends. It is
# advisory, and without effect where the system has no such locks; a folder is not replaced there.


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
        """Upgrade a shared lock to exclusive, if nobody else holds it, and downgrade it afterwards."""
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
        """Raise `OSError` if `replace` cannot work here. beside: empty folder to test the exchange in."""
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


_FULL = {errno.ENOSPC: "no space is left on it", errno.EDQUOT: "the quota of its owner is used up"}


@contextmanager
def raising_disk_full(checkpoint: str | os.PathLike[str] | None) -> Generator[None]:
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


# As in RFC 3986, where a relative path must not begin so. One letter is a drive: C:\data. That slashes follow
# is not asked for: of two, a `Path` has kept one.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):")
_SECRET = re.compile(r"//.*@")


def scheme_of(text: str | os.PathLike[str]) -> str:
    """Return the scheme of a URL in lower case, or "" for a path."""
    found = _SCHEME.match(os.fspath(text))
    return found[1].lower() if found else ""


def local_path(given: str | os.PathLike[str], what: str) -> str:
    """Convert a path or a local `file:` URL to a path.

    what: names it in the error ("checkpoint", "Changelog").

    Raises `BadUri` for any other scheme, `BadInput` for a value that is no path.
    """
    text = path_text(given, what)
    scheme = scheme_of(text)
    if not scheme:
        return text
    rest = text[len(scheme) + 1 :]
    if scheme == "file":
        if not rest.startswith("//"):
            return unquote(rest)
        host, slash, path = rest[2:].partition("/")
        if host in ("", "localhost") and slash:
            return unquote(f"/{path}")
        raise unsupported_scheme_error(
            text, what, why=f"Files are those of this machine; the URL names the host {host!r}."
        )
    raise unsupported_scheme_error(text, what)


def path_text(given: object, what: str) -> str:
    """Return the text of a path or URL. Raises `BadInput` for other values. what: its name in the error."""
    if isinstance(given, str | os.PathLike):
        return str(os.fspath(cast("str | os.PathLike[str]", given)))
    several = isinstance(given, list | tuple | set)
    raise BadInput(
        f"{what} takes a path, got {type(given).__name__} {given!r:.60}",
        where=[SourceLocation.of_caller()],
        fix="give the folder of the files, or a pattern such as in/*.json"
        if several
        else "give text or a Path",
    )


_WHY = "It must be a path of the operating system, where {scheme}: would be the name of a folder."
_FIX = """\
give a path, also one of a mounted file system. Of object stores, Delta tables can be read and written:
delta:s3://BUCKET/TABLE. A name with a colon in it is given as an absolute path"""


def unsupported_scheme_error(text: str, what: str, *, why: str = _WHY, fix: str = _FIX) -> BadUri:
    """Build the error for a URL with an unsupported scheme."""
    scheme = scheme_of(text)
    shown = _SECRET.sub("//***@", text)
    return BadUri(
        f"{what}: the scheme {scheme!r} of {shown!r} is not supported",
        where=[SourceLocation.of_caller()],
        why=why.format(scheme=scheme),
        fix=fix,
        uri=shown,
        scheme=scheme,
    )
