"""Compilation of expressions to Python source that can be inlined in generated functions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate, count
from typing import TYPE_CHECKING, Any

from headrace.errors import SourceLocation, WrongType
from headrace.expr import bounds, code_runtime, text_casts, value_keys
from headrace.expr.bounds import PREPARED
from headrace.expr.check import checked_tree
from headrace.expr.expression_text import literal_source
from headrace.expr.function_records import LazyFunction, StrictFunction, holds_for, may_raise
from headrace.expr.functions import CATALOGUE, NAMES
from headrace.expr.types import BytesType, ListType, MapType, StrType
from headrace.expr.typing_rules import (
    ATOM,
    CallTerm,
    ColumnTerm,
    Emitter,
    GuardedSource,
    LiteralTerm,
    Term,
    is_bounded,
    is_float,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.expr.tree import Expr
    from headrace.expr.types import DataType, Schema


# --- assembly of Python source: operands, null guards, temporaries --------------------------------

# A `GuardedSource` is a source that is valid if none of its guarded operands is null, with the list of those
# operands.
# Null-strict functions just concatenate the lists, so that `(a + b) * c` tests each of `a`, `b`, `c` once:
#
#     None if a is None or b is None or c is None else ((a + b) * c)
#
# Guards are tested in the order of evaluation, from left to right: a left operand that may raise is evaluated
# before a right one is tested for null, as in Spark.


@dataclass(frozen=True, slots=True)
class CodeScope:
    """Naming context of generated source: temporaries and constants.

    variables: column i of `schema` is in the Python variable `variables[i]`.
    constants: receives values without a source form, under fresh names; the generated code needs them, and
               names such as those of `runtime_names`, as globals.
    bounded:   whether no row may cost much.

    Temporaries are named `x_1`, `x_2`, ... and assigned where they are used; a source may be used in a
    comprehension or a lambda, but not in the iterable of a comprehension.
    """

    schema: Schema
    variables: tuple[str, ...]
    constants: dict[str, object]
    bounded: bool = field(default_factory=is_bounded)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1), repr=False, compare=False)

    def fresh(self) -> str:
        """Return a new name for a temporary."""
        return f"x_{next(self._numbers)}"

    def constant(self, value: object) -> str:
        """Return the name of a constant, the same for the same object."""
        for name, known in self.constants.items():
            if known is value:
                return name
        name = f"x_c{len(self.constants)}"
        self.constants[name] = value
        return name


_SIZED_TYPES = (StrType, BytesType, ListType, MapType)


class PythonEmitter(Emitter):
    """Compiler from checked expressions to source within one scope."""

    def __init__(self, scope: CodeScope) -> None:
        self._scope = scope

    # -- for the catalogue ----------------------------------------------------------------

    def fresh(self) -> str:
        return self._scope.fresh()

    @property
    def bounded(self) -> bool:
        return self._scope.bounded

    def prepare(self, make: Callable[..., Any]) -> Callable[..., Any]:
        return PREPARED.get(make, make) if self._scope.bounded else make

    def constant(self, value: object) -> str:
        return self._scope.constant(value)

    def name_value(self, source: str) -> tuple[str, str]:
        if ATOM.fullmatch(source):
            return source, source
        name = self.fresh()
        return f"({name} := {source})", name

    def value(self, term: Term) -> str:
        return self._whole(self.code(term))

    def is_null(self, term: Term) -> str:
        return self._null_test(term, "is", "False")

    def is_not_null(self, term: Term) -> str:
        return self._null_test(term, "is not", "True")

    def _null_test(self, term: Term, operator: str, always: str) -> str:
        if term.nullable:
            return f"({self.value(term)} {operator} None)"
        # Python warns about comparing constants by identity.
        return f"({self.value(term)}, {always})[1]" if may_raise(term) else always

    def truth_test(self, term: Term) -> str:
        if (
            isinstance(term, CallTerm)
            and isinstance(term.function, LazyFunction)
            and term.function.true is not None
        ):
            return term.function.true(self, term)
        code = self.code(term)
        return self._all(code, code.source)

    def falsity_test(self, term: Term) -> str:
        if (
            isinstance(term, CallTerm)
            and isinstance(term.function, LazyFunction)
            and term.function.false is not None
        ):
            return term.function.false(self, term)
        code = self.code(term)
        return self._all(code, f"not {code.source}")

    # -- the lowering ------------------------------------------------------------------------

    def code(self, term: Term) -> GuardedSource:
        match term:
            case ColumnTerm():
                variable = self._scope.variables[term.position]
                return GuardedSource(variable, (variable,) if term.nullable else ())
            case LiteralTerm(value=None):
                return GuardedSource("None", ("None",))
            case LiteralTerm():
                inline = literal_source(term.value)
                return GuardedSource(inline if inline is not None else self.constant(term.value))
            case CallTerm():
                return self._call(term)
            case _:
                raise TypeError(f"not a checked expression: {type(term).__name__}")

    def _call(self, term: CallTerm) -> GuardedSource:
        function = term.function
        if isinstance(function, LazyFunction):
            return self._guarded(term, self._sized(term, function.python(self, term)))
        assert isinstance(function, StrictFunction)
        codes = [self.code(a) for a in term.arguments]
        step = -1 if holds_for(function.last_first, term) else 1
        sources, guards = self._joined(term.arguments[::step], codes[::step])
        if "None" in guards:
            # An operand is the constant null, so the others are never used.
            return GuardedSource("None", guards)
        source = self._sized(term, GuardedSource(function.python(self, term, sources[::step]))).source
        canonical = not is_float(term.type) or (function.keeps_nan and all(c.canonical for c in codes))
        if holds_for(function.nullable, term):
            first, source = self.name_value(source)
            guards = (*guards, first)
        return GuardedSource(source, guards, canonical)

    def _sized(self, term: CallTerm, code: GuardedSource) -> GuardedSource:
        """In bounded code, check the size of a function's result unless it cannot exceed the limits."""
        if not self._scope.bounded or term.function.keeps_size or not isinstance(term.type, _SIZED_TYPES):
            return code
        return replace(code, source=f"x_sized({code.source})")

    def _guarded(self, term: Term, code: GuardedSource) -> GuardedSource:
        """Bind the value of a lazy function to a name, guarded because it may be None."""
        if not term.nullable or code.guards:
            return code
        first, again = self.name_value(code.source)
        return GuardedSource(again, (first,), code.canonical)

    def _joined(
        self, terms: Sequence[Term], codes: Sequence[GuardedSource]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        guards: list[str] = []
        sources: list[str] = []
        for at, code in enumerate(codes):
            guards += [g for g in code.guards if g not in guards]
            source = code.source
            nulls_to_come = any(g not in guards for later in codes[at + 1 :] for g in later.guards)
            if nulls_to_come and may_raise(terms[at]) and not ATOM.fullmatch(source):
                first, source = self.name_value(source)
                guards.append(first)
            sources.append(source)
        return tuple(sources), tuple(guards)

    def canonical(self, code: GuardedSource) -> str:
        if code.canonical:
            return code.source
        first, again = self.name_value(code.source)
        # `first` is in the condition, which Python evaluates before the branches.
        return f"({again} if {first} == {again} else x_nan)"

    def _whole(self, code: GuardedSource) -> str:
        source = self.canonical(code)
        if not code.guards:
            return source
        if code.guards == (source,):
            return source
        if len(code.guards) == 1 and code.guards[0].startswith(f"({source} := "):
            return _bound(code.guards[0])
        nulls = " or ".join(f"{g} is None" for g in code.guards)
        return f"(None if {nulls} else {source})"

    def _all(self, code: GuardedSource, source: str) -> str:
        if not code.guards:
            return source if not source.startswith("not ") else f"({source})"
        if code.guards == (source,):
            return source
        if len(code.guards) == 1 and code.guards[0].startswith(f"({source} := "):
            return _bound(code.guards[0])
        present = " and ".join(f"{g} is not None" for g in code.guards)
        return f"({present} and {source})"

    def key(self, term: Term) -> str:
        """Return source of the value as a dict key: floats canonical, and -0.0 as 0.0."""
        return value_keys.dict_key_source(term.type, term.nullable, self.value(term), self.name_value)


def _bound(guard: str) -> str:
    """Return the name bound by a guard of the form `(name := source)`."""
    return guard[1:-1].split(" := ", 1)[1] if " := " in guard else guard


__all__ = [
    "CATALOGUE",
    "RUNTIME",
    "CodeScope",
    "compile_rows",
    "dict_key_source",
    "key_of",
    "predicate_source",
    "runtime_names",
    "value_source",
]

RUNTIME: dict[str, Any] = {
    **value_keys.NAMES,
    **code_runtime.NAMES,
    **text_casts.NAMES,
    **NAMES,
}
"""Names that generated code may use, all starting with `x_`."""


BOUNDED_RUNTIME: dict[str, Any] = {**RUNTIME, **bounds.NAMES}


def runtime_names(*, bounded: bool) -> dict[str, Any]:
    """Return the names that generated code may use, other than its own."""
    return BOUNDED_RUNTIME if bounded else RUNTIME


def value_source(expr: Expr, scope: CodeScope) -> str:
    """Return source of the value: None for null, NaN canonical.

    Raises like `headrace.expr.check.check`.
    """
    return _not_too_deep(PythonEmitter(scope).value(checked_tree(expr, scope.schema)), expr)


def predicate_source(expr: Expr, scope: CodeScope) -> str:
    """Return source that is truthy exactly if a bool expression is true."""
    return _not_too_deep(PythonEmitter(scope).truth_test(checked_tree(expr, scope.schema)), expr)


def dict_key_source(expr: Expr, scope: CodeScope) -> str:
    """Return source of the value as a dictionary key, equal for values that Spark groups together."""
    return _not_too_deep(PythonEmitter(scope).key(checked_tree(expr, scope.schema)), expr)


# Python parses 200 nested brackets, some of which are reserved for the surrounding code.
_BRACKETS = 160


def _not_too_deep(source: str, expr: Expr) -> str:
    if source.count("(") > _BRACKETS:
        depth = max(accumulate((c == "(") - (c == ")") for c in source))
        if depth > _BRACKETS:
            raise WrongType(
                f"an expression is nested too deeply: {str(expr)[:60]}...",
                where=[SourceLocation.of_caller()],
                why="The Python code that it becomes has more nested brackets than Python reads.",
                fix="compute a part of it first, in with_columns()",
            )
    return source


def key_of(type: DataType, nullable: bool, source: str, scope: CodeScope | None = None) -> str:
    """Return source code for the dictionary key of `source`, an internal value of `type`."""

    def name(source: str) -> tuple[str, str]:
        if source.isidentifier():
            return source, source
        fresh = scope.fresh() if scope is not None else "x_k"
        return f"({fresh} := {source})", fresh

    return value_keys.dict_key_source(type, nullable, source, name)


def compile_rows(exprs: tuple[Expr, ...], schema: Schema) -> Any:
    """Compile expressions to a function from an internal row to the tuple of their values."""
    variables = tuple(f"c{at}" for at in range(len(schema.fields)))
    scope = CodeScope(schema, variables, {})
    values = "".join(f"{value_source(e, scope)}, " for e in exprs)
    unpack = f"    {''.join(f'{v}, ' for v in variables)}= row\n" if variables else ""
    names: dict[str, Any] = {**runtime_names(bounded=is_bounded()), **scope.constants}
    exec(f"def compute(row):\n{unpack}    return ({values})\n", names)
    return names["compute"]
