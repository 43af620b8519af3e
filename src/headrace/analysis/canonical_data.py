"""Canonical plain data for anything in a flow: equal across processes, and unchanged by edits without effect.

Line numbers, comments, memory addresses and names of local variables are not included.
"""

from __future__ import annotations

import dataclasses
import datetime
import dis
import functools
import hashlib
import inspect
import json
import sys
import types
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, TypeAlias, cast

from headrace.graph.node import function_name

Json: TypeAlias = Any
"""Values that JSON preserves exactly: None, bool, int, str, list, dict with str keys."""


@functools.singledispatch
def to_canonical_data(value: object) -> Json:
    """Convert to plain data that is equal exactly for equal values.

    Objects other than plain values, dataclasses and functions are represented by type and plain attributes.
    """
    return _callable_object(value) if callable(value) else _object(value)


def dataclass_parameters(value: object) -> dict[str, Json]:
    """Convert the compared fields of a dataclass instance, but no `ADDED_LATER` one that has its default."""
    given = ((f, getattr(value, f.name)) for f in dataclasses.fields(cast("Any", value)) if f.compare)
    return {
        f.name: to_canonical_data(item)
        for f, item in given
        if not (f.metadata.get("added_later") and item == f.default)
    }


def without_display_parts(value: Json) -> Json:
    """Drop the parts of a description that are only for human readers."""
    if is_callable(value):
        return {"is": "callable", "code": value["code"]}
    if isinstance(value, dict):
        return {key: without_display_parts(item) for key, item in cast("dict[str, Json]", value).items()}
    return (
        [without_display_parts(item) for item in cast("list[Json]", value)]
        if isinstance(value, list)
        else value
    )


def is_callable(value: Json) -> bool:
    """Return whether a part of a description represents a function."""
    return isinstance(value, dict) and cast("dict[str, Json]", value).get("is") == "callable"


@to_canonical_data.register(type(None))
@to_canonical_data.register(int)
@to_canonical_data.register(str)
def _plain(value: object) -> Json:
    return value


@to_canonical_data.register(bool)  # True would equal 1
@to_canonical_data.register(float)
@to_canonical_data.register(complex)
@to_canonical_data.register(Decimal)
@to_canonical_data.register(datetime.date)
@to_canonical_data.register(datetime.time)
@to_canonical_data.register(datetime.timedelta)
def _by_repr(value: object) -> Json:
    return {"is": type(value).__name__, "value": repr(value)}


@to_canonical_data.register(bytes)
def _bytes(value: bytes) -> Json:
    return {"is": "bytes", "value": value.hex()}


@to_canonical_data.register(Enum)
def _enum(value: Enum) -> Json:
    return {"is": type(value).__name__, "value": value.name}


@to_canonical_data.register(tuple)
@to_canonical_data.register(list)
def _sequence(value: Iterable[object]) -> Json:
    return [to_canonical_data(item) for item in value]


@to_canonical_data.register(set)
@to_canonical_data.register(frozenset)
def _set(value: Iterable[object]) -> Json:
    # The order of a set of strings differs from process to process.
    return {"is": "set", "items": sorted((to_canonical_data(item) for item in value), key=_text)}


@to_canonical_data.register(dict)
def _dict(value: Mapping[object, object]) -> Json:
    items = [[to_canonical_data(k), to_canonical_data(v)] for k, v in value.items()]
    return {"is": "dict", "items": sorted(items, key=_text)}


@to_canonical_data.register(type)
@to_canonical_data.register(types.BuiltinFunctionType)
@to_canonical_data.register(types.MethodDescriptorType)
@to_canonical_data.register(types.WrapperDescriptorType)
@to_canonical_data.register(types.ModuleType)
def _by_name(value: Any) -> Json:
    return {"is": "named", "name": _qualified(value)}


@to_canonical_data.register(functools.partial)
def _partial(value: functools.partial[object]) -> Json:
    given = [to_canonical_data(value.func), to_canonical_data(value.args), to_canonical_data(value.keywords)]
    return _callable(f"partial of {function_name(value.func)}", given)


@to_canonical_data.register(types.MethodType)
def _method(value: types.MethodType) -> Json:
    return _callable(function_name(value), [to_canonical_data(value.__func__), _object(value.__self__)])


@to_canonical_data.register(types.FunctionType)
def _function(value: types.FunctionType) -> Json:
    return _callable(_qualified(value), function_parts(value, set()))


def _callable_object(value: object) -> Json:
    call = type(value).__call__  # pyright: ignore[reportFunctionMemberAccess, reportUnknownVariableType, reportUnknownMemberType, reportAttributeAccessIssue]
    if isinstance(call, types.FunctionType):
        return _callable(_qualified(type(value)), [to_canonical_data(call), _object(value)])
    if (wrapped := getattr(value, "__wrapped__", None)) is not None:
        return to_canonical_data(wrapped)
    return _callable(_qualified(type(value)), _pickled(value))


def _pickled(value: object) -> Json:
    """Return the state of a callable that is not written in Python, such as `itemgetter(1)`."""
    try:
        made = value.__reduce__()
    except TypeError:
        return _object(value)
    return made if isinstance(made, str) else to_canonical_data(made[:2])


def _object(value: object) -> Json:
    """Convert a dataclass by its fields, and any other object by its type and plain attributes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"is": type(value).__name__} | dataclass_parameters(value)
    attributes: dict[str, object] = getattr(value, "__dict__", {})
    plain = {name: to_canonical_data(v) for name, v in sorted(attributes.items()) if isinstance(v, _PLAIN)}
    return {"is": _qualified(type(value))} | ({"has": plain} if plain else {})


_PLAIN = (type(None), bool, int, float, str, bytes, Decimal, datetime.date, datetime.timedelta, Enum)


def _callable(name: str, parts: Json) -> Json:
    """Describe a function. `name` and `python` are for human readers; only the hash is its identity."""
    code = hashlib.sha256(_text(parts).encode()).hexdigest()
    return {
        "is": "callable",
        "name": name,
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "code": code,
    }


def function_parts(function: types.FunctionType, seen: set[types.CodeType]) -> Json:
    """Return the code, defaults, closed-over values, and functions of the same module called by name."""
    if function.__code__ in seen:
        return "recursive"
    seen.add(function.__code__)
    called = [function.__globals__.get(name) for name in function.__code__.co_names]
    return [
        _code(function.__code__),
        to_canonical_data(function.__defaults__),
        to_canonical_data(function.__kwdefaults__),
        [_cell(cell, seen) for cell in function.__closure__ or ()],
        [
            function_parts(f, seen)
            for f in called
            if isinstance(f, types.FunctionType) and f.__module__ == function.__module__
        ],
    ]


def _cell(cell: types.CellType, seen: set[types.CodeType]) -> Json:
    try:
        value = cell.cell_contents
    except ValueError:
        return "empty"
    return function_parts(value, seen) if isinstance(value, types.FunctionType) else _state(value)


def _state(value: object) -> Json:
    """Convert a value that a function holds. Mutable values are represented by their type only."""
    kind = type(value)
    return {"is": kind.__name__} if kind in (list, dict, set, bytearray) else to_canonical_data(value)


def _code(code: types.CodeType) -> Json:
    # Instructions with their constants and names instead of bytecode, because a docstring shifts the
    # constants.
    return [
        [[i.opname, _argument(i)] for i in dis.get_instructions(code)],
        code.co_exceptiontable.hex(),
        [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _MEANING],
    ]


_MEANING = (
    inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
    | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
)


def _argument(instruction: dis.Instruction) -> Json:
    if instruction.opcode in dis.hasconst:
        value = instruction.argval
        return _code(value) if isinstance(value, types.CodeType) else to_canonical_data(value)
    return instruction.argval if instruction.opcode in dis.hasname else instruction.arg


def _qualified(value: Any) -> str:
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", type(value).__name__)
    return f"{module}.{name}" if module else str(name)


def _text(value: Json) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
