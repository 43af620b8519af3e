"""Files of an input, listed as Spark lists them.

Where a plan has Spark's relation, it is asked. Else files are listed here: those in a folder and in its
folders of partitions, in several folders, at any depth (`recursiveFileLookup`), and those whose names match
a pattern of `*` and `?`, in the path or as `pathGlobFilter`. All else needs Spark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.file_system import local_path
from headrace.pipelines.errors import NeedsSpark
from headrace.pipelines.input_identity import FileMark, mark_of

if TYPE_CHECKING:
    from headrace.pipelines.leaves import FilesLeaf

_CHOOSING = frozenset(("modifiedbefore", "modifiedafter", "basepath", "maxfileage"))
"""Options by which only Spark chooses among the files of a folder."""

GLOB = frozenset("{}[]*?\\")
"""Characters of patterns in paths."""

NAMED_IN_SQL = "SQL names them, perhaps by a pattern"
IN_SEVERAL_FOLDERS = "they are in several folders, perhaps found by a pattern"
"""Why only Spark can list files of which nothing but the query's text tells how they were found."""


def why_elsewhere(options: Mapping[str, str], roots: tuple[str, ...]) -> str:
    """Return why only Spark can list the files of a relation; empty if they can be listed here.

    options: of the query, by names in lower case. roots: what Spark has found.
    """
    if chosen := sorted(_CHOOSING & options.keys()):
        return f"they are chosen by the option {chosen[0]}"
    if _is_beyond_names(options.get("pathglobfilter", "")):
        return "they are chosen by the option pathglobfilter"
    if "path" not in options:
        return NAMED_IN_SQL if len(roots) == 1 else IN_SEVERAL_FOLDERS
    if GLOB & set(options["path"]):
        folder, pattern = os.path.split(options["path"])
        are_files = all(map(os.path.isfile, roots)) and len({*map(os.path.dirname, roots)}) == 1
        if GLOB & set(folder) or _is_beyond_names(pattern) or not are_files:
            return "they are found by a pattern of more than names of files"
    elif len(roots) > 1:
        return IN_SEVERAL_FOLDERS
    return ""


def _is_beyond_names(pattern: str) -> bool:
    """Return whether a pattern has other special characters than `*` and `?`."""
    return bool(GLOB.difference("*?") & set(pattern))


def pattern_of_names(path: str) -> str:
    """Return the pattern of names of files that a path ends in; empty for a path that is none."""
    return os.path.basename(path) if GLOB & set(path) else ""


def _matching(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern of `*` and `?`."""
    known = {"*": ".*", "?": "."}
    return re.compile("".join(known.get(each) or re.escape(each) for each in pattern))


def files_there(leaf: FilesLeaf) -> dict[str, FileMark]:
    """List the current files of a leaf by path, as Spark would read them. Raises `NeedsSpark`."""
    if leaf.relation is None:
        return files_without_spark(leaf)
    found: dict[str, FileMark] = {}
    for uri in leaf.relation.location().inputFiles():
        path = local_path(uri, "files")
        found[path] = mark_of(os.stat(path))
    return found


def files_without_spark(leaf: FilesLeaf) -> dict[str, FileMark]:
    """List the current files of a leaf without Spark. Raises `NeedsSpark` where only Spark can do it."""
    if leaf.elsewhere:
        raise NeedsSpark(f"{leaf.key} are to be listed: {leaf.elsewhere}")
    found = _files_named(leaf) if leaf.pattern else _files_of_roots(leaf)
    if leaf.chosen:
        if leaf.partitions:
            # To Spark, folders without a file that is chosen say which partitions there are, too.
            raise NeedsSpark(f"files of {leaf.key} are chosen in folders of partitions")
        matching = _matching(leaf.chosen)
        found = {path: mark for path, mark in found.items() if matching.fullmatch(os.path.basename(path))}
    if not leaf.is_recursive and len({path.count(os.sep) for path in found}) > 1 and len(leaf.roots) == 1:
        raise NeedsSpark(f"{leaf.roots[0]} has files at several depths")
    return found


def _files_named(leaf: FilesLeaf) -> dict[str, FileMark]:
    """List the files of a folder with names of the leaf's pattern."""
    matching, found = _matching(leaf.pattern), dict[str, FileMark]()
    for entry in _visible(os.path.dirname(leaf.roots[0]), _refuse):
        if matching.fullmatch(entry.name):
            if entry.is_dir():
                _refuse(entry)
            with suppress(FileNotFoundError):
                found[entry.path] = mark_of(entry.stat())
    if not found and not leaf.streaming:
        raise NeedsSpark(f"{leaf.key} are not there")
    return found


def _files_of_roots(leaf: FilesLeaf) -> dict[str, FileMark]:
    roots, found = leaf.roots, dict[str, FileMark]()
    if any(other != root and f"{other}/".startswith(f"{root}/") for root in roots for other in roots):
        raise NeedsSpark(f"one of the folders {', '.join(roots)} is in another one")
    if len({*roots}) < len(roots):
        raise NeedsSpark(f"one of the folders {', '.join(roots)} is read twice")
    for root in roots:
        if not os.path.isdir(root):
            found[root] = mark_of(os.stat(root))
            continue
        listed = dict(files_in(root, _refuse, recursive=leaf.is_recursive))
        if len(roots) > 1 and not leaf.is_recursive and any(os.path.dirname(p) != root for p in listed):
            raise NeedsSpark(f"{root} has folders of partitions, beside other folders")
        found |= listed
    return found


def _refuse(entry: os.DirEntry[str]) -> None:
    what = "folder" if entry.is_dir() else "file"
    # What a file is called may steer a terminal.
    raise NeedsSpark(ascii(f"{os.path.dirname(entry.path)} has a {what} {entry.name}")[1:-1])


def files_in(
    root: str, unsupported: Callable[[os.DirEntry[str]], object], *, recursive: bool = False
) -> Iterator[tuple[str, FileMark]]:
    """Yield the files in a folder that Spark reads, and in its folders of partitions, with their marks.

    unsupported: called for what only Spark understands: other folders, files that sum up others, odd names.
    recursive: whether all folders are looked into.
    """
    for entry in _visible(root, unsupported):
        if not entry.is_dir():
            with suppress(FileNotFoundError):  # It may be gone by now.
                yield entry.path, mark_of(entry.stat())
        elif recursive or "=" in entry.name:
            yield from files_in(entry.path, unsupported, recursive=recursive)
        else:
            unsupported(entry)


def _visible(folder: str, unsupported: Callable[[os.DirEntry[str]], object]) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder that Spark does not pass over. unsupported: see `files_in`."""
    with os.scandir(folder) as entries:
        for entry in entries:
            hidden = entry.name.startswith(".") or (entry.name.startswith("_") and "=" not in entry.name)
            if entry.name.startswith(("_metadata", "_common_metadata")):
                unsupported(entry)
            elif hidden or entry.name.endswith("._COPYING_"):
                continue
            elif not entry.name.isprintable():
                unsupported(entry)
            else:
                yield entry
