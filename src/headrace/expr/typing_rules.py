"""Checked expressions: typed terms, catalogue functions and their typing rules.

`headrace.expr.check.checked_tree` builds terms from an `Expr` and a `Schema`. All implicit conversions are
explicit nodes here (calls of "cast"), so both lowerings see the same operations on the same types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.expr.types import DataType

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headrace.expr.polars_columns import Lowering


@dataclass(frozen=True, slots=True)
class TypeAndNullability:
    """Type of an expression, and whether it can be null."""

    type: DataType
    nullable: bool

    def __str__(self) -> str:
        return f"{self.type}{'?' if self.nullable else ''}"


class NullType(DataType):
    """Type of a bare null, which converts to any other type."""

    __slots__ = ()


NULL = NullType()


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """An expression after type checking."""

    type: DataType
    nullable: bool


@dataclass(frozen=True, slots=True, eq=False)
class ColumnTerm(Term):
    """Column number `position` of the schema."""

    position: int
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class LiteralTerm(Term):
    """Constant as an internal value. `adapts`: a bare number adapts to the type of other operands."""

    value: object
    adapts: bool = False


class Mismatch(Exception):
    """Raised by a typing rule whose arguments do not fit. `check` turns it into a `WrongType`."""

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Signature:
    """Result of a typing rule: the types that arguments convert to, the result type, and its nullability.

    `nullable` None: the result is nullable if an argument is.
    """

    arguments: tuple[DataType, ...]
    result: DataType
    nullable: bool | None = None


Arguments: TypeAlias = tuple[Term, ...]
Rule: TypeAlias = Callable[[Arguments, tuple[object, ...]], Signature]


SparkForm: TypeAlias = "Callable[[CallTerm, tuple[Any, ...]], Column]"
"""Spark column of a call, from the columns of its arguments; of one that is a function, a Python function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRecord:
    """What is known of a function beside its name, types and Python.

    arity:    the least and greatest number of arguments; None: unlimited. step: increment above the least.
    options:  test of each option's value.
    meaning:  for its documentation; `hr.functions` has the functions with one, whose names are Spark's.
    shown_parameters: its parameters as documentation shows them, if their types don't say it.
    defaults: of its last parameters.
    example:  arguments of a call that documentation shows and tests make, on rows, on columns and on Spark.
    catalyst: Catalyst's classes whose children are the arguments, or static methods (`Base64.encode`) that
              take them first.
    columns:  its form for Polars; None: it runs on rows. takes_lists: whether that form takes lists.
    spark:    its form for Spark.
    keeps_size: whether no result is larger than the limits of `headrace.expr.bounds` where no argument is;
              otherwise bounded code checks the result.
    runtime:  names that its generated code uses.
    """

    arity: tuple[int, int | None] = (0, None)
    step: int = 1
    options: tuple[Callable[[object], bool], ...] = ()
    meaning: str = ""
    shown_parameters: str = ""
    defaults: tuple[object, ...] = ()
    example: str = ""
    catalyst: tuple[str, ...] = ()
    columns: Lowering | None = None
    takes_lists: bool = False
    spark: SparkForm | None = None
    keeps_size: bool = False
    runtime: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)


@dataclass(frozen=True, slots=True)
class Function(FunctionRecord):
    """Base of catalogue functions: a name, its typing rule, and its record."""

    name: str
    rule: Rule

    def accepts(self, arguments: int, options: Sequence[object]) -> bool:
        """Return whether a call may have this many arguments and these options.

        Rules take that for granted: the methods that build expressions guarantee it. A plan doesn't.
        """
        least, most = self.arity
        if arguments < least or (most is not None and arguments > most) or (arguments - least) % self.step:
            return False
        if len(options) != len(self.options):
            return False
        return all(test(option) for test, option in zip(self.options, options, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class CallTerm(Term):
    """Catalogue function applied to checked arguments."""

    function: Function
    arguments: tuple[Term, ...]
    options: tuple[object, ...] = ()
