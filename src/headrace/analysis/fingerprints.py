"""Descriptions, fingerprints and identities of flows and operators, and differences between flows.

A description is plain JSON data, equal across processes and unchanged by edits without effect: line numbers,
comments, memory addresses and names of local variables are not included.
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
from difflib import SequenceMatcher
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from headrace.analysis.column_lineage import live_columns
from headrace.expr.tree import Column
from headrace.graph.graph_algorithms import adjacency_lists, strongly_connected_components
from headrace.graph.node import described_name, function_name, user_name
from headrace.operators.endpoints import SourceOperator
from headrace.operators.rows import Select

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from headrace.expr.types import Schema
    from headrace.graph.node import FlowGraph, Node

Json: TypeAlias = Any
"""Values that JSON preserves exactly: None, bool, int, str, list, dict with str keys."""


Description: TypeAlias = "dict[str, Any]"
"""Description of a node, as made by `describe_nodes`."""


def describe_nodes(graph: FlowGraph) -> list[dict[str, Json]]:
    """Describe each node, in order, as JSON data that is the same in every process.

    kind, parameters, schema and inputs (positions of other nodes) enter the fingerprint; name and text are
    for people.
    """
    return [_describe(graph, node) for node in graph.nodes]


def fingerprint(graph: FlowGraph) -> str:
    """Hash a flow. Flows with equal hashes can use each other's state."""
    return fingerprint_from_description(describe_nodes(graph))


def fingerprint_from_description(description: list[dict[str, Json]]) -> str:
    """Return the fingerprint of a flow given by its description."""
    text = json.dumps(
        [fingerprinted_part(node) for node in description], sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _describe(graph: FlowGraph, node: Node) -> dict[str, Json]:
    return {
        "kind": node.operator.kind,
        "name": user_name(graph, node),
        "text": node.operator.describe(),
        "parameters": _parameters(node.operator),
        "schema": _schema(node.schema),
        "inputs": list(node.inputs),
    }


def _parameters(operator: Any) -> dict[str, Json]:
    alterable = {f.name for f in dataclasses.fields(operator) if f.metadata.get("alterable")}
    return {name: value for name, value in dataclass_parameters(operator).items() if name not in alterable}


def _schema(schema: Schema) -> Json:
    return {
        "scalar": schema.scalar,
        "columns": [[f.name, str(f.type), f.nullable] for f in schema.fields],
    }


def add_live_columns(description: Sequence[Description], graph: FlowGraph) -> list[Description]:
    """Add the live columns to a description, so that other columns may be added or removed.

    live:    columns of a node that its readers depend on, if its rows do not depend on the others; else None.
    narrows: columns of a node that only leaves out others; else None.
    """
    return [
        {
            **described,
            "live": _ordered(node.schema, live) if _is_independent(node) else None,
            "narrows": _narrowed(node),
        }
        for described, node, live in zip(description, graph.nodes, live_columns(graph), strict=True)
    ]


def _is_independent(node: Node) -> bool:
    """Return whether each column of a node is computed independently of its other columns."""
    return isinstance(node.operator, SourceOperator) or node.operator.row_by_row


def _ordered(schema: Schema, columns: AbstractSet[str]) -> list[str]:
    return [name for name in schema.names if name in columns]


def _narrowed(node: Node) -> list[str] | None:
    if not isinstance(node.operator, Select) or node.schema.scalar:
        return None
    same = all(isinstance(value, Column) and value.name == name for name, value in node.operator.columns)
    return list(node.schema.names) if same else None


def node_identities(description: Sequence[Description]) -> list[str]:
    """Return the identity of each node, in order.

    Columns that nobody reads are no part of it, where the description tells which these are.
    """
    own = [_hash(_alone(node)) for node in description]
    found: list[str] = [""] * len(own)
    reads = [(source, at) for at, node in enumerate(description) for source in node["inputs"]]
    # In reverse topological order, so that readers come first.
    for group in reversed(strongly_connected_components(adjacency_lists(len(own), reads))):
        inside = set(group)
        if (source := _narrowed_input(description, group)) is not None:
            found[group[0]] = found[source]
            continue
        now = {at: own[at] for at in group}
        # In a loop, nodes depend on their readers: as many rounds as it has members distinguish them.
        for _ in group:
            now = {
                at: _hash([own[at], [now[i] if i in inside else found[i] for i in description[at]["inputs"]]])
                for at in group
            }
        for at, identity in now.items():
            found[at] = identity
    return found


def _narrowed_input(description: Sequence[Description], group: Sequence[int]) -> int | None:
    """Return the input of a node that drops exactly its unread columns; None for other nodes."""
    node = description[group[0]]
    if len(group) > 1 or node.get("narrows") is None or group[0] in node["inputs"]:
        return None
    source: int = node["inputs"][0]
    read: Description = description[source]
    return source if read.get("live") == node["narrows"] else None


def _alone(node: Description) -> list[Any]:
    kind, parameters, schema = node["kind"], node["parameters"], node["schema"]
    if (live := node.get("live")) is not None:
        schema = {**schema, "columns": [column for column in schema["columns"] if column[0] in live]}
        if kind == SourceOperator.kind:
            parameters = {**parameters, "schema": schema}
    return without_display_parts([kind, parameters, schema])


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def render_flow_diff(old: Sequence[Description], new: Sequence[Description]) -> str:
    """Render one line per operator added, removed or changed; empty for equal fingerprints."""
    if [fingerprinted_part(node) for node in old] == [fingerprinted_part(node) for node in new]:
        return ""
    pairs = _pairs(old, new)
    now = dict(pairs)
    lines = [f"removed  {label_from_description(old[i])}" for i in range(len(old)) if i not in now]
    then = {b: a for a, b in pairs}
    for at, node in enumerate(new):
        if at not in then:
            lines.append(f"added    {label_from_description(node)}")
        else:
            lines += [
                f"changed  {label_from_description(node)}: {c}" for c in _changes(old, new, then[at], at, now)
            ]
    if not lines and [i for i, _ in pairs] != [j for _, j in pairs]:
        lines = ["the same operators are written in another order"]
    return "\n".join(lines)


def fingerprinted_part(node: Description) -> list[Any]:
    """Return the part of a description that enters the fingerprint."""
    return without_display_parts([node[key] for key in ("kind", "parameters", "schema", "inputs")])


def _pairs(old: Sequence[Description], new: Sequence[Description]) -> list[tuple[int, int]]:
    """Match operators one to one: by name, else by parameters, else by kind."""
    pairs: list[tuple[int, int]] = []
    for key in (_named, _whole, _kind):
        left = _keyed(old, key, {a for a, _ in pairs})
        right = _keyed(new, key, {b for _, b in pairs})
        matcher = SequenceMatcher(a=[k for k, _ in left], b=[k for k, _ in right], autojunk=False)
        for block in matcher.get_matching_blocks():
            pairs += [(left[block.a + at][1], right[block.b + at][1]) for at in range(block.size)]
    return pairs


def _keyed(nodes: Sequence[Description], key: Any, taken: set[int]) -> list[tuple[tuple[str, ...], int]]:
    keyed = [(key(node), at) for at, node in enumerate(nodes) if at not in taken]
    return [(k, at) for k, at in keyed if k is not None]


def _named(node: Description) -> tuple[str, ...] | None:
    return (node["kind"], node["name"]) if node["name"] else None


def _whole(node: Description) -> tuple[str, ...]:
    return (node["kind"], repr(without_display_parts(node["parameters"])))


def _kind(node: Description) -> tuple[str, ...]:
    return (node["kind"],)


def _changes(
    old: Sequence[Description], new: Sequence[Description], before: int, after: int, now: dict[int, int]
) -> Iterator[str]:
    was, is_ = old[before], new[after]
    other_columns = was["schema"] != is_["schema"]
    if other_columns:
        yield from _changed_columns(was["schema"], is_["schema"])
    if without_display_parts(was["parameters"]) != without_display_parts(is_["parameters"]):
        if was["text"] != is_["text"]:
            yield f"was {was['text'] or 'without parameters'}, is {is_['text'] or 'without'}"
        elif not other_columns:
            yield from _changed_parameters(was["parameters"], is_["parameters"])
    if [now.get(i) for i in was["inputs"]] != is_["inputs"]:
        yield f"read {_labels(old, was['inputs'])}, reads {_labels(new, is_['inputs'])}"


def _changed_parameters(was: Description, is_: Description) -> Iterator[str]:
    for name, value in is_.items():
        if without_display_parts(was.get(name)) == without_display_parts(value):
            continue
        if is_callable(value) and is_callable(was.get(name)):
            before, after = was[name]["python"], value["python"]
            reason = "was edited" if before == after else f"is compiled by Python {after}, was by {before}"
            yield f"{value['name']} {reason}"
        else:
            yield f"{name} is another"


def _changed_columns(was: Description, is_: Description) -> Iterator[str]:
    before = {c[0]: _type(c) for c in was["columns"]}
    after = {c[0]: _type(c) for c in is_["columns"]}
    lines = [f"column {n} is gone" for n in before if n not in after]
    lines += [f"column {n} is new" for n in after if n not in before]
    both = [n for n in after if n in before]
    lines += [f"column {n} is {after[n]}, was {before[n]}" for n in both if before[n] != after[n]]
    yield from lines or ["its columns are in another order"]


def _type(column: list[Any]) -> str:
    return f"{column[1]}{'?' if column[2] else ''}"


def _labels(nodes: Sequence[Description], at: Sequence[int]) -> str:
    return " and ".join(label_from_description(nodes[i]) for i in at)


def label_from_description(node: Description) -> str:
    """Return the label of a node by kind, name and source location, as far as known."""
    text = f"{node['kind']} {node['name']!r}" if node["name"] else f"{node['kind']} ({node['text']})"
    label = text if node["name"] or node["text"] else node["kind"]
    return f"{label} at {node['place']}" if node.get("place") else label


@functools.singledispatch
def to_canonical_data(value: object) -> Json:
    """Convert to plain data, equal if and only if the values are equal.

    Objects other than plain values, dataclasses and functions are represented by type and plain attributes.
    """
    return _callable_object(value) if callable(value) else _object(value)


def dataclass_parameters(value: object) -> dict[str, Json]:
    """Convert a dataclass instance's compared fields, except `ADDED_LATER` ones with their default."""
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
        return {"is": described_name(type(value))} | dataclass_parameters(value)
    attributes: dict[str, object] = getattr(value, "__dict__", {})
    plain = {name: to_canonical_data(v) for name, v in sorted(attributes.items()) if isinstance(v, _PLAIN)}
    return {"is": _qualified(type(value))} | ({"has": plain} if plain else {})


_PLAIN = (type(None), bool, int, float, str, bytes, Decimal, datetime.date, datetime.timedelta, Enum)


def _callable(name: str, parts: Json) -> Json:
    """Describe a function. `name` and `python` are for human readers; only the hash identifies it."""
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
    """Convert a value captured by a function. Mutable values are represented by their type only."""
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
