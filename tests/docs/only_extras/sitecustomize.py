"""Hides packages from the programs of a page, as if they were not installed: names in HIDDEN_PACKAGES."""

import os
import sys


class _Hide:
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in _HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


_HIDDEN = frozenset(os.environ.get("HIDDEN_PACKAGES", "").split())
sys.meta_path.insert(0, _Hide())  # type: ignore[arg-type]
