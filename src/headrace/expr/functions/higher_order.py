"""Higher-order functions over list elements and map entries, and their lambdas.

A function is the term of a call of "lambda": its argument is the body, its options are the names of its
variables in generated code. A variable is a call of "variable" with such a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cmp_to_key, reduce
from typing import Any

from headrace.errors import EvaluationError
from headrace.expr.function_records import (
    function,
    is_names,
    is_text,
    list_type,
    refuse_maps,
)
from headrace.expr.types import BOOL, INT32, ListType, MapType
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Emitter,
    Function,
    GuardedSource,
    Mismatch,
    Signature,
    Term,
    TypeAndNullability,
    nullable_within,
    wider_type,
)
from headrace.expr.value_keys import order_key

Parameters = tuple[TypeAndNullability, ...]


def is_function(term: Term) -> bool:
    """Return whether a term is a lambda."""
    return isinstance(term, CallTerm) and term.function is LAMBDA


def _element(name: str, argument: Term) -> TypeAndNullability:
    values = list_type(name, argument)
    return TypeAndNullability(values.element, values.nullable)


def _element_and_position(name: str) -> Callable[[Arguments], Parameters]:
    def parameters(before: Arguments) -> Parameters:
        check_place(name, before, 1)
        return (_element(name, before[0]), TypeAndNullability(INT32, False))

    return parameters


def check_place(name: str, before: Arguments, *places: int) -> None:
    if len(before) not in places:
        raise Mismatch(f"argument {len(before) + 1} of {name} is a value, got a function")


def _function(name: str, arguments: Arguments, at: int) -> CallTerm:
    """Return an argument that must be a lambda."""
    found = arguments[at]
    if not isinstance(found, CallTerm) or not is_function(found):
        raise Mismatch(f"{name} needs a function, got {found.type}", fix=f"{name}(col.xs, lambda x: ...)")
    if found.type == NULL:
        raise Mismatch(f"the function of {name} gives null of no type", fix="give it one: lit(None, int)")
    return found


def _transform_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    function = _function("transform", arguments, 1)
    return Signature(
        (arguments[0].type, function.type), ListType(function.type, function.nullable), arguments[0].nullable
    )


def condition_of(name: str, arguments: Arguments) -> CallTerm:
    function = _function(name, arguments, 1)
    if function.type != BOOL:
        raise Mismatch(f"the function of {name} gives {function.type}, not bool")
    return function


def _filter_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    condition_of("filter", arguments)
    values = arguments[0].type
    return Signature((values, BOOL), values, arguments[0].nullable)


def _quantifier_rule(name: str) -> Callable[[Arguments, tuple[object, ...]], Signature]:
    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        condition = condition_of(name, arguments)
        return Signature((arguments[0].type, BOOL), BOOL, arguments[0].nullable or condition.nullable)

    return rule


def _loop(emitter: Emitter, call: CallTerm) -> tuple[str, str, str, CallTerm]:
    """Return the source of the list or map (guard and name) and of the loop over it, and the lambda."""
    values, function = call.arguments
    assert isinstance(function, CallTerm)
    first, again = emitter.name_value(emitter.value(values))
    names = [str(name) for name in function.options]
    if isinstance(values.type, MapType):
        return first, again, f"for {names[0]}, {names[1]} in {again}", function
    if len(names) == 1:
        return first, again, f"for {names[0]} in {again}", function
    return first, again, f"for {names[1]}, {names[0]} in enumerate({again})", function


def _guarded(source: str, first: str, again: str, nullable: bool) -> GuardedSource:
    """Return the code of a value that uses the list bound by `first`."""
    return GuardedSource(source, (first,) if nullable or first != again else ())


def comprehension(template: str) -> Callable[[Emitter, CallTerm], GuardedSource]:
    """Return the code of a loop.

    template: its source, with {body}, {true}: whether it is, the variables {each} and {other}, and {loop}.
    """

    def python(emitter: Emitter, call: CallTerm) -> GuardedSource:
        first, again, loop, function = _loop(emitter, call)
        (body,) = function.arguments
        source = template.format(
            body=emitter.value(body) if "{body}" in template else "",
            true=emitter.truth_test(body) if "{true}" in template else "",
            each=function.options[0],
            other=function.options[-1],
            loop=loop,
        )
        if call.type != BOOL or not function.nullable:
            return _guarded(source, first, again, call.arguments[0].nullable)
        # The value may be null although the list is not.
        name = emitter.fresh()
        guards = (first,) if call.arguments[0].nullable or first != again else ()
        return GuardedSource(name, (*guards, f"({name} := {source})"))

    return python


def any_true(values: Iterable[bool | None]) -> bool | None:
    """Return whether a value is true; null if none is and one is null."""
    found: bool | None = False
    for value in values:
        if value:
            return True
        if value is None:
            found = None
    return found


def all_true(values: Iterable[bool | None]) -> bool | None:
    """Return whether all values are true; null if none is false and one is null."""
    found: bool | None = True
    for value in values:
        if value is False:
            return False
        if value is None:
            found = None
    return found


# -- folds ---------------------------------------------------------------------------------------


def _aggregate_parameters(before: Arguments) -> Parameters:
    check_place("aggregate", before, 2, 3)
    if before[1].type == NULL:
        raise Mismatch("the first value of aggregate has no type", fix="give it one: lit(0, int)")
    total = TypeAndNullability(nullable_within(before[1].type), True)
    return (total,) if len(before) == 3 else (total, _element("aggregate", before[0]))


def _aggregate_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    values, first = arguments[:2]
    merge = function_of("aggregate", arguments, 2, 2)
    total = nullable_within(first.type)
    if wider_type(total, merge.type) != total:
        raise Mismatch(
            f"aggregate starts with {first.type}, and its function gives {merge.type}",
            fix=f"start with {merge.type}, or cast what the function gives",
        )
    types = (values.type, total, total)
    if len(arguments) == 3:
        return Signature(types, total, True)
    finish = function_of("aggregate", arguments, 3, 1)
    return Signature((*types, finish.type), finish.type, values.nullable or finish.nullable)


def _aggregate(emitter: Emitter, call: CallTerm) -> GuardedSource:
    values, start, *functions = call.arguments
    first, again = emitter.name_value(emitter.value(values))
    merge, *finish = (_python_function(emitter, each) for each in functions)
    source = f"x_reduce({merge}, {again}, {emitter.value(start)})"
    if finish:
        source = f"({finish[0]})({source})"
    return GuardedSource(
        f"(None if {first} is None else {source})" if values.nullable or first != again else source
    )


def _python_function(emitter: Emitter, function: Term) -> str:
    assert isinstance(function, CallTerm)
    return f"lambda {', '.join(map(str, function.options))}: {emitter.value(function.arguments[0])}"


# -- of two --------------------------------------------------------------------------------------


def _zip_parameters(before: Arguments) -> Parameters:
    check_place("zip_with", before, 2)
    return tuple(TypeAndNullability(list_type("zip_with", each).element, True) for each in before)


def _zip_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    one, other, _ = arguments
    function = function_of("zip_with", arguments, 2, 2)
    made = ListType(function.type, function.nullable)
    return Signature((one.type, other.type, function.type), made, one.nullable or other.nullable)


def function_of(name: str, arguments: Arguments, at: int, number: int) -> CallTerm:
    """Return an argument that must be a function of `number` arguments."""
    function = _function(name, arguments, at)
    if len(function.options) != number:
        raise Mismatch(f"{name} needs a function of {number} arguments, got one of {len(function.options)}")
    return function


def zip_loop(template: str) -> Callable[[Emitter, CallTerm], GuardedSource]:
    """Return the code of a loop over two lists or maps.

    template: its source, with {body}, {variables}, the {first} of them, and {both} lists or maps.
    """

    def python(emitter: Emitter, call: CallTerm) -> GuardedSource:
        one, other, function = call.arguments
        assert isinstance(function, CallTerm)
        names = [emitter.name_value(emitter.value(each)) for each in (one, other)]
        guards = tuple(first for first, again in names if first != again) + tuple(
            again
            for each, (first, again) in zip((one, other), names, strict=True)
            if each.nullable and first == again
        )
        source = template.format(
            body=emitter.value(function.arguments[0]),
            first=function.options[0],
            variables=", ".join(map(str, function.options)),
            both=", ".join(again for _, again in names),
        )
        return GuardedSource(source, guards)

    return python


def _order_parameters(before: Arguments) -> Parameters:
    check_place("array_sort", before, 1)
    return (_element("array_sort", before[0]),) * 2


def _order_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    values = list_type("array_sort", arguments[0])
    if len(arguments) == 1:
        refuse_maps("array_sort", values)
        return Signature((values,), values)
    function = function_of("array_sort", arguments, 1, 2)
    if function.type != INT32:
        raise Mismatch(
            f"the function of array_sort gives {function.type}, not int32", fix="cast it: .cast(Int32)"
        )
    return Signature((values, INT32), values, arguments[0].nullable)


def _order(emitter: Emitter, call: CallTerm) -> GuardedSource:
    values = call.arguments[0]
    first, again = emitter.name_value(emitter.value(values))
    if len(call.arguments) == 1:
        assert isinstance(values.type, ListType)
        key = emitter.constant(order_key(values.type.element, values.type.nullable))
        source = f"x_array_sort({again}, {key})"
    else:
        source = f"x_array_sort_by({again}, {_python_function(emitter, call.arguments[1])})"
    return _guarded(source, first, again, values.nullable)


def array_sort(values: tuple[Any, ...], key: Any) -> tuple[Any, ...]:
    """Sort a list in ascending order, nulls last."""
    present = sorted((each for each in values if each is not None), key=key)
    return (*present, *(None,) * (len(values) - len(present)))


def array_sort_by(values: tuple[Any, ...], compare: Callable[[Any, Any], int | None]) -> tuple[Any, ...]:
    """Sort a list by a comparison with a negative, zero or positive result. Raises for null."""

    def compared(one: Any, other: Any) -> int:
        found = compare(one, other)
        if found is None:
            raise EvaluationError("the function of array_sort gave null for two elements")
        return found

    return tuple(sorted(values, key=cmp_to_key(compared)))


# -- functions themselves --------------------------------------------------------------------------


def _no_value(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    raise Mismatch("a lambda is not a value")


def _body(emitter: Emitter, call: CallTerm) -> GuardedSource:
    return emitter.code(call.arguments[0])


def _variable(emitter: Emitter, call: CallTerm) -> GuardedSource:
    name = str(call.options[0])
    return GuardedSource(name, (name,) if call.nullable else ())


LAMBDA = function("lambda", types=_no_value, lazy=_body, arity=(1, 1), options=(is_names,), keeps_size=True)
VARIABLE = function(
    "variable", types=_no_value, lazy=_variable, arity=(0, 0), options=(is_text,), keeps_size=True
)

NAMES: dict[str, Any] = {
    "x_all_true": all_true,
    "x_any_true": any_true,
    "x_array_sort": array_sort,
    "x_array_sort_by": array_sort_by,
    "x_reduce": reduce,
}

FUNCTIONS: tuple[Function, ...] = (
    LAMBDA,
    VARIABLE,
    function(
        "transform",
        "Results of a function of each element, or of element and position from 0.",
        types=_transform_rule,
        lazy=comprehension("tuple([{body} {loop}])"),
        parameters=_element_and_position("transform"),
        arity=(2, 2),
        shown_parameters="list, function",
        example="array(1, 2), lambda x: x * 10",
        catalyst="ArrayTransform",
        keeps_size=True,
    ),
    function(
        "filter",
        "The elements for which a function of element, or element and position from 0, is true.",
        types=_filter_rule,
        lazy=comprehension("tuple([{each} {loop} if {true}])"),
        parameters=_element_and_position("filter"),
        arity=(2, 2),
        shown_parameters="list, function",
        example="array(1, 2, 3), lambda x: x > 1",
        catalyst="ArrayFilter",
        keeps_size=True,
    ),
    function(
        "exists",
        "Whether the function is true for an element; null if it isn't but is null for one.",
        types=_quantifier_rule("exists"),
        lazy=comprehension("x_any_true({body} {loop})"),
        parameters=lambda before: _element_and_position("exists")(before)[:1],
        most_variables=1,
        arity=(2, 2),
        shown_parameters="list, function",
        example="array(1, 2), lambda x: x > 1",
        catalyst="ArrayExists",
    ),
    function(
        "forall",
        "Whether the function is true for all elements; null if null for one and false for none.",
        types=_quantifier_rule("forall"),
        lazy=comprehension("x_all_true({body} {loop})"),
        parameters=lambda before: _element_and_position("forall")(before)[:1],
        most_variables=1,
        arity=(2, 2),
        shown_parameters="list, function",
        example="array(1, 2), lambda x: x > 1",
        catalyst="ArrayForAll",
    ),
    function(
        "aggregate",
        "The elements folded by a function; an optional last function maps the result.",
        types=_aggregate_rule,
        lazy=_aggregate,
        parameters=_aggregate_parameters,
        arity=(3, 4),
        shown_parameters="list, start, merge, finish",
        example="array(1, 2, 3), 0, lambda sum, x: sum + x",
        keeps_size=True,
    ),
    function(
        "zip_with",
        "Results of a function of the elements at equal positions, null where a list is shorter.",
        types=_zip_rule,
        lazy=zip_loop("tuple([{body} for {variables} in x_zip_longest({both})])"),
        parameters=_zip_parameters,
        arity=(3, 3),
        shown_parameters="list, list, function",
        example="array(1, 2), array(10, 20), lambda x, y: x + y",
        catalyst="ZipWith",
        keeps_size=True,
    ),
    function(
        "array_sort",
        "The list in ascending order with nulls last, or ordered by a comparison of two elements.",
        types=_order_rule,
        lazy=_order,
        fallible=True,
        parameters=_order_parameters,
        arity=(1, 2),
        shown_parameters="list, comparison",
        example="array(3, 1, 2)",
        keeps_size=True,
    ),
)
