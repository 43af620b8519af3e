"""Identity of inputs: files, by their kept contents, and relations that cannot report changes.

What a relation of a database, a data source or memory is called is shown and written down, so it is free of
secrets, and the same from run to run.

The contents of the files that a pipeline has read are kept, to compare changed files with:

    <storage>/inputs/known.json                       what each file holds, and when that was seen
    <storage>/inputs/of/<folder>/<size>-<time>/<name> content of a file, as it was read

A file is known by a mark: its size and time of change when its content was first seen. A file whose time is
another one and whose checksum is not keeps its mark: for all readers it has not changed. Of a file with
another content, the one before is kept here, as a copy or, of large inputs, as a second name of the old
file. So are files that are gone. What is kept counts only as long as it has the size and time of its mark:
where a file was overwritten in place, its second name holds the new content.

Losing the folder costs no more than reading all rows once.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from xxhash import xxh3_128

from headrace.errors import CheckpointDamaged
from headrace.file_system import remove_folder
from headrace.queries.plan_details import items, pairs
from headrace.state.commit import read_checked, write_checked

_SECRET = (
    r"password|passphrase|passcode|passwd|pwd|secret|token|credential|signature"
    r"|(?:access|account|api|private)[._-]?key"
)
_KEY = re.compile(rf"(?i){_SECRET}")
_NAME = rf"(?:{_SECRET})[\w.-]*|(?<![a-z])(?:sig|auth)\b"
_VALUE = r"""'(?:[^'\\]|\\.|'')*'?|"(?:[^"\\]|\\.|"")*"?|\{(?:[^}]|\}\})*\}?|[^\s;&]*"""
_NAMED = re.compile(rf"""(?i)((?:{_NAME})(?:\s*=\s*(?=['"{{])|=|['"][:,]\s*))(?:{_VALUE})""")
_HEADER = re.compile(r"""(?i)(\bauthorization['"]?\s*[:=,]\s*['"]?|\bbearer\s+)[^'"\n]+""")
_USER = re.compile(r"(//|thin:)\S*@")
"""A user and a password, which may hold any character: up to the last @."""

_PLACES, _TABLES = ("path", "url"), ("dbtable", "query", "table")
"""Options that say what is read. Others may hold secrets under any name."""

_LONGEST = 60
"""Characters of a query or of options that a title has room for."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a relation.

    title: for users. description: what it reads, without secrets, the same from run to run.
    exact: the same only for the same rows, in this process.
    """

    title: str
    description: str
    exact: str


def without_secrets(text: str) -> str:
    """Return a text without the passwords and tokens in its URLs and options."""
    return _NAMED.sub(r"\1***", _HEADER.sub(r"\1***", _USER.sub(r"\1***@", text)))


def place_of(url: str) -> str:
    """Return a path or URL without its user, query and parameters."""
    return re.split(r"[;?#]|:(?=\w+=)", without_secrets(url))[0]


def _shown(options: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the options that identify the data read, without secrets, for display."""
    places = [(key, place_of(value)) for key, value in options if key.lower() in _PLACES]
    tables = [(key, without_secrets(value)) for key, value in options if key.lower() in _TABLES]
    return sorted(places + tables)


def without_secret_options(options: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return options without secret ones, and without secrets in the others."""
    return [(key, without_secrets(value)) for key, value in options if not _KEY.search(key)]


def identity_of(node: Any) -> Identity | None:
    """Return the identity of a relation; None for a leaf of a plan that is not a relation on its own."""
    found = _IDENTITIES.get(node.nodeName())
    return None if found is None else found(node)


def _of_relation(node: Any) -> Identity:
    relation = node.relation()
    kind: str = relation.getClass().getSimpleName()
    if kind == "JDBCRelation":
        return _of_jdbc(relation, node.schema().json())
    # It says nothing of its options: one that is not equal to it is another input.
    return Identity(kind, kind, f"{kind} {relation.hashCode()} {relation.toString()}")


def _of_jdbc(relation: Any, schema: str) -> Identity:
    given = relation.jdbcOptions()
    options = sorted(pairs(given.parameters()))
    parts = [str(part.whereClause()) for part in relation.parts()]
    table, where = without_secrets(given.tableOrQuery()), place_of(given.url())
    title = f"{_short(table)} at {where}"
    return Identity(title, f"{table} at {where} {schema}", f"jdbc {options} {parts} {schema}")


def _of_data_source(node: Any) -> Identity:
    table, name = node.table(), node.identifier()
    options = sorted((str(key), str(value)) for key, value in node.options().asCaseSensitiveMap().items())
    catalog = f"{node.catalog().get().name()}." if node.catalog().isDefined() else ""
    called = f"{catalog}{name.get().toString()}" if name.isDefined() else table.name()
    known = _shown(options)
    shown = _short(", ".join(f"{key}={value}" for key, value in known))
    rest = f"{table.getClass().getName()} {called} {node.timeTravelSpec().toString()} {node.schema().json()}"
    title = without_secrets(called) + (f" ({shown})" if shown else "")
    return Identity(title, f"{known} {without_secrets(rest)}", f"{options} {rest}")


def _of_memory(node: Any) -> Identity:
    names = _short(", ".join(each.name() for each in items(node.output())))
    title = f"rows in memory ({names})"
    return Identity(title, f"{title} {node.schema().json()}", f"{title} {node.rdd().id()}")


_IDENTITIES: dict[str, Callable[[Any], Identity]] = {
    "LogicalRelation": _of_relation,
    "DataSourceV2Relation": _of_data_source,
    "LogicalRDD": _of_memory,
}


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


FileMark: TypeAlias = list[int]
"""Size and time of change of a file, in nanoseconds."""

COPIED = 1 << 26
"""Bytes of an input up to which its files are copied; those of larger ones get a second name."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A file as last seen. mark: identifies its content. digest: hash of the content."""

    seen: FileMark
    mark: FileMark
    digest: str


@dataclass(slots=True)
class InputContents:
    """The files of a storage's inputs. known: by path."""

    folder: Path
    known: dict[str, _Known] = field(default_factory=dict[str, _Known])

    @classmethod
    def open(cls, storage: Path) -> InputContents:
        folder = storage / "inputs"
        try:
            files = read_checked(folder / "known.json")["files"]
            return cls(folder, {path: _Known(*each) for path, each in files.items()})
        except (CheckpointDamaged, KeyError, TypeError):
            return cls(folder)

    def marks(self, found: Mapping[str, FileMark]) -> dict[str, FileMark]:
        """Return the marks of files, given their sizes and times, after checking files that look changed."""
        new = {path: seen for path, seen in found.items() if not self._is_known(path, seen)}
        for path, seen in new.items():
            self._look_at(path, seen)
        if new:
            self._write()
        return {
            path: self.known[path].mark if self._is_known(path, seen) else seen
            for path, seen in found.items()
        }

    def _is_known(self, path: str, seen: FileMark) -> bool:
        return path in self.known and self.known[path].seen == seen

    def _look_at(self, path: str, seen: FileMark) -> None:
        before = self.known.pop(path, None)
        digest = _digest(path)
        if digest is None or mark_at(path) != seen:
            return  # It changes right now: the next run knows more.
        same = before is not None and before.mark[0] == seen[0] and before.digest == digest
        self.known[path] = _Known(seen, before.mark if same and before else seen, digest)

    def digest(self, path: str, mark: FileMark) -> str | None:
        """Return the checksum of a content; None if it is not known."""
        known = self.known.get(path)
        return known.digest if known is not None and known.mark == mark else None

    def keep(self, found: Mapping[str, FileMark]) -> None:
        """Store the contents of files, given the mark of each."""
        copied = sum(size for size, _ in found.values()) <= COPIED
        for path, mark in found.items():
            known, kept = self.known.get(path), self._place(path, mark)
            if known is None or known.mark != mark or mark_at(kept) == mark:
                continue
            with suppress(OSError):
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.unlink(missing_ok=True)
                if copied:
                    shutil.copy(path, kept)
                    os.utime(kept, ns=(mark[1], mark[1]))
                elif known.seen == mark:  # A second name has the time of the file.
                    os.link(path, kept)
            if mark_at(path) != known.seen:
                self.distrust(path, mark)

    def kept(self, path: str, mark: FileMark) -> Path | None:
        """Return the stored file with the content that `mark` identifies; None if it is not kept."""
        kept = self._place(path, mark)
        return kept if mark_at(kept) == mark else None

    def is_current(self, path: str, mark: FileMark) -> bool:
        """Return whether a file still has the content of a mark, as far as its size and time tell."""
        known = self.known.get(path)
        return mark_at(path) == (known.seen if known is not None and known.mark == mark else mark)

    def base(self, root: str) -> str:
        """Return the folder that mirrors `root` with kept contents."""
        return f"{self.folder / 'of'}{root}"

    def _place(self, path: str, mark: FileMark) -> Path:
        folder, name = os.path.split(path)
        return Path(self.base(folder), f"{mark[0]}-{mark[1]}", name)

    def check(self, found: Mapping[str, FileMark]) -> None:
        """Discard the contents of files that have changed since they were marked.

        Called after they were read: nobody knows which content that was.
        """
        for path, mark in found.items():
            known = self.known.get(path)
            if known is None or mark_at(path) != known.seen:
                self.distrust(path, mark)

    def distrust(self, path: str, mark: FileMark) -> None:
        """Discard a content, so that the next change of the file is not compared with it."""
        remove_folder(self._place(path, mark).parent)
        if self.known.pop(path, None) is not None:
            self._write()

    def clean(self, needed: Iterable[tuple[str, FileMark]]) -> None:
        """Remove all contents except `needed`, and the records of all other files."""
        # Of inputs that are read once, thousands of files are needed, and none is stored.
        paths, places, stored = set[str](), set[str](), self.folder / "of"
        has_stored = stored.is_dir()
        for path, mark in needed:
            paths.add(path)
            if has_stored:
                places.add(str(self._place(path, mark).parent))
        if gone := self.known.keys() - paths:
            for path in gone:
                del self.known[path]
            self._write()
        for at, folders, names in os.walk(stored, topdown=False):
            if names and at not in places:
                remove_folder(Path(at))
            elif not names and not any(os.path.isdir(os.path.join(at, each)) for each in folders):
                os.rmdir(at)

    def _write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / ".known.tmp"
        files = {path: [each.seen, each.mark, each.digest] for path, each in self.known.items()}
        write_checked(aside, {"files": files}, durable=False)
        os.replace(aside, self.folder / "known.json")


def mark_of(stat: os.stat_result) -> FileMark:
    return [stat.st_size, stat.st_mtime_ns]


def mark_at(path: str | Path) -> FileMark | None:
    """Return the mark of the file at a path; None if there is none."""
    try:
        return mark_of(os.stat(path))
    except OSError:
        return None


def _digest(path: str) -> str | None:
    digest = xxh3_128()
    try:
        with open(path, "rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError:
        return None
    return digest.hexdigest()
