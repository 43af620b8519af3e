"""What an entry of the function catalogue holds.

A function is data: its name, the rule that types it, and how it is said in
Python. How it is said in Spark stands under the same name in
`penstock.spark.lowering.columns`; a test checks that no function lacks one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from penstock.expr.types import DataType

if TYPE_CHECKING:
    from penstock.expr.emit import Code, Emitter
    from penstock.expr.typed import CallTerm, Term


class Mismatch(Exception):
    """Raised by a typing rule: the arguments do not fit. The check makes it a `WrongType`."""

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Signature:
    """What a rule decides: the types its arguments become, the result, and its nullability.

    `nullable` None means: where an argument is.
    """

    arguments: tuple[DataType, ...]
    result: DataType
    nullable: bool | None = None


Arguments: TypeAlias = "tuple[Term, ...]"
Rule: TypeAlias = Callable[["Arguments", tuple[object, ...]], Signature]


@dataclass(frozen=True, slots=True)
class Function:
    """Base of the entries."""

    name: str
    rule: Rule


@dataclass(frozen=True, slots=True)
class Strict(Function):
    """A function that is null exactly where an argument is.

    python:   source of the value from operands that are not null, each an atom
              or in brackets; `Emitter.name` binds one that is used twice.
    fallible: whether it can raise on some row, for all calls or for one.
    keeps_nan: floats in the result are as canonical as those of the arguments.
    last_first: the last argument is evaluated first (Spark looks at divisors first).
    """

    python: Callable[[Emitter, CallTerm, tuple[str, ...]], str]
    fallible: bool | Callable[[CallTerm], bool] = False
    keeps_nan: bool = False
    last_first: bool = False


@dataclass(frozen=True, slots=True)
class Lazy(Function):
    """A function that treats null in its own way, or does not evaluate all arguments.

    python: code of the value. true, false: source that is truthy exactly where
    the call is true, or false; None where the value will do.
    """

    python: Callable[[Emitter, CallTerm], Code]
    true: Callable[[Emitter, CallTerm], str] | None = None
    false: Callable[[Emitter, CallTerm], str] | None = None
    fallible: bool = False
