"""Archives shipped by `spark-submit`: modules in a zip, compiled packages in a tar file.

Python cannot import compiled modules (msgpack, xxhash, numpy, polars, pyarrow) from a zip. These packages are
therefore shipped as installed folders in `env.tar.gz`, which Spark unpacks as `env` beside each worker. They
require a Python of the same minor version on the same platform.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from headrace.errors import BadInput
from headrace.spark.ticks.plan import root_of, users_modules

NEEDED = ("msgpack", "xxhash", "typing_extensions", "numpy", "polars", "pyarrow", "pandas")
"""Packages needed by drivers and workers. PySpark requires pandas before it exchanges Arrow batches."""

_WHEN = (1980, 1, 1, 0, 0, 0)
"""Timestamp given to all files in a zip, so that equal code gives equal zips."""

# Headers, tests and tools are large, and workers do not need them.
_LEFT_OUT = re.compile(r"(^|/)(__pycache__|tests|include)(/|$)|\.pyc$|\.pxd$|\.pyx$|^\.\.")


def pack_code(target: Path) -> list[str]:
    """Write a zip of Headrace and the user's loaded modules, and return the modules' names."""
    import headrace

    files = dict(_tree(Path(headrace.__file__).parent, "headrace", ".py"))
    names: list[str] = []
    for module in sorted(users_modules(), key=lambda m: m.__name__):
        names.append(module.__name__)
        files.update(_files_of(module))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
        for name in sorted(files):
            out.writestr(zipfile.ZipInfo(name, _WHEN), files[name].read_bytes(), zipfile.ZIP_DEFLATED)
    return names


def _files_of(module: ModuleType) -> Iterator[tuple[str, Path]]:
    """List a module's file, or all files of a package, since others may be imported later or read as data."""
    assert module.__file__ is not None
    file = Path(module.__file__)
    if file.stem == "__init__":
        yield from _tree(file.parent, module.__name__.replace(".", "/"), "")
    else:
        yield file.relative_to(root_of(module)).as_posix(), file


def _tree(folder: Path, name: str, ending: str) -> Iterator[tuple[str, Path]]:
    for file in sorted(folder.rglob(f"*{ending}")):
        inside = file.relative_to(folder)
        hidden = any(part.startswith(".") or part == "__pycache__" for part in inside.parts)
        if file.is_file() and not hidden:
            yield f"{name}/{inside.as_posix()}", file


def pack_environment(folder: Path, archive: Path, packages: Iterable[str]) -> list[str]:
    """Copy installed packages and their requirements to `folder`, and write an archive of it.

    Returns names with versions. Raises `BadInput` for a package that is not installed.
    """
    found = _with_requirements(packages)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for distribution in found.values():
        for file in distribution.files or ():
            source = Path(str(distribution.locate_file(file)))
            if not _LEFT_OUT.search(file.as_posix()) and source.is_file():
                target = folder / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
    with tarfile.open(archive, "w:gz", compresslevel=4) as out:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                out.add(path, path.relative_to(folder).as_posix(), filter=_anonymous)
    return sorted(f"{d.metadata['Name']} {d.version}" for d in found.values())


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = 0
    info.mode = 0o644
    return info


def _with_requirements(packages: Iterable[str]) -> dict[str, importlib.metadata.Distribution]:
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = list(packages)
    asked = set(waiting)
    while waiting:
        name = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            found[key] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if name in asked:
                raise BadInput(
                    f"package {name!r} is not installed here, so it cannot be shipped",
                    fix=f"pip install {name}, or leave it out with --without {name}",
                    package=name,
                ) from None
            continue  # required only on another platform or version
        waiting += _required(found[key])
    return found


def _required(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    for requirement in distribution.requires or ():
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        # Extras are not requested, so skip their requirements.
        if name is not None and "extra" not in requirement.partition(";")[2]:
            yield name[0]


def python_version() -> str:
    """Return the Python version of the packages, such as "3.11"."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"
