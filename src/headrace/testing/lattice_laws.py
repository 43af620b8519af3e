"""Laws of lattices, tested on values until a counterexample is found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.errors import BrokenClaim, Step
from headrace.lattice import Lattice
from headrace.testing.claim_examples import EXAMPLES, Outcome, find_list

Sides: TypeAlias = tuple[tuple[str, Outcome], tuple[str, Outcome]]
"""Two calls whose results must be equal, each as its text and its result."""
_MERGES = 40


@dataclass(frozen=True, slots=True)
class Law:
    """Law that every lattice must satisfy.

    broken: its description in an error.
    values: number of values it relates.
    sides:  maps the lattice and the values to the two calls to compare.
    """

    broken: str
    values: int
    sides: Callable[..., Sides]


def check_lattice(lattice: Lattice, values: Collection[Any], *, examples: int = EXAMPLES) -> None:
    """Test the laws of a lattice: merging is associative, commutative and idempotent, and bottom is neutral.

    The order must agree with merging.

    values:   values of the lattice, simplest first; merges of them are tested, too.
    examples: number of combinations of values to test each law on.

    Raises `BrokenClaim` with the law and a small counterexample.

    >>> from headrace.lattice import Max, Merging
    >>> check_lattice(Max(), [1, 2, 3])
    >>> check_lattice(Merging(0, lambda one, other: one + other), [1, 2])
    Traceback (most recent call last):
    ...
    headrace.errors.BrokenClaim: P106 BrokenClaim: <lambda> is no lattice: its merge is not idempotent
    <BLANKLINE>
    merge(1, 1) is 2, and not 1.
    ...
    """
    for law in LAWS:
        check_law(lattice, law, list(values), examples)


def check_law(
    lattice: Lattice, law: Law, values: Sequence[Any], examples: int, where: tuple[Step, ...] = ()
) -> int:
    """Test one law, and return the number of examples with a value on both sides. Raises `BrokenClaim`."""
    tried = 0

    def refutes(some: list[Any]) -> bool:
        nonlocal tried
        (_, one), (_, other) = law.sides(lattice, *some)
        tried += one.error is None and other.error is None
        return not one.agrees(other)

    pool = [*values, *_merges(lattice, values)]
    found = find_list(pool, refutes, law.values, law.values, examples) if pool else None
    if found is not None:
        raise _broken(lattice, law, found, where)
    return tried


def _merges(lattice: Lattice, values: Sequence[Any]) -> list[Any]:
    """List the merges of two values."""
    pairs = ((one, other) for at, one in enumerate(values) for other in values[:at])
    merged = (Outcome.of(lattice.merge, *pair) for pair, _ in zip(pairs, range(_MERGES), strict=False))
    return [outcome.value for outcome in merged if outcome.error is None]


def _broken(lattice: Lattice, law: Law, values: Sequence[Any], where: tuple[Step, ...]) -> BrokenClaim:
    (one_text, one), (other_text, other) = law.sides(lattice, *values)
    but = f"and not {other_text}" if other_text == repr(other.value) else f"and\n{other_text} {other}"
    return BrokenClaim(
        f"{lattice} is no lattice: its {law.broken}",
        where=where,
        why=f"{one_text} {one}, {but}.",
        fix="give a merge that is commutative, associative and idempotent,\n"
        "or use fold(...) with the claims that hold",
        law=law.broken,
        values=tuple(values),
    )


def _associative(lattice: Lattice, a: Any, b: Any, c: Any) -> Sides:
    merge = lattice.merge
    return (
        (f"merge(merge({a!r}, {b!r}), {c!r})", Outcome.of(lambda: merge(merge(a, b), c))),
        (f"merge({a!r}, merge({b!r}, {c!r}))", Outcome.of(lambda: merge(a, merge(b, c)))),
    )


def _commutative(lattice: Lattice, a: Any, b: Any) -> Sides:
    return (
        (f"merge({a!r}, {b!r})", Outcome.of(lattice.merge, a, b)),
        (f"merge({b!r}, {a!r})", Outcome.of(lattice.merge, b, a)),
    )


def _idempotent(lattice: Lattice, a: Any) -> Sides:
    return (f"merge({a!r}, {a!r})", Outcome.of(lattice.merge, a, a)), (repr(a), Outcome(a))


def _bottom(lattice: Lattice, a: Any) -> Sides:
    bottom = lattice.bottom
    return (f"merge({bottom!r}, {a!r})", Outcome.of(lattice.merge, bottom, a)), (repr(a), Outcome(a))


def _order(lattice: Lattice, a: Any, b: Any) -> Sides:
    merged = Outcome.of(lattice.merge, a, b)
    absorbed = merged if merged.error is not None else Outcome(merged.agrees(Outcome(b)))
    return (
        (f"leq({a!r}, {b!r})", Outcome.of(lattice.leq, a, b)),
        (f"merge({a!r}, {b!r}) == {b!r}", absorbed),
    )


LAWS = (
    Law("merge is not associative", 3, _associative),
    Law("merge is not commutative", 2, _commutative),
    Law("merge is not idempotent", 1, _idempotent),
    Law("bottom does not merge into every value", 1, _bottom),
    Law("order is not that of its merge", 2, _order),
)
