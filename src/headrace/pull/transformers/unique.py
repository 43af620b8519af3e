"""`unique`, `non_unique`: select values by whether their key was seen before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from headrace.errors import SourceLocation
from headrace.pull.argument_checks import AWAIT_BEFORE, synchronous_check
from headrace.pull.errors import NotHashable
from headrace.pull.fusion import Kernel
from headrace.pull.modules import Transformer


def unique(key: Callable[[Any], Any] | None = None) -> Transformer:
    """Keep the first value of each key, in order. key: a function of the value; by default the value itself.

    Keys are compared as in Python (`1 == 1.0 == True`, `1 != "1"`; the original compares texts) and must be
    hashable: otherwise `NotHashable` fails the stream. All seen keys are kept until the stream ends. For each
    ask, it asks upstream until a new key arrives.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values([1, "1", 2, 1, 2]), unique(), collect()).run()
    [1, '1', 2]
    >>> pull(values(["ab", "cd", "xyz"]), unique(len), collect()).run()
    ['ab', 'xyz']
    """
    return Transformer.of_kernel("unique", _kernels("unique", key, repeated=False))


def non_unique(key: Callable[[Any], Any] | None = None) -> Transformer:
    """Keep the values whose key was seen before, that is, repetitions only. In other respects like `unique`.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values([1, 2, 1, 1, 2]), non_unique(), collect()).run()
    [1, 1, 2]
    """
    return Transformer.of_kernel("non_unique", _kernels("non_unique", key, repeated=True))


def _kernels(name: str, key: Callable[[Any], Any] | None, *, repeated: bool) -> Callable[[], Kernel]:
    location = SourceLocation.of_caller()
    checked = synchronous_check(name, key, fix=AWAIT_BEFORE)

    def make() -> Kernel:
        seen: set[Any] = set()

        def choose(items: Iterable[Any]) -> Iterator[Any]:
            for item in items:
                found = item if key is None else key(item)
                try:
                    known = found in seen
                    seen.add(found)
                except TypeError:
                    _check_hashable(name, found, location)
                    raise
                if not known:
                    checked(found)  # a coroutine is equal to no other
                if known == repeated:
                    yield item

        return choose

    return make


def _check_hashable(name: str, key: Any, location: SourceLocation) -> None:
    try:
        hash(key)
    except TypeError as error:
        raise NotHashable(
            f"{name}() cannot remember the key {key!r}",
            where=[location],
            why=f"Keys are kept in a set, and a {type(key).__name__} is not hashable.",
            fix=f"give a key function with hashable results: {name}(key=tuple), {name}(key=repr)",
        ) from error
