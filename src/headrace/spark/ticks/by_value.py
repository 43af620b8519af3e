"""Detection of the user's own modules, which workers cannot import and so receive by value."""

from __future__ import annotations

import functools
import sys
import sysconfig
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_NEVER = ("headrace", "pyspark", "py4j")
_ONE_AT_A_TIME = threading.RLock()
"""Lock for the module registry, which concurrent runs share: one must not remove what another still needs."""


def users_modules() -> list[types.ModuleType]:
    """Return the modules of this process that are neither Headrace's nor installed."""
    return [m for m in list(sys.modules.values()) if is_users(m)]


def is_users(module: object) -> bool:
    if not isinstance(module, types.ModuleType) or module.__name__ == "__main__":
        return False
    file = getattr(module, "__file__", None)
    if not file or sys.modules.get(module.__name__) is not module:
        return False
    if module.__name__.split(".")[0] in _NEVER or str(file).startswith(_INSTALLED):
        return False
    return not _holds_packages(root_of(module))


def root_of(module: types.ModuleType) -> Path:
    """Return the folder or archive that a module was imported from: the root of its dotted name."""
    file = Path(cast("str", module.__file__))
    depth = module.__name__.count(".") + (file.stem == "__init__")
    # Some modules make up their names; then it is as far up as there is something.
    return file.parents[min(depth, len(file.parents) - 1)]


@functools.cache
def _holds_packages(folder: Path) -> bool:
    """Return whether a folder contains packages, although this interpreter did not install them."""
    return any(folder.glob("*.dist-info"))


@contextmanager
def by_value(cloudpickle: Any) -> Iterator[None]:
    """Pickle definitions from the user's modules by value inside this block."""
    register: Callable[[types.ModuleType], None] = cloudpickle.register_pickle_by_value
    unregister: Callable[[types.ModuleType], None] = cloudpickle.unregister_pickle_by_value
    with _ONE_AT_A_TIME:
        known: set[str] = set(cloudpickle.list_registry_pickle_by_value())
        modules = [m for m in users_modules() if m.__name__ not in known]
        for module in modules:
            register(module)
        try:
            yield
        finally:
            for module in modules:
                unregister(module)
