"""Typing of functions of lists and maps: parameters whose types depend on the other arguments of a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from headrace.expr.dict_keys import has_representatives
from headrace.expr.function_bases import Emitter, GuardedSource, Parameter, StrictFunction, fitting_type
from headrace.expr.sort_keys import order_key
from headrace.expr.types import DataType, ListType, MapType, holds_maps
from headrace.expr.typing_rules import NULL, Arguments, CallTerm, LiteralTerm, Mismatch, Signature, Term
from headrace.expr.widening import common_type, is_float


class _Part(DataType):
    """Parameter whose type depends on the lists and maps of a call."""

    __slots__ = ()


class _List(_Part):
    __slots__ = ()


class _Element(_Part):
    __slots__ = ()


class _Map(_Part):
    __slots__ = ()


class _Key(_Part):
    __slots__ = ()


LIST, ELEMENT = _List(), _Element()
"""A list, and a value of the type of its elements. All lists of a call have one type of elements."""

MAP, KEY = _Map(), _Key()
"""A map, and a value of the type of its keys. All maps of a call have one type of keys, and one of values."""

Result: TypeAlias = Callable[[tuple[DataType, ...]], DataType]
Nullable: TypeAlias = Callable[[Arguments], bool]


def list_type(name: str, argument: Term) -> ListType:
    """Return the type of an argument that is a list. Raises `Mismatch` for others."""
    if not isinstance(argument.type, ListType):
        raise Mismatch(f"{name} needs a list, got {argument.type}")
    return argument.type


def map_type(name: str, argument: Term) -> MapType:
    """Return the type of an argument that is a map. Raises `Mismatch` for others."""
    if not isinstance(argument.type, MapType):
        raise Mismatch(f"{name} needs a map, got {argument.type}")
    return argument.type


def known_type(name: str, what: str, terms: list[Term]) -> DataType:
    """Return the narrowest type that holds all of some parts. Raises `Mismatch` if there are only nulls."""
    common = common_type(terms)
    if common == NULL:
        raise Mismatch(f"the type of the {what} of {name} is not known", fix="give them one: lit(None, int)")
    return common


def key_type(name: str, terms: list[Term]) -> DataType:
    """Return the type of keys that holds all of some. Raises `Mismatch`."""
    common = known_type(name, "keys", terms)
    if holds_maps(common):
        raise Mismatch(f"{name} cannot have the keys {common}", why="A map is never part of a key.")
    return common


def refuse_maps(name: str, compared: DataType) -> None:
    """Raise `Mismatch` for values that are maps or hold some, which cannot be compared."""
    if holds_maps(compared):
        raise Mismatch(
            f"{name} cannot compare {compared}",
            why="Maps have no order, and Spark compares none.",
            fix="compare their sorted entries: array_sort(map_entries(col.m))",
        )


def part_types(
    name: str, arguments: Arguments, takes: tuple[Parameter, ...], *, compares: bool = False
) -> tuple[DataType, ...]:
    """Return the types that the arguments convert to: parts all have the narrowest that holds all.

    compares: whether elements are compared, so that they cannot be maps.
    """
    elements: list[Term] = []
    keys: list[Term] = []
    values: list[Term] = []
    for argument, parameter in zip(arguments, takes, strict=False):
        if parameter == LIST and argument.type != NULL:
            found = list_type(name, argument)
            elements.append(Term(found.element, found.nullable))
        elif parameter == ELEMENT:
            elements.append(argument)
        elif parameter == MAP and argument.type != NULL:
            entries = map_type(name, argument)
            keys.append(Term(entries.key, False))
            values.append(Term(entries.value, entries.nullable))
        elif parameter == KEY:
            keys.append(argument)
    element = known_type(name, "elements", elements) if LIST in takes else NULL
    key = known_type(name, "keys", keys) if MAP in takes else NULL
    value = known_type(name, "values", values) if MAP in takes else NULL
    if compares:
        refuse_maps(name, element)

    def wanted(argument: Term, parameter: Parameter) -> DataType:
        nullable = isinstance(argument.type, ListType | MapType) and argument.type.nullable
        if parameter == LIST:
            return ListType(element, nullable)
        if parameter == MAP:
            return MapType(key, value, nullable)
        if parameter == ELEMENT:
            return element
        return key if parameter == KEY else fitting_type(name, argument.type, parameter)

    return tuple(wanted(a, p) for a, p in zip(arguments, takes, strict=False))


def of_parts(
    name: str,
    meaning: str,
    takes: tuple[Parameter, ...],
    result: DataType | Result,
    source: str,
    *,
    nullable: Nullable | None = None,
    fallible: bool = False,
    one_zero: bool = False,
    constant: tuple[int, ...] = (),
    compares: bool = True,
) -> StrictFunction:
    """Build a function that is null if an argument is.

    result:   LIST or MAP is the type of the first argument, ELEMENT that of its elements.
    source:   of the value, with the operands as {0}, {1} ... or all of them as {all}; {key} is the key by
              which elements are sorted, or None.
    one_zero: whether elements of the value have one zero, and so have those of the lists.
    constant: positions of arguments that must be constants.
    compares: whether elements are compared, so that they cannot be maps.
    nullable: whether it can be null, by the arguments; None: if one of them can.
    """

    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        types = part_types(name, arguments, takes, compares=compares)
        for at in constant:
            if not isinstance(arguments[at], LiteralTerm):
                raise Mismatch(f"argument {at + 1} of {name} must be a constant")
        first = types[0]
        if not isinstance(result, DataType):
            made = result(types)
        elif result == ELEMENT:
            assert isinstance(first, ListType)
            made = first.element
        else:
            made = first if result in (LIST, MAP) else result
        return Signature(types, made, None if nullable is None else nullable(arguments))

    def python(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
        found = [
            emitter.canonical(GuardedSource(operand, (), False)) if is_float(argument.type) else operand
            for operand, argument in zip(operands, call.arguments, strict=True)
        ]
        if one_zero and has_representatives(call.arguments[0].type):
            found = [f"x_key({operand})" for operand in found]
        key = "None"
        if "{key}" in source:
            values = call.arguments[0].type
            assert isinstance(values, ListType)
            key = emitter.constant(order_key(values.element, values.nullable))
        return source.format(*found, all=", ".join(found), key=key)

    return StrictFunction(
        name,
        rule,
        python,
        fallible,
        keeps_nan=True,
        nullable=nullable is not None,
        arity=(len(takes), len(takes)),
        meaning=meaning,
    )


def also_of_maps(of_lists: StrictFunction, of_maps: StrictFunction) -> StrictFunction:
    """Build a function of lists that is another one for maps. Its first argument tells which."""

    def chosen(first: Term) -> StrictFunction:
        return of_maps if isinstance(first.type, MapType) else of_lists

    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        return chosen(arguments[0]).rule(arguments, options)

    def python(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
        return chosen(call.arguments[0]).python(emitter, call, operands)

    def fallible(call: CallTerm) -> bool:
        found = chosen(call.arguments[0]).fallible
        return found if isinstance(found, bool) else found(call)

    meaning = of_lists.meaning.removesuffix(".") + "; of a map, the value of a key, null without it."
    return replace(of_lists, rule=rule, python=python, fallible=fallible, meaning=meaning)


def always(arguments: Arguments) -> bool:
    return True
