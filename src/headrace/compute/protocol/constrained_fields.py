"""Message field types with constraints beyond their plain types.

The type of such a field is `Annotated` with a constraint, which the codec checks when a message is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from headrace.compute.frontier import LAST_TIME


@dataclass(frozen=True, slots=True)
class Constraint:
    """Condition on values from the network. why: the sentence with which violations are reported."""

    holds: Callable[[Any], bool]
    why: str


KEY_BYTES = 16

NOT_EMPTY = Constraint(bool, "It is empty.")
Name: TypeAlias = Annotated[str, NOT_EMPTY]
Key: TypeAlias = Annotated[
    bytes, Constraint(lambda value: len(value) == KEY_BYTES, f"It does not have {KEY_BYTES} bytes.")
]
"""Random identifier: a uuid, nonce or token."""
Time: TypeAlias = Annotated[int, Constraint(lambda value: value <= LAST_TIME, "It is no time.")]
