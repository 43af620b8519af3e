"""Hides packages from the programs of a page, as if they were not installed: names in HIDDEN_PACKAGES."""

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder


class _Finder(PathFinder):
    @classmethod
    def find_spec(cls, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] in _HIDDEN:
            return None
        return PathFinder.find_spec(fullname, path, target)  # type: ignore[arg-type]


_HIDDEN = frozenset(os.environ.get("HIDDEN_PACKAGES", "").split())
sys.meta_path[sys.meta_path.index(PathFinder)] = _Finder
