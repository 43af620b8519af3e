"""The search for an example that refutes: the same one in every run, and a small one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")
EXAMPLES = 1000
"""How many examples are tried unless said otherwise."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call came to: a value, or the exception that it raised.

    Values are equal that are one to the engine: NaN equals itself.
    """

    value: Any = None
    error: Exception | None = None

    @classmethod
    def of(cls, function: Callable[..., Any], *arguments: Any) -> Outcome:
        try:
            return cls(function(*arguments))
        except Exception as error:
            return cls(error=error)

    def agrees(self, other: Outcome) -> bool:
        """Whether both came to the same. To raise is no answer, and agrees with whatever else raises."""
        if self.error is not None or other.error is not None:
            return self.error is not None and other.error is not None
        return _one_nan(self.value) == _one_nan(other.value)

    def __str__(self) -> str:
        if self.error is not None:
            return f"raises {type(self.error).__name__}: {self.error}"
        return f"is {self.value!r}"


def _one_nan(value: Any) -> Any:
    return "nan" if isinstance(value, float) and value != value else value


def find_list(
    pool: Sequence[T], refutes: Callable[[list[T]], bool], least: int, most: int, count: int = EXAMPLES
) -> list[T] | None:
    """A short list of simple members of `pool` that refutes, or None where none of `count` does.

    pool: the simplest first. least, most: how many members a list may have.
    """
    for items in _lists(pool, least, most, count):
        if refutes(items):
            return _simplest(pool, items, refutes, least)
    return None


def _lists(pool: Sequence[T], least: int, most: int, count: int) -> Iterator[list[T]]:
    """Lists from what is simple to what is not: of ever more of the pool, and ever longer."""
    random = Random(0)
    for at in range(count):
        reach = min(len(pool), 2 + at * len(pool) // count)
        longest = least + at * (most - least + 1) // count
        yield [pool[random.randrange(reach)] for _ in range(random.randint(least, longest))]


def _simplest(pool: Sequence[T], items: list[T], refutes: Callable[[list[T]], bool], least: int) -> list[T]:
    """A list that refutes, of which nothing can be left out and no one member made simpler."""
    while True:
        for simpler in _simpler(pool, items, least):
            if refutes(simpler):
                items = simpler
                break
        else:
            return items


def _simpler(pool: Sequence[T], items: list[T], least: int) -> Iterator[list[T]]:
    if len(items) > least:
        yield from ([*items[:at], *items[at + 1 :]] for at in range(len(items)))
    for at, item in enumerate(items):
        place = next(n for n, member in enumerate(pool) if member is item)
        yield from ([*items[:at], member, *items[at + 1 :]] for member in pool[:place])
