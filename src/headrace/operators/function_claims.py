"""Claims about user functions, which relax the requirements on their input.

Claims are not trusted: `headrace check --claims` and `headrace.testing.check_claims` run each as a property
test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.graph.node import function_name
from headrace.graph.operator_declarations import Need

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims about a function `f(accumulated, row)`.

    commutative: the order of the rows does not matter.
    idempotent:  repeated rows have no effect.
    monotone:    the accumulated value never decreases.
    """

    commutative: bool = False
    idempotent: bool = False
    monotone: bool = False

    def names(self) -> Iterator[str]:
        """Yield the names of the claims made."""
        for name in ("commutative", "idempotent", "monotone"):
            if getattr(self, name):
                yield name

    def needs(self) -> tuple[Need, ...]:
        """Return the facts that a fold with this function requires of its input."""
        needs = [
            Need(
                0,
                "append",
                "a function cannot undo what it accumulated:\nof a row that is taken back it would not know",
                "group_by(...).agg(...) with hr.sum, hr.count, hr.max and the like, which take rows back",
            )
        ]
        if not self.commutative:
            needs.append(
                Need(
                    0,
                    "ordered",
                    "the function may give something else when rows come in another order",
                    "claim commutative=True if it does not (`headrace check --claims` tries it),\n"
                    'or say what the order is by .assume_ordered(nondet="why it is kept")',
                )
            )
        if not self.idempotent:
            needs.append(
                Need(
                    0,
                    "once",
                    "the function may count a row twice that comes twice",
                    "claim idempotent=True if it does not (`headrace check --claims` tries it)",
                )
            )
        return tuple(needs)

    def clauses_about(self, function: Callable[..., object]) -> Iterator[str]:
        """Render the claims about a function, one clause each, for `Operator.assumptions`."""
        for name in self.names():
            yield f"{function_name(function)} is {name}"

    def __str__(self) -> str:
        return ", ".join(self.names())


NO_CLAIMS = Claims()

# Claims that hold for the merge of any lattice.
MERGES = Claims(commutative=True, idempotent=True)
